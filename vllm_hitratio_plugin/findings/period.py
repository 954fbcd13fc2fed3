"""The period that a diagnosis speaks of, and what was counted in it: about one window."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_hitratio_plugin.snapshot import OUTCOMES, Counters, Snapshot
from vllm_hitratio_plugin.wording import duration


@dataclass(frozen=True)
class Period:
    """Requests of a period, and the outcomes of their prompt blocks.

    Totals since the start stand for a period only while the window still holds everything since the start.
    """

    counters: Counters
    """Increases over about one window; zeros where only older totals are known."""
    since: str
    """That period in words: "in the last 10 min"."""
    seconds: float | None
    """Its length, s; None: since the start, within the window."""
    outcomes: dict[tuple[str, str], int]
    """Blocks by (outcome, reason); empty where none is known."""
    window: str
    """The outcomes' period in words."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Period:
        """From the counters of a window ago, which a snapshot and a page carry, and the window's own outcomes."""
        counters = snapshot.counters or Counters()
        estimate = snapshot.estimate
        before, seconds, since = snapshot.earlier, snapshot.earlier_seconds, "since the start"
        if before is not None and before.requests <= counters.requests:
            counters = counters.since(before)
            since = f"in the last {duration(seconds or 0.0)}"
        else:
            seconds = None
            if estimate is None or estimate.requests < counters.requests:
                counters = Counters()
        columns, window = counters.outcomes, since
        if estimate is not None and estimate.outcomes:
            columns, window = estimate.outcomes, f"in the last {duration(estimate.window_seconds)}"
        outcomes = dict(zip(OUTCOMES, columns, strict=True)) if snapshot.modelled and any(columns) else {}
        return cls(counters, since, seconds, outcomes, window)

    @property
    def prompt_blocks(self) -> int:
        """Blocks of the prompts whose outcomes are known."""
        return sum(self.outcomes.values())

    def blocks(self, outcome: str, *reasons: str) -> int:
        """Blocks of one outcome, of the given reasons or of all."""
        return sum(
            blocks
            for (name, reason), blocks in self.outcomes.items()
            if name == outcome and (not reasons or reason in reasons)
        )

    def share(self, outcome: str, *reasons: str) -> float:
        """The same as a share of the prompt blocks; 0 where there are none."""
        total = self.prompt_blocks
        return self.blocks(outcome, *reasons) / total if total else 0.0

    @property
    def follow_up_turns(self) -> int:
        """Requests that continue a conversation known here."""
        return self.counters.requests - self.counters.conversations
