"""Numbers out of text."""

import pytest

from vllm_hitratio_plugin.numbers import memory, number, positives


@pytest.mark.parametrize(
    ("text", "limits", "value"),
    [
        ("5", {}, 5.0),
        (" 5e-1 ", {"above": 0, "below": 1}, 0.5),
        ("1e3", {"whole": True}, 1000),
        ("12345678901234567890", {"whole": True}, 12345678901234567890),
        ("0", {"least": 0, "most": 0}, 0.0),
        ("0", {"above": 0}, None),
        ("1", {"below": 1}, None),
        ("2.5", {"whole": True}, None),
        ("nan", {}, None),
        ("inf", {}, None),
        ("-inf", {}, None),
        ("nan", {"whole": True}, None),
        ("1" + 400 * "0", {}, None),
        ("1" + 400 * "0", {"whole": True, "most": 10}, None),
        (9999 * "9", {"whole": True}, None),
        ("", {}, None),
        ("five", {}, None),
    ],
)
def test_number(text: str, limits: dict[str, float], value: float | None) -> None:
    found = number(text, **limits)  # type: ignore[arg-type]
    assert found == value
    assert type(found) is type(value)


def test_positives() -> None:
    assert positives(["1", "2.5"], 2) == [1.0, 2.5]
    assert positives(["1"], 2) is None
    assert positives(["1", "0"], 2) is None


@pytest.mark.parametrize(
    ("text", "value"), [("512", 512.0), ("2 KiB", 2048.0), ("1.5GiB", 1.5 * 2**30), ("MiB", None), ("-1MiB", None)]
)
def test_memory(text: str, value: float | None) -> None:
    assert memory(text) == value
