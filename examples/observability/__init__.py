"""A real Prometheus and Alertmanager beside a real vLLM with the plugin: ``make demo-observability``."""
