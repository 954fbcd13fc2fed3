"""Every metric, declared once: its name, kind, help and labels, and where its values are in a snapshot.

Exposition, reading, docs/metrics.md, and the names that dashboards and alerts may use all come from this table. The
names are a contract. Each help text stands alone: Prometheus shows it without its neighbors.
"""

from __future__ import annotations

from vllm_hitratio_plugin.metrics.metric import Metric, counter, gauge, histogram, where_modelled
from vllm_hitratio_plugin.metrics.recommended import ceil, recommended
from vllm_hitratio_plugin.metrics.sources import (
    Buckets,
    ByCapacity,
    ByKey,
    ByOutcome,
    CountsByNumber,
    Degraded,
    Derived,
    InBytes,
    Significant,
    Texts,
    Value,
)
from vllm_hitratio_plugin.metrics.window_metrics import WINDOW
from vllm_hitratio_plugin.snapshot import ESTIMATORS, FORK_DEPTH_BOUNDS, INTERARRIVAL_BOUNDS

DEGRADED = gauge(
    "hitratio_degraded",
    "1 while the plugin is degraded for this reason, otherwise 0.",
    Degraded(),
    "reason",
)

METRICS: tuple[Metric, ...] = (
    # Counters
    counter(
        "hitratio_requests",
        "Requests admitted. A preempted request that comes back is not counted again.",
        "counters.requests",
    ),
    counter(
        "hitratio_prompt_blocks",
        "Blocks of the admitted prompts, partly filled blocks included.",
        "counters.prompt_blocks",
    ),
    counter("hitratio_hit_blocks", "Prompt blocks served from the local prefix cache.", "counters.hit_blocks"),
    counter("hitratio_prompt_tokens", "Tokens of the admitted prompts.", "counters.prompt_tokens"),
    counter("hitratio_hit_tokens", "Prompt tokens served from the local prefix cache.", "counters.hit_tokens"),
    counter(
        "hitratio_external_hit_tokens", "Prompt tokens loaded through a KV connector.", "counters.external_hit_tokens"
    ),
    counter("hitratio_conversations", "Conversations whose first turn was seen.", "counters.conversations"),
    counter("hitratio_forks", "Requests whose prompt leaves a known history before its end.", "counters.forks"),
    histogram(
        "hitratio_fork_depth_blocks",
        "Position, in blocks, at which the prompt of a fork leaves the known history.",
        CountsByNumber("counters.fork_depths", FORK_DEPTH_BOUNDS),
    ),
    counter("hitratio_follow_up_turns", "Requests that declare a turn number above 1.", "counters.follow_up_turns"),
    counter(
        "hitratio_follow_up_turns_unmatched",
        "Requests that declare a turn number above 1 and whose previous turn this engine did not see.",
        "counters.unmatched_turns",
    ),
    counter(
        "hitratio_short_prompts", "Requests with a prompt too short for any block to hit.", "counters.short_prompts"
    ),
    counter(
        "hitratio_resumed_requests",
        "Preempted requests that were admitted again. They are not counted as requests a second time.",
        "counters.resumed",
    ),
    counter(
        "hitratio_skipped_requests",
        "Requests that skip the cache's lookup by design (prompt_logprobs, pooling by token). They are not counted as "
        "requests.",
        "counters.skipped",
    ),
    counter("hitratio_cache_resets", "Times that the engine dropped its whole prefix cache.", "counters.resets"),
    histogram(
        "hitratio_interarrival_seconds",
        "Time between two consecutive prompts of a conversation.",
        Buckets("counters.interarrival_buckets", INTERARRIVAL_BOUNDS, "counters.interarrival_seconds"),
    ),
    *where_modelled(
        counter(
            "hitratio_predicted_hit_blocks",
            "Prompt blocks that the model expects to hit at the current capacity.",
            ByKey("counters.predicted_hit_blocks", ESTIMATORS, 0.0),
            "estimator",
        ),
        counter(
            "hitratio_curve_hit_blocks",
            "Prompt blocks that the model expects to hit at another capacity; +Inf is an infinite cache.",
            ByCapacity("counters.curve_hit_blocks", "counters.ceiling_hit_blocks"),
            "capacity_blocks",
        ),
        counter(
            "hitratio_shadow_hit_blocks",
            "Prompt blocks that hit in a simulated exact LRU cache of the current capacity.",
            "counters.shadow_hit_blocks",
        ),
        counter(
            "hitratio_shadow_curve_hit_blocks",
            "Prompt blocks that hit in a simulated exact LRU cache of another capacity.",
            ByCapacity("counters.shadow_curve_hit_blocks"),
            "capacity_blocks",
        ),
        counter(
            "hitratio_prompt_blocks_by_outcome",
            "Prompt blocks by what happened to them (hit, or a kind of miss) and why.",
            ByOutcome("counters.outcomes"),
            "outcome",
            "reason",
        ),
        counter(
            "hitratio_unreused_history_blocks",
            "Blocks that a turn left in the cache and the next prompt of its conversation did not contain.",
            "counters.unreused_history_blocks",
        ),
        counter(
            "hitratio_written_blocks",
            "Blocks of new content in the cache: what prompts brought beyond the blocks seen before, and answers.",
            "counters.written_blocks",
        ),
    ),
    # The current window
    *WINDOW,
    *where_modelled(
        gauge(
            "hitratio_predicted_ratio",
            "Predicted hit ratio of the current window.",
            ByKey("estimate.predicted", ESTIMATORS),
            "estimator",
        ),
        gauge(
            "hitratio_predicted_ratio_stderr",
            "Standard error of the predicted hit ratio.",
            ByKey("estimate.predicted_stderr", ESTIMATORS),
            "estimator",
        ),
        gauge(
            "hitratio_infinite_cache_ratio",
            "Hit ratio of an infinite cache: the share of prompt blocks that were seen before. No capacity exceeds it.",
            "estimate.ceiling",
        ),
        gauge(
            "hitratio_infinite_cache_ratio_stderr",
            "Standard error of the hit ratio of an infinite cache.",
            "estimate.ceiling_stderr",
        ),
        gauge(
            "hitratio_divergence_ratio",
            "Observed minus predicted hit ratio of the current window, for the reuse_time estimator.",
            "estimate.divergence",
        ),
        gauge(
            "hitratio_divergence_ratio_stderr",
            "Standard error of the observed minus the predicted hit ratio, paired.",
            "estimate.divergence_stderr",
        ),
        gauge(
            "hitratio_shadow_ratio",
            "Hit ratio of a simulated exact LRU cache of the current capacity over the current window.",
            "estimate.shadow",
        ),
        gauge(
            "hitratio_model_divergence_ratio",
            "Predicted hit ratio minus that of the simulated exact LRU cache: the error of the model.",
            "estimate.model_divergence",
        ),
        gauge(
            "hitratio_model_divergence_ratio_stderr",
            "Standard error of the predicted hit ratio minus that of the simulated exact LRU cache, paired.",
            "estimate.model_divergence_stderr",
        ),
        gauge(
            "hitratio_engine_divergence_ratio",
            "Observed hit ratio minus that of the simulated exact LRU cache: how far the engine departs from LRU.",
            "estimate.engine_divergence",
        ),
        gauge(
            "hitratio_engine_divergence_ratio_stderr",
            "Standard error of the observed hit ratio minus that of the simulated exact LRU cache, paired.",
            "estimate.engine_divergence_stderr",
        ),
        gauge(
            "hitratio_curve_ratio",
            "Predicted hit ratio of the current window at another capacity.",
            ByCapacity("estimate.curve"),
            "capacity_blocks",
        ),
        gauge(
            "hitratio_drift_contribution_ratio",
            "Signed contribution of a traffic factor to the change of the predicted hit ratio between two windows.",
            ByKey("estimate.drift_contributions"),
            "factor",
        ),
        gauge(
            "hitratio_drift_significant",
            "1 if a traffic factor changed by more than chance explains since the previous window, otherwise 0.",
            Significant("estimate.drift_significant", of="estimate.drift_contributions"),
            "factor",
        ),
        gauge(
            "hitratio_conversation_arrival_rate", "New conversations per second (lambda_0).", "estimate.arrival_rate"
        ),
        gauge(
            "hitratio_history_workload_blocks",
            "Mean prompt blocks per conversation, over all its turns (A_R).",
            "estimate.history_workload",
        ),
        gauge(
            "hitratio_reusable_workload_blocks",
            "Mean hashed blocks per conversation that a later turn can reuse, over all its turns (A_H^hash).",
            "estimate.reusable_workload",
        ),
        gauge(
            "hitratio_lifetime_blocks", "Mean blocks of a conversation at its end (E[B]).", "estimate.lifetime_blocks"
        ),
        gauge("hitratio_turns_per_conversation", "Mean turns per conversation (E[M]).", "estimate.turns"),
        gauge(
            "hitratio_characteristic_time_seconds",
            "How long an unused block stays in the cache before it is evicted (T_C).",
            "estimate.characteristic_time",
        ),
    ),
    # Target and capacity
    gauge("hitratio_capacity_blocks", "Blocks that the prefix cache can hold (N).", "capacity_blocks"),
    gauge("hitratio_capacity_bytes", "Size of the prefix cache in bytes, on one worker.", InBytes("capacity_blocks")),
    gauge("hitratio_block_size_tokens", "Tokens per block.", "block_size"),
    gauge(
        "hitratio_match_unit_tokens",
        "Tokens per unit in which prompts hit, where that is less than a block. Ratios are then of tokens.",
        "match_unit",
    ),
    gauge(
        "hitratio_max_model_length_tokens",
        "Tokens of the longest request allowed, its answer included (max_model_len).",
        "max_model_len",
    ),
    *where_modelled(
        gauge("hitratio_target_ratio", "Hit ratio that the capacity recommendation aims at.", "estimate.target"),
        gauge(
            "hitratio_target_reachable",
            "1 if some capacity reaches the target hit ratio, 0 if none does.",
            Value("estimate.reachable", flag=True),
        ),
        gauge(
            "hitratio_recommended_capacity_blocks",
            "Capacity that reaches the target hit ratio, in blocks.",
            Value("estimate.recommended_blocks", shown=ceil),
        ),
        gauge(
            "hitratio_recommended_capacity_tokens",
            "Capacity that reaches the target hit ratio, in tokens.",
            Derived(lambda snapshot: recommended(snapshot, snapshot.block_size)),
        ),
        gauge(
            "hitratio_recommended_capacity_bytes",
            "Capacity that reaches the target hit ratio, in bytes on one worker.",
            Derived(lambda snapshot: recommended(snapshot, snapshot.block_bytes)),
        ),
    ),
    # The plugin itself
    gauge("hitratio_last_fit_timestamp_seconds", "Unix time of the last successful estimate.", "fit_time"),
    gauge("hitratio_fit_duration_seconds", "Time that the last estimate took.", "fit_seconds"),
    gauge("hitratio_last_reset_timestamp_seconds", "Unix time of the last reset of the prefix cache.", "last_reset"),
    DEGRADED,
    gauge(
        "hitratio_build_info",
        "Always 1. Versions, and the end of the free queue (tail or head) that a released block without a hash joins.",
        Texts(("version", "vllm_version", "unhashed")),
        "version",
        "vllm_version",
        "unhashed",
    ),
    gauge(
        "hitratio_exporter_info",
        "Always 1. Address of the engine's own exporter, as bound on its host.",
        Texts(("exporter",)),
        "url",
    ),
    gauge("hitratio_index_blocks", "Blocks that the plugin's prefix tree remembers.", "index_blocks"),
    gauge("hitratio_index_bytes", "Approximate memory of the plugin's prefix tree.", "index_bytes"),
)


def sample_names() -> frozenset[str]:
    """Every name that a query may use: with ``_total``, and three per histogram."""
    return frozenset(name for metric in METRICS for name in metric.sample_names)
