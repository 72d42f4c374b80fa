"""Conformal intervals and their coverage on new samples; inputs out of distribution; both to a file and back."""

import math

import numpy as np
import pytest

import trunkfirst
from trunkfirst.chosen import Chosen
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import ValueRangeError
from trunkfirst.fitting import FitResult, fit_method, prediction_intervals
from trunkfirst.inputs import RawInputs
from trunkfirst.intervals import (
    LEVELS,
    HeldOut,
    Intervals,
    Novelty,
    conformal_intervals,
    conformal_quantile,
    fit_novelty,
    intervals_from,
    novelty_from,
)
from trunkfirst.regressors.ridge import Linear
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

METHOD = TwoStep(ModesTrunk(), Linear(), inputs=RawInputs(), weights="none")
SAMPLES, NEW = 240, 2000
X = np.linspace(0, 1, 30)


def surprising(samples: int, seed: int, *, channels: int | None = None) -> OperatorData:
    """u = (2 + a) + a x + b cos(2 x): the input is a, and b is unknown."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (samples, 1)), rng.standard_t(4, (samples, 1)) / 5
    x = np.linspace(0, 1, 25)
    outputs = 2 + a + a * x + b * np.cos(2 * x)
    if channels is not None:
        outputs = np.stack([outputs] * channels, axis=2) * np.arange(1, channels + 1)
    return OperatorData(a, x[:, None], outputs)


def fit(data: OperatorData) -> FitResult:
    return trunkfirst.fit(data, method=METHOD, intervals=True)


def intervals_of(result: FitResult) -> Intervals:
    found = result.training.intervals
    assert found is not None
    return found


@pytest.fixture(scope="module")
def result() -> FitResult:
    return fit(surprising(SAMPLES, 0))


@pytest.fixture(scope="module")
def intervals(result: FitResult) -> Intervals:
    return intervals_of(result)


def binomial(level: float, *counts: int) -> float:
    """Four standard deviations of a share, for calibration and test together."""
    return 4 * math.sqrt(sum(level * (1 - level) / count for count in counts))


# -- the quantile


@pytest.mark.parametrize(
    ("count", "level", "rank"), [(9, 0.9, 9), (99, 0.9, 90), (100, 0.9, 91), (20, 0.95, 20), (4, 0.8, 4)]
)
def test_the_quantile_is_a_score_by_its_rank(count: int, level: float, rank: int):
    scores = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    assert conformal_quantile(scores, level) == rank


@pytest.mark.parametrize(("count", "level"), [(8, 0.9), (18, 0.95), (1, 0.8)])
def test_too_few_scores_promise_nothing(count: int, level: float):
    assert np.isinf(conformal_quantile(np.ones(count), level))
    assert np.isinf(conformal_quantile(np.ones((count, 3)), level)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_the_quantile_covers_as_promised(level: float):
    """A new score lies below the quantile of 99 others with probability ceil(100 level) / 100, exactly."""
    rng = np.random.default_rng(1)
    scores = rng.exponential(size=(99, 5000))
    share = np.mean(rng.exponential(size=5000) <= conformal_quantile(scores, level))
    assert abs(share - math.ceil(100 * level) / 100) < binomial(level, 5000)


# -- intervals of a fit


@pytest.mark.parametrize("kind", ["field", "pointwise"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_promise_holds_on_new_samples(result: FitResult, intervals: Intervals, level: float, kind: str):
    new = surprising(NEW, 1)
    predicted = HeldOut(new, result.operator.predict(new.flat_inputs, new.points))
    found = intervals.coverage(predicted)[f"{level:g}"]
    assert abs(found[kind] - level) < binomial(level, SAMPLES, NEW)


def test_widths_are_those_of_what_is_not_known(intervals: Intervals):
    """|b| cos(2 x) is what is missed, so that half a width is a quantile of |b| times |cos(2 x)|."""
    x = np.linspace(0, 1, 25)
    b = np.abs(np.random.default_rng(5).standard_t(4, 100_000)) / 5
    for row, level in zip(intervals.pointwise, LEVELS, strict=True):
        assert np.allclose(row, np.quantile(b, level) * np.abs(np.cos(2 * x)), rtol=0.25, atol=0.03)
    assert (np.diff(intervals.field) > 0).all()
    assert (np.diff(intervals.pointwise, axis=0) >= 0).all()


def test_new_points_have_the_width_of_their_neighbours(intervals: Intervals):
    at = np.array([[0.0], [0.51], [0.99], [3.0]])
    assert np.array_equal(intervals.half_width(at, 0.9), intervals.pointwise[1][[0, 12, 24, 24]])
    assert intervals.field_bound(0.9) == intervals.field[1]


def test_points_in_single_precision_have_the_same_widths(intervals: Intervals):
    points = np.array([[0.1], [0.7]], np.float32)
    assert np.array_equal(intervals.half_width(points, 0.9), intervals.half_width(points.astype(float), 0.9))


@pytest.mark.parametrize("level", [0.5, 0.85, 0.99])
def test_a_level_that_is_not_known_is_refused(intervals: Intervals, level: float):
    with pytest.raises(ValueRangeError, match=rf"level is {level}; intervals are known for 0.8, 0.9, 0.95"):
        intervals.half_width(np.zeros((1, 1)), level)
    with pytest.raises(ValueRangeError):
        intervals.field_bound(level)


def test_every_channel_has_its_widths():
    found = intervals_of(fit(surprising(60, 0, channels=2)))
    assert found.pointwise.shape == (3, 25, 2)
    assert np.allclose(found.pointwise[..., 1], 2 * found.pointwise[..., 0], rtol=1e-3)
    assert found.half_width(np.zeros((4, 1)), 0.8).shape == (4, 2)


def test_bounds_are_quantiles_of_predictions_that_were_held_out():
    rng = np.random.default_rng(2)
    u, missed = 1 + rng.random((99, 4, 2)), rng.normal(size=(99, 4, 2))
    found = conformal_intervals(HeldOut(OperatorData(np.ones((99, 1)), np.arange(4.0)[:, None], u), u + missed))
    np.testing.assert_array_equal(found.pointwise[1], np.sort(np.abs((u + missed) - u), axis=0)[89])
    relative = np.sqrt(np.sum(missed**2, axis=(1, 2)) / np.sum((u + missed) ** 2, axis=(1, 2)))
    assert found.field[1] == pytest.approx(np.sort(relative)[89])


def test_intervals_are_those_of_as_many_modes_as_the_operator_has():
    """At x = 0 all outputs are 1. All modes together know that, the few that the linear branch can use do not."""
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 20)
    k, b = rng.uniform(1, 3, (230, 1)), rng.uniform(0, 1, (230, 1))
    data = OperatorData({"k": k, "b": b}, x[:, None], 1 + b * np.sin(k * x))
    train, new = data.take(slice(30)), data.take(slice(30, None))
    found = trunkfirst.fit(train, method=METHOD, intervals=True).operator.predict(new.flat_inputs, interval=0.9)
    covered = ((found.lower <= new.outputs) & (new.outputs <= found.upper)).mean(axis=0)
    assert covered.min() > 0.9 - binomial(0.9, 30, 200)


def test_what_was_not_measured_is_trained_once_more():
    """Without predictions from choosing, a fifth of the samples is left out."""
    data = surprising(100, 0)
    found = prediction_intervals(data, Chosen(METHOD), fit_method(data, METHOD))
    assert found is not None
    expected = intervals_of(fit(data))
    np.testing.assert_allclose(found.pointwise[0], expected.pointwise[0], rtol=0.6, atol=0.05)
    assert not np.array_equal(found.pointwise, expected.pointwise)


def test_few_samples_promise_little():
    found = intervals_of(fit(surprising(12, 0)))
    assert np.isfinite(found.field_bound(0.9))
    assert np.isinf(found.field_bound(0.95))


def test_intervals_to_arrays_and_back(intervals: Intervals):
    back = intervals_from({"points": np.zeros((2, 1)), **intervals.arrays()})
    assert isinstance(back, Intervals)
    assert all(np.array_equal(back.arrays()[name], array) for name, array in intervals.arrays().items())
    assert intervals_from({"points": np.zeros((2, 1))}) is None


# -- novelty


def fields(samples: int, *, seed: int, size: float = 1.0) -> np.ndarray:
    """Smooth random functions at 30 sensors."""
    k = np.arange(1, 5)
    return size * np.random.default_rng(seed).normal(size=(samples, 4)) / k @ np.cos(np.pi * k[:, None] * X)


def numbers(samples: int, *, seed: int, size: float = 1.0) -> np.ndarray:
    """Three numbers, in units that differ by a million."""
    return size * np.random.default_rng(seed).uniform(-1, 1, (samples, 3)) * [1.0, 1e-3, 1e3] + [1.0, 0.0, 50.0]


def noise(samples: int, *, seed: int, size: float = 1.0) -> np.ndarray:
    """Twenty sensors that have nothing to do with each other."""
    return size * np.random.default_rng(seed).normal(size=(samples, 20))


@pytest.mark.parametrize("samples", [30, 100, 400])
@pytest.mark.parametrize("make", [fields, numbers, noise])
def test_the_rate_of_false_alarms_is_the_stated_one(make, samples: int):
    """max(1 %, 1/(n + 1)) on average over training inputs; three standard errors of a mean of ten."""
    marked = [fit_novelty(make(samples, seed=k)).is_outlier(make(300, seed=100 + k)).mean() for k in range(10)]
    rate = max(0.01, 1 / (samples + 1))
    assert np.mean(marked) <= rate * (1 + 3 / np.sqrt(10))


@pytest.mark.parametrize("make", [fields, numbers, noise])
def test_a_sensor_at_twice_its_maximum_is_found(make):
    train, new = make(300, seed=0), make(200, seed=1)
    sensors = np.random.default_rng(2).integers(0, train.shape[1], 200)
    new[np.arange(200), sensors] = 2 * train.max(axis=0)[sensors]
    assert fit_novelty(train).is_outlier(new).mean() > 0.95


OUTLIERS: dict[str, np.ndarray] = {
    "far too large": fields(20, seed=1, size=50.0),
    "of another shape": np.sin(40 * np.pi * X)[None] * np.ones((3, 1)),
    "shifted": fields(20, seed=1) + 3.0,
    "one sensor is faulty": fields(20, seed=1) + 5.0 * np.eye(30)[7],
}


@pytest.mark.parametrize("name", OUTLIERS)
def test_other_functions_are_outliers(name: str):
    assert fit_novelty(fields(200, seed=0)).is_outlier(OUTLIERS[name]).all()


@pytest.mark.parametrize("number", range(3))
def test_a_number_outside_its_range_is_an_outlier_in_any_unit(number: int):
    train = numbers(200, seed=0)
    known = fit_novelty(train)
    moved = train[:10].copy()
    moved[:, number] = train[:, number].max() + np.ptp(train[:, number])
    assert known.is_outlier(moved).all()


def test_a_hole_in_the_training_inputs_holds_outliers():
    """Inside the range, but far from everything seen."""
    angle = np.linspace(0, 2 * np.pi, 100)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    known = fit_novelty(ring)
    assert not known.is_outlier(ring * 1.01).any()
    assert known.is_outlier(np.zeros((1, 2))).all()


@pytest.mark.parametrize("inputs", [np.ones((1, 3)), np.ones((20, 3)), np.zeros((2, 1))], ids=str)
def test_inputs_that_never_change(inputs: np.ndarray):
    known = fit_novelty(inputs)
    assert not known.is_outlier(inputs).any()
    assert known.is_outlier(inputs + 1).all()


def test_of_many_samples_some_are_kept():
    known = fit_novelty(fields(5000, seed=0))
    assert len(known.seen) == 2000
    assert known.seen.shape[1] <= 8


def test_novelty_to_arrays_and_back():
    known = fit_novelty(fields(50, seed=0))
    back = novelty_from({"points": X, **known.arrays()})
    assert isinstance(back, Novelty)
    new = np.concatenate([fields(50, seed=1), OUTLIERS["shifted"]])
    assert np.array_equal(back.is_outlier(new), known.is_outlier(new))
    assert novelty_from({"points": X}) is None


def test_novelty_of_version_0_1_is_read():
    known = fit_novelty(fields(50, seed=0))
    old = {"centre": known.centre, "matrix": known.matrix, "seen": known.seen, "distance": 2.0, "remainder": 0.1}
    back = novelty_from({f"familiarity.{name}": np.asarray(array) for name, array in old.items()})
    assert back is not None
    assert back.is_consistent
    assert not back.is_outlier(fields(50, seed=0)).any()
    assert back.is_outlier(OUTLIERS["far too large"]).any()
    assert back.is_outlier(OUTLIERS["of another shape"]).all()
