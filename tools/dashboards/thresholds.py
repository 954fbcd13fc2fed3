"""Where judgement begins: the numbers that panels and alerts share."""

from __future__ import annotations

from vllm_hitratio_plugin.findings.stale import STALE_SECONDS as STALE_SECONDS

#: Difference between observed and predicted hit ratio. The model's own error stays below 0.03 even while the traffic
#: changes, so the model does not explain 0.05.
DIVERGENCE = 0.05

#: Standard errors beyond which a divergence is not noise.
SIGMAS = 3

#: Prompt tokens per second below which an engine counts as idle.
TRAFFIC_FLOOR = 100

#: Recommended over current capacity from which an alert says so.
CAPACITY_FACTOR = 1.1

#: Relative difference between the plugin's count of hit tokens and vLLM's.
COUNTER_MISMATCH = 0.02
