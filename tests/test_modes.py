"""Principal modes as trunk: the best at the points, interpolated between them, and a trunk like any other."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest
from exported import distance, run_numpy, run_onnx, run_stablehlo
from helpers import as_fields, has_same_bits
from own_problems import Call, antiderivative, saved_and_loaded
from scipy.spatial import Delaunay
from test_large import shards_of

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import write_data
from trunkfirst.errors import DataError
from trunkfirst.exporters.formats import to_stablehlo
from trunkfirst.exporters.graph import to_numpy, to_onnx
from trunkfirst.exporters.jaxpr import trace
from trunkfirst.fields import TrunkResult
from trunkfirst.files.text_files import read_json
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, RawInputs, StandardisedInputs
from trunkfirst.networks.operator import Operator
from trunkfirst.outputs import Output
from trunkfirst.regressors.ridge import Linear
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

METHOD = TwoStep(ModesTrunk(), Linear(), inputs=RawInputs(), weights="none")
RNG = np.random.default_rng(0)
X = np.linspace(0, 1, 25)[:, None] ** 1.3
SQUARE = np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(-1, 1, 8)), axis=-1).reshape(-1, 2)
CLOUD = np.concatenate([[[0, 0], [0, 1], [1, 0], [1, 1]], RNG.random((60, 2))])
PLACES: dict[str, dict[str, Any]] = {
    "line": {"points": X},
    "grid": {"points": SQUARE},
    "cloud": {"points": CLOUD},
    "mesh": {"points": CLOUD, "triangles": Delaunay(CLOUD).simplices},
    "space": {"points": RNG.random((60, 3))},
}


def smooth(points: np.ndarray) -> np.ndarray:
    """Three functions of the points."""
    y = points.sum(axis=1)
    return np.stack([np.sin(2 * y), np.exp(-points[:, 0]), points[:, -1] ** 2])


def linear(samples: int = 12, *, points: np.ndarray = X, seed: int = 1, **more: Any) -> OperatorData:
    """a -> sum a_k g_k: what modes and a linear branch learn exactly."""
    a = np.random.default_rng(seed).normal(size=(samples, 3))
    return OperatorData(a, points, a @ smooth(points), **more)


def noise(samples: int = 15, points: int = 25, **more: Any) -> OperatorData:
    """Outputs of full rank."""
    return OperatorData(RNG.normal(size=(samples, 2)), X[:points], RNG.normal(size=(samples, points)), **more)


def operator_of(data: OperatorData, **changes: Any) -> Operator:
    return fit_method(data, dc.replace(METHOD, **changes)).operator


def step1(data: OperatorData, **settings: Any) -> TrunkResult:
    return ModesTrunk(**settings).fit(as_fields(data), dtype=np.dtype(np.float64), key=jr.key(0))


def misses(operator: Operator, data: OperatorData) -> float:
    return distance(operator.predict(data.flat_inputs, data.points), data.outputs)


# -- at the points


@pytest.mark.parametrize("place", PLACES)
def test_a_linear_operator_is_exact_at_the_points(place: str):
    data = linear(**PLACES[place])
    operator = operator_of(data)
    assert misses(operator, data) < 1e-12
    assert misses(operator, linear(30, seed=2, **PLACES[place])) < 1e-12
    assert str(operator.trunk) == "3 modes"


@pytest.mark.parametrize("width", [1, 4, 14, None])
def test_the_loss_is_the_tail_of_eckart_and_young(width: int | None):
    data = noise()
    found = step1(data, width=width)
    tail = np.linalg.svd(data.outputs, compute_uv=False)[width or 15 :]
    assert found.loss == pytest.approx(np.sum(tail**2) / data.outputs.size, rel=1e-12, abs=1e-28)
    assert found.limits is not None
    assert found.limits["limit"] == found.loss  # what a network trunk is compared with


@pytest.mark.parametrize("width", [1, 6])
def test_modes_are_best_and_orthonormal_in_the_weights(width: int):
    w, s = RNG.uniform(0.2, 2, 25), RNG.uniform(0.2, 2, 15)
    w /= w.sum()
    data = noise(point_weights=w, sample_weights=s)
    found = step1(data, width=width)
    Q = found.values
    assert Q is not None
    np.testing.assert_allclose(Q.T @ (w[:, None] * Q), np.eye(width), atol=1e-13)
    residual = data.outputs - found.coefficients @ Q.T
    tail = np.linalg.svd(np.sqrt(s)[:, None] * data.outputs * np.sqrt(w), compute_uv=False)[width:]
    assert np.sum(s[:, None] * w * residual**2) == pytest.approx(np.sum(tail**2), rel=1e-12)


def test_signs_do_not_depend_on_those_of_the_outputs():
    data = noise()
    found, other = (step1(dc.replace(data, outputs=sign * data.outputs)).values for sign in (1, -1))
    assert found is not None
    assert (found[np.abs(found).argmax(axis=0), np.arange(15)] > 0).all()
    np.testing.assert_array_equal(found, other)


def test_a_point_that_does_not_count_spoils_no_other():
    data = linear(point_weights=np.r_[0.0, np.ones(24)])
    found = operator_of(data).predict(data.flat_inputs, data.points)
    assert np.isfinite(found).all()
    assert distance(found[:, 1:], data.outputs[:, 1:]) < 1e-12


def test_channels_of_any_size_are_exact():
    data = linear()
    outputs = np.stack([data.outputs, 1e6 * data.outputs[::-1], 1e-6 * data.outputs[:, ::-1]], axis=2)
    inputs = np.c_[data.flat_inputs, data.flat_inputs[::-1]]
    operator = operator_of(OperatorData(inputs, X, outputs))
    found = operator.predict(inputs, X)
    for channel in range(3):
        assert distance(found[..., channel], outputs[..., channel]) < 1e-11


def test_a_fixed_side_has_its_value_whatever_the_input():
    outputs = 2 + X[:, 0] * linear().outputs
    data = dc.replace(linear(), outputs=outputs)
    operator = operator_of(data, output=Output(fixed=("x-",), value=2.0))
    assert misses(operator, data) < 1e-12
    assert (operator.predict(RNG.normal(size=(5, 3)), X[:1]) == 2).all()


def test_logarithms_are_learned():
    data = dc.replace(linear(), outputs=np.exp(3 * linear().outputs))
    operator = operator_of(data, output=Output(positive=True))
    assert misses(operator, data) < 1e-11
    assert (operator.predict(10 * RNG.normal(size=(20, 3)), X) > 0).all()


def test_periodic_coordinates_repeat():
    x = np.linspace(0, 1, 16, endpoint=False)[:, None]
    a = RNG.normal(size=(10, 2))
    data = OperatorData(a, x, a @ np.stack([np.sin(2 * np.pi * x[:, 0]), np.cos(4 * np.pi * x[:, 0])]))
    operator = operator_of(data, coordinates=Coordinates(periods={"x": 1.0}))
    between = RNG.uniform(0, 1, (30, 1))
    found = [operator.predict(a, between + shift) for shift in (0.0, 1.0, -3.0)]
    assert max(distance(each, found[0]) for each in found[1:]) < 1e-12
    expected = a @ np.stack([np.sin(2 * np.pi * between[:, 0]), np.cos(4 * np.pi * between[:, 0])])
    assert distance(found[0], expected) < 0.02  # also between the last point and the first


def test_single_precision_stays_so():
    operator = operator_of(linear(), precision="single")
    assert operator.dtype == np.float32
    assert misses(operator, linear()) < 1e-5


# -- between the points


@pytest.mark.parametrize("dimension", [1, 2])
def test_predictions_between_the_points_converge(dimension: int):
    """Of second order at least, on grids and in clouds."""
    rng = np.random.default_rng(4)
    new = rng.uniform(0.1, 0.9, (200, dimension))

    def error(count: int) -> float:
        axes = [np.linspace(0, 1, count)] * dimension
        points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, dimension)
        if dimension == 2:
            points += rng.uniform(-0.1, 0.1, points.shape) / count
        return misses(operator_of(linear(points=points)), linear(points=new))

    coarse, fine = error(12), error(24)
    assert fine < coarse / 3.5
    assert fine < 1e-3


def test_jumps_are_not_overshot():
    x = np.linspace(0, 1, 41)[:, None]
    data = OperatorData(np.ones((4, 1)) * [[1], [2], [3], [4]], x, np.arange(1.0, 5)[:, None] * (x[:, 0] > 0.5))
    found = operator_of(data).predict(np.ones((1, 1)), np.linspace(0, 1, 999)[:, None])
    assert found.min() > -1e-12
    assert found.max() < 1 + 1e-12


def test_the_interpolation_can_be_set():
    operators = [operator_of(linear(), trunk=ModesTrunk(between=kind)) for kind in ("linear", "smooth", "auto")]
    errors = [misses(each, linear(points=(X[1:] + X[:-1]) / 2)) for each in operators]
    assert errors[2] == errors[1] < errors[0] / 10


# -- a trunk like any other


@pytest.fixture(scope="module", params=["line", "mesh"])
def known(request: Any) -> tuple[Operator, np.ndarray, np.ndarray, np.ndarray]:
    """An operator, inputs, points inside, and its predictions."""
    data = linear(**PLACES[request.param])
    operator = operator_of(data)
    points = np.random.default_rng(6).uniform(0.1, 0.9, (20, data.points.shape[1]))
    return operator, data.flat_inputs, points, operator.predict(data.flat_inputs, points)


def test_storing_keeps_the_bits(known: Any, tmp_path: Path):
    operator, inputs, points, expected = known
    again = saved_and_loaded(operator, tmp_path / "model")
    assert has_same_bits(again, operator)
    assert np.array_equal(again.predict(inputs, points), expected)


def test_exports_agree(known: Any, tmp_path: Path):
    operator, inputs, points, expected = known
    graph = trace(operator)
    exported = {
        "numpy": run_numpy(to_numpy(graph, double=True), tmp_path).predict(inputs, points),
        "stablehlo": run_stablehlo(to_stablehlo(graph, double=True), inputs, points, np.float64),
        "onnx": run_onnx(to_onnx(graph, double=True), inputs, points, np.float64),
    }
    assert {name: distance(found, expected) < 1e-12 for name, found in exported.items()} == dict.fromkeys(
        exported, True
    )


def test_slopes_are_those_of_finite_differences(known: Any):
    operator, inputs, points, _ = known
    found = operator.gradient(inputs[:3], points)
    step = 1e-6
    for k, e in enumerate(np.eye(points.shape[1])):
        ahead, behind = (operator.predict(inputs[:3], points + s * e) for s in (step, -step))
        np.testing.assert_allclose(found[..., k], (ahead - behind) / (2 * step), atol=1e-6)


def test_more_samples_keep_modes_that_still_serve(no_report: None, call: Call, tmp_path: Path):
    write_data(antiderivative(40), tmp_path / "old.npz")
    write_data(antiderivative(20, seed=1), tmp_path / "new.npz")
    write_data(antiderivative(20, modes=12, seed=1), tmp_path / "rough.npz")
    settings = ("trunk.kind=modes", "branch=linear", "inputs=standardise", "weights=none", "intervals=false")
    options = [f"--set={each}" for each in settings]
    assert call("fit", "--data", tmp_path / "old.npz", "--out", tmp_path / "a", *options)[0] == 0
    for name, verdict in (("new", "kept"), ("rough", "trained anew")):
        arguments = ("--data", tmp_path / f"{name}.npz", "--from", tmp_path / "a", "--out", tmp_path / name)
        code, _, err = call("fit", *arguments, *options)
        assert code == 0
        assert f"it is {verdict}" in " ".join(err.split())
        metrics = read_json(tmp_path / name / "metrics.json")
        assert sum(metrics["samples"].values()) == 60
        assert metrics["test"]["mean_relative_l2"] < 1e-6
    old, new = (trunkfirst.load(tmp_path / name).trunk for name in ("a", "new"))
    assert has_same_bits(old, new)


@pytest.mark.parametrize("channels", [None, 2])
def test_streamed_samples_give_the_same_operator(channels: int | None, tmp_path: Path):
    data = antiderivative(90)
    if channels:
        data = dc.replace(data, outputs=np.stack([data.outputs, 5 * data.outputs**2], axis=2))
    method = dc.replace(METHOD, inputs=StandardisedInputs(), weights="relative", trunk=ModesTrunk(width=5))
    whole = fit_method(data, method).operator
    streamed = fit_method(shards_of(data, tmp_path / "shards", 16), method).operator
    new = antiderivative(10, seed=1)
    expected = whole.predict(new.flat_inputs, new.points)
    assert distance(streamed.predict(new.flat_inputs, new.points), expected) < 1e-9


# -- what has no modes


def test_outputs_of_zeros_have_no_modes():
    with pytest.raises(DataError, match="all values are zero"):
        step1(dc.replace(noise(), outputs=np.zeros((15, 25))))
    with jax.enable_x64(True), pytest.raises(DataError, match="all values are zero"):
        fit_method(dc.replace(linear(), outputs=np.zeros((12, 25))), METHOD)
