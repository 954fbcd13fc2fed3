"""Reading /metrics by name: an absent sample is None, never 0."""

import pytest

from examples.demo.metrics import difference, parse, ratio

TEXT = """\
# HELP hitratio_observed_ratio Observed hit ratio.
# TYPE hitratio_observed_ratio gauge
hitratio_observed_ratio{engine="0",model_name="m"} 0.25
# TYPE hitratio_predicted_ratio gauge
hitratio_predicted_ratio{engine="0",estimator="reuse_time",model_name="m"} 0.26
hitratio_predicted_ratio{engine="0",estimator="mean_field",model_name="m"} 0.28
# TYPE hitratio_curve_hit_blocks_total counter
hitratio_curve_hit_blocks_total{capacity_blocks="64",engine="0"} 10.5
hitratio_curve_hit_blocks_total{capacity_blocks="+Inf",engine="0"} 40.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 4096.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0"} 3.0
"""


def test_values_by_name_and_label() -> None:
    scrape = parse(TEXT)
    assert scrape.value("hitratio_observed_ratio") == 0.25
    assert scrape.value("hitratio_predicted_ratio", estimator="mean_field") == 0.28
    assert scrape.value("vllm:prefix_cache_hits_total") == 4096
    assert scrape.names("hitratio_") == {
        "hitratio_observed_ratio",
        "hitratio_predicted_ratio",
        "hitratio_curve_hit_blocks_total",
    }


def test_absent_is_none() -> None:
    scrape = parse(TEXT)
    assert scrape.value("hitratio_infinite_cache_ratio") is None
    assert scrape.value("hitratio_predicted_ratio", estimator="other") is None
    assert parse("").value("hitratio_observed_ratio") is None


def test_other_metrics_are_not_read() -> None:
    assert parse(TEXT).value("vllm:request_success_total") is None
    assert parse(TEXT, ("vllm:",)).value("vllm:request_success_total") == 3


def test_ambiguous_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 samples of hitratio_predicted_ratio"):
        parse(TEXT).value("hitratio_predicted_ratio")


def test_by_label_and_difference() -> None:
    curve = parse(TEXT).by_label("hitratio_curve_hit_blocks_total", "capacity_blocks")
    assert curve == {"64": 10.5, "+Inf": 40.0}
    assert difference(curve, {"64": 10.0}) == {"64": 0.5, "+Inf": 40.0}


def test_ratio_of_nothing_is_none() -> None:
    assert ratio(1.0, 4.0) == 0.25
    assert ratio(1.0, 0.0) is None
    assert ratio(None, 4.0) is None
