"""Prefill and decode on two vLLM servers: every prompt goes once to P for its KV cache, then to D for its answer."""
