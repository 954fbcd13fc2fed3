"""All that knows vLLM: flags, hooks, the record queue, the probe of the block pool, the service thread."""
