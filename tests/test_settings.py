"""Settings from the environment."""

import pytest

from vllm_hitratio_plugin.settings import OPTIONS, Settings, enabled


def test_defaults() -> None:
    assert Settings.from_env({}) == (Settings(None, 9577, "127.0.0.1", 600.0, 15.0, None), [])


def test_all_of_them() -> None:
    env = {
        "HITRATIO_TARGET": " 0.7 ",
        "HITRATIO_PORT": "0",
        "HITRATIO_HOST": "::",
        "HITRATIO_WINDOW": "1200",
        "HITRATIO_INTERVAL": "5",
        "HITRATIO_INDEX_BLOCKS": "1e6",
    }
    assert Settings.from_env(env) == (Settings(0.7, 0, "::", 1200.0, 5.0, 1_000_000), [])
    assert set(env) == {option.variable for option in OPTIONS}


def test_empty_is_not_given() -> None:
    assert Settings.from_env({"HITRATIO_TARGET": "", "HITRATIO_PORT": "  "}) == Settings.from_env({})


def test_a_short_window_is_refreshed_in_time() -> None:
    assert Settings.from_env({"HITRATIO_WINDOW": "20"})[0].interval == 4


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HITRATIO_TARGET", "1.7"),
        ("HITRATIO_PORT", "99999"),
        ("HITRATIO_WINDOW", "0"),
        ("HITRATIO_WINDOW", "1e9"),
        ("HITRATIO_INTERVAL", "fast"),
        ("HITRATIO_INDEX_BLOCKS", "1000.5"),
        ("HITRATIO_HOST", "two words"),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(variable: str, value: str) -> None:
    settings, (message,) = Settings.from_env({variable: value})
    assert settings == Settings.from_env({})[0]
    assert message.startswith(f"{variable}: '{value}' is not a")
    assert ": use a" in message
    assert "\n" not in message


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("ON", True), ("0", False), ("", False)])
def test_enabled(value: str, on: bool) -> None:
    assert enabled({"HITRATIO_ENABLED": value}) is on
    assert not enabled({})


def test_a_bad_value_costs_itself_alone() -> None:
    settings, wrong = Settings.from_env({"HITRATIO_TARGET": "60", "HITRATIO_PORT": "0", "HITRATIO_HOST": "10.0.0.1"})
    assert (settings.target, settings.port, settings.host) == (None, 0, "10.0.0.1")
    assert wrong == ["HITRATIO_TARGET: '60' is not a hit ratio to aim at: use a number above 0 and below 1"]
