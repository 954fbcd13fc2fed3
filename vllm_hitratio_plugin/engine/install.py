"""What is prepared in every vLLM process, whether or not the plugin turns out to be enabled."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from multiprocessing import current_process
from types import ModuleType
from typing import Any

from vllm_hitratio_plugin.engine import allowlist, flags
from vllm_hitratio_plugin.engine.patch import wrap_once
from vllm_hitratio_plugin.engine.post_import import when_imported
from vllm_hitratio_plugin.settings import enabled

logger = logging.getLogger("vllm.hitratio")


def install() -> None:
    """Patch each module when it is imported; none of ``vllm.v1.core`` is imported early (docs/vllm.md#vllm-ascend)."""
    when_imported("vllm.engine.arg_utils", flags.add_to)
    when_imported("vllm.v1.core.sched.scheduler", _watch_schedulers)
    when_imported("vllm.v1.metrics.prometheus", _extend_registry)
    when_imported("prometheus_client.multiprocess", _extend_multiprocess)
    if enabled():
        flags.announce()
    # Once a server: children have other names.
    if current_process().name == "MainProcess" and (words := allowlist.advice()):
        logger.warning("hitratio: %s", words)


def _watch_schedulers(module: ModuleType) -> None:
    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for the real one
            original(self, *args, **kwargs)
            # Decided now, not when patched: a forked child has its parent's patches (docs/vllm.md#how-plugins-load).
            if enabled():
                try:
                    from vllm_hitratio_plugin.engine.watch import watch

                    watch(self)
                except Exception:
                    logger.exception("hitratio: could not start; serving goes on without it")
            elif words := flags.unused():
                logger.warning("hitratio: %s", words)

        return __init__

    # vllm-ascend puts a subclass in its place; vLLM's own class is below all of them.
    own = next(base for base in module.Scheduler.__mro__ if base.__module__ == module.__name__)
    wrap_once(own, "__init__", wrap)


def _extend_registry(module: ModuleType) -> None:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_prometheus_registry(*args: Any, **kwargs: Any) -> Any:
            registry = original(*args, **kwargs)
            _show_on(registry)
            return registry

        return get_prometheus_registry

    wrap_once(module, "get_prometheus_registry", wrap)


def _extend_multiprocess(module: ModuleType) -> None:
    """With several API servers the page of ``/metrics`` is made from a new registry at each scrape."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(self: Any, registry: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - as above
            original(self, registry, *args, **kwargs)
            _show_on(registry)

        return __init__

    wrap_once(module.MultiProcessCollector, "__init__", wrap)


def _show_on(registry: Any) -> None:
    if enabled() and registry is not None:
        try:
            from vllm_hitratio_plugin.engine.registry import register_snapshots

            register_snapshots(registry)
        except Exception:
            logger.exception("hitratio: its metrics are missing on this server's /metrics")
