"""The operator phi^T T c: its formula, folding, prediction, transformations, messages."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central_difference, fitted, make_operator, random_like, waves

import trunkfirst
from trunkfirst.encoders import Identity, Standardise
from trunkfirst.errors import DataError, PrecisionError, UsageError
from trunkfirst.networks import deeponet
from trunkfirst.networks.operator import Operator
from trunkfirst.networks.training_domain import TrainingDomain

RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 2))


def standardised(**settings: Any) -> Operator:
    """With an encoder that is not the identity."""
    with jax.enable_x64(True):
        mean, deviation = (jnp.asarray(v, settings.get("dtype", float)) for v in ([0, 1, 2], [1, 2, np.inf]))
    return make_operator(encoder=Standardise(mean, deviation), **settings)


def test_formula():
    operator = standardised()
    with jax.enable_x64(True):
        Phi = np.asarray(operator.trunk(jnp.asarray(POINTS)))
        c = np.asarray(operator.branch(jnp.asarray((INPUTS - np.arange(3)) / [1, 2, np.inf])))
        values = operator(INPUTS, POINTS)
        assert operator.transform is not None
        assert np.allclose(values, c @ (Phi @ np.asarray(operator.transform)).T, rtol=0, atol=1e-13)
        assert np.array_equal(values, operator.coefficients(INPUTS) @ operator.basis(POINTS).T)


# -- folding


@pytest.mark.parametrize("name", ["random", "two-step", "two-step-without-qr"])
def test_fold_is_the_same_operator(name: str):
    operator = standardised() if name == "random" else fitted(name).operator
    data = waves(samples=40, points=50, seed=9)
    inputs, points = (INPUTS, POINTS) if name == "random" else (data.flat_inputs, data.points)
    folded = operator.fold()
    assert folded.transform is None
    expected = operator.predict(inputs, points)
    assert np.abs(folded.predict(inputs, points) - expected).max() < 1e-12 * np.abs(expected).max()


def test_a_stacked_branch_cannot_be_folded():
    with pytest.raises(UsageError, match="unstacked"):
        standardised(stacked=True).fold()
    plain = standardised(stacked=True, transform=False)
    assert plain.fold() is plain


# -- prediction


@pytest.mark.parametrize(("stacked", "dtype"), [(False, jnp.float32), (True, jnp.float64)])
def test_predict_is_the_call_in_numpy(stacked: bool, dtype: type):
    operator = standardised(stacked=stacked, dtype=dtype)
    values = operator.predict(INPUTS, POINTS)
    assert isinstance(values, np.ndarray)
    assert values.dtype == dtype
    with jax.enable_x64(dtype == jnp.float64):
        assert np.allclose(values, operator(INPUTS, POINTS), rtol=0, atol=20 * np.finfo(values.dtype).eps)


def test_predict_in_blocks(monkeypatch: pytest.MonkeyPatch):
    operator = standardised()
    whole = operator.predict(INPUTS, POINTS)
    monkeypatch.setattr(deeponet, "_BLOCK_NUMBERS", 3 * len(POINTS))
    assert np.allclose(operator.predict(INPUTS, POINTS), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("x64", [False, True])
def test_inputs_by_name(x64: bool):
    operator = standardised()
    named = {"g": INPUTS[:, 1:], "f": INPUTS[:, :1]}
    with jax.enable_x64(x64):
        assert np.array_equal(operator.predict(named, POINTS), operator.predict(INPUTS, POINTS))


def test_input_functions_as_data_have_them():
    """`data.inputs`, or one of them on a grid, are the same as their values."""
    operator = with_domain()
    data = trunkfirst.OperatorData({"f": INPUTS[:, :1], "g": INPUTS[:, 1:]}, POINTS, operator.predict(INPUTS))
    for method in (operator.predict, operator.gradient, operator.values_at):
        assert np.array_equal(method(data.inputs, POINTS), method(INPUTS, POINTS))
    with jax.enable_x64(True):
        assert np.array_equal(operator(data.inputs, POINTS), operator(INPUTS, POINTS))
    alone = trunkfirst.InputFunction(INPUTS.reshape(-1, 3, 1))
    assert np.array_equal(operator.predict(alone), operator.predict(INPUTS))
    with pytest.raises(DataError, match="inputs: this operator was trained on f, g; got f"):
        operator.predict({"f": data.inputs["f"]})


# -- the training domain


def with_domain(**fields: Any) -> Operator:
    """An operator that remembers its training points, with other `fields` of the domain."""
    return dc.replace(standardised(), domain=TrainingDomain(**{"points": POINTS, **fields}))


def test_training_points_are_the_default():
    operator = with_domain()
    assert np.array_equal(operator.predict(INPUTS), standardised().predict(INPUTS, POINTS))
    assert np.array_equal(operator.gradient(INPUTS), standardised().gradient(INPUTS, POINTS))
    with pytest.raises(DataError, match="points: this operator does not know its training points"):
        standardised().predict(INPUTS)


def test_lists_are_accepted():
    operator = standardised()
    expected = operator.predict(INPUTS, POINTS)
    named = {"f": INPUTS[:, :1].tolist(), "g": INPUTS[:, 1:].tolist()}
    for inputs in (INPUTS.tolist(), named):
        assert np.array_equal(operator.predict(inputs, POINTS.tolist()), expected)


def test_points_outside_the_training_domain_are_refused():
    """The training points themselves, and points between them, are not."""
    ranges = np.stack([POINTS.min(axis=0), POINTS.max(axis=0)])
    for operator in (with_domain(), with_domain(points=None, point_ranges=ranges)):
        operator.predict(INPUTS, POINTS)
        points = np.stack([POINTS.mean(axis=0), ranges[0] - [9, 0], ranges[1] + [0, 9]])
        words = r"points: 2 of 3 lie outside the training domain; the first is points\[1\] = .*extrapolate=True"
        for method in (operator.predict, operator.gradient):
            with pytest.raises(DataError, match=words):
                method(INPUTS, points)
            with pytest.warns(UserWarning, match="points: 2 of 3 lie outside the training domain"):
                answer = method(INPUTS, points, extrapolate=True)
            assert np.array_equal(answer[:, :1], method(INPUTS, points[:1]))
        with pytest.raises(DataError, match="points: 14 of 21 lie outside"):
            operator.predict_scattered(INPUTS, np.broadcast_to(points, (7, 3, 2)))


def test_operators_with_equal_domains_compile_once():
    traces: list[int] = []

    @jax.jit
    def count(operator: Operator) -> int:
        traces.append(1)
        return 0

    with jax.enable_x64(True):
        for points in (POINTS, POINTS.copy(), POINTS + 1):
            count(with_domain(points=points, units={"x": "m"}))
    assert len(traces) == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"points": POINTS[:, :1]}, r"domain.points: expected 2 columns, got shape \(5, 1\)"),
        ({"input_ranges": np.zeros((2, 4))}, "domain.input_ranges: expected 3 columns"),
        ({"coordinate_names": ("x",)}, "domain.coordinate_names: expected 2 entries, got 1"),
        ({"input_sizes": (3,)}, "domain.input_sizes: expected 2 entries, got 1"),
    ],
)
def test_a_domain_of_other_sizes_is_refused(fields: dict[str, Any], words: str):
    with pytest.raises(DataError, match=words):
        with_domain(**fields)


def test_representations_name_what_there_is():
    operator = with_domain(coordinate_names=("x", "<y>"), channel_names=("u",))
    for words in ("f, g (3 sensors)", "u at (x, <y>)", "Perceptron (45 parameters)", "rank 3", "float64"):
        assert words in repr(operator)
    assert ">u at (x, &lt;y&gt;)</td>" in operator._repr_html_()
    assert "1 at (2 coordinates)" in repr(standardised())


def test_scattered_points():
    """Every sample at its own points, which must be as many sets as there are samples."""
    operator = standardised()
    points = POINTS + np.arange(len(INPUTS))[:, None, None]
    expected = [operator.predict(INPUTS[i : i + 1], points[i])[0] for i in range(len(INPUTS))]
    assert np.allclose(operator.predict_scattered(INPUTS, points.tolist()), expected, rtol=0, atol=1e-13)
    for wrong in (points[:3], POINTS, points[..., :1]):
        with pytest.raises(DataError, match=r"points: expected shape \(7, points, 2\), got"):
            operator.predict_scattered(INPUTS, wrong)


# -- messages


@pytest.mark.parametrize(
    ("inputs", "points", "words"),
    [
        ([[1.0, 2.0], [3.0]], POINTS, "inputs: cannot be converted to an array"),
        ([["a", "b", "c"]], POINTS, "inputs: expected real numbers, got values of type"),
        (
            np.where(np.arange(3) == 1, np.nan, INPUTS),
            POINTS,
            r"inputs\[0, 1\] is nan; 7 of 21 values",
        ),
        (INPUTS, np.where(np.arange(2) == 1, -np.inf, POINTS), r"points\[0, 1\] is -inf"),
        (INPUTS[:0], POINTS, "inputs: there are no samples"),
        ({"f": INPUTS[:, :1], "g": INPUTS[:3, 1:]}, POINTS, "different numbers of samples on axis 0: f 7, g 3"),
        ({"f": INPUTS[:, :1], "g": INPUTS[0, 1:]}, POINTS, r"inputs\['g'\]: expected 2 axes \(samples, sensors\)"),
        (INPUTS[0], POINTS, r"inputs: expected 2 axes.*\(3,\)"),
        (INPUTS, POINTS[0], r"points: expected 2 axes.*\(2,\)"),
        (INPUTS[:, :2], POINTS, "inputs: .*3.*2"),
        (INPUTS, POINTS[:, :1], "points: .*2.*1"),
        ({"f": INPUTS}, POINTS, "inputs: this operator was trained on f, g; got f"),
    ],
)
def test_what_is_wrong_is_named(inputs: np.ndarray, points: np.ndarray, words: str):
    with pytest.raises(DataError, match=words):
        standardised().predict(inputs, points)


def test_double_precision_switched_off():
    with (
        jax.enable_x64(False),
        pytest.raises(PrecisionError, match=r'jax\.config\.update\("jax_enable_x64", True\)'),
    ):
        standardised()(INPUTS, POINTS)


# -- transformations


def test_jit_vmap_and_grad():
    operator = standardised()
    with jax.enable_x64(True):
        inputs, points = jnp.asarray(INPUTS), jnp.asarray(POINTS)
        expected = operator(inputs, points)
        assert np.allclose(
            jax.jit(lambda o, f, y: o(f, y))(operator, inputs, points), expected, rtol=0, atol=1e-14
        )
        one_by_one = jax.vmap(lambda f: operator(f[None], points)[0])(inputs)
        assert np.allclose(one_by_one, expected, rtol=0, atol=1e-14)

        def loss(y: jax.Array) -> jax.Array:
            return jnp.sum(operator(inputs, y) ** 2)

        direction = random_like(points, seed=0)
        slope = central_difference(loss, points, direction)
        assert float(jnp.sum(jax.grad(loss)(points) * direction)) == pytest.approx(slope, rel=1e-8)


def test_frozen():
    operator = standardised()
    with pytest.raises(dc.FrozenInstanceError):
        operator.encoder = Identity()
