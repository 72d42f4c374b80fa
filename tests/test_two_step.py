"""The two-step method: equivalence with the monolithic minimum, its numbers, its statuses."""

import dataclasses as dc
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BRANCH, TRUNK, fitted, has_same_bits, two_step, waves, with_inputs

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import DivergedError, TrunkfirstError, WidthError
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import StandardisedInputs
from trunkfirst.linear.orthonormalise import QR, SVD, AbstractOrthonormaliser
from trunkfirst.losses import Batches
from trunkfirst.minimisers.adam import Adam
from trunkfirst.networks.layers import Perceptron
from trunkfirst.records import LogEntry
from trunkfirst.regressors.base import AbstractRegressor, Regression, Task
from trunkfirst.regressors.network import JointBranch
from trunkfirst.trunks import JointTrunk

SAMPLES, FUNCTIONS = 12, TRUNK["width"] + 1
BASES: dict[str, AbstractOrthonormaliser | None] = {
    "qr": QR(tolerance=1e-14),
    "svd": SVD(tolerance=1e-14),
    "qr with unit columns": QR(tolerance=1e-14, unit_columns=True),
    "none": None,
}


def fields_of_step1(result: Any, data: OperatorData) -> np.ndarray:
    """A Phi^T, what step 1 represents."""
    with jax.enable_x64(True):
        return result.coefficients @ np.asarray(result.trunk(jnp.asarray(data.points))).T


# -- thm:equi-two-mono


@dc.dataclass(frozen=True)
class Lookup(AbstractRegressor):
    """A linear branch that reproduces the targets exactly where the inputs are unit vectors."""

    def learn(self, task: Task) -> Regression:
        targets = task.targets
        branch = Perceptron((targets.T,), (jnp.zeros(targets.shape[1], targets.dtype),), "relu")
        loss = float(jnp.mean((branch(task.inputs) - targets) ** 2))
        return Regression(branch, loss, "finished", 0, 0.0)


@pytest.mark.parametrize("basis", BASES)
def test_a_branch_that_reproduces_its_targets_gives_the_loss_of_step_1(basis: str):
    data = with_inputs(waves(), one_hot=np.eye(SAMPLES))
    step1 = fitted("two-step").trunk_result
    assert step1 is not None
    result = fit_method(data, two_step(orthonormalise=BASES[basis], branch=Lookup()), trunk_result=step1)
    fields = result.operator.predict(data.flat_inputs, data.points)
    assert result.diagnostics["trunk"]["rank"] == FUNCTIONS
    assert result.diagnostics["branch"]["loss"] == 0
    assert np.mean((fields - data.outputs) ** 2) == pytest.approx(step1.loss, rel=1e-12)
    # The same function for every basis, so QR, SVD and no QR agree with each other.
    assert np.abs(fields - fields_of_step1(step1, data)).max() < 1e-12


# -- the numbers


@pytest.mark.parametrize("basis", BASES)
def test_branch_loss_is_the_papers(basis: str):
    """|C - R A|^2 / (K (N + 1)) with Q^T Q = I, which is |C Q^T - A Phi^T|^2; without QR |C - A|^2."""
    data = waves()
    seen: list[LogEntry] = []
    step1 = fitted("two-step").trunk_result
    assert step1 is not None
    result = fit_method(data, two_step(orthonormalise=BASES[basis]), trunk_result=step1, on_step=seen.append)
    fields = result.operator.predict(data.flat_inputs, data.points)
    squares = np.sum((fields - fields_of_step1(step1, data)) ** 2)
    if basis == "none":
        with jax.enable_x64(True):
            squares = np.sum(
                (np.asarray(result.operator.coefficients(data.flat_inputs)) - step1.coefficients) ** 2
            )
    found = result.diagnostics["branch"]
    assert found["loss"] == pytest.approx(squares / (SAMPLES * FUNCTIONS), rel=1e-10)
    assert seen[-1].best_loss == pytest.approx(found["loss"], rel=1e-12)
    assert {step.stage for step in seen} == {"branch"}
    assert (found["kind"], found["iterations"]) == ("network", 5)


def test_trunk_numbers():
    data, result = waves(), fitted("two-step")
    step1, found = result.trunk_result, result.diagnostics["trunk"]
    assert step1 is not None
    assert found["loss"] == pytest.approx(np.mean((fields_of_step1(step1, data) - data.outputs) ** 2), rel=1e-12)
    assert found["limit"] < found["loss"]
    assert found["condition"] >= 1
    assert found["iterations"] == 5
    assert [step.stage for step in result.history] == ["trunk"] * 5 + ["branch"] * 5
    assert result.history[4].best_loss == pytest.approx(found["loss"], rel=1e-15)
    counts = result.diagnostics["parameters"]
    assert counts == {"trunk": 2 * 6 + 6 + 6 * 4 + 4, "coefficients": 12 * 5, "branch": 2 * 6 + 6 + 6 * 5 + 5}


def test_without_qr_there_is_no_transform():
    result = fitted("two-step-without-qr")
    assert result.operator.transform is None
    assert result.diagnostics["trunk"]["rank"] == FUNCTIONS
    assert result.diagnostics["trunk"]["condition"] is None


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_every_norm_is_reduced_and_reported(p: float):
    data = waves()
    result = fit_method(data, two_step(p=p, iterations=60))
    assert result.trunk_result is not None
    losses = [step.loss for step in result.history if step.stage == "trunk"]
    errors = fields_of_step1(result.trunk_result, data) - data.outputs
    assert result.diagnostics["trunk"]["loss"] == pytest.approx(np.mean(np.abs(errors) ** p), rel=1e-12)
    assert result.diagnostics["trunk"]["loss"] < 0.8 * losses[0]


def test_batches_are_used_and_the_loss_is_that_of_all_data():
    data = waves()
    branch = JointBranch(**BRANCH, minimiser=Adam(0.01), iterations=5, batch=4)
    result = fit_method(data, two_step(batches=Batches(4, 7), branch=branch))
    step1 = result.trunk_result
    assert step1 is not None
    assert step1.loss == pytest.approx(np.mean((fields_of_step1(step1, data) - data.outputs) ** 2), rel=1e-12)
    full = fitted("two-step").trunk_result
    assert full is not None
    assert not has_same_bits(step1.trunk, full.trunk)


# -- seeds


def test_same_seed_same_bits_other_seed_other_weights():
    first, again, other = fitted("two-step"), *(fit_method(waves(), two_step(), key=key) for key in (0, 1))
    assert has_same_bits(first.operator, again.operator)
    assert [step.loss for step in first.history] == [step.loss for step in again.history]
    for one, two in ((first.operator.trunk, other.operator.trunk), (first.operator.branch, other.operator.branch)):
        assert not has_same_bits(one, two)


def test_a_finished_step_1_is_as_good_as_a_new_one():
    first = fitted("two-step")
    again = fit_method(waves(), two_step(), key=0, trunk_result=first.trunk_result)
    assert has_same_bits(first.operator, again.operator)
    assert again.trunk_result is first.trunk_result
    assert again.diagnostics["trunk"] == first.diagnostics["trunk"]


# -- variants


def test_single_precision():
    data = waves()
    result = fit_method(data, two_step(precision="single", inputs=StandardisedInputs()))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(result.operator)} == {"float32"}
    fields = result.operator.predict(data.flat_inputs, data.points)
    assert fields.dtype == np.float32
    assert np.isfinite(fields).all()


def test_point_weights():
    data = waves(point_weights=np.random.default_rng(0).uniform(0.5, 1.5, 30))
    result = fit_method(data, two_step(orthonormalise=QR(tolerance=1e-14)))
    with jax.enable_x64(True):
        Q = np.asarray(result.operator.basis(data.points))
    assert data.point_weights is not None
    assert np.abs((Q.T * data.point_weights) @ Q - np.eye(FUNCTIONS)).max() < 1e-12


# -- statuses


def stop_at(stage: str) -> Any:
    def on_step(step: LogEntry) -> None:
        if (step.stage, step.iteration) == (stage, 3):
            raise KeyboardInterrupt

    return on_step


@pytest.mark.parametrize("stage", ["trunk", "branch"])
def test_interrupt(stage: str):
    data = waves()
    result = fit_method(data, two_step(), on_step=stop_at(stage))
    assert result.status == "interrupted"
    assert sum(step.stage == stage for step in result.history) == 3
    assert np.isfinite(result.operator.predict(data.flat_inputs, data.points)).all()


def test_interrupt_of_step_1_does_not_start_a_long_step_2():
    result = fit_method(waves(), two_step(), on_step=stop_at("trunk"))
    assert sum(step.stage == "branch" for step in result.history) <= 1


@pytest.mark.parametrize("stage", ["trunk", "branch"])
def test_divergence(stage: str):
    wild = Adam(1e300)
    method = (
        two_step(branch=JointBranch(**BRANCH, minimiser=wild, iterations=5))
        if stage == "branch"
        else two_step(rate=1e300)
    )
    with pytest.raises(DivergedError, match=rf"the {stage} loss is no longer finite at iteration \d"):
        fit_method(waves(), method)
    result = fit_method(waves(), method, throw=False)
    assert result.status == "diverged"
    assert math.isfinite(result.diagnostics[stage]["loss"])
    assert np.isfinite(result.operator.predict(waves().flat_inputs, waves().points)).all()


@pytest.mark.parametrize(
    ("architecture", "error", "words"),
    [
        ((2, 6, 30), WidthError, "width N = 30 needs more than N output points, got 30"),
        ((2, 6, 99), WidthError, "N = 99"),
    ],
)
def test_a_trunk_that_does_not_fit_the_points(
    architecture: tuple[int, ...], error: type[TrunkfirstError], words: str
):
    with pytest.raises(error, match=words):
        fit_method(
            waves(),
            dc.replace(
                two_step(),
                trunk=JointTrunk(
                    hidden=architecture[1:-1], width=architecture[-1], activation="relu", initialisation="he"
                ),
            ),
        )
