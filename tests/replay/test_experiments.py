"""The experiments at small scale: what they report, and that it is what the theory says."""

import pytest

from vllm_hitratio_plugin.replay.experiments import convergence, nonstationary, paper


def test_the_settings_are_the_papers() -> None:
    assert [setting.mean_interarrival for setting in paper.SETTINGS["paper-1"]] == [
        90,
        105,
        120,
        135,
        150,
        165,
        180,
        210,
        240,
    ]
    assert {setting.arrival_rate for setting in paper.SETTINGS["paper-1"]} == {1.5}
    assert [setting.arrival_rate for setting in paper.SETTINGS["paper-2"]] == [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]
    assert {setting.mean_interarrival for setting in paper.SETTINGS["paper-2"]} == {135}
    assert (paper.CAPACITY_BLOCKS, paper.BLOCK_SIZE, paper.WARMUP, paper.MEASURED) == (2275, 128, 1000, 5000)


def test_one_run_of_the_papers_experiment() -> None:
    """The parametric law stands in for the paper's own conversations: its prior must be near the paper's ĥ."""
    run = paper.run(paper.Setting(1.5, 135), 0)
    assert run.predicted[paper.MEAN_FIELD_PRIOR] == pytest.approx(0.171784, abs=0.005)
    assert run.measured_interarrival == pytest.approx(135, rel=0.1)
    assert run.absolute_error("reuse_time") < 0.003
    assert run.relative_error("reuse_time") < 0.02
    assert run.relative_error(paper.MEAN_FIELD_PRIOR) > run.relative_error("reuse_time")
    summary = paper.error_summary([run])
    assert summary["reuse_time"]["max_absolute"] == summary["reuse_time"]["mean_absolute"]


def test_a_run_too_small_to_hit_anything_says_so() -> None:
    with pytest.raises(ValueError, match="1 conversations are too few"):
        paper.run(paper.Setting(1.5, 135), 0, scale=paper.Scale(0, 1))


def test_deviations_from_the_limit_go_with_the_root_of_capacity() -> None:
    points = [convergence.run(capacity, 0, measured=5000) for capacity in (125, 500, 2000)]
    slope = convergence.exponent(points, lambda point: point.survival_deviation)
    assert slope == pytest.approx(-0.5, abs=0.1)
    assert all(abs(point.observed - point.predicted) <= point.bound for point in points)
    assert abs(points[-1].observed - points[-1].predicted) < abs(points[0].observed - points[0].predicted)
    assert convergence.exponent(points[:1], lambda point: point.survival_deviation) is None


@pytest.mark.parametrize("scenario", ["ramp", "burst"])
def test_sliding_windows_follow_traffic_that_moves(scenario: str) -> None:
    (windowed,) = nonstationary.run(scenario, 0, windows=[300.0], count=8000)
    assert len(windowed.errors) > 50
    assert windowed.mean_absolute_error < 0.005
    assert windowed.coverage >= 0.85  # 95 % are meant; sixty windows that overlap by three quarters are few
