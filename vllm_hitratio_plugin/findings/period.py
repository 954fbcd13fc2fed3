"""The period that a diagnosis speaks of, and what was counted in it."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_hitratio_plugin.snapshot import OUTCOMES, Counters, Snapshot
from vllm_hitratio_plugin.wording import duration


@dataclass(frozen=True)
class Period:
    """Requests of a period, and the outcomes of their prompt blocks.

    Outcomes are the window's where the snapshot has them. Otherwise they come from the counters, as the rates do.
    """

    counters: Counters
    """Increases since an earlier moment, or since the start."""
    since: str
    """That period in words: "in the last 10 min"."""
    seconds: float | None
    """Its length, s; None: since the start."""
    outcomes: dict[tuple[str, str], int]
    """Blocks by (outcome, reason); empty where none is known."""
    window: str
    """The outcomes' period in words."""

    @classmethod
    def of(cls, snapshot: Snapshot, previous: Snapshot | None = None) -> Period:
        """Prefer the counters of a window ago, which a live snapshot carries, to those of ``previous``."""
        counters = snapshot.counters or Counters()
        estimate = snapshot.estimate
        before, seconds = snapshot.earlier, snapshot.earlier_seconds
        if before is None and previous is not None and previous.engine == snapshot.engine:
            before, seconds = previous.counters, snapshot.wall_time - previous.wall_time
        if before is None or before.requests > counters.requests:
            # The first look, or a monitor that started again.
            seconds, since = None, "since the start"
        else:
            counters = counters.since(before)
            since = f"in the last {duration(seconds or 0.0)}"
        columns, window = counters.outcomes, since
        if estimate is not None and any(estimate.outcomes):
            columns, window = estimate.outcomes, f"in the last {duration(estimate.window_seconds)}"
        elif estimate is not None and seconds is None and not estimate.requests:
            # An idle engine: totals since the start do not describe the present.
            columns = []
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
