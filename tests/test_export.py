"""Exports compute what the operator computes: every part in every format."""

import ast
import dataclasses as dc
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from exported import INPUTS, MAKERS, POINTS, distance, known, make, run_numpy, run_onnx, run_stablehlo
from helpers import make_network

from trunkfirst.encoders import Identity
from trunkfirst.errors import UsageError
from trunkfirst.exporters.formats import to_stablehlo
from trunkfirst.exporters.graph import to_javascript, to_numpy, to_onnx
from trunkfirst.exporters.jaxpr import trace
from trunkfirst.networks.layers import ACTIVATIONS, Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.networks.storage import PARTS
from trunkfirst.networks.training_domain import TrainingDomain

# -- every part in every format


def parts_of(module: Any) -> set[str]:
    names = {type(module).__name__}
    for value in (getattr(module, field.name) for field in dc.fields(module)):
        for item in value if isinstance(value, tuple) else (value,):
            names |= parts_of(item) if isinstance(item, eqx.Module) else set()
    return names


# Earlier names, and what an export leaves out.
NOT_EXPORTED = {name for name, part in PARTS.items() if name != part.__name__} | {"TrainingDomain"}


def test_every_part_that_can_be_stored_is_among_the_tests():
    assert set().union(*(parts_of(known(name)[0]) for name in MAKERS)) == {*PARTS, "Operator"} - NOT_EXPORTED


@pytest.mark.parametrize("name", MAKERS)
def test_onnx(name: str):
    pytest.importorskip("onnx", reason="onnx is not installed")
    operator, expected = known(name)
    graph = trace(operator)
    assert distance(run_onnx(to_onnx(graph, double=True), INPUTS, POINTS, np.float64), expected) < 1e-13
    assert distance(run_onnx(to_onnx(graph, double=False), INPUTS, POINTS, np.float32), expected) < 5e-6


@pytest.mark.parametrize("name", MAKERS)
def test_numpy(name: str, tmp_path: Path):
    operator, expected = known(name)
    model = run_numpy(to_numpy(trace(operator), double=True), tmp_path)
    assert distance(model.predict(INPUTS, POINTS), expected) < 1e-13
    model.BLOCK = 3
    assert distance(model.predict(INPUTS, POINTS), expected) < 1e-13
    found = run_numpy(to_numpy(trace(operator), double=False), tmp_path).predict(INPUTS, POINTS)
    assert found.dtype == np.float32
    assert distance(found, expected) < 5e-6


@pytest.mark.parametrize(
    "name",
    ["activation silu", "kernel 5/2", "fourier 2d", "boundary of channels", "cubic grid", "smooth triangles"],
)
def test_stablehlo(name: str):
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    operator, expected = known(name)
    stored = to_stablehlo(trace(operator), double=True)
    assert distance(run_stablehlo(stored, INPUTS, POINTS, np.float64), expected) < 4e-15
    assert distance(run_stablehlo(stored, INPUTS[:1], POINTS[:2], np.float64), expected[:1, :2]) < 4e-15
    if name == "kernel 5/2":  # whose distances have no derivative at 0 by themselves
        with jax.enable_x64(True):
            call = jax.export.deserialize(bytearray(stored)).call
            found = jax.grad(lambda inputs, points: call(inputs, points).sum())(INPUTS, POINTS)
            wanted = jax.grad(lambda inputs, points: operator(inputs, points).sum())(INPUTS, POINTS)
        assert distance(np.asarray(found), np.asarray(wanted)) < 1e-12
        return
    assert (
        distance(run_stablehlo(to_stablehlo(trace(operator), double=False), INPUTS, POINTS, np.float32), expected)
        < 5e-6
    )


def test_javascript(tmp_path: Path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    samples = {"inputs": INPUTS, "points": POINTS}
    arrays = ", ".join(
        f"np.array({json.dumps(a.shape)}, {json.dumps(a.ravel().tolist())})" for a in samples.values()
    )
    print_outputs = (
        f"const found = operator.predict({arrays});\nconsole.log(JSON.stringify([found.shape, [...found.data]]));"
    )
    scripts = [f"(() => {{\n{to_javascript(trace(known(name)[0]))}\n{print_outputs}\n}})();" for name in MAKERS]
    (tmp_path / "all.js").write_text("\n".join(scripts), encoding="utf-8")
    done = subprocess.run([node, str(tmp_path / "all.js")], capture_output=True, text=True, check=True)
    for name, line in zip(MAKERS, done.stdout.splitlines(), strict=True):
        shape, numbers = json.loads(line)
        assert distance(np.reshape(numbers, shape), known(name)[1]) < 1e-13, name


def test_javascript_is_safe_in_a_page():
    assert "</script>" not in to_javascript(trace(dc.replace(make(), input_names=("</script>",))))


def test_large_arguments_overflow_nowhere(tmp_path: Path):
    for name in ACTIVATIONS:
        network = make_network(1, 1, 3, activation=name)
        operator = Operator(Identity(), network, Trunk(make_network(2, 2)))
        text = to_numpy(trace(operator), double=True)
        inputs = np.array([[-1e5], [1e5]])
        with np.errstate(over="raise", invalid="raise"):
            found = run_numpy(text, tmp_path).predict(inputs, POINTS)
        assert distance(found, operator.predict(inputs, POINTS)) < 1e-10  # of the sine


# -- the walk over the jaxpr


class Many(Identity):
    """An encoder of primitives that the stored parts do not use."""

    def __call__(self, inputs: Any) -> Any:
        x = inputs[:, 2:6]
        stripes = jnp.where(x < 1, jnp.square(x), jax.lax.rsqrt(x)) - jnp.minimum(x, 1.5)
        totals = jnp.sum(inputs[:, 1::3] ** -2, axis=1)[:, None] * jnp.ones((1, 4), x.dtype)
        halves = jnp.stack(jnp.split(inputs, 3, axis=1), axis=1)  # (samples, 3, 4)
        products = jnp.einsum("sij,jk->sk", halves, jnp.ones((4, 4), x.dtype))
        return jnp.concatenate([jnp.where(x != x, 0.0, stripes), totals, jnp.log1p(jnp.abs(products))], axis=1)


def test_other_primitives(tmp_path: Path):
    operator = make(Many())
    expected, graph = operator.predict(INPUTS, POINTS), trace(operator)
    assert distance(run_numpy(to_numpy(graph, double=True), tmp_path).predict(INPUTS, POINTS), expected) < 1e-13
    pytest.importorskip("onnx", reason="onnx is not installed")
    assert distance(run_onnx(to_onnx(graph, double=True), INPUTS, POINTS, np.float64), expected) < 1e-13


@pytest.mark.parametrize("sensors", [1021, 1009])
def test_axes_as_long_as_the_traced_samples(sensors: int):
    operator = Operator(Identity(), make_network(sensors, 3, 3), Trunk(make_network(2, 3, 2)))
    inputs = np.random.default_rng(0).normal(size=(4, sensors))
    found = trace(operator).evaluate(inputs, POINTS, np.float64)
    assert distance(found, operator.predict(inputs, POINTS)) < 1e-13


class Shared(Identity):
    """An encoder whose result depends on how many samples come together."""

    def __call__(self, inputs: Any) -> Any:
        return inputs / len(inputs)


def test_what_depends_on_the_number_of_samples_is_refused():
    with pytest.raises(UsageError, match="sizes that depend on the number of samples or points"):
        trace(make(Shared()))


# -- what is in an ONNX file


def test_an_onnx_file_holds_everything_itself():
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    operator, _ = known("channels")
    content = to_onnx(trace(operator), double=True)
    assert content == to_onnx(trace(operator), double=True)
    model = onnx.load_model_from_string(content)
    assert (model.ir_version, [(o.domain, o.version) for o in model.opset_import]) == (8, [("", 17)])
    assert not any(t.external_data or t.data_location for t in model.graph.initializer)
    values = [*model.graph.input, *model.graph.output]
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    assert shapes == {
        "inputs": ["samples", 12],
        "points": ["points", 2],
        "outputs": ["samples", "points", 3],
    }
    assert {p.key: p.value for p in model.metadata_props} == {"input_names": "f, g"}
    assert "f, g side by side" in model.doc_string


@pytest.mark.parametrize(("samples", "points"), [(1, 1), (0, 3), (40, 200)])
def test_onnx_of_any_sizes(samples: int, points: int):
    pytest.importorskip("onnx", reason="onnx is not installed")
    operator, _ = known("convolution 2d")
    inputs, at = np.tile(INPUTS, (6, 1))[:samples], np.tile(POINTS, (40, 1))[:points]
    found = run_onnx(to_onnx(trace(operator), double=True), inputs, at, np.float64)
    assert found.shape == (samples, points)
    assert samples == 0 or distance(found, operator.predict(inputs, at)) < 1e-13


# -- what is in a NumPy file


def test_a_numpy_file_runs_no_code_from_names(tmp_path: Path):
    names = ('"""\nraise SystemExit(3)\n"""', "é'\\\n{x}")
    text = to_numpy(trace(dc.replace(make(), input_names=names)), double=True)
    assert names == run_numpy(text, tmp_path).INPUT_NAMES
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    called = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert imported == {"base64", "numpy", "types"}
    assert not called & {"exec", "eval", "compile", "__import__", "open"}


@pytest.mark.parametrize(
    ("inputs", "points", "words"),
    [
        (INPUTS[0], POINTS, r"inputs.*\(any, 12\).*\(12,\)"),
        (INPUTS, POINTS[:, :1], r"points.*\(any, 2\).*\(5, 1\)"),
        (np.full_like(INPUTS, np.nan), POINTS, "inputs: not all values are finite"),
    ],
)
def test_a_numpy_file_names_what_is_wrong(tmp_path: Path, inputs: np.ndarray, points: np.ndarray, words: str):
    with pytest.raises(ValueError, match=words):
        run_numpy(to_numpy(trace(make()), double=True), tmp_path).predict(inputs, points)


def test_a_numpy_file_refuses_points_outside_the_domain(tmp_path: Path):
    low, high = POINTS.min(axis=0) - 1, POINTS.max(axis=0) + 1
    operator = dc.replace(make(), domain=TrainingDomain(point_ranges=np.stack([low, high])))
    model = run_numpy(to_numpy(trace(operator), double=True), tmp_path)
    points = np.stack([POINTS[0], high + 1])
    with pytest.raises(ValueError, match=r"points: 1 of 2 lie outside the training domain.*extrapolate=True"):
        model.predict(INPUTS, points)
    assert model.is_outside(points).tolist() == [False, True]
    assert np.allclose(model.predict(INPUTS, points, extrapolate=True), operator.values_at(INPUTS, points))
