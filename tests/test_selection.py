"""Choosing among candidates with known errors: which wins, what it is measured on, what to try."""

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import waves

from trunkfirst.candidates import (
    Candidate,
    anisotropic_encodings,
    encoding_candidates,
    kernel_encodings,
    kind_of_branch,
)
from trunkfirst.chosen import Chosen
from trunkfirst.clock import Clock
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.scattered_data import AnyData, scattered_from_lists
from trunkfirst.inputs import AutoInputs, PowerInputs, StandardisedInputs
from trunkfirst.progress import Silent
from trunkfirst.records import BASELINES
from trunkfirst.regressors.fourier import FourierBranch
from trunkfirst.regressors.network import AutoBranch, NetworkBranch
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.search import Search
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

RNG = np.random.default_rng(0)
SAMPLES, FOLDS = 20, 5
PARTS = np.split(np.random.default_rng(1).permutation(SAMPLES), FOLDS)
TRUNK = ModesTrunk(width=2)


# -- a choice among known errors


class Known:
    """Trials whose errors are known: by encoder, or for one kind of branch after another."""

    def __init__(self, errors: Callable[[Candidate], np.ndarray]) -> None:
        self.data, self.parts, self.known = waves(SAMPLES, sensors=3), PARTS, errors
        self.seen: list[Candidate] = []

    def better_modes(self, candidate: Candidate) -> dict[int, float]:
        del candidate
        return {}

    def enough_modes(self, candidate: Candidate) -> None:
        del candidate

    def is_complete(self, candidate: Candidate) -> bool:
        return candidate.is_closed_form

    def projection_error(self, candidate: Candidate) -> float:
        del candidate
        return 0.0

    def training_error(self, candidate: Candidate) -> float:
        del candidate
        return 0.0

    def errors(self, candidate: Candidate, parts: Any = None) -> np.ndarray:
        self.seen.append(candidate)
        found = self.known(candidate) * np.ones(SAMPLES)
        if parts is not None:
            found[np.setdiff1d(np.arange(SAMPLES), np.concatenate([self.parts[k] for k in parts]))] = np.nan
        return found


def search(trials: Any, *, measured: bool = True, clock: Clock | None = None, **method: Any) -> Chosen:
    given = TwoStep(TRUNK, **{"weights": "none", **method})
    return Search(given, trials, clock or Clock(), Silent(), measured=measured, is_trunk_open=True).run()


def encoder_of(chosen: Chosen) -> str:
    return str(chosen.method.inputs)


def encoders(errors: dict[str, Any]) -> Known:
    return Known(lambda candidate: np.asarray(errors[str(candidate.inputs)]))


@pytest.mark.parametrize(
    ("errors", "name"),
    [
        ((0.4, 0.3, 0.1, 0.2), "inverse"),
        ((0.119, 0.11, 0.1, 0.2), "standardise"),  # the first that is nearly as good
        ((np.nan, np.inf, 3.0, 4.0), "inverse"),
        ((np.nan, np.nan, np.nan, np.nan), "standardise"),
    ],
)
def test_the_mean_decides(errors: tuple[float, ...], name: str):
    names = ("standardise", "log", "inverse", "inverse-root")
    chosen = search(encoders(dict(zip(names, errors, strict=True))), branch=Linear())
    assert encoder_of(chosen) == name
    assert chosen.choice is not None
    compared = {key: error for key, error in chosen.choice.errors.items() if key not in BASELINES.values()}
    assert tuple(compared) == names
    assert tuple(compared.values()) == pytest.approx(errors, nan_ok=True)


def test_samples_that_chose_do_not_measure():
    """Of every part the error is that of the winner on the other parts; the least mean would flatter."""
    names = ("standardise", "log", "inverse", "inverse-root")
    errors = dict(zip(names, np.random.default_rng(3).lognormal(sigma=2, size=(4, SAMPLES)), strict=True))
    expected = np.empty(SAMPLES)
    for part in PARTS:
        others = np.setdiff1d(np.arange(SAMPLES), part)
        means = {name: errors[name][others].mean() for name in names}
        winner = next(name for name in names if means[name] <= 1.2 * min(means.values()))
        expected[part] = errors[winner][part]
    chosen = search(encoders(errors), branch=Linear())
    assert chosen.validation_error == pytest.approx(expected.mean(), rel=1e-12)
    assert chosen.validation_error != pytest.approx(errors[encoder_of(chosen)].mean())


def by_kind(**errors: Any) -> Known:
    return Known(lambda candidate: np.asarray(errors.get(kind_of_branch(candidate.branch), 9.0)))


SHORT = AutoBranch(NetworkBranch((4,), iterations=200), trial_iterations=10)


@pytest.mark.parametrize(
    ("network", "kind"), [(0.2, "kernel"), (0.099, "kernel"), (0.05, "network")], ids=["worse", "alike", "better"]
)
def test_a_network_must_be_clearly_better_than_closed_forms(network: float, kind: str):
    chosen = search(by_kind(kernel=0.1, network=network), branch=SHORT)
    assert isinstance(chosen.method, TwoStep)
    assert kind_of_branch(chosen.method.branch) == kind
    assert chosen.choice is not None
    assert chosen.choice.best_network is not None
    assert chosen.choice.best_network.startswith("network")


def test_of_a_network_one_half_of_a_part_chooses_and_all_others_measure():
    errors = 0.1 + 0.01 * RNG.random(SAMPLES)
    chosen = search(by_kind(kernel=1.0, network=errors), branch=SHORT)
    assert chosen.choice is not None
    chose, measured = chosen.choice.error, chosen.validation_error
    assert measured is not None
    pairs = [(errors[PARTS[0][[i, j]]].mean(), np.delete(errors, PARTS[0][[i, j]]).mean()) for i, j in PAIRS]
    assert any((chose, measured) == pytest.approx(pair, rel=1e-12) for pair in pairs)


PAIRS = [(i, j) for i in range(4) for j in range(i)]


def iterations(trials: Known) -> list[int]:
    return [each.branch.iterations for each in trials.seen if isinstance(each.branch, NetworkBranch)]


def test_trials_are_short_and_the_winner_is_measured_as_long_as_it_is_trained():
    trials = by_kind(kernel=1.0, network=0.1)
    search(trials, branch=SHORT)
    assert iterations(trials)[:6] == [20, 20, 50, 50, 50, 200]  # at least 20, longer where decays are compared
    assert iterations(trials)[6:] == [20]  # of two alike the shorter, on the other parts


@pytest.mark.parametrize(("fitted", "is_longer"), [(0.06, True), (0.04, False)], ids=["not yet", "overfitted"])
def test_fourier_layers_that_win_have_the_time_left(
    fitted: float, is_longer: bool, monkeypatch: pytest.MonkeyPatch
):
    """Unless their own samples have less than half of the error of others; at most four times the trial."""
    trial = FourierBranch(iterations=300)
    monkeypatch.setattr("trunkfirst.search.fourier_within", lambda *_: trial)
    trials = by_kind(kernel=1.0, fourier=0.1)
    x = np.linspace(0, 1, 16)
    f = RNG.normal(size=(SAMPLES, 3)) @ np.cos(np.pi * np.outer(np.arange(3), x))
    trials.data = OperatorData({"f": InputFunction(f, x[:, None])}, x[:, None], f**2)
    monkeypatch.setattr("trunkfirst.search._FEWEST_FOURIER_SAMPLES", SAMPLES)
    monkeypatch.setattr(trials, "training_error", lambda candidate: fitted)
    method = search(trials, branch=SHORT, clock=Clock(60.0)).method
    assert isinstance(method, TwoStep)
    assert isinstance(method.branch, FourierBranch)
    assert method.branch.iterations == (4 if is_longer else 1) * trial.iterations


@pytest.mark.parametrize(
    ("known", "clock"),
    [({"linear": 1e-9}, Clock()), ({"kernel": 0.1}, Clock(0.1))],
    ids=["at rounding", "no time"],
)
def test_nothing_is_trained_where_it_cannot_pay(known: dict[str, float], clock: Clock):
    trials = by_kind(**known)
    chosen = search(trials, branch=SHORT, clock=clock)
    assert not iterations(trials)
    assert isinstance(chosen.method, TwoStep)
    assert isinstance(chosen.method.branch, Linear | Kernel)


def test_when_the_time_is_over_something_is_chosen_still():
    trials = by_kind()
    assert search(trials, branch=SHORT, clock=Clock(1.0, start=-1e9)).validation_error == 9.0
    assert len(trials.seen) == len(BASELINES) + 1


def test_weights_are_chosen_for_the_best():
    trials = Known(lambda candidate: np.asarray(0.1 if candidate.weights == "none" else 0.2))
    chosen = search(trials, branch=Linear(), inputs=StandardisedInputs(), weights="auto")
    assert chosen.method.weights == "none"
    assert chosen.summary() is not None


def test_what_is_not_measured_has_no_error():
    chosen = search(encoders(dict.fromkeys(("standardise", "log", "inverse", "inverse-root"), 0.1)),
                    measured=False, branch=Linear())  # fmt: skip
    assert chosen.validation_error is None
    assert chosen.held_out is None


def test_a_choice_is_applied_to_another_method():
    chosen = search(by_kind(kernel=0.1), branch=SHORT, clock=Clock(0.1))
    assert isinstance(chosen.method, TwoStep)
    other = chosen.applied_to(TwoStep(weights="relative", branch=Linear()))
    assert isinstance(other.method, TwoStep)
    assert (other.method.branch, other.method.trunk) == (Linear(), chosen.method.trunk)
    assert dc.replace(other.method, branch=chosen.method.branch) == chosen.method


# -- what to try


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


def test_kernels_with_lengths_see_few_features():
    few = with_inputs(a=RNG.uniform(1, 2, (40, 5)))
    assert anisotropic_encodings(few, []) == [StandardisedInputs(), PowerInputs()]
    many = with_inputs(f=RNG.normal(size=(40, 60)))
    ranked = kernel_encodings(many)
    assert str(ranked[0]) == "standardise"
    assert all(str(each).startswith("principal") for each in anisotropic_encodings(many, ranked))


def test_more_coordinates_than_the_inputs_have_are_tried_once():
    rank6 = with_inputs(f=RNG.normal(size=(40, 6)) @ RNG.normal(size=(6, 60)))
    assert list(map(str, kernel_encodings(rank6))) == ["standardise", "principal:4", "principal:8"]


def test_several_functions_have_kernels_with_lengths():
    shown = {"a=standardise,f=standardise": 3.0, "a=principal:4,f=principal:4": 1.0}
    functions = {name: RNG.normal(size=(SAMPLES, 20)) for name in ("a", "f")}
    data = OperatorData(functions, np.linspace(0, 1, 4)[:, None], RNG.normal(size=(SAMPLES, 4)))
    trials = Known(lambda candidate: shown.get(str(candidate.inputs), 2.0))
    trials.data = data
    search(trials, branch=AutoBranch(), inputs=AutoInputs())
    ard = {
        str(each.inputs)
        for each in trials.seen
        if isinstance(each.branch, Kernel) and each.branch.lengths == "each"
    }
    assert "a=principal:4,f=principal:4" in ard


def test_scattered_outputs_have_no_predictive_coordinates():
    inputs = RNG.normal(size=(20, 30))
    points = [RNG.uniform(size=(4, 2)) for _ in range(20)]
    scattered = scattered_from_lists(inputs, points, [np.ones(4)] * 20)
    assert not any("predictive" in name for name in names_of(scattered))
    assert any("predictive" in name for name in names_of(OperatorData(inputs, points[0], np.ones((20, 4)))))
