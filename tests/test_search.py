"""Choosing by the error of the whole operator: honest, finite, the same with and without test samples."""

import dataclasses as dc
import functools as ft
import gc
import importlib
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import compilations
from own_problems import antiderivative

import trunkfirst
from trunkfirst import search
from trunkfirst.candidates import Candidate
from trunkfirst.clock import Clock
from trunkfirst.comparison import Comparison
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import DataError
from trunkfirst.evaluation import evaluate, predict_at
from trunkfirst.files.text_files import read_json
from trunkfirst.fitting import FitResult, choose, fit_method
from trunkfirst.inputs import PowerInputs, PrincipalInputs, RawInputs, StandardisedInputs
from trunkfirst.outputs import Output
from trunkfirst.progress import Silent
from trunkfirst.regressors.network import NetworkBranch
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.run_data import DataSettings, split_data
from trunkfirst.trials import Folds
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

X = np.linspace(0, 1, 30)
SHORT = {"minutes": 60.0, "intervals": False}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed forms with one length alone, however slow the machine: they compile nothing."""
    monkeypatch.setattr(search, "_MIN_SECONDS", np.inf)
    monkeypatch.setattr(search, "_MIN_TRUNK_SECONDS", np.inf)
    monkeypatch.setattr(search, "anisotropic_encodings", lambda *_: [])


def nonlinear(samples: int, seed: int = 0, *, channels: int | None = None, **more: Any) -> OperatorData:
    """u = a exp(-b x) + cos(c x), smooth in three positive numbers."""
    a, b, c = np.random.default_rng(seed).uniform(0.5, 2, (3, samples, 1))
    u = a * np.exp(-b * X) + np.cos(c * X)
    outputs = u if channels is None else np.stack([100**k * u ** (k + 1) for k in range(channels)], axis=2)
    return OperatorData(np.hstack([a, b, c]), X[:, None], outputs, **more)


def fit(data: OperatorData, **more: Any) -> FitResult:
    return trunkfirst.fit(data, **{**SHORT, **more})


class Lines(Silent):
    """Keeps what is said."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def say(self, text: str) -> None:
        self._lines.append(text)


def kind(result: FitResult) -> tuple[type, type]:
    assert isinstance(result.method, TwoStep)
    return type(result.method.trunk), type(result.method.branch)


# -- what a fold measures


# Settings that are chosen differ in their last digits, and a small ridge makes that visible.
LINEAR, ONE = Linear(), Kernel(length=2.0, ridge=1e-4)
RAW, STANDARD = RawInputs(), StandardisedInputs()
WEIGHTS = np.random.default_rng(3).uniform(0.2, 2, 30)
POSITIVE = Output(positive=True)
FIXED = Output(fixed=("x-",), value=2.0)
CASES: dict[str, tuple[Candidate, dict[str, Any], Output]] = {
    "linear": (Candidate(RAW, LINEAR, "none"), {}, Output()),
    "relative": (Candidate(STANDARD, LINEAR), {}, Output()),
    "kernel": (Candidate(StandardisedInputs("log"), ONE, "none"), {}, Output()),
    "powers": (Candidate(PowerInputs(), ONE, "none"), {}, Output()),
    "coordinates": (Candidate(PrincipalInputs(2), ONE), {}, Output()),
    "channels": (Candidate(STANDARD, ONE), {"channels": 2}, Output()),
    "weights of channels": (Candidate(STANDARD, LINEAR), {"channels": 2}, Output(channel_weights=(1.0, 9.0))),
    "noise in a channel": (Candidate(STANDARD, LINEAR, "none"), {"channels": 2}, Output()),
    "weights": (Candidate(STANDARD, ONE), {"point_weights": WEIGHTS, "sample_weights": WEIGHTS}, Output()),
    "positive": (Candidate(STANDARD, ONE), {}, POSITIVE),
    "fixed": (Candidate(STANDARD, ONE), {}, FIXED),
    "three modes": (Candidate(STANDARD, ONE, modes=3), {"channels": 2, "point_weights": WEIGHTS}, Output()),
    "two modes": (Candidate(STANDARD, LINEAR, "none", modes=2), {}, Output()),
    "positive, three modes": (Candidate(STANDARD, ONE, modes=3), {}, POSITIVE),
}


def positive(data: OperatorData) -> OperatorData:
    return dc.replace(data, outputs=np.exp(data.outputs))


def fixed_at_zero(data: OperatorData) -> OperatorData:
    return dc.replace(data, outputs=2 + X * data.outputs)


def with_noise(data: OperatorData) -> OperatorData:
    """A small channel that asks for a large ridge: for all channels only if they are scaled."""
    noise = 1e-4 * np.random.default_rng(0).normal(size=(data.samples, len(X)))
    return dc.replace(data, outputs=np.stack([data.outputs[..., 0], noise], axis=2))


CHANGES = {
    "fixed": fixed_at_zero,
    "positive": positive,
    "positive, three modes": positive,
    "noise in a channel": with_noise,
}


@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_operators_fitted_without_the_part(name: str):
    """Trunk, scales, weights, encoder and branch are all fitted anew."""
    candidate, more, output = CASES[name]
    data = nonlinear(30, **more)
    data = CHANGES.get(name, lambda each: each)(data)
    parts = np.array_split(np.random.default_rng(1).permutation(30), 4)
    folds = Folds(data, output, parts)
    found, predicted = folds.errors(candidate), folds.predictions(candidate)
    trunk = ModesTrunk(candidate.modes)
    method = TwoStep(trunk, candidate.branch, inputs=candidate.inputs, weights=candidate.weights, output=output)
    for part in parts:
        rest = np.setdiff1d(np.arange(30), part)
        operator = fit_method(data.take(rest), method).operator
        np.testing.assert_allclose(found[part], evaluate(operator, data.take(part)).errors, rtol=1e-8)
        np.testing.assert_allclose(predicted[part], predict_at(operator, data.take(part)), rtol=1e-8)


def test_modes_that_hold_noise_are_left_out():
    data = nonlinear(80)
    noise = 0.02 * np.random.default_rng(0).normal(size=data.outputs.shape)
    noisy = dc.replace(data, outputs=data.outputs + noise)
    branch = Kernel(length=3.0, ridge=1e-6)  # which would reproduce the noise
    results: dict[Any, Any] = {
        width: fit(noisy, method=TwoStep(ModesTrunk(width), branch, inputs=STANDARD, weights="none"))
        for width in (None, 79, 3)
    }
    chosen = results[None].method.trunk.width
    assert 2 <= chosen < 20
    new = nonlinear(50, seed=1)
    errors = {width: evaluate(each.operator, new).errors.mean() for width, each in results.items()}
    assert errors[None] < 0.8 * errors[79]
    # What is printed is the error of the operator with its own number of modes.
    printed = {width: each.validation_error for width, each in results.items()}
    assert printed[None] < printed[79]
    assert printed[3] != printed[79]


def test_modes_that_new_samples_need_are_kept():
    """The last modes matter little to the samples that they were computed from, and more to others."""
    x = np.linspace(0, 1, 101)[1:-1]
    places = np.random.default_rng(0).uniform(0.2, 0.8, (160, 1))
    bumps = np.exp(-(((x - places) / 0.05) ** 2))
    inverse = np.minimum(x[:, None], x) * (1 - np.maximum(x[:, None], x)) / 100  # of -u'' with zeros at both ends
    data = OperatorData(bumps, x[:, None], bumps @ inverse)
    train, new = data.take(slice(0, 60)), data.take(slice(60, None))
    method = TwoStep(branch=Linear(), inputs=STANDARD, weights="none")
    found = fit(train, method=method).operator
    whole = fit_method(train, dc.replace(method, trunk=ModesTrunk())).operator
    assert evaluate(found, new).errors.mean() < 1.05 * evaluate(whole, new).errors.mean()


def steps(samples: int, seed: int = 0) -> OperatorData:
    a, b = np.random.default_rng(seed).random((2, samples, 1))
    return OperatorData(np.hstack([a, b]), X[:, None], np.where(0.2 + 0.6 * a > X, 1 + b, 0.3))


def test_every_candidate_has_a_number_of_modes_of_its_own():
    """The few modes that are best for a baseline would be the limit of all that follows."""
    choice = fit(steps(60)).chosen.choice
    assert choice is not None
    errors = choice.errors
    few = [name for name in errors if name.startswith("PCA + kernel ridge, ")]
    assert few
    assert errors[few[0]] < errors["PCA + kernel ridge"]
    assert errors["kernel, standardise"] == pytest.approx(errors["PCA + kernel ridge"], rel=0.1)


def test_nothing_of_a_comparison_is_kept_after_it():
    folds = Folds(nonlinear(10), Output(), [np.arange(5), np.arange(5, 10)])
    folds.errors(Candidate(STANDARD, Linear()))
    folds.mode_sizes("relative")
    left = weakref.ref(folds)
    del folds
    gc.collect()
    assert left() is None


def test_a_part_has_no_say_in_what_predicts_it():
    """Other outputs of the part left out: the same predictions of it, to the bit but for the common basis."""
    data, part = nonlinear(20), np.arange(5)
    changed = data.outputs.copy()
    changed[part] = np.random.default_rng(0).normal(size=(5, 30))
    candidate = Candidate(STANDARD, ONE)
    one, other = (
        Folds(each, Output(), [part]).predictions(candidate)[part]
        for each in (data, dc.replace(data, outputs=changed))
    )
    np.testing.assert_allclose(one, other, rtol=1e-8)


def test_closed_forms_compile_nothing():
    with compilations() as compiled:
        for make in (antiderivative, nonlinear):
            parts = split_data(make(17), DataSettings())
            chosen = choose(TwoStep(), parts, seed=0, clock=Clock(60.0))
            assert chosen.validation_error is not None
            assert isinstance(chosen.method, TwoStep)
            assert isinstance(chosen.method.trunk, ModesTrunk)
        assert not compiled
        jax.jit(lambda a: a + len(X) + 0.5)(X)  # which is heard
        assert compiled


# -- what is chosen


def test_a_linear_operator_is_finished_at_once():
    result = fit(antiderivative(40))
    assert kind(result) == (ModesTrunk, Linear)
    assert result.validation_error is not None
    assert result.validation_error < 1e-10
    assert result.chosen.choice is not None
    assert not any("network" in name for name in result.chosen.choice.errors)


class Listening(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_noise_is_said_to_be_noise():
    data, listening = nonlinear(60), Listening()
    noise = np.random.default_rng(1).normal(size=data.outputs.shape)
    fit(dc.replace(data, outputs=data.outputs + noise), progress=listening)
    assert any("noise of the outputs" in text for text in listening.said)


@pytest.mark.slow
def test_what_few_modes_leave_out_is_no_noise(monkeypatch: pytest.MonkeyPatch):
    """Of a shock that moves, for which few modes are better than all."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    train, listening = importlib.import_module("strangers").shock()["train"], Listening()
    trunkfirst.fit(train["inputs"], train["outputs"], train["points"], minutes=1, progress=listening)
    assert not any("noise of the outputs" in text for text in listening.said)


def test_test_samples_touch_nothing():
    """Other inputs and outputs of the test samples: the same choices, bits and error."""
    data = nonlinear(40)
    first = fit(data, test_share=0.2)
    test = trunkfirst.Split.random(40, validation_share=0.1, test_share=0.2, seed=0).test
    rng = np.random.default_rng(1)
    inputs, outputs = data.flat_inputs.copy(), data.outputs.copy()
    inputs[test], outputs[test] = 50 * rng.random((8, 3)), 1e3 * rng.normal(size=(8, 30))
    second = fit(OperatorData(inputs, data.points, outputs), test_share=0.2)
    assert second.method == first.method
    assert second.validation_error == first.validation_error
    assert second.chosen.choice is not None
    assert first.chosen.choice is not None
    assert second.chosen.choice.errors == first.chosen.choice.errors
    new = nonlinear(5, 1)
    one, other = (each.operator.predict(new.flat_inputs, new.points) for each in (first, second))
    assert np.array_equal(one, other)
    assert first.evaluation is not None
    assert second.evaluation is not None
    assert first.evaluation.errors.mean() < second.evaluation.errors.mean()


def test_baselines_stand_beside_the_error(tmp_path: Path):
    result = fit(nonlinear(40), out=tmp_path / "run")
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert [each["kind"] for each in metrics["baseline"]] == ["pca-ridge", "pca-kernel-ridge"]
    assert all(each["seconds"] > 0 for each in metrics["baseline"])
    assert metrics["chosen"]["trunk"] == "modes"
    assert metrics["validation"]["mean_relative_l2"] == result.validation_error
    least = min(each["mean_relative_l2"] for each in metrics["baseline"])
    assert result.chosen.choice is not None
    assert result.chosen.choice.error <= least
    # Also where nothing is left open.
    method = TwoStep(ModesTrunk(), Linear(), inputs=STANDARD, weights="none")
    fit(nonlinear(40), method=method, out=tmp_path / "set")
    again = read_json(tmp_path / "set" / "metrics.json")["baseline"]
    assert [each["mean_relative_l2"] for each in again] == pytest.approx(
        [each["mean_relative_l2"] for each in metrics["baseline"]], rel=1e-9
    )


# -- fields of zeros


def with_zeros(data: OperatorData, rows: Any) -> OperatorData:
    outputs = data.outputs.copy()
    outputs[rows] = 0
    return dc.replace(data, outputs=outputs)


def test_one_sample_of_zeros_does_not_decide():
    result, usual = fit(with_zeros(nonlinear(41), 7)), fit(nonlinear(41).take(np.delete(np.arange(41), 7)))
    assert kind(result) == kind(usual)
    assert result.chosen.choice is not None
    assert np.isfinite(list(result.chosen.choice.errors.values())).all()
    assert result.validation_error is not None
    assert result.validation_error < 1


def test_one_small_field_does_not_decide():
    """Its relative error is large with any operator; the best for all others is chosen."""
    usual = nonlinear(41)
    outputs = usual.outputs.copy()
    outputs[7] *= 1e-4  # what its input does not say
    lines: list[str] = []
    result = fit(dc.replace(usual, outputs=outputs), progress=Lines(lines))
    new = nonlinear(300, 1)
    assert evaluate(result.operator, new).errors.mean() < 0.3
    assert "mostly that of training samples 7: about" in "".join(lines)


@pytest.mark.parametrize(("worst", "best"), [(0.1, "trained"), (0.9, "closed"), (np.inf, "trained")])
def test_one_sample_alone_does_not_choose_what_is_trained(worst: float, best: str):
    parts = np.split(np.arange(40), 2)
    comparison = Comparison(parts, 40, measured=True)
    comparison.errors = {"closed": np.full(40, 0.1), "trained": np.full(40, np.nan)}
    comparison.errors["closed"][np.flatnonzero(comparison.first)[0]] = worst
    comparison.errors["trained"][parts[0]] = 0.09 if best == "trained" else 0.101
    assert comparison.best(["closed", "trained"]) == best


def test_half_of_the_fields_may_be_zero():
    """u = max(a, 0) sin(3 x): zero for negative a."""
    a = np.random.default_rng(0).uniform(-1, 1, (40, 1))
    data = OperatorData(a, X[:, None], np.maximum(a, 0) * np.sin(3 * X))
    assert 10 < (data.outputs == 0).all(axis=1).sum() < 30
    result = fit(data)
    assert kind(result) == (ModesTrunk, Kernel)
    assert result.validation_error is not None
    assert result.validation_error < 0.3


@pytest.mark.parametrize("outputs", [np.zeros((12, 30)), np.zeros((12, 30, 2))], ids=["one", "channels"])
def test_outputs_of_zeros_are_a_clear_sentence(outputs: np.ndarray):
    with pytest.raises(DataError, match="outputs: all values are zero"):
        fit(dc.replace(nonlinear(12), outputs=outputs))


def test_a_channel_of_zeros_is_predicted():
    data = nonlinear(20)
    result = fit(dc.replace(data, outputs=np.stack([data.outputs, 0 * data.outputs], axis=2)))
    found = result.operator.predict(data.flat_inputs, data.points)
    assert np.abs(found[..., 1]).max() < 1e-12
    np.testing.assert_allclose(found[..., 0], data.outputs, rtol=0.1, atol=0.1)
    assert result.validation_error is not None
    assert 0 < result.validation_error < 0.1


# -- few samples


@pytest.mark.filterwarnings("ignore:inputs. .* lie far outside")
@pytest.mark.parametrize("samples", [3, 4, 9])
def test_few_samples_are_enough(samples: int):
    result = fit(nonlinear(samples))
    assert result.status == "finished"
    assert result.validation_error is not None
    assert np.isfinite(result.validation_error)
    assert np.isfinite(result.operator.predict(nonlinear(5).flat_inputs)).all()


@pytest.mark.parametrize("samples", [9, 20])
def test_the_error_of_few_samples_is_that_of_leaving_each_of_them_out(samples: int):
    data, method = nonlinear(samples), TwoStep(ModesTrunk(), Linear(1e-6), inputs=STANDARD, weights="none")
    rows = np.arange(samples)
    errors = [
        evaluate(fit_method(data.take(np.delete(rows, k)), method).operator, data.take(rows[k : k + 1])).errors
        for k in rows
    ]
    assert fit(data, method=method).validation_error == pytest.approx(np.mean(errors), rel=1e-8)


def test_the_error_of_few_samples_is_not_that_of_fewer():
    """That of an analytic function falls fast: without a fifth of the samples it is many times larger."""
    ratios = []
    for seed in range(3):
        result = fit(analytic(25, seed), method=TwoStep(branch=Kernel("inf", lengths="each", linear_factor=True)))
        assert result.validation_error is not None
        ratios.append(result.validation_error / evaluate(result.operator, analytic(200, seed + 50)).errors.mean())
    assert 0.5 < np.exp(np.mean(np.log(ratios))) < 3


def analytic(samples: int, seed: int) -> OperatorData:
    a, b = np.random.default_rng(seed).random((2, samples, 1))
    return OperatorData(
        np.hstack([a, b]), X[:, None], (1 + a) * np.sin(np.pi * X * (1 + b)) + a**2 * np.cos(7 * X)
    )


def test_two_samples_are_too_few():
    with pytest.raises(DataError, match="samples: 2 for training; choosing and measuring need 3 or more"):
        fit(nonlinear(2))


# -- the error and the intervals hold on new samples


@pytest.mark.parametrize("make", [nonlinear, ft.partial(nonlinear, channels=2)], ids=["one", "channels"])
def test_the_error_is_that_of_new_samples(make: Any):
    ratios = []
    for seed in range(3):
        result = fit(make(60, seed))
        assert result.validation_error is not None
        ratios.append(evaluate(result.operator, make(500, seed + 50)).errors.mean() / result.validation_error)
    # Operators of four fifths of the samples are worse than that of all; never is the error reported too small.
    assert 0.2 < np.exp(np.mean(np.log(ratios))) < 1.5


def slowly_falling(samples: int, seed: int) -> OperatorData:
    """u = sum a_k sin(k pi x) / k, of which the first five a_k are given."""
    k = np.arange(1, 60)[:, None]
    a = np.random.default_rng(seed).normal(size=(samples, 59))
    x = np.linspace(0, 1, 80)
    return OperatorData(a[:, :5], x[:, None], (a / k.T) @ np.sin(np.pi * k * x))


@pytest.mark.parametrize("method", [None, TwoStep(ModesTrunk(), Linear(), inputs=RawInputs(), weights="none")])
def test_intervals_cover_where_modes_of_few_samples_miss_something(method: TwoStep | None):
    """Modes that had seen the samples left out would make them falsely small."""
    shares = []
    for seed in range(4 if method is None else 10):
        result = fit(slowly_falling(40, seed), method=method, intervals=True)
        new = slowly_falling(300, seed + 100)
        found = result.operator.predict(new.flat_inputs, interval=0.9)
        shares.append(np.mean((found.lower <= new.outputs) & (new.outputs <= found.upper)))
    assert np.mean(shares) > 0.85


def bumps(samples: int, seed: int) -> OperatorData:
    """Bumps at a place and of a width on the left; on the right the outputs are constant."""
    place, width = np.random.default_rng(seed).uniform((0.1, 0.03), (0.3, 0.06), (samples, 2)).T[..., None]
    return OperatorData(np.hstack([place, width]), X[:, None], 0.2 + np.exp(-(((X - place) / width) ** 2)))


def test_intervals_cover_where_outputs_are_constant():
    """The operator has fewer modes than those it was compared with, whose errors there are of rounding size."""
    method = TwoStep(ModesTrunk(), Kernel(), inputs=StandardisedInputs(), weights="none")
    result, new = fit(bumps(60, 0), method=method, intervals=True), bumps(300, 1)
    found = result.operator.predict(new.flat_inputs, interval=0.9)
    is_quiet = np.ptp(new.outputs, axis=0) < 1e-12
    assert is_quiet.sum() > 5
    inside = (found.lower <= new.outputs) & (new.outputs <= found.upper)
    assert inside[:, is_quiet].mean() > 0.75


def test_few_samples_all_measure_what_was_trained():
    """Networks are compared on one part; the winner is measured on the other parts too, where these are few."""
    data = split_data(nonlinear(30), DataSettings(test_share=0))
    method = TwoStep(ModesTrunk(), NetworkBranch((8,), iterations=5), inputs=StandardisedInputs(), weights="none")
    chosen = choose(method, data, seed=0, intervals=True)
    assert chosen.held_out is not None
    assert chosen.validation_error is not None
    held_out = chosen.held_out()
    assert held_out.data.samples == 30
    errors = np.linalg.norm(held_out.errors, axis=1) / np.linalg.norm(held_out.data.outputs, axis=1)
    assert chosen.validation_error == pytest.approx(errors.mean(), rel=0.05)
