"""A snapshot of the monitor, as Prometheus metrics: on vLLM's ``/metrics`` and on the engine's own exporter."""
