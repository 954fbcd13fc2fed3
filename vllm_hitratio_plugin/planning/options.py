"""What a plan is asked for: from the command line, or one table of a file with several models."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vllm_hitratio_plugin.numbers import MOST, memory
from vllm_hitratio_plugin.planning.capacity_curve import GIB
from vllm_hitratio_plugin.planning.change import Change
from vllm_hitratio_plugin.planning.plan import Plan, plan
from vllm_hitratio_plugin.planning.replicas import ROUTINGS, Routing
from vllm_hitratio_plugin.planning.second_tier import SecondTier
from vllm_hitratio_plugin.planning.subject import PlanError, Subject, live_subject, recorded_subject
from vllm_hitratio_plugin.replay.formats.source import Format
from vllm_hitratio_plugin.replay.law import parse_duration
from vllm_hitratio_plugin.replay.pools.pool import Unhashed
from vllm_hitratio_plugin.replay.source import Clock, TraceSource
from vllm_hitratio_plugin.snapshot import Snapshot

MOST_REPLICAS = 10_000

_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}(/.*)?")

_Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
_Count = Annotated[int, Meta(ge=1, le=MOST)]
_Number = Annotated[int, Meta(ge=0, le=MOST)]


class PlanOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be said of one plan; the names are those of the command's options."""

    source: str
    """A trace file, or the address of a server."""
    name: str | None = None
    capacities: tuple[_Count, ...] = ()
    """Blocks, today's first."""
    capacity_gib: tuple[_Positive, ...] = ()
    block_bytes: _Positive | None = None
    target: tuple[Annotated[float, Meta(ge=0, le=1)], ...] = ()
    load: tuple[_Positive, ...] = ()
    think_time: tuple[_Positive, ...] = ()
    block_size: tuple[_Count, ...] = ()
    replicas: tuple[Annotated[int, Meta(ge=1, le=MOST_REPLICAS)], ...] = ()
    routing: Routing | None = None
    second_tier_blocks: tuple[_Count, ...] = ()
    exclusive: bool = False
    in_use: tuple[Annotated[float, Meta(ge=0, le=sys.float_info.max)], ...] = ()
    prefill_tokens_per_second: _Positive | None = None
    prefill_seconds_per_token: _Positive | None = None
    format: Format = "auto"
    unhashed: Unhashed = "head"
    service_time: str | None = None
    seed: _Number = 0
    arrivals: str | None = None
    interarrival: str | None = None
    conversations: _Count | None = None
    warmup: _Number | None = None
    timeout: Annotated[float, Meta(gt=0, le=86_400)] = 5.0

    def __post_init__(self) -> None:
        if self.capacities and self.capacity_gib:
            raise PlanError("give --capacities or --capacity-gib, not both")
        if self.prefill_tokens_per_second and self.prefill_seconds_per_token:
            raise PlanError("give --prefill-tokens-per-second or --prefill-seconds-per-token, not both")

    def check_live(self) -> None:
        """Whether all options go with a server.

        Raises:
            PlanError: one of them is for traces only.
        """
        for name in (*Clock.__dataclass_fields__, "service_time"):
            if getattr(self, name, None) is not None:
                raise PlanError(f"--{name.replace('_', '-')} is for traces; {self.source} is a server")

    def live(self, snapshots: Sequence[Snapshot]) -> list[Plan]:
        """One plan per engine, from its current window.

        Raises:
            PlanError: there is nothing to plan with.
        """
        if not snapshots:
            raise PlanError(f"{self.source} runs without the plugin, so there is nothing to plan with")
        return [self._plan(live_subject(snapshot)) for snapshot in snapshots]

    def recorded(self) -> Plan:
        """The plan for a trace.

        Raises:
            ValueError: the trace can't be read, or an option does not go with it.
        """
        capacities = self._capacities(self.block_bytes)
        if not capacities:
            raise PlanError("a trace needs --capacities or --capacity-gib, today's first")
        clock = Clock(self.arrivals, self.interarrival, None, self.conversations, self.warmup)
        subject = recorded_subject(
            TraceSource(self.source, self.format, clock=clock, seed=self.seed),
            Path(self.source).name,
            capacities[0],
            unhashed=self.unhashed,
            service=parse_duration(self.service_time),
            seed=self.seed,
        )
        return self._plan(subject)

    def _plan(self, subject: Subject) -> Plan:
        block_bytes = self.block_bytes or subject.block_bytes
        capacities: Sequence[float] = self._capacities(block_bytes) or [subject.capacity_blocks]
        today, *others = capacities
        subject = replace(
            subject,
            name=self.name or subject.name,
            block_bytes=block_bytes,
            capacity_blocks=today,
            # What was observed belongs to the capacity it was observed with.
            observed=subject.observed if today == subject.capacity_blocks else None,
        )
        prefill = self.prefill_seconds_per_token
        if self.prefill_tokens_per_second is not None:
            prefill = 1 / self.prefill_tokens_per_second
        return plan(
            subject,
            self._changes(subject),
            targets=self.target,
            capacities=others,
            prefill_seconds_per_token=prefill,
        )

    def _changes(self, subject: Subject) -> list[Change]:
        """What was asked for; a usual set if nothing was."""
        for blocks in self.in_use:
            if not subject.demand.in_use_blocks and blocks:
                raise PlanError(
                    "no blocks are in use in this traffic, so --in-use can't change that: see --service-time"
                )
            if blocks >= subject.capacity_blocks:
                raise PlanError(f"--in-use {blocks:g}: the cache has only {subject.capacity_blocks:,.0f} blocks")
        routings = [routing for routing in ROUTINGS if self.routing in (None, routing)]
        changes = [
            *(Change(load=factor) for factor in self.load),
            *(Change(think_time=factor) for factor in self.think_time),
            *(Change(block_size=tokens) for tokens in self.block_size),
            *(Change(replicas=count, routing=routing) for count in self.replicas for routing in routings),
            *(Change(in_use=blocks) for blocks in self.in_use),
            *(Change(second_tier=SecondTier(blocks, self.exclusive)) for blocks in self.second_tier_blocks),
        ]
        return changes or [
            Change(load=2),
            Change(think_time=2),
            Change(block_size=2 * subject.demand.block_size),
            *(Change(replicas=2, routing=routing) for routing in ROUTINGS),
            # Where a tier serves today, what another one would add is not known.
            *([] if subject.external else [Change(second_tier=SecondTier(4 * subject.capacity_blocks))]),
        ]

    def _capacities(self, block_bytes: float | None) -> list[int]:
        """Today's capacity and others, blocks; empty where none was given."""
        if not self.capacity_gib:
            return list(self.capacities)
        if block_bytes is None:
            raise PlanError("--capacity-gib needs --block-bytes")
        least, most = min(self.capacity_gib), max(self.capacity_gib)
        if not most * GIB / block_bytes <= MOST:  # so that an infinite number fails too
            raise PlanError(f"--capacity-gib {most:g} is more than {MOST:,} blocks: take less")
        if least * GIB < block_bytes:
            raise PlanError(f"a block of {block_bytes:,.0f} bytes does not fit into {least:g} GiB")
        return [int(gib * GIB // block_bytes) for gib in self.capacity_gib]


_TEXTS = frozenset({"arrivals", "interarrival", "service_time"})
_LISTS = frozenset(field.name for field in msgspec.structs.fields(PlanOptions) if str(field.type).startswith("tuple"))


def read_config(path: str) -> list[PlanOptions]:
    """The models of a TOML or JSON file: a list ``model`` with one table per model; sources are relative to the file.

    Raises:
        PlanError: with one sentence that names the file, and the model where it is about one.
        OSError: the file can't be read.
    """
    content = Path(path).read_bytes()
    try:
        data = msgspec.toml.decode(content) if path.endswith(".toml") else msgspec.json.decode(content)
    except ImportError:
        raise PlanError(f"{path}: TOML needs Python 3.11 or later, or the package tomli; or write JSON") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: {error}") from None
    models = data.get("model") if isinstance(data, dict) else None
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise PlanError(f"{path}: a list 'model' with one table per model is expected")
    return [_options(path, number, model) for number, model in enumerate(models, start=1)]


def _options(path: str, number: int, model: dict[str, Any]) -> PlanOptions:
    place = f"{path}, model {model.get('name', number)}"
    values: dict[str, Any] = {}
    for key, value in model.items():
        name = key.replace("-", "_")
        if name == "block_bytes" and isinstance(value, str):
            value = memory(value) or math.nan
        if name in _TEXTS and isinstance(value, int | float):
            value = f"{value:g}"
        values[name] = [value] if name in _LISTS and not isinstance(value, list) else value
    try:
        options = msgspec.convert(values, PlanOptions)
    except (msgspec.ValidationError, PlanError) as error:
        raise PlanError(f"{place}: {error}") from None
    nearby = Path(path).parent / options.source
    if nearby.exists() or not is_address(options.source):
        options.source = str(nearby)
    return options


def is_address(source: str) -> bool:
    """Whether a source has a scheme, or is a host and port and no file.

    Example:
        >>> is_address("http://localhost:8000"), is_address("localhost:8000"), is_address("trace.jsonl")
        (True, True, False)
    """
    if source.startswith(("http://", "https://")):
        return True
    return _HOST_AND_PORT.fullmatch(source) is not None and not Path(source).exists()
