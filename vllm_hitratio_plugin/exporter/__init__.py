"""The engine's own HTTP server: Prometheus metrics, the status page, the snapshot as JSON."""
