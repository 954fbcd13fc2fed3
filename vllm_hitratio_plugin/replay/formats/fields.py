"""One JSON object of a trace, read field by field."""

from collections.abc import Hashable, Mapping
from typing import Any

from vllm_hitratio_plugin.replay.trace import MOST_TOKENS, TraceError

_LARGEST = 1e18  # whatever is measured: beyond it, floating point has no fractions of a second


class Fields:
    """Checked access to the fields of one record; every complaint names the source and the line."""

    def __init__(self, source: str, line: int, record: object) -> None:
        self.place = f"{source}, line {line}"
        if not isinstance(record, Mapping):
            raise TraceError(f"{self.place}: a JSON object is expected, not {_kind(record)}")
        self._record = record

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
            return float(value)
        raise TraceError(f"{self.place}: {name!r} must be a finite number, not {_kind(value)}")

    def count(self, name: str, minimum: int = 0) -> int:
        """An integer, at least ``minimum``."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise TraceError(f"{self.place}: {name!r} must be an integer of at least {minimum}, not {_kind(value)}")
        return value

    def tokens(self, name: str, minimum: int = 0) -> int:
        """The length of a prompt."""
        value = self.count(name, minimum)
        if value > MOST_TOKENS:
            raise TraceError(f"{self.place}: {name!r} must be at most {MOST_TOKENS:,} tokens, not {_kind(value)}")
        return value

    def optional_count(self, name: str) -> int | None:
        """An integer of at least 0; None where the field is absent or null."""
        return None if self._record.get(name) is None else self.count(name)

    def optional_id(self, *names: str) -> str | None:
        """The first of the fields that is there, as text."""
        for name in names:
            value = self._record.get(name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                return str(value)
            if value is not None:
                raise TraceError(f"{self.place}: {name!r} must be text or an integer, not {_kind(value)}")
        return None

    def array(self, name: str) -> list[Any]:
        """A JSON array."""
        value = self._get(name)
        if not isinstance(value, list):
            raise TraceError(f"{self.place}: {name!r} must be an array, not {_kind(value)}")
        return value

    def ids(self, name: str) -> list[Hashable]:
        """An array of block ids: integers or texts."""
        values = self.array(name)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise TraceError(f"{self.place}: {name!r} must hold integers or texts, not {_kind(value)}")
        return values

    def _get(self, name: str) -> Any:
        try:
            return self._record[name]
        except KeyError:
            raise TraceError(f"{self.place}: the field {name!r} is missing") from None


def _kind(value: Any) -> str:
    """What a wrong value is called in a sentence: short, whatever it is."""
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, Mapping):
        return "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value) if isinstance(value, float) or abs(value) < _LARGEST else "a number beyond all measure"
