"""A page without the plugin's metrics: what vLLM's own metrics say, and what they can't."""

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.prefix_caching_off import PREFIX_CACHING_OFF
from vllm_hitratio_plugin.snapshot import VllmCounters
from vllm_hitratio_plugin.wording import count, percent


def without_plugin(now: VllmCounters, previous: VllmCounters | None = None) -> Finding:
    """Neither "enable prefix caching" where it is on, nor "OK": a ratio alone does not tell its cause.

    Args:
        now: vLLM's own figures.
        previous: The same page earlier; the ratio then covers the time in between.
    """
    if now.caching is False:
        return PREFIX_CACHING_OFF
    evidence = []
    queries, hits, since = now.queries, now.hits, "since the start (which may hide a recent change)"
    if previous is not None and None not in (queries, hits, previous.queries, previous.hits):
        more = (queries or 0.0) - (previous.queries or 0.0)
        if more > 0:
            queries, hits, since = more, (hits or 0.0) - (previous.hits or 0.0), "since the last look"
    if queries and hits is not None:
        evidence.append(
            f"{percent(hits / queries)} of {queries:,.0f} prompt tokens were served from the cache {since}."
        )
    elif queries is not None:
        evidence.append("No prompt has been looked up yet.")
    if now.caching:
        evidence.append("Prefix caching is on.")
    if now.capacity_blocks is not None:
        tokens = f", {now.capacity_blocks * now.block_size:,} tokens" if now.block_size else ""
        evidence.append(f"The cache holds {count(now.capacity_blocks, 'block')}{tokens}.")
    if now.preemptions:
        evidence.append(f"{count(now.preemptions, 'preemption')} since the start: running requests do not always fit.")
    evidence.append(
        "What can't be known from this page: the ceiling of this traffic, so whether the ratio is good; how long an "
        "unused block stays cached; whether misses are new content, evictions, block size, routing or the template; "
        "what more memory would give."
    )
    return Finding(
        rule="without-plugin",
        severity="info",
        confidence=1.0,
        summary="This page has no metrics of the hitratio plugin. vLLM's own metrics give a ratio, but not its cause.",
        evidence=tuple(evidence),
        actions=(
            "If the plugin is enabled, give the address of its exporter (port 9577 by default).",
            "Otherwise install vllm-hitratio-plugin next to vLLM, start vLLM with --plugin hitratio, and ask again "
            "after some hundred requests.",
        ),
        metrics=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:cache_config_info"),
    )
