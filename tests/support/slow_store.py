"""A store of KV cache that takes its time: what a connector does on the scheduler's side, without any data."""

from __future__ import annotations

import random
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class SlowStore(KVConnectorBase_V1):  # type: ignore[misc]  # vLLM has no types here
    """Has a random part of every prompt; half of its loads come at once, the others some steps later."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._random = random.Random(1)
        self._offers: dict[str, tuple[int, bool]] = {}
        #: Requests whose blocks are being loaded, and the steps that it still takes.
        self.loading: dict[str, int] = {}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens beyond the local hit, whole blocks, and whether they come later."""
        blocks = request.num_tokens // 32
        held, later = self._offers.setdefault(
            request.request_id, (self._random.randint(0, 2 * blocks), self._random.random() < 0.5)
        )
        tokens = min(held, blocks) * 32 - num_computed_tokens
        if not later and tokens + num_computed_tokens == request.num_tokens:
            tokens -= 32
        return (tokens, later) if tokens > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Its blocks are allocated."""
        if num_external_tokens and self._offers[request.request_id][1]:
            self.loading[request.request_id] = self._random.randint(1, 8)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing that a worker would need."""
        return KVConnectorMetadata()

    def arrived(self) -> set[str]:
        """Requests whose load ends with this step."""
        for name in self.loading:
            self.loading[name] -= 1
        done = {name for name, left in self.loading.items() if left <= 0}
        for name in done:
            del self.loading[name]
        return done

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        """Nothing: there is no worker."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: there is no worker."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **more: Any) -> None:
        """Nothing: there is no worker."""

    def wait_for_save(self) -> None:
        """Nothing: there is no worker."""
