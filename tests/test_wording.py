"""Numbers in words."""

from vllm_hitratio_plugin.wording import (
    capacity,
    count,
    duration,
    fixed_percent,
    large_count,
    memory,
    percent,
    points,
    signed_points,
)


def test_percentages_never_round_to_nothing_or_all() -> None:
    assert [percent(value) for value in (0.0, 0.0004, 0.143, 0.75, 0.99999, 1.0)] == [
        "0 %",
        "0.04 %",
        "14.3 %",
        "75 %",
        "100.00 %",
        "100 %",
    ]
    assert [fixed_percent(0.5), fixed_percent(0.123456, 2), fixed_percent(None), fixed_percent(None, none="")] == [
        "50.0 %",
        "12.35 %",
        "–",
        "",
    ]


def test_differences_are_points() -> None:
    assert points(0.1234) == "12.3 points"
    assert [signed_points(0.1), signed_points(-0.0123, 1), signed_points(None)] == ["+10.00", "-1.2", "–"]


def test_counts() -> None:
    assert [count(1, "block"), count(2275, "block"), count(3, "hits")] == ["1 block", "2,275 blocks", "3 hits"]
    assert [large_count(2_345_000), large_count(84_000), large_count(None)] == ["2.3 M", "84 k", "–"]


def test_sizes() -> None:
    assert [memory(40 << 30), memory(250 << 30), memory(5 << 20)] == ["40.0 GiB", "250 GiB", "5.0 MiB"]
    assert capacity(2275, 18 << 20) == "2,275 blocks (40.0 GiB per worker)"
    assert capacity(300, 1 << 14) == "300 blocks (4.7 MiB per worker)"
    assert capacity(300, None) == "300 blocks"


def test_times() -> None:
    said = [duration(value) for value in (2.345, 84.0, 600.0, 9000.0, 1e6)]
    assert said == ["2.3 s", "84 s", "10 min", "2.5 h", "11.6 days"]
