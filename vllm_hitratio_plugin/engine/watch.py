"""From a vLLM scheduler to the service that watches its KV cache."""

from __future__ import annotations

import logging
from typing import Any

from vllm_hitratio_plugin.engine.probe import cache_facts
from vllm_hitratio_plugin.engine.service import Service
from vllm_hitratio_plugin.settings import Settings

logger = logging.getLogger("vllm.hitratio")


def watch(scheduler: Any) -> Service | None:
    """Watch a scheduler's KV cache from now on; None if it is watched already.

    Raises whatever goes wrong at the start; the caller guards the engine.
    """
    manager = scheduler.kv_cache_manager
    if getattr(manager, "_hitratio_service", None) is not None:
        return None
    parallel = scheduler.vllm_config.parallel_config
    engine = getattr(parallel, "data_parallel_index", None)
    if engine is None:
        engine = getattr(parallel, "data_parallel_rank", 0) or 0
    degraded: dict[str, str] = {}
    settings, wrong = Settings.from_env()
    if wrong:
        degraded["settings"] = "; ".join(wrong) + ": the default is used instead"
        logger.error("hitratio: %s", degraded["settings"])
    service = Service(
        manager,
        cache_facts(manager),
        settings,
        model_name=_model_name(scheduler.vllm_config),
        engine=str(engine),
        local_rank=getattr(parallel, "data_parallel_rank_local", None) or 0,
        degraded=degraded,
    )
    manager._hitratio_service = service
    try:
        service.start()
    except BaseException:
        service.stop()
        raise
    return service


def _model_name(vllm_config: Any) -> str:
    name = vllm_config.model_config.served_model_name
    return name if isinstance(name, str) else str(name[0])
