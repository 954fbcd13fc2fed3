"""Case 20 with vLLM's own scheduler: full attention and Mamba, blocks of 8,320 tokens, hits in units of 16; as JSON.

python -m tests.support.match_unit MODEL_FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support import drive
from vllm_hitratio_plugin.engine.watch import watch
from vllm_hitratio_plugin.findings.rules import diagnose

BLOCK, UNIT = 8320, 16


class Hybrid(drive.Engine):
    """A scheduler over one group of each kind."""

    def _scheduler(self, blocks: int) -> Any:
        import torch
        from vllm.v1.kv_cache_interface import MambaSpec
        from vllm.v1.structured_output import StructuredOutputManager

        cache = self.config.cache_config
        cache.block_size, cache.mamba_block_size, cache.mamba_cache_mode = BLOCK, BLOCK, "align"
        cache.prefix_match_unit = self.block_size = UNIT
        state = MambaSpec(block_size=BLOCK, shapes=((BLOCK,),), dtypes=(torch.float32,), mamba_cache_mode="align")
        return drive.fitting(
            self.config.scheduler_config.get_scheduler_cls(),
            vllm_config=self.config,
            kv_cache_config=drive.cache_config(blocks, state, drive.full_attention(BLOCK)),
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=BLOCK,
            hash_block_size=UNIT,
            log_stats=True,
        )


def main(model: str) -> None:
    """Six prompts of one conversation."""
    engine = Hybrid(model, 100)
    service = watch(engine.scheduler)
    assert service is not None
    service.refresh()
    idle = diagnose(service.snapshot)
    for turn in range(6):
        engine.add(str(turn), [token % 251 for token in range(2000 + 208 * turn)])
        engine.run()
    service.refresh()
    snapshot = service.snapshot
    counters = snapshot.counters
    assert counters is not None
    result = {
        "tokens": [counters.hit_tokens, counters.prompt_tokens],
        "blocks": [counters.hit_blocks, counters.prompt_blocks],
        "short": counters.short_prompts,
        "units": [snapshot.block_size, snapshot.match_unit, snapshot.max_model_len],
        "degraded": list(snapshot.degraded),
        "idle": [finding.rule for finding in idle],
        "findings": [finding.to_dict() for finding in diagnose(snapshot)],
    }
    print("RESULT", json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
