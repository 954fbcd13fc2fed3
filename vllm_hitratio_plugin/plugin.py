"""The entry point that vLLM calls in every process; it only prepares, and never raises."""


def register() -> None:
    """Prepare this process; idempotent, starts nothing, imports nothing heavy.

    Adds ``--plugin hitratio`` and ``--hitratio-*`` to vLLM's command line, and arranges that a scheduler built later
    is watched, and that ``/metrics`` shows what was seen, if the plugin is enabled by then.
    """
    try:
        from vllm_hitratio_plugin.engine.install import install

        install()
    except Exception:
        # vLLM calls this unguarded: whatever went wrong here must cost the plugin, never the server.
        import logging

        logging.getLogger("vllm.hitratio").exception("hitratio: could not be prepared; serving goes on without it")
