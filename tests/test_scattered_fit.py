"""Fits of samples at points of their own, and of given network trunks: honest choices, errors and intervals."""

import dataclasses as dc
from typing import Any

import numpy as np
import pytest

import trunkfirst
from trunkfirst import search
from trunkfirst.evaluation import evaluate, predict_at
from trunkfirst.fitting import FitResult, fit_method
from trunkfirst.inputs import RawInputs, StandardisedInputs
from trunkfirst.intervals import HeldOut
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.progress import Silent
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.trials import Candidate, TrainedTrunk
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

X = np.linspace(0, 1, 40)
NETWORK = NetworkTrunk(hidden=(12,), width=6, iterations=30, starts=1)
GIVEN = TwoStep(NETWORK, Linear(1e-6), inputs=RawInputs(), weights="none")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed forms with one length alone, however slow the machine."""
    monkeypatch.setattr(search, "_MIN_SECONDS", np.inf)
    monkeypatch.setattr(search, "_MIN_TRUNK_SECONDS", np.inf)
    monkeypatch.setattr(search, "anisotropic_encodings", lambda *_: [])


def falling(samples: int, seed: int, x: np.ndarray | None = None, noise: float = 0.0) -> Any:
    """u = sum a_k sin(k pi x) / k, of which the first three a_k are given: at random points, or all at x."""
    rng = np.random.default_rng(seed)
    k, a = np.arange(1, 30), rng.normal(size=(samples, 29))

    def fields(coefficients: np.ndarray, at: np.ndarray) -> np.ndarray:
        return coefficients / k @ np.sin(np.pi * k[:, None] * at)

    if x is not None:
        return trunkfirst.OperatorData(a[:, :3], x[:, None], fields(a, x))
    places = [rng.uniform(0, 1, rng.integers(15, 40)) for _ in a]
    outputs = [fields(row, own) + noise * rng.normal(size=own.shape) for row, own in zip(a, places, strict=True)]
    return trunkfirst.scattered_from_lists(a[:, :3], [own[:, None] for own in places], outputs)


def smooth(samples: int, seed: int = 0, noise: float = 0.0) -> trunkfirst.ScatteredData:
    """u = a exp(-b x) + sin(3 c x) at 15 to 30 points a sample."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(0.5, 2, (samples, 3))
    places = [rng.uniform(0, 1, rng.integers(15, 31)) for _ in inputs]
    outputs = [
        a * np.exp(-b * x) + np.sin(3 * c * x) + noise * rng.normal(size=x.shape)
        for (a, b, c), x in zip(inputs, places, strict=True)
    ]
    return trunkfirst.scattered_from_lists(inputs, [x[:, None] for x in places], outputs)


class Listening(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def fit(data: Any, **more: Any) -> FitResult:
    return trunkfirst.fit(data, **{"minutes": 60.0, "intervals": False, **more})


# -- modes of samples at points of their own


def test_modes_at_the_same_points_are_those_of_aligned_data():
    aligned = falling(60, 0, X)
    points = np.broadcast_to(aligned.points, (60, 40, 1)).copy()
    method = TwoStep(ModesTrunk(5), Linear(), inputs=RawInputs(), weights="none")
    found, expected = (
        evaluate(fit_method(data, method).operator, aligned).optimal_errors.mean()
        for data in (trunkfirst.ScatteredData(aligned.inputs, points, aligned.outputs), aligned)
    )
    assert found == pytest.approx(expected, rel=1e-3)  # values are carried to the points, nearly exactly


def test_scattered_data_are_fitted_in_closed_form():
    """With the noise of the outputs, which a network with as many functions as points would fit."""
    result = fit(smooth(100, noise=0.02))
    assert isinstance(result.method, TwoStep)
    assert isinstance(result.method.trunk, ModesTrunk)
    new = smooth(200, 1)
    assert evaluate(result.operator, new).errors.mean() < 0.02  # of clean outputs


def test_modes_of_two_channels_and_fixed_values():
    data = smooth(60)
    two = dc.replace(data, outputs=np.stack([data.outputs, 100 * data.outputs], axis=2))
    errors = evaluate(fit(two).operator, two).channel_errors
    assert errors is not None
    assert max(each.mean() for each in errors.values()) < 0.03
    method = TwoStep(ModesTrunk(), output=trunkfirst.Output(fixed=("x-",), value=1.0))
    low = np.nanmin(data.points)
    fixed = dc.replace(data, outputs=1 + (data.points[..., 0] - low) * data.outputs)
    result = fit(fixed, method=method)
    assert evaluate(result.operator, fixed).errors.mean() < 0.03
    at_side = result.operator.predict(fixed.flat_inputs, np.array([[low]]))
    np.testing.assert_allclose(at_side, 1.0, atol=1e-9)


# -- what is left out


@pytest.mark.parametrize("trunk", [ModesTrunk(), NETWORK], ids=["modes", "network"])
@pytest.mark.parametrize("make", [falling, lambda n, seed: falling(n, seed, X)], ids=["scattered", "aligned"])
def test_errors_are_those_of_operators_trained_without_the_part(make: Any, trunk: Any):
    data = make(24, 0)
    parts = np.array_split(np.random.default_rng(1).permutation(24), 3)
    method = TwoStep(trunk, Linear(1e-4), inputs=StandardisedInputs(), weights="none")
    candidate = Candidate(StandardisedInputs(), Linear(1e-4), "none")
    trials = TrainedTrunk(data, method, parts)
    found, predicted = trials.errors(candidate), trials.predictions(candidate)
    for part in parts:
        operator = fit_method(data.take(np.setdiff1d(np.arange(24), part)), method).operator
        np.testing.assert_allclose(found[part], evaluate(operator, data.take(part)).errors, rtol=1e-8)
        np.testing.assert_allclose(predicted[part], predict_at(operator, data.take(part)), rtol=1e-7, atol=1e-12)
    assert trials.is_complete(candidate) == isinstance(trunk, ModesTrunk)
    assert trials.projection_error(candidate) < np.mean(found)


# -- errors and intervals hold on new samples


def coverage(result: FitResult, new: Any) -> float:
    found = result.training.intervals
    assert found is not None
    assert np.isfinite(found.pointwise[1]).all()
    return found.coverage(HeldOut(new, predict_at(result.operator, new)))["0.9"]["pointwise"]


CASES: dict[str, tuple[Any, TwoStep | None]] = {
    "scattered": (lambda n, seed: falling(n, seed, noise=0.05), None),
    "scattered, network": (lambda n, seed: falling(n, seed, noise=0.05), GIVEN),
    "aligned, network": (lambda n, seed: falling(n, seed, X), GIVEN),
    "aligned, network, choices": (
        lambda n, seed: falling(n, seed, X),
        TwoStep(NETWORK, Linear(), weights="none"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_and_the_error_is_that_of_new_samples(name: str):
    """Operators that had seen the samples left out, in their trunk alone, would make both falsely small."""
    make, method = CASES[name]
    shares, ratios = [], []
    for seed in range(3):
        result = fit(make(40 if method is None else 60, seed), method=method, intervals=True)
        new = make(300, seed + 100)
        shares.append(coverage(result, new))
        assert result.validation_error is not None
        ratios.append(evaluate(result.operator, new).errors.mean() / result.validation_error)
    assert np.mean(shares) > 0.85
    assert 0.5 < np.exp(np.mean(np.log(ratios))) < 1.3


def test_predictions_at_points_of_their_own_have_intervals():
    result = fit(smooth(60), intervals=True)
    found = result.operator.predict(smooth(5, 1).flat_inputs, np.array([[0.2], [0.7]]), interval=0.9)
    assert np.isfinite(found.upper).all()
    assert (found.lower < found.values).all()


def test_a_given_network_trunk_is_measured_only_for_intervals():
    assert fit(falling(30, 0, X), method=GIVEN).validation_error is None


# -- baselines, and what is said


@pytest.mark.parametrize("scattered", [True, False])
def test_baselines_stand_beside_a_network_trunk(scattered: bool):
    data, reporter = falling(60, 0) if scattered else falling(60, 0, X), Listening()
    result = fit(data, method=GIVEN, intervals=True, progress=reporter)
    assert result.chosen.choice is not None
    assert [each.kind for each in result.chosen.choice.baseline] == ["pca-ridge", "pca-kernel-ridge"]
    assert isinstance(result.method, TwoStep)
    assert result.method.trunk == NETWORK
    # What is measured are the same samples: the linear operator of modes and of the network are alike.
    ridge = result.chosen.choice.baseline[0].mean_relative_l2
    assert result.validation_error is not None
    assert 0.5 < ridge / result.validation_error < 2


def test_a_trunk_that_is_the_limit_is_said_to_be():
    reporter = Listening()
    poor = dc.replace(GIVEN, trunk=dc.replace(NETWORK, width=2, hidden=(2,)), branch=Kernel())
    fit(smooth_aligned(60), method=poor, intervals=True, progress=reporter)
    assert any("the trunk is the limit" in text and "% of the whole" in text for text in reporter.said)


def smooth_aligned(samples: int) -> trunkfirst.OperatorData:
    a, b, c = np.random.default_rng(0).uniform(0.5, 2, (3, samples, 1))
    outputs = a * np.exp(-b * X) + np.sin(3 * c * X)
    return trunkfirst.OperatorData(np.hstack([a, b, c]), X[:, None], outputs)
