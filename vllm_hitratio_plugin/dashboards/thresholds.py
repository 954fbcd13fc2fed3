"""Where judgement begins: the numbers that panels and alerts share."""

from __future__ import annotations

from vllm_hitratio_plugin.findings.stale import STALE_SECONDS as STALE_SECONDS

#: Points of hit ratio between observed and predicted. The model's own error in a window of changing traffic stays
#: under 0.03 (MODEL section 7), so 0.05 is not the model's.
GAP = 0.05

#: Standard errors of the difference beyond which a gap is not noise.
SIGMAS = 3

#: Prompt tokens a second below which an engine counts as idle.
TRAFFIC_FLOOR = 100

#: Recommended over current capacity from which on it is worth saying.
CAPACITY_FACTOR = 1.1

#: Relative difference between our count of hit tokens and vLLM's.
COUNTER_MISMATCH = 0.02
