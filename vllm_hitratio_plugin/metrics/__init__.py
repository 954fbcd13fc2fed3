"""A snapshot as Prometheus metrics: shown on vLLM's ``/metrics`` and on the exporter, and read back."""
