"""Predicted against observed prefix-cache hit ratio, live in vLLM."""

__version__ = "0.1.0"
