"""A server without the plugin: what its own metrics say, and what they can't."""

from vllm_hitratio_plugin.findings.caching_off import off
from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.wording import count, percent
from vllm_hitratio_plugin.snapshot import VllmCounters


def without_plugin(now: VllmCounters, previous: VllmCounters | None = None) -> Finding:
    """Neither "enable prefix caching" where it is on, nor "OK": a ratio alone has no cause.

    Args:
        now: vLLM's own figures.
        previous: The same page earlier; then the ratio is of the time in between.
    """
    if now.caching is False:
        return off()
    evidence = []
    queries, hits, since = now.queries, now.hits, "since the start (a change of today may be hidden in it)"
    if previous is not None and None not in (queries, hits, previous.queries, previous.hits):
        more = (queries or 0.0) - (previous.queries or 0.0)
        if more > 0:
            queries, hits, since = more, (hits or 0.0) - (previous.hits or 0.0), "since the last look"
    if queries and hits is not None:
        evidence.append(
            f"{percent(hits / queries)} of {queries:,.0f} prompt tokens were served from the cache {since}."
        )
    elif queries is not None:
        evidence.append("No prompt was looked up yet.")
    if now.caching:
        evidence.append("Prefix caching is on.")
    if now.capacity_blocks is not None:
        tokens = f", {now.capacity_blocks * now.block_size:,} tokens" if now.block_size else ""
        evidence.append(f"The cache holds {count(now.capacity_blocks, 'block')}{tokens}.")
    if now.preemptions:
        evidence.append(
            f"{count(now.preemptions, 'preemption')} since the start: running requests alone do not always fit."
        )
    evidence.append(
        "What can't be known from this page: the ceiling of this traffic, so whether this ratio is good; how long a "
        "block "
        "survives; whether misses are new content, evictions, block size, routing or the template; what more memory "
        "would give."
    )
    return Finding(
        rule="without-plugin",
        severity="info",
        confidence=1.0,
        summary="This server runs without the hitratio plugin: its own metrics give a ratio, but not the reason for "
        "it.",
        evidence=tuple(evidence),
        actions=(
            "Install vllm-hitratio-plugin beside vLLM, start with --plugin hitratio, and ask again after some "
            "hundred prompts.",
        ),
        metrics=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:cache_config_info"),
    )
