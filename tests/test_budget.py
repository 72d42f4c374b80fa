"""The error budget against brute force, and four operators with one defect each, which the diagnosis must name."""

import dataclasses as dc
import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network
from own_problems import fit_branch

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encoders import Identity
from trunkfirst.error_budget import ErrorBudget, error_budget, input_weights, nearest_samples
from trunkfirst.errors import DataError
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.minimisers.adam import Adam
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.outputs import Boundary, OutputMap
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.theory.assumptions import check_assumptions, sensor_gap_rate
from trunkfirst.theory.remedies import Diagnosis, Evidence, branch_shares, diagnose, gather_evidence, trunk_shares
from trunkfirst.trunks import JointTrunk
from trunkfirst.two_step import TwoStep

SENSORS, FINE = np.linspace(0, 1, 15), np.linspace(0, 1, 81)
WEIGHTS = np.where((FINE == 0) | (FINE == 1), 0.5, 1.0)


def smooth(y: np.ndarray, *, samples: int = 7, seed: int = 0, **more: Any) -> OperatorData:
    """Positive functions of two numbers that no trunk below represents."""
    a = np.random.default_rng(seed).uniform(0.5, 1.5, (samples, 2))
    return OperatorData(a, y[:, None], 1 + np.exp(-a[:, :1] * y) * np.cos(3 * a[:, 1:] * y) ** 2, **more)


def an_operator(functions: int = 4, channels: int | None = None, **more: Any) -> Operator:
    """Random networks; the last function of the trunk is a copy, so that the basis has not full rank."""
    trunk = make_network(1, 6, functions, seed=1)
    W, b = trunk.weights[-1], trunk.biases[-1]
    copied = Perceptron(
        (trunk.weights[0], W.at[-1].set(W[0])), (trunk.biases[0], b.at[-1].set(b[0])), trunk.activation
    )
    branch = make_network(2, 5, (functions + 1) * (channels or 1), seed=2)
    return Operator(Identity(), branch, Trunk(copied), channels=channels, **more)


def weighted_fit(features: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Coefficients of least squares, by another way: minimum norm of all solutions."""
    roots = np.sqrt(weights)[:, None]
    return np.linalg.lstsq(features * roots, rows.T * roots, rcond=1e-10)[0].T


def brute_force(operator: Operator, test: OperatorData, at_sensors: OperatorData) -> dict[str, np.ndarray]:
    """All parts from fields, for an operator without output map and channels."""
    omega = np.full(len(test.points), 1 / len(test.points)) if test.point_weights is None else test.point_weights
    own = np.ones(len(at_sensors.points)) if at_sensors.point_weights is None else at_sensors.point_weights
    with jax.enable_x64(True):
        fine, coarse = (np.asarray(operator.basis(data.points)) for data in (test, at_sensors))
        c = np.asarray(operator.coefficients(test.flat_inputs))
    best = weighted_fit(fine, test.outputs, omega) @ fine.T
    seen = weighted_fit(coarse, at_sensors.outputs, own) @ fine.T
    predicted = c @ fine.T
    steps = {"total": test.outputs - predicted, "trunk": test.outputs - best, "coefficients": best - predicted}
    steps |= {"sensors": best - seen, "branch": seen - predicted}
    parts = {name: step**2 @ omega for name, step in steps.items()}
    return parts | {"cross": 2 * (steps["sensors"] * steps["branch"]) @ omega}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "quadrature"])
def test_every_part_equals_brute_force(weights: np.ndarray | None):
    test, at_sensors = smooth(FINE, point_weights=weights), smooth(SENSORS)
    operator = an_operator()
    found, expected = error_budget(operator, test, at_sensors), brute_force(operator, test, at_sensors)
    for name, part in expected.items():
        assert getattr(found, name)[:, 0] == pytest.approx(part, rel=1e-8, abs=0), name
    assert np.abs(found.remainder).max() < 1e-10 * found.total.max()
    assert found.coefficients == pytest.approx(found.sensors + found.branch + found.cross, rel=1e-10, abs=0)
    assert found.nearest_sample is None


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    test, at_sensors = smooth(FINE), smooth(SENSORS)
    whole = error_budget(an_operator(), test, at_sensors, nearest=(test, at_sensors))
    monkeypatch.setattr("trunkfirst.error_budget._BLOCK", 2 * len(FINE))
    parts = error_budget(an_operator(), test, at_sensors, nearest=(test, at_sensors))
    assert parts.total == pytest.approx(whole.total, rel=1e-12, abs=0)
    assert parts.nearest_sample is not None
    assert parts.nearest_sample.sensors == pytest.approx(parts.sensors, rel=1e-12, abs=0)
    assert not parts.nearest_sample.operator.any()  # each sample is its own neighbour
    assert not parts.nearest_sample.network.any()


def test_at_their_own_points_sensors_have_no_part():
    data = smooth(SENSORS)
    found = error_budget(an_operator(), data, data)
    assert found.sensors.max() < 1e-20 * found.total.max()


def test_channels_are_added_and_each_counts_by_its_own_size():
    one, two = smooth(FINE), smooth(FINE, seed=1)
    both = dc.replace(one, outputs=np.stack([one.outputs, 1e3 * two.outputs], axis=2))
    thin = dc.replace(both, points=both.points[::5], outputs=both.outputs[:, ::5])
    found = error_budget(an_operator(channels=2), both, thin)
    assert found.total.shape == (7, 2)
    predictions = an_operator(channels=2).predict(both.flat_inputs, both.points)
    squares = ((predictions - both.outputs) ** 2).mean(axis=1)
    assert found.summary()["total_squared"] == pytest.approx(squares.sum(axis=1).mean(), rel=1e-12, abs=0)
    assert found.relative(found.total) == pytest.approx(
        (squares / (both.outputs**2).mean(axis=1)).mean(), rel=1e-12
    )
    assert np.abs(found.remainder / found.total).max() < 1e-10


def test_a_boundary_value_is_linear_and_leaves_nothing():
    with jax.enable_x64(True):
        fixed = OutputMap(jnp.asarray([2.0]), Boundary((0.0,), (1.0,), ((0, False),), 1.0))
    operator = an_operator(output=fixed)
    test, at_sensors = (
        dc.replace(data, outputs=2 + data.points[:, 0] * data.outputs) for data in (smooth(FINE), smooth(SENSORS))
    )
    found = error_budget(operator, test, at_sensors)
    assert np.abs(found.remainder / found.total).max() < 1e-10
    # Data that are not what was fixed are something that no coefficients give: the trunk's part.
    wrong = dc.replace(test, outputs=test.outputs + np.where(FINE == 0, 0.3, 0.0))
    more = error_budget(operator, wrong, at_sensors)
    assert more.trunk - found.trunk == pytest.approx(np.full((7, 1), 0.09 / len(FINE)), rel=1e-8, abs=0)
    assert more.branch == pytest.approx(found.branch, rel=1e-12, abs=0)


def test_a_logarithm_leaves_a_remainder():
    with jax.enable_x64(True):
        operator = an_operator(output=OutputMap(jnp.ones(1), is_positive=True))
        basis = np.asarray(operator.basis(FINE[:, None]))
    test = smooth(FINE)
    found = error_budget(operator, test, smooth(SENSORS))
    predictions = operator.predict(test.flat_inputs, test.points)
    best = np.exp(weighted_fit(basis, np.log(test.outputs), np.ones(len(FINE))) @ basis.T)
    assert found.trunk[:, 0] == pytest.approx(((test.outputs - best) ** 2).mean(axis=1), rel=1e-8, abs=0)
    inner = 2 * ((test.outputs - best) * (best - predictions)).mean(axis=1)
    assert found.remainder[:, 0] == pytest.approx(inner, rel=1e-6, abs=0)
    assert np.abs(found.remainder).max() > 1e-6
    with pytest.raises(DataError, match="not all are positive"):
        error_budget(operator, dc.replace(test, outputs=test.outputs - 2), smooth(SENSORS))


def test_the_chain_sums_to_the_coefficients_of_the_sample():
    """Only sizes are kept, so compare with the vectors made by hand."""
    operator, test, at_sensors = an_operator(), smooth(FINE), smooth(SENSORS)
    others, own = smooth(FINE, seed=3, samples=9), smooth(SENSORS, seed=3, samples=9)
    near = nearest_samples(test, others)
    gaps = np.linalg.norm(test.flat_inputs[:, None] - others.flat_inputs, axis=2)
    assert np.array_equal(near, gaps.argmin(axis=1))
    found = error_budget(operator, test, at_sensors, nearest=(others.take(near), own.take(near))).nearest_sample
    assert found is not None
    with jax.enable_x64(True):
        basis = np.asarray(operator.basis(FINE[:, None]))
    best = [weighted_fit(basis, data.outputs, np.ones(len(FINE))) @ basis.T for data in (test, others.take(near))]
    predicted = [operator.predict(data.flat_inputs, data.points) for data in (test, others.take(near))]
    assert found.operator[:, 0] == pytest.approx(((best[0] - best[1]) ** 2).mean(axis=1), rel=1e-8, abs=0)
    assert found.network[:, 0] == pytest.approx(((predicted[0] - predicted[1]) ** 2).mean(axis=1), rel=1e-8, abs=0)
    expected = brute_force(operator, others.take(near), own.take(near))
    assert found.sensors[:, 0] == pytest.approx(expected["sensors"], rel=1e-8, abs=0)
    assert found.training[:, 0] == pytest.approx(expected["branch"], rel=1e-8, abs=0)


def test_the_data_have_an_error_of_their_own():
    test, at_sensors = smooth(FINE), smooth(SENSORS)
    off = dc.replace(at_sensors, outputs=at_sensors.outputs + 0.2, reference_outputs=at_sensors.outputs)
    found = error_budget(an_operator(), test, off)
    assert found.data is not None
    assert found.data[:, 0] == pytest.approx(np.full(7, 0.04), rel=1e-8, abs=0)  # a constant is in every trunk


def test_every_input_function_has_weight_1():
    inputs = {"f": InputFunction(np.ones((2, 3)), sensor_weights=np.array([1.0, 2, 1])), "g": np.ones((2, 2))}
    data = OperatorData(inputs, FINE[:, None], np.ones((2, 81)))
    assert input_weights(data) == pytest.approx(np.array([0.25, 0.5, 0.25, 0.5, 0.5]))


@pytest.mark.parametrize(
    ("test", "at_sensors", "message"),
    [
        (smooth(FINE[:1]), smooth(SENSORS), "1 evaluation points"),
        (smooth(FINE[:4]), smooth(SENSORS), "4 evaluation points are too few for 5 functions"),
        (smooth(FINE, samples=6), smooth(SENSORS), "6 samples at the evaluation points, but 7"),
        (dc.replace(smooth(FINE), outputs=np.ones((7, 81, 2))), smooth(SENSORS), "'channels' has 2 entries"),
    ],
)
def test_what_does_not_fit_is_named(test: OperatorData, at_sensors: OperatorData, message: str):
    with pytest.raises(DataError, match=message):
        error_budget(an_operator(), test, at_sensors)


def test_predictions_that_are_not_finite_have_no_budget():
    branch = make_network(2, 5, 5)
    with jax.enable_x64(True):
        endless = Perceptron(branch.weights, (branch.biases[0], jnp.full(5, jnp.inf)), "tanh")
    with pytest.raises(DataError, match="not all are finite"):
        error_budget(dc.replace(an_operator(), branch=endless), smooth(FINE), smooth(SENSORS))


# -- what to improve

MODES = np.arange(1, 41)
NOISE = 5e-4


def rotating(samples: int, y: np.ndarray, *, seed: int) -> OperatorData:
    """u = 1 + sum_k k^-3 cos(k t) cos(k pi y), the angle t as (cos t, sin t): its best basis are the cosines.

    What the inputs do not determine, a little of the first mode, bounds what can be learned.
    """
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 2 * np.pi, (samples, 1))
    a = np.cos(MODES * t) / MODES**3.0
    a[:, 0] += NOISE * rng.normal(size=samples)
    return OperatorData(np.hstack([np.cos(t), np.sin(t)]), y[:, None], 1 + a @ np.cos(np.pi * MODES[:, None] * y))


def cosines(count: int) -> Trunk:
    """1, cos(pi y), cos(2 pi y), ... as a network: sin(k pi y + pi/2)."""
    with jax.enable_x64(True):
        first, last = jnp.pi * jnp.arange(1.0, count + 1)[:, None], jnp.eye(count)
        return Trunk(Perceptron((first, last), (jnp.full(count, jnp.pi / 2), jnp.zeros(count)), "sine"))


MANY = (np.arange(200) + 0.5) / 200
FEW = np.sort(np.random.default_rng(7).uniform(0, 1, 11))
EVERYWHERE = (np.arange(300) + 0.5) / 300


@dc.dataclass(frozen=True)
class Setting:
    """An operator for `rotating`."""

    width: int = 8
    points: str = "many"
    samples: int = 200
    branch: Any = Kernel(ridge=1e-06)


@ft.cache
def evidence(setting: Setting) -> Evidence:
    points = MANY if setting.points == "many" else FEW
    method = TwoStep(
        JointTrunk(
            hidden=(setting.width,),
            width=setting.width,
            activation="sine",
            initialisation="he",
            minimiser=Adam(0.001),
            iterations=1,
        ),
        branch=setting.branch,
        orthonormalise=QR(),
        inputs=RawInputs(),
        coordinates=Coordinates(rescale=False),
        weights="none",
    )
    train = rotating(setting.samples, points, seed=1)
    operator = fit_branch(train, method, cosines(setting.width), key=0).operator
    test, at_sensors = rotating(60, EVERYWHERE, seed=2), rotating(60, points, seed=2)
    finer = rotating(setting.samples, EVERYWHERE, seed=1)
    return gather_evidence(operator, test, at_sensors, train, finer_training=finer)


DEFECTS = {
    "width": (Setting(width=2), Setting(width=12)),
    "points": (Setting(points="few"), Setting()),
    "samples": (Setting(samples=8), Setting()),
    "branch": (Setting(branch=Linear()), Setting()),
}


@pytest.mark.parametrize("part", DEFECTS)
def test_the_defect_is_named_and_its_repair_gives_the_expected_error(part: str):
    defective, repaired = (diagnose(evidence(setting)) for setting in DEFECTS[part])
    assert defective.improve == part
    assert defective.error > 3 * repaired.error
    assert 0.5 < defective.expected[part] / repaired.error < 2
    assert defective.gain == pytest.approx(defective.error / defective.expected[part])
    assert defective.sentence.startswith(f"Improve the {part}: ")
    assert f"from {defective.error:.1e} to about {defective.expected[part]:.1e}" in defective.sentence
    assert defective.summary()["what"] == part


def test_the_hint_for_the_width_is_a_width_that_serves():
    found = diagnose(evidence(Setting(width=2)))
    assert found.width_needed is not None
    tail = np.sum(MODES[found.width_needed :] ** -6.0) / 4 / 1.25
    assert np.sqrt(tail) < found.expected["width"]
    assert f"(about N = {found.width_needed})" in found.sentence


def test_a_trunk_far_from_the_best_functions_wants_training():
    """Cosines of other frequencies in the place of the right ones."""
    base = evidence(Setting())
    trunk = dc.replace(base.trunk, left=base.trunk.left * 50, own_left=base.trunk.own_left * 50)
    seen = dc.replace(base.trunk_at_sensors, own_left=base.trunk.own_left * 50)
    shares = trunk_shares(dc.replace(base, trunk=trunk, trunk_at_sensors=seen))
    assert max(shares, key=lambda name: shares[name]) == "trunk training"
    # The same, but training could not see it at its sensors; or not on its samples.
    shares = trunk_shares(dc.replace(base, trunk=trunk))
    assert max(shares, key=lambda name: shares[name]) == "points"
    shares = trunk_shares(dc.replace(base, trunk=dc.replace(trunk, own_left=base.trunk.own_left)))
    assert max(shares, key=lambda name: shares[name]) == "samples"
    for part in (base, evidence(Setting(samples=8))):
        assert sum(trunk_shares(part).values()) == pytest.approx(1)
        assert sum(branch_shares(part).values()) == pytest.approx(1)


def test_the_data_are_blamed_where_their_error_explains_the_sensors():
    base = evidence(Setting(points="few"))
    blamed = dc.replace(base, budget=dc.replace(base.budget, data=0.9 * base.budget.sensors))
    assert diagnose(blamed).improve == "data"
    innocent = dc.replace(base, budget=dc.replace(base.budget, data=0.1 * base.budget.sensors))
    assert diagnose(innocent).improve == "points"


def test_rounding_is_left_alone():
    base = evidence(Setting())
    tiny = {
        f.name: getattr(base.budget, f.name)
        for f in dc.fields(ErrorBudget)
        if f.name not in ("data", "nearest_sample")
    }
    budget = ErrorBudget(**{name: 1e-32 * part for name, part in tiny.items()} | {"size": base.budget.size})
    found = diagnose(dc.replace(base, budget=budget))
    assert isinstance(found, Diagnosis)
    assert (found.improve, found.gain) == (None, 1.0)
    assert "rounding" in found.sentence


# -- assumptions


def test_assumptions_have_numbers_or_reasons():
    operator = an_operator()
    found = check_assumptions(operator, smooth(FINE), smooth(SENSORS), smooth(SENSORS, samples=30, seed=4))
    values = {each.name: each.value for each in found if each.value is not None}
    assert len(values) == len(found) - 1  # two numbers are no function at sensors
    assert "64 sensors or more" in next(each.meaning for each in found if each.name == "alpha")
    assert 1 <= values["N for 1e-02"] <= values["N for 1e-04"]
    assert values["K_N"] >= 4  # five functions, of which two are the same
    assert values["L_c, samples"] <= values["L_c, weights"]
    assert values["M"] == smooth(SENSORS, samples=30, seed=4).outputs.max()
    assert values["truncation"] <= 1 + 1e-12
    assert values["decay of the best basis"] <= 0
    assert all(each.meaning for each in found)


def test_input_sensors_are_enough_with_the_rate_of_a_quadrature():
    """Distances of smooth functions by left sums, which are of first order."""
    x, rng = np.linspace(0, 1, 256, endpoint=False), np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3)) @ np.stack([x, x**2, np.cos(x)])
    data = OperatorData(inputs, SENSORS[:, None], np.ones((40, len(SENSORS))))
    assert sensor_gap_rate(data).value == pytest.approx(1, abs=0.25)


def test_what_cannot_be_measured_says_why():
    data = smooth(SENSORS, samples=1)
    operator = dc.replace(an_operator(), branch=make_network(2, 5, seed=3))
    found = {each.name: each for each in check_assumptions(operator, data, data, data)}
    assert found["L_G"].value is None
    assert "at least 2 to compare" in found["L_G"].meaning
    assert "two layers" in found["L_c, weights"].meaning
    assert found["fill rate s"].value is None
