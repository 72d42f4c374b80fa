"""The monolithic method."""

import dataclasses as dc
import math

import jax
import numpy as np
import pytest
from helpers import BRANCH, PLAIN, TRUNK, fitted, has_same_bits, monolithic, network_of, waves

from trunkfirst.errors import DivergedError, UsageError, WidthError
from trunkfirst.fitting import FitResult, fit_method
from trunkfirst.inputs import StandardisedInputs
from trunkfirst.monolithic import MonolithicProjected
from trunkfirst.networks.branches import StackedBranch
from trunkfirst.records import LogEntry

DATA = waves()


def mean_power(result: FitResult, p: float) -> float:
    fields = result.operator.predict(DATA.flat_inputs, DATA.points)
    return float(np.mean(np.abs(fields - DATA.outputs) ** p))


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_every_norm_is_reduced_and_reported(p: float):
    result = fit_method(DATA, monolithic(p=p, iterations=60))
    found = result.diagnostics["trunk"]
    assert found["loss"] == pytest.approx(mean_power(result, p), rel=1e-10)
    assert result.history[-1].best_loss == pytest.approx(found["loss"], rel=1e-12)
    assert found["loss"] < 0.8 * result.history[0].loss


def test_numbers():
    result = fitted("monolithic")
    found = result.diagnostics
    assert result.status == "finished"
    assert found["branch"] is None
    assert (found["trunk"]["rank"], found["trunk"]["condition"]) == (5, None)
    assert found["trunk"]["iterations"] == 5
    assert found["parameters"] == {"trunk": 46, "coefficients": None, "branch": 2 * 6 + 6 + 6 * 5 + 5}
    assert {step.stage for step in result.history} == {"monolithic"}
    assert result.trunk_result is None
    assert result.operator.transform is None


def test_same_seed_same_bits_other_seed_other_weights():
    first, again, other = fitted("monolithic"), *(fit_method(DATA, monolithic(), key=key) for key in (0, 1))
    assert has_same_bits(first.operator, again.operator)
    assert not has_same_bits(first.operator.trunk, other.operator.trunk)
    assert not has_same_bits(first.operator.branch, other.operator.branch)


def test_the_transform_starts_as_the_identity_and_is_trained():
    plain = fitted("monolithic")
    result = fit_method(DATA, monolithic(train_transform=True))
    assert result.history[0].loss == pytest.approx(plain.history[0].loss, rel=1e-13)
    T = np.asarray(result.operator.transform)
    assert T.shape == (5, 5)
    assert 1e-3 < np.abs(T - np.eye(5)).max() < 0.1  # four steps of Adam at 1e-2
    assert result.diagnostics["trunk"]["loss"] == pytest.approx(mean_power(result, 2), rel=1e-10)
    folded = result.operator.fold().predict(DATA.flat_inputs, DATA.points)
    assert np.abs(folded - result.operator.predict(DATA.flat_inputs, DATA.points)).max() < 1e-12


def test_standardised_inputs_are_part_of_the_operator():
    """Shifted and stretched inputs make no difference then."""
    results = []
    for data in (DATA, waves_moved()):
        result = fit_method(data, monolithic(inputs=StandardisedInputs()))
        results.append(result.operator.predict(data.flat_inputs, data.points))
    assert np.allclose(results[0], results[1], rtol=0, atol=1e-10)


def waves_moved():
    moved = 100 + 7 * DATA.flat_inputs
    return type(DATA)(moved, DATA.points, DATA.outputs)


def test_stacked_branch():
    result = fit_method(
        DATA,
        monolithic(branch={"hidden": (6,), "activation": "tanh", "initialisation": "xavier", "stacked": True}),
    )
    branch = result.operator.branch
    assert isinstance(branch, StackedBranch)
    assert [W.shape for W in branch.networks.weights] == [(5, 6, 2), (5, 1, 6)]
    assert not np.allclose(branch.networks.weights[0][0], branch.networks.weights[0][1])
    assert result.diagnostics["parameters"]["branch"] == 5 * (2 * 6 + 6 + 6 + 1)
    assert result.diagnostics["trunk"]["loss"] == pytest.approx(mean_power(result, 2), rel=1e-10)


def test_interrupt():
    def stop(step: LogEntry) -> None:
        if step.iteration == 3:
            raise KeyboardInterrupt

    result = fit_method(DATA, monolithic(), on_step=stop)
    assert (result.status, len(result.history)) == ("interrupted", 3)
    assert result.diagnostics["trunk"]["loss"] == pytest.approx(mean_power(result, 2), rel=1e-10)


def test_divergence():
    with pytest.raises(DivergedError, match=r"the monolithic loss is no longer finite.*rate 1\.0e\+300"):
        fit_method(DATA, monolithic(rate=1e300))
    result = fit_method(DATA, monolithic(rate=1e300), throw=False)
    assert result.status == "diverged"
    assert math.isfinite(result.diagnostics["trunk"]["loss"])
    assert result.diagnostics["trunk"]["loss"] == pytest.approx(mean_power(result, 2), rel=1e-10)


def test_a_trunk_that_does_not_fit_the_points():
    with pytest.raises(WidthError, match="N = 30"):
        fit_method(
            DATA, monolithic(trunk={"hidden": (6,), "width": 30, "activation": "relu", "initialisation": "he"})
        )


def test_double_precision_is_switched_on_inside_only():
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    result = fit_method(DATA, monolithic())
    assert {leaf.dtype.name for leaf in jax.tree.leaves(result.operator)} == {"float64"}
    assert jax.config.jax_enable_x64 == before  # pyright: ignore[reportAttributeAccessIssue]
    assert not before


def test_architectures_are_as_asked():
    operator = fitted("monolithic").operator
    assert network_of(operator).architecture == (2, *TRUNK["hidden"], TRUNK["width"])
    assert [len(b) for b in operator.branch.biases] == [*BRANCH["hidden"], 5]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("projected", [False, True])
def test_a_finished_step_1_is_refused(projected: bool):
    """To ignore it would train something else without saying so."""
    method = monolithic()
    if projected:
        trunk = dc.replace(method.trunk, width=6)
        method = MonolithicProjected(trunk, method.branch, iterations=2, **PLAIN)
    with pytest.raises(UsageError, match=f"{method.name} .* cannot use a finished step 1"):
        fit_method(DATA, method, trunk_result=fitted("two-step").trunk_result)
