"""How many samples are needed: the law is found where it is known, and what is extrapolated comes true."""

from pathlib import Path

import numpy as np
import pytest

import trunkfirst
from trunkfirst.errors import DataError, UsageError, ValueRangeError
from trunkfirst.learning_curves import LearningCurve

X = np.linspace(0, 1, 15)


def make(samples: int, seed: int = 0) -> trunkfirst.OperatorData:
    """A kernel of limited smoothness learns this like a power of the number of samples."""
    a = np.random.default_rng(seed).uniform(0, 1, size=(samples, 2))
    u = np.abs(np.sin(5 * a[:, :1]) - 0.3) * (1 + X) + 2 + np.cos(4 * a[:, 1:] * X)
    return trunkfirst.OperatorData({"a": a[:, :1], "b": a[:, 1:]}, X[:, None], u)


def law(rate: float, constant: float = 3.0) -> LearningCurve:
    counts = np.array([10, 20, 40, 80])
    return LearningCurve(counts, constant * counts**-rate, 100, "x", np.full(9, rate), np.full(9, constant))


def test_a_power_law_is_inverted():
    curve = law(0.5)
    assert curve.error_at(100) == pytest.approx(0.3)
    assert curve.samples_for(0.15) == pytest.approx((400.0, 400.0, 400.0))
    assert "about 400 samples instead of 100" in curve.sentence()
    assert curve.summary()["to_halve"] == {"samples": 400, "from": 400, "to": 400}
    found = curve.summary()["law"]
    assert (found["counts"][0], found["counts"][-1]) == pytest.approx((10, 400))
    assert found["errors"] == pytest.approx([3 * n**-0.5 for n in found["counts"]])
    with pytest.raises(ValueRangeError, match="above 0"):
        curve.samples_for(0.0)


def test_rounding_is_not_extrapolated():
    assert "at rounding with 100 samples and with fewer" in law(0.5, constant=1e-14).sentence()


def test_an_error_that_does_not_fall_needs_no_samples():
    curve = law(0.0)
    assert curve.samples_for(0.15)[0] == np.inf
    assert "more samples alone hardly help" in curve.sentence()
    assert curve.summary()["to_halve"]["samples"] is None


def test_what_is_extrapolated_comes_true():
    """From 120 samples to the error of 480, in the range that is given; the truth is measured on 480."""
    found = trunkfirst.learning_curve(make(120))
    assert found.counts[-1] == 96
    assert found.errors[-1] < found.errors[0] / 3
    truth = trunkfirst.learning_curve(make(600)).errors[-1]  # fitted to 480
    middle, low, high = found.samples_for(truth)
    assert low < middle < high
    assert low / 1.5 < 480 < high * 1.5
    assert trunkfirst.learning_curve(make(120)).errors.tolist() == found.errors.tolist()


def test_noise_stops_the_fall():
    data = make(150)
    noisy = data.outputs + 0.5 * np.random.default_rng(1).normal(size=(150, 15)) * 4
    found = trunkfirst.learning_curve(trunkfirst.OperatorData(data.flat_inputs, data.points, noisy))
    assert found.rate < 0.25


def test_the_method_of_a_fit_is_used_where_it_is_a_closed_form(tmp_path: Path):
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Linear(), inputs="standardise", weights="none")
    linear, kernel = (trunkfirst.learning_curve(make(60), method=each) for each in (method, None))
    assert linear.errors[-1] > 1.5 * kernel.errors[-1]
    assert (linear.method, kernel.method) == ("the branch and encoder of this operator", "PCA + kernel ridge")
    network = trunkfirst.learning_curve(make(60), method=trunkfirst.Monolithic())
    assert network.errors.tolist() == kernel.errors.tolist()
    trunkfirst.write_data(make(60), tmp_path / "data.npz")
    assert trunkfirst.learning_curve(tmp_path / "data.npz").errors.tolist() == kernel.errors.tolist()


def test_suggested_samples_are_not_used():
    data = make(60)
    marks = np.arange(60) >= 40
    marked = trunkfirst.OperatorData(data.inputs, data.points, data.outputs, is_suggested=marks)
    assert (
        trunkfirst.learning_curve(marked).errors.tolist()
        == trunkfirst.learning_curve(data.take(~marks)).errors.tolist()
    )


def test_too_few_samples_and_scattered_ones():
    with pytest.raises(DataError, match="needs 10 samples"):
        trunkfirst.learning_curve(make(9))
    data = make(20)
    scattered = trunkfirst.scattered_from_lists(data.flat_inputs, [data.points] * 20, list(data.outputs))
    with pytest.raises(UsageError, match="same points"):
        trunkfirst.learning_curve(scattered)
