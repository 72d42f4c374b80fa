"""A trunk for every output channel."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import as_fields, make_network, network_of

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import SettingError, UsageError
from trunkfirst.evaluation import evaluate
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.minimisers.loop import worst_status
from trunkfirst.network_trunk import NetworkTrunk, SeparateTrunks
from trunkfirst.networks.layers import side_by_side
from trunkfirst.regressors.ridge import Linear
from trunkfirst.settings import from_values
from trunkfirst.sizing import with_sizes
from trunkfirst.two_step import TwoStep

EACH = NetworkTrunk(hidden=(16,), width=4, activation="tanh", initialisation="xavier", iterations=150, starts=1)
DOUBLE = np.dtype(np.float64)


def unlike(samples: int = 30) -> OperatorData:
    """Channels with nothing in common: polynomials, and waves a thousand times larger."""
    inputs = np.random.default_rng(0).normal(size=(samples, 4))
    x = np.linspace(-1, 1, 40)
    slow, fast = np.stack([x, x**2, x**3, x**4]), 1e3 * np.sin(np.arange(1, 5)[:, None] * x)
    return OperatorData(inputs, x[:, None], np.stack([inputs @ slow, inputs @ fast], axis=2))


def test_networks_side_by_side_give_the_outputs_of_all():
    with jax.enable_x64(True):
        networks = [make_network(2, 5, 3, seed=1), make_network(2, 4, 2, seed=2)]
        points = jr.normal(jr.key(0), (7, 2))
        together = side_by_side(networks)
        assert together.architecture == (2, 9, 5)
        expected = jnp.concatenate([network(points) for network in networks], axis=1)
        assert np.allclose(together(points), expected, rtol=1e-14, atol=1e-14)


def test_every_channel_has_the_trunk_that_it_would_have_alone():
    """And in the basis of all of them no channel is worse off."""
    data = unlike()
    fields = as_fields(data)
    with jax.enable_x64(True):
        separate = SeparateTrunks(EACH).fit(fields, dtype=DOUBLE, key=jr.key(3))
        for channel, key in enumerate(jr.split(jr.key(3), 2)):
            alone = OperatorData(data.inputs, data.points, data.outputs[..., channel])
            own = EACH.fit(as_fields(alone), dtype=DOUBLE, key=key)
            part = network_of(separate).weights[0][16 * channel : 16 * (channel + 1)]
            assert np.array_equal(part, network_of(own).weights[0])
            Phi = np.asarray(separate.trunk(jnp.asarray(data.points)))
            rest = alone.outputs - separate.coefficients[channel::2] @ Phi.T
            assert np.mean(rest**2) <= own.loss * 1.01
    counts = [step.iteration for step in separate.history]
    assert counts == sorted(counts)
    assert counts[-1] == separate.iterations


def test_an_operator_with_separate_trunks_learns_both_channels():
    data = unlike()
    method = TwoStep(
        SeparateTrunks(EACH), Linear(), inputs=RawInputs(), coordinates=Coordinates(rescale=False), weights="none"
    )
    result = fit_method(data.take(slice(0, 24)), method, key=0)
    assert result.operator.trunk.count == 9
    errors = evaluate(result.operator, data.take(slice(24, 30))).channel_errors
    assert errors is not None
    assert max(error.max() for error in errors.values()) < 1e-2


def test_separate_trunks_are_a_setting():
    values = {"kind": "two-step", "trunk": {"kind": "separate", "each": {"iterations": 5}}, "branch": "linear"}
    method = with_sizes(from_values(TwoStep, values), unlike())
    assert isinstance(method, TwoStep)
    assert isinstance(method.trunk, SeparateTrunks)
    assert method.trunk.each.iterations == 5
    assert method.trunk.each.width is not None
    with pytest.raises(SettingError, match=r"there is no setting 'trunk\.each\.batches'"):
        from_values(TwoStep, {"trunk": {"kind": "separate", "each": {"batches": {}}}})


def test_the_network_asked_for_is_trained():
    trunk = SeparateTrunks(NetworkTrunk(hidden=(7,), width=3, activation="relu", iterations=2, starts=1))
    with jax.enable_x64(True):
        result = trunk.fit(as_fields(unlike()), dtype=DOUBLE, key=jr.key(0))
    assert network_of(result).architecture == (1, 14, 6)  # two channels next to each other
    assert network_of(result).activation == "relu"


def test_one_channel_has_nothing_to_separate():
    data = unlike()
    single = OperatorData(data.inputs, data.points, data.outputs[..., 0])
    with pytest.raises(UsageError, match="several output channels"), jax.enable_x64(True):
        SeparateTrunks(EACH).fit(as_fields(single), dtype=DOUBLE, key=jr.key(0))


def test_the_worst_status_counts():
    assert worst_status("finished", "diverged", "interrupted") == "diverged"
    assert worst_status("finished", "interrupted") == "interrupted"
