"""Numbers whose squares are no numbers: a fit that is right, or a sentence."""

import numpy as np
import pytest

import trunkfirst
from trunkfirst.data.array_checks import unit_of
from trunkfirst.errors import DataError
from trunkfirst.inputs import fit_standardise
from trunkfirst.intervals import fit_novelty
from trunkfirst.linear.orthonormalise import field_sizes, relative_errors

RNG = np.random.default_rng(0)
X, INPUTS = np.linspace(0, 1, 20), RNG.normal(size=(40, 3))
OUTPUTS = INPUTS @ np.stack([np.sin(3 * X), X**2, np.cos(X)])
METHOD = trunkfirst.TwoStep("modes", "linear")


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_inputs_in_any_unit(scale: float):
    """They were treated as zero, silently, and predicted NaN."""
    result = trunkfirst.fit(scale * INPUTS, OUTPUTS, X[:, None], method=METHOD, progress=False)
    assert np.abs(result.operator.predict(scale * INPUTS) - OUTPUTS).max() < 1e-12
    found = result.operator.predict(scale * np.concatenate([INPUTS, 50 * INPUTS[:1]]), interval=0.9)
    assert not found.is_outlier[:-1].any()
    assert found.is_outlier[-1]


@pytest.mark.parametrize("scale", [1e-99, 1e170, 1e-300, 1e300])
def test_outputs_too_extreme_to_square_are_refused_in_words(scale: float):
    """They ended in a ZeroDivisionError, or in NaN."""
    with pytest.raises(DataError, match=r"outputs: the largest magnitude of output is .*divide by"):
        trunkfirst.fit(INPUTS, scale * OUTPUTS, X[:, None], method=METHOD, progress=False)


@pytest.mark.parametrize("trunk", ["modes", trunkfirst.NetworkTrunk(hidden=(5,), width=4, iterations=5)], ids=str)
def test_outputs_that_are_all_zero_are_refused_in_words(trunk: "str | trunkfirst.NetworkTrunk"):
    with pytest.raises(DataError, match="outputs: all values are zero"):
        trunkfirst.fit(INPUTS, 0 * OUTPUTS, X[:, None], method=trunkfirst.TwoStep(trunk, "linear"), progress=False)


@pytest.mark.parametrize("scale", [1e-49, 1e49])
def test_a_network_trunk_is_trained_in_any_unit_that_is_not_refused(scale: float):
    """Squares of its gradient were no numbers at 1e-99, and it stopped at once."""
    trunk = trunkfirst.NetworkTrunk(hidden=(8,), width=4, iterations=100, starts=1)
    method = trunkfirst.TwoStep(trunk, "linear", inputs="standardise", weights="none")
    losses = [
        trunkfirst.fit(INPUTS, unit * OUTPUTS, X[:, None], method=method, intervals=False, progress=False)
        .diagnostics["trunk"]["loss"] / unit**2
        for unit in (1.0, scale)
    ]  # fmt: skip
    assert losses[1] < 3 * losses[0]


def test_subnormal_inputs_are_no_outliers():
    """Their inverse is infinite: a fit ended in a traceback."""
    tiny = 1e-320 * INPUTS
    assert not fit_novelty(tiny).is_outlier(tiny).any()
    some = np.concatenate([INPUTS, tiny], axis=1)
    known = fit_novelty(some)
    assert not known.is_outlier(some).any()
    assert known.is_outlier(50 * some[:1]).all()


def test_subnormal_inputs_have_no_inverse():
    """1/x is infinite: the search for an encoder ended in a traceback."""
    tiny = 1e-320 * (1 + np.abs(INPUTS))
    method = trunkfirst.TwoStep("modes", trunkfirst.Kernel())
    operator = trunkfirst.fit(tiny, OUTPUTS, X[:, None], method=method, progress=False).operator
    assert np.isfinite(operator.predict(tiny)).all()


def test_a_channel_of_zeros_is_learned_as_zero():
    both = np.stack([OUTPUTS, 0 * OUTPUTS], axis=2)
    operator = trunkfirst.fit(INPUTS, both, X[:, None], method=METHOD, progress=False).operator
    assert np.abs(operator.predict(INPUTS) - both).max() < 1e-12


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
def test_units_change_no_bit(scale: float):
    worse = OUTPUTS * (1 + 1e-3 * RNG.normal(size=OUTPUTS.shape))
    assert np.array_equal(relative_errors(scale * worse, scale * OUTPUTS), relative_errors(worse, OUTPUTS))
    assert np.array_equal(field_sizes(scale * OUTPUTS), scale * field_sizes(OUTPUTS))
    assert np.array_equal(fit_standardise(scale * INPUTS).deviation, scale * INPUTS.std(axis=0))
    assert np.array_equal(fit_novelty(scale * INPUTS).seen, fit_novelty(INPUTS).seen)


def test_the_unit_is_a_power_of_two_near_the_largest_value():
    assert unit_of(np.array([[5.0, -7.0], [0.0, np.nan]]), axis=1).tolist() == [4.0, 1.0]
    assert unit_of(np.zeros((0, 3))) == 1.0
    assert unit_of(np.array([1.7e308])) == 2.0**1023
