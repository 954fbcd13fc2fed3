"""A real Prometheus and Alertmanager watch a real vLLM with the plugin: ``make demo-observability``."""
