"""The plugin at work on a real vLLM in two commands: ``make demo``."""
