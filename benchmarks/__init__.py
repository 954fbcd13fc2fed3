"""What the plugin costs, measured in one run against what vLLM itself spends."""
