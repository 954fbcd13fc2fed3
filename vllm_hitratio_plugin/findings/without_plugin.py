"""A page without the plugin's metrics: what vLLM's own metrics say, and what they can't."""

from __future__ import annotations

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
    evidence = ["Looked for on this page and not found: metrics whose names start with hitratio_."]
    evidence += _served(now, previous)
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
        # A front end, a proxy or a disabled stats page looks the same.
        confidence=0.6,
        summary="This page shows vLLM's own metrics and none of the plugin's. They give a ratio, but not its cause.",
        evidence=tuple(evidence),
        causes=(
            "vLLM was started without --plugin hitratio.",
            "The plugin runs, but this page is of a front end or a proxy, or its process can't read the engine's "
            "snapshots.",
        ),
        actions=(
            "Ask the plugin's own exporter, on the engine's host: hitratio doctor http://HOST:9577 (9577 is the "
            "default of --hitratio-port; further engines on a host take the ports above).",
            "Look in vLLM's log for lines that start with 'hitratio:'. If there is none, install vllm-hitratio-plugin "
            "next to vLLM, start vLLM with --plugin hitratio, and ask again after some hundred requests.",
        ),
        metrics=(
            "vllm:prefix_cache_hits_total",
            "vllm:prefix_cache_queries_total",
            "vllm:external_prefix_cache_hits_total",
            "vllm:cache_config_info",
        ),
    )


def _served(now: VllmCounters, previous: VllmCounters | None) -> list[str]:
    """What the local cache and a connector served of the prompt tokens."""
    queries, hits, loaded = now.queries, now.hits, now.external_hits or 0.0
    since = "since the start (which may hide a recent change)"
    if queries is None or hits is None:
        return ["Looked for and not found: vllm:prefix_cache_queries_total and its hits, so there is no ratio either."]
    if previous is not None and previous.queries is not None and previous.hits is not None:
        more = queries - previous.queries
        if more > 0:
            queries, hits, since = more, hits - previous.hits, "since the last look"
            loaded -= previous.external_hits or 0.0
    if not queries:
        return ["No prompt has been looked up yet: vllm:prefix_cache_queries_total is 0."]
    sentences = [f"{percent(hits / queries)} of {queries:,.0f} prompt tokens were served from the cache {since}."]
    if loaded > 0 and hits + loaded <= queries:
        sentences.append(
            f"Another {percent(loaded / queries)} were loaded through a KV connector (a second tier or a prefiller): "
            f"{percent((hits + loaded) / queries)} together. The tier is there and works."
        )
    elif loaded > 0:
        sentences.append(
            f"A KV connector loaded {loaded:,.0f} tokens. With the hits that is more than was looked up, so vLLM "
            "counts some of them twice, and no sum is given."
        )
    elif now.external_queries:
        sentences.append(
            f"A KV connector was asked for {now.external_queries:,.0f} tokens since the start and loaded "
            f"{now.external_hits or 0:,.0f}; vllm:external_prefix_cache_hits_total did not rise {since.split(' (')[0]}."
        )
    return sentences
