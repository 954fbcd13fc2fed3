"""What a server says on /metrics, by name."""

import urllib.request
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

PREFIXES = ("hitratio_", "vllm:prefix_cache_")
"""The plugin's metrics, and those of vLLM that they are compared with."""

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape. A sample that is absent is None, never 0."""

    def __init__(self, samples: Mapping[tuple[str, Labels], float]) -> None:
        self._samples = samples

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of that name with (at least) these labels; ``ValueError`` where several match."""
        wanted = set(labels.items())
        found = [value for (each, have), value in self._samples.items() if each == name and wanted <= have]
        if len(found) > 1:
            raise ValueError(f"{len(found)} samples of {name} match {labels}")
        return found[0] if found else None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The samples of that name by the value of one label."""
        return {
            dict(have)[label]: value
            for (each, have), value in self._samples.items()
            if each == name and label in dict(have)
        }

    def names(self, prefix: str) -> set[str]:
        """Names that start with `prefix`."""
        return {name for name, _ in self._samples if name.startswith(prefix)}


def parse(text: str, prefixes: tuple[str, ...] = PREFIXES) -> Scrape:
    """Read Prometheus' text format, only the metrics whose names start with one of `prefixes`.

    A server has thousands of others, and reading them all would keep the load's own process from sending on time.
    """
    heads = (*prefixes, *(f"# {kind} {prefix}" for kind in ("HELP", "TYPE") for prefix in prefixes))
    text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(heads))
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def scrape(url: str, timeout: float = 10.0) -> Scrape:
    """Fetch and read; ``OSError`` where the server does not answer."""
    with urllib.request.urlopen(url, timeout=timeout) as response:
        return parse(response.read().decode())


def difference(later: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
    """What counters gained, by label; a counter that was absent before started at 0."""
    return {label: value - earlier.get(label, 0.0) for label, value in later.items()}


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, None where either is absent or there was nothing."""
    return part / whole if part is not None and whole else None


def finite(values: Iterable[float | None]) -> list[float]:
    """Those that were measured."""
    return [value for value in values if value is not None]
