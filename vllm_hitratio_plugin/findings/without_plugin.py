"""A page without the plugin's metrics: what vLLM's own metrics say, and what they can't."""

from collections.abc import Sequence

from vllm_hitratio_plugin.findings.finding import Finding
from vllm_hitratio_plugin.findings.prefix_caching_off import PREFIX_CACHING_OFF
from vllm_hitratio_plugin.settings import DEFAULT_PORT
from vllm_hitratio_plugin.snapshot import VllmCounters
from vllm_hitratio_plugin.wording import count, percent


def without_plugin(
    now: VllmCounters, previous: VllmCounters | None = None, *, looked_at: str = "", others: bool = False
) -> Finding:
    """Neither "enable prefix caching" where it is on, nor "OK": a ratio alone does not tell its cause.

    Nor does a page tell that the plugin is off: some front ends show vLLM's own metrics only.

    Args:
        now: vLLM's own figures.
        previous: The same page earlier; the ratio then covers the time in between.
        looked_at: Where the plugin's figures were looked for, a sentence.
        others: Whether the page has figures of the plugin for other engines.
    """
    if now.caching is False:
        return PREFIX_CACHING_OFF
    summary = "This page has no metrics of the hitratio plugin. vLLM's own metrics give a ratio, but not its cause."
    actions: tuple[str, ...] = (
        f"If the plugin is on, ask its exporter, on the engine's machine: port {DEFAULT_PORT}, or the next free one. "
        "vLLM's log names it: 'hitratio: metrics at'.",
        "Otherwise install vllm-hitratio-plugin next to vLLM, start vLLM with --plugin hitratio, and ask again "
        "after some hundred requests.",
    )
    if others:
        summary = "The plugin shows other engines on this page, but not this one: it has ended, or its plugin has."
        actions = ("If the engine still runs, look in vLLM's log for lines that start with 'hitratio:'.",)
    return Finding(
        rule="without-plugin",
        severity="info",
        # That the figures are missing is certain. Why is not.
        confidence=0.5,
        summary=summary,
        evidence=(
            *((looked_at,) if looked_at else ()),
            *figures(now, previous),
            "What can't be known from this page: the ceiling of this traffic, so whether the ratio is good; how long "
            "an unused block stays cached; whether misses are new content, evictions, block size, routing or the "
            "template; what more memory would give.",
        ),
        causes=()
        if others
        else (
            "A front end that shows vLLM's own metrics only: the Rust front end, a router, Ray.",
            "vLLM was started without --plugin hitratio, or the plugin is not installed there.",
        ),
        actions=actions,
        metrics=(
            "vllm:prefix_cache_hits_total",
            "vllm:prefix_cache_queries_total",
            "vllm:external_prefix_cache_hits_total",
            "vllm:cache_config_info",
        ),
    )


def figures(now: VllmCounters, previous: VllmCounters | None = None) -> list[str]:
    """What vLLM's own metrics say of one engine's cache, in sentences."""
    evidence = _served(now, previous)
    if now.caching:
        evidence.append("Prefix caching is on.")
    tokens = now.capacity_tokens
    if tokens is None and now.capacity_blocks is not None and now.block_size:
        tokens = now.capacity_blocks * now.block_size
    if now.capacity_blocks is not None:
        words = "" if tokens is None else f", {tokens:,} tokens"
        evidence.append(f"The cache holds {count(now.capacity_blocks, 'block')}{words}.")
    if now.preemptions:
        evidence.append(f"{count(now.preemptions, 'preemption')} since the start: running requests do not always fit.")
    return evidence


def all_without_plugin(engines: Sequence[VllmCounters]) -> Finding | None:
    """The ratio of several engines of one model together; None where fewer than two have one."""
    counted = [(one.hits, one.queries) for one in engines if one.hits is not None and one.queries]
    if len(counted) < 2:
        return None
    hits, queries = (sum(column) for column in zip(*counted, strict=True))
    return Finding(
        rule="without-plugin",
        severity="info",
        confidence=1.0,
        summary=f"{percent(hits / queries)} of {queries:,.0f} prompt tokens of {len(counted)} engines without the "
        "plugin's metrics were served from their caches since the start.",
        evidence=("A ratio of sums: each engine counts by its traffic.",),
        metrics=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
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
