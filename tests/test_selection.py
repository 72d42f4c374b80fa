"""Choosing on validation samples: what a trial measures, which candidate wins, what is worth trying."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import as_fields, waves

from trunkfirst.auto import encoding_candidates
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.sample_weights import relative_weights
from trunkfirst.data.scattered_data import AnyData, scattered_from_lists
from trunkfirst.encode import make_fields
from trunkfirst.encoders import AbstractInputs, Identity, PerInput, PrincipalInputs, RawInputs, StandardisedInputs
from trunkfirst.networks.layers import Perceptron
from trunkfirst.records import Choice
from trunkfirst.regressors.base import AbstractRegressor, Regression, Task
from trunkfirst.regressors.ridge import Linear
from trunkfirst.settings import record
from trunkfirst.trials import Candidate, Trial, aligned_trial, best_of, measure

RNG = np.random.default_rng(0)
EACH = PerInput({"a": StandardisedInputs(), "f": PrincipalInputs(1)})


@record
class Fixed(AbstractRegressor):
    """Gives c(f) = f M, whatever the targets; remembers what it was told."""

    matrix: Any = None
    seen: list[Any] = dc.field(default_factory=list)
    groups: list[tuple[int, ...]] = dc.field(default_factory=list)

    def learn(self, task: Task) -> Regression:
        self.seen.append(task.weights)
        self.groups.append(task.layout.groups)
        M = np.zeros((task.inputs.shape[1], task.targets.shape[1])) if self.matrix is None else self.matrix
        branch = Perceptron((jnp.asarray(M.T),), (jnp.zeros(M.shape[1]),), "tanh")
        return Regression(branch, 0.0, "finished", 0, 0.0)


def linear_data(samples: int = 30, seed: int = 0, **more: Any) -> OperatorData:
    """u = a x + b x^2 + c x^3."""
    inputs = np.random.default_rng(seed).normal(size=(samples, 3))
    x = np.linspace(0, 1, 20)
    return OperatorData(inputs, x[:, None], inputs @ np.stack([x, x**2, x**3]), **more)


def trial_of(train: OperatorData, validation: OperatorData) -> Trial:
    return aligned_trial(train, validation, as_fields(train), as_fields(validation))


def error_of(
    trial: Trial, regressor: AbstractRegressor, encoding: AbstractInputs = RawInputs(), **more: Any
) -> float:
    with jax.enable_x64(True):
        return trial.error(Candidate(encoding, regressor, **more), key=jr.key(0))


# -- a trial


@pytest.mark.parametrize("weighted", [False, True])
def test_a_trial_measures_the_relative_error_of_fields(weighted: bool):
    """Against predictions of the fields themselves, point weights included; two channels count together."""
    weights = RNG.uniform(0.5, 1.5, 20) if weighted else None
    train, validation = linear_data(point_weights=weights), linear_data(10, 1, point_weights=weights)
    trial = trial_of(train, validation)
    M = RNG.normal(size=(3, trial.targets.shape[1]))
    with jax.enable_x64(True):
        found = error_of(trial, Fixed(M))
    # The modes are orthonormal in the weighted mean: find them again from targets and outputs.
    modes = np.linalg.lstsq(trial.targets, train.outputs, rcond=None)[0]
    w = np.full(20, 1 / 20) if train.point_weights is None else train.point_weights
    missed = validation.flat_inputs @ M @ modes - validation.outputs
    expected = np.sqrt(missed**2 @ w / (validation.outputs**2 @ w)).mean()
    assert found == pytest.approx(expected, rel=1e-6)


def test_what_no_coefficient_reaches_counts():
    """Validation fields with a part that no training field has: even perfect coefficients leave it."""
    train, validation = linear_data(), linear_data(10, 1)
    x = train.points[:, 0]
    other = dc.replace(validation, outputs=validation.outputs + np.cos(9 * x))
    trial = trial_of(train, other)
    exact = Linear()
    assert error_of(trial_of(train, validation), exact) < 1e-6
    span = np.stack([x, x**2, x**3], axis=1)
    rest = np.cos(9 * x) - span @ np.linalg.lstsq(span, np.cos(9 * x), rcond=None)[0]
    assert np.allclose(trial.rest, np.sqrt(np.mean(rest**2)), rtol=1e-6)
    assert error_of(trial, exact) > np.mean(trial.rest / trial.sizes)


def test_relative_candidates_are_given_weights():
    regressor = Fixed()
    trial = trial_of(linear_data(), linear_data(10, 1))
    for weights in ("relative", "none"):
        assert error_of(trial, regressor, weights=weights) == pytest.approx(1.0)  # predicts nothing
    assert regressor.seen[1] is None
    assert np.allclose(regressor.seen[0], relative_weights(linear_data()))


def test_many_samples_are_thinned_out_with_their_channels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trunkfirst.trials._MAX_SAMPLES", 12)
    x = np.linspace(0, 1, 20)
    inputs = RNG.normal(size=(30, 2))
    outputs = np.stack([inputs[:, :1] * x, inputs[:, 1:] * x**2 + 0 * x], axis=2)
    data = OperatorData(inputs, x[:, None], outputs)
    with jax.enable_x64(True):
        fields = make_fields(data, Identity(), None, None)
    trial = aligned_trial(data, data, fields, fields)
    assert (trial.train.samples, len(trial.targets), trial.validation.samples) == (12, 12, 30)
    assert error_of(trial, Linear()) < 1e-6  # inputs and targets still belong together


def test_candidates_are_told_the_groups_of_inputs():
    """A product branch is a candidate like any other, and needs them."""
    data = waves(20, sensors=5)
    parts = {"a": InputFunction(data.flat_inputs[:, :2]), "f": InputFunction(data.flat_inputs[:, 2:])}
    data = OperatorData(parts, data.points, data.outputs)
    trial = trial_of(data.take(np.arange(15)), data.take(np.arange(15, 20)))
    for encoding, groups in ((EACH, (2, 1)), (StandardisedInputs(), (5,))):
        regressor = Fixed()
        error_of(trial, regressor, encoding)
        assert regressor.groups == [groups]


# -- a choice


def choice_of(errors: dict[str, list[float]], nearly: float) -> tuple[Any, list[str]]:
    """The choice among candidates with known errors on each of several trials."""
    said: list[str] = []

    class Known:
        def __init__(self, fold: int) -> None:
            self.fold = fold

        def error(self, candidate: Any, *, key: Any) -> float:
            return errors[candidate][self.fold]

    folds = [Known(fold) for fold in range(len(next(iter(errors.values()))))]
    found = measure(folds, {name: name for name in errors}, key=0, on_error=lambda name, _: said.append(name))
    return Choice(best_of(found, list(found), nearly), found), said


def test_the_mean_over_the_folds_decides():
    choice, said = choice_of({"a": [0.1, 0.9], "b": [0.4, 0.4], "c": [0.5, 0.2]}, 1.0)
    assert choice.name == "c"
    assert choice.errors == pytest.approx({"a": 0.5, "b": 0.4, "c": 0.35})
    assert choice.error == pytest.approx(0.35)
    assert said == ["a", "b", "c"]


@pytest.mark.parametrize(("nearly", "name"), [(1.0, "c"), (1.2, "b"), (2.0, "a")])
def test_the_first_that_is_nearly_as_good_is_taken(nearly: float, name: str):
    assert choice_of({"a": [0.19], "b": [0.11], "c": [0.10]}, nearly)[0].name == name


def test_errors_that_are_not_numbers_never_win():
    assert best_of({"a": np.nan, "b": np.inf, "c": 3.0}, ["a", "b", "c"]) == "c"
    assert best_of({"a": np.nan, "b": np.nan}, ["a", "b"]) == "a"
    assert best_of({"a": 1.0, "b": 2.0}, ["b"]) == "b"  # only among those named


# -- what is worth trying


def names_of(data: AnyData) -> tuple[str, ...]:
    return tuple(map(str, encoding_candidates(data)))


def with_inputs(**functions: np.ndarray) -> OperatorData:
    return OperatorData(
        {name: InputFunction(values) for name, values in functions.items()}, np.ones((3, 1)) * [[1], [2], [3]],
        np.ones((40, 3)),
    )  # fmt: skip


def test_functions_at_very_many_sensors_go_by_their_principal_coordinates():
    names = names_of(with_inputs(f=RNG.normal(size=(40, 1001))))
    assert names == ("principal:1", "principal:4", "principal:16", "predictive:8", "predictive:16")
    assert names_of(with_inputs(f=RNG.normal(size=(40, 1000))))[0] == "standardise"


def test_several_numbers_are_one_input_and_several_functions_are_not():
    numbers = with_inputs(a=RNG.uniform(1, 2, (40, 1)), b=RNG.normal(size=(40, 1)))
    assert names_of(numbers) == ("standardise", "log", "inverse", "inverse-root")
    functions = with_inputs(a=RNG.uniform(1, 2, (40, 2)), f=RNG.normal(size=(40, 12)))
    names = names_of(functions)
    assert names[0] == "a=standardise,f=standardise"
    assert "a=log,f=principal:1" in names
    assert len(set(names)) == len(names) == 4  # as many as the function with the longest list has
    assert all(each.fit(functions) for each in encoding_candidates(functions))


def test_scattered_outputs_have_no_predictive_coordinates():
    inputs = RNG.normal(size=(20, 30))
    points = [RNG.uniform(size=(4, 2)) for _ in range(20)]
    scattered = scattered_from_lists(inputs, points, [np.ones(4)] * 20)
    assert not any("predictive" in name for name in names_of(scattered))
    assert any("predictive" in name for name in names_of(OperatorData(inputs, points[0], np.ones((20, 4)))))
