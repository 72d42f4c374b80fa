"""Exports compute what the operator computes: every part in every format, and a trained one end to end."""

import ast
import dataclasses as dc
import functools as ft
import importlib.util
import itertools
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, read_file
from own_problems import Call

from trunkfirst.errors import MissingExtraError, PrecisionError, PredictOnlyError, UnknownNameError, UsageError
from trunkfirst.networks import (
    ACTIVATIONS,
    ELEMENTWISE,
    MATERN,
    Boundary,
    Chain,
    Coefficients,
    ConvolutionFeatures,
    Coordinates,
    Elementwise,
    FeatureBranch,
    FourierFeatures,
    Identity,
    KernelBranch,
    LayerFeatures,
    Operator,
    OutputMap,
    Parallel,
    Periodic,
    PredictOnlyBranch,
    ProductFeatures,
    SkipFeatures,
    StackedBranch,
    Standardise,
    Trunk,
    _storage,
    load,
)
from trunkfirst.serving import export, to_javascript, trace
from trunkfirst.serving._numpy import to_numpy
from trunkfirst.serving._onnx import to_onnx
from trunkfirst.serving._stablehlo import to_stablehlo
from trunkfirst.serving._trace import emit

RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.uniform(0.5, 2.0, (7, 12)), RNG.uniform(-1, 1, (5, 2))
INPUTS[:, 1] *= -1
RANK = 4


def array(values: Any) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(values)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return array(np.random.default_rng(seed).normal(size=shape))


def positive(*shape: int) -> jax.Array:
    return array(np.random.default_rng(9).uniform(1, 3, shape))


def make(
    encoder: Any = None,
    branch: Any = None,
    *,
    points: Any = None,
    features: int = 12,
    channels: int | None = None,
    output: OutputMap | None = None,
    activation: str = "tanh",
    transform: bool = True,
) -> Operator:
    """An operator of 12 sensors and 2 coordinates around the parts that are given."""
    points = points or Identity()
    encoded = width_of(points, POINTS)
    trunk = Trunk(make_network(encoded, 6, 5, 5 if transform else RANK - 1, activation=activation, seed=1), points)
    coefficients = RANK * (channels or 1)
    branch = branch or make_network(features, 6, 5, coefficients, activation=activation, seed=2)
    T = normal(6, RANK, seed=3) if transform else None
    return Operator(encoder or Identity(), branch, trunk, T, ("f", "g"), output, channels)


def width_of(part: Any, rows: np.ndarray) -> int:
    with jax.enable_x64(True):
        return jax.eval_shape(part, rows).shape[1]


def on_features(features: Any) -> Operator:
    width = width_of(features, INPUTS)
    return make(branch=FeatureBranch(features, normal(RANK, width, seed=4), normal(RANK, seed=5)))


def convolution(*grid: int, channels: tuple[int, ...]) -> Operator:
    taps = (3,) * len(grid)
    kernels = tuple(normal(n_out, n_in, *taps) for n_in, n_out in itertools.pairwise((1, *channels)))
    cells = math.prod(math.ceil(size / 2 ** len(channels)) for size in grid)
    dense = make_network(cells * channels[-1], 4, activation="gelu")
    return on_features(ConvolutionFeatures(kernels, tuple(normal(n) for n in channels), dense, grid))


def kernel(smoothness: str) -> Operator:
    centres = np.concatenate([INPUTS[:3], np.asarray(normal(6, 12))])  # distance 0 is among them
    branch = KernelBranch(array(centres), normal(9, RANK), normal(RANK), array(3.0), smoothness, 0.0)
    return make(branch=branch)


def mapped(*, channels: int | None, boundary: Boundary | None, is_positive: bool) -> Operator:
    return make(channels=channels, output=OutputMap(positive(channels or 1), boundary, is_positive))


LAYERS = LayerFeatures(make_network(12, 5, 4, seed=3))
STANDARD = Standardise(normal(12), array([np.inf, *positive(11).tolist()]))
SIDES = Boundary((-1.0, -1.0), (1.0, 2.0), ((0, True), (1, False)), 0.7)
IS_POSITIVE = jnp.asarray(INPUTS[0] > 0)
MAKERS: dict[str, Callable[[], Operator]] = {
    **{f"activation {name}": ft.partial(make, activation=name) for name in ACTIVATIONS},
    **{f"kernel {name}": ft.partial(kernel, name) for name in MATERN},
    **{f"elementwise {name}": ft.partial(make, Elementwise(IS_POSITIVE, name)) for name in ELEMENTWISE},
    "no transform": ft.partial(make, transform=False),
    "stacked": lambda: make(branch=StackedBranch(make_network(12, 5, 3, 1, stack=(RANK,), seed=2))),
    "layers": lambda: on_features(LAYERS),
    "skip": lambda: on_features(SkipFeatures(LAYERS)),
    "product": lambda: on_features(
        ProductFeatures((make_network(5, 5, 4, seed=1), make_network(7, 5, 4, seed=2)), (5, 7))
    ),
    "convolution 1d": lambda: convolution(12, channels=(2, 3)),
    "convolution 2d": lambda: convolution(3, 4, channels=(3, 2)),
    "convolution 3d": lambda: convolution(2, 3, 2, channels=(3,)),
    "standardise": lambda: make(STANDARD),
    "one sensor": lambda: make(
        Chain((Coefficients(normal(12, 1)), Standardise(normal(1), positive(1)))), features=1
    ),
    "all positive": lambda: make(
        Parallel((Elementwise(jnp.ones(1, bool), "log"), Coordinates(normal(11), normal(11, 3))), (1, 11)),
        features=4,
    ),
    "coordinates": lambda: make(Coordinates(normal(12), normal(12, 3, seed=1)), features=3),
    "chain": lambda: make(Chain((STANDARD, Coefficients(normal(12, 3)))), features=3),
    "periodic": lambda: make(points=Periodic((0.0, 1.5))),
    "fourier": lambda: make(points=FourierFeatures(normal(4, 2))),
    "points chain": lambda: make(points=Chain((Standardise(normal(2), positive(2)), Periodic((2.0, 0.0))))),
    "channels": ft.partial(make, channels=3),
    "scale": lambda: mapped(channels=None, boundary=None, is_positive=False),
    "boundary": lambda: mapped(channels=None, boundary=SIDES, is_positive=False),
    "boundary of channels": lambda: mapped(channels=3, boundary=SIDES, is_positive=True),
    "one channel": lambda: mapped(channels=1, boundary=dc.replace(SIDES, sides=()), is_positive=False),
}


@ft.cache
def known(name: str) -> tuple[Operator, np.ndarray]:
    """An operator and its own predictions."""
    operator = MAKERS[name]()
    return operator, operator.predict(INPUTS, POINTS)


def run_onnx(model: bytes, inputs: np.ndarray, points: np.ndarray, dtype: type) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["outputs"], {"inputs": inputs.astype(dtype), "points": points.astype(dtype)})[0]


def run_numpy(text: bytes, folder: Path) -> Any:
    """The written file as a module."""
    path = folder / "exported_model.py"
    path.write_bytes(text)
    spec = importlib.util.spec_from_file_location("exported_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_stablehlo(stored: bytes, inputs: np.ndarray, points: np.ndarray, dtype: type) -> np.ndarray:
    with jax.enable_x64(dtype is np.float64):
        call = jax.export.deserialize(bytearray(stored)).call
        return np.asarray(call(inputs.astype(dtype), points.astype(dtype)))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# -- every part in every format


def parts_of(module: Any) -> set[str]:
    names = {type(module).__name__}
    for value in (getattr(module, field.name) for field in dc.fields(module)):
        for item in value if isinstance(value, tuple) else (value,):
            names |= parts_of(item) if isinstance(item, eqx.Module) else set()
    return names


def test_every_part_that_can_be_stored_is_among_the_tests():
    assert set().union(*(parts_of(known(name)[0]) for name in MAKERS)) == set(_storage._PARTS)


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


@pytest.mark.parametrize("name", ["activation silu", "kernel 5/2", "convolution 2d", "boundary of channels"])
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
    scripts = [
        f"(() => {{\n{to_javascript(trace(known(name)[0]), double=True)}\n{print_outputs}\n}})();"
        for name in MAKERS
    ]
    (tmp_path / "all.js").write_text("\n".join(scripts), encoding="utf-8")
    done = subprocess.run([node, str(tmp_path / "all.js")], capture_output=True, text=True, check=True)
    for name, line in zip(MAKERS, done.stdout.splitlines(), strict=True):
        shape, numbers = json.loads(line)
        assert distance(np.reshape(numbers, shape), known(name)[1]) < 1e-13, name


def test_javascript_is_safe_in_a_page_and_smaller_in_single_precision():
    graph = trace(dc.replace(make(), input_names=("</script>",)))
    texts = [to_javascript(graph, double=double) for double in (False, True)]
    assert "</script>" not in texts[0]
    assert len(texts[0]) < len(texts[1])


def test_large_arguments_overflow_nowhere(tmp_path: Path):
    for name in ACTIVATIONS:
        network = make_network(1, 1, 3, activation=name)
        operator = Operator(Identity(), network, Trunk(make_network(2, 2)))
        text = to_numpy(trace(operator), double=True)
        inputs = np.array([[-1e5], [1e5]])
        with np.errstate(over="raise", invalid="raise"):
            found = run_numpy(text, tmp_path).predict(inputs, POINTS)
        assert distance(found, operator.predict(inputs, POINTS)) < 1e-10  # of the sine


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
    assert imported == {"base64", "numpy"}
    assert not called & {"exec", "eval", "compile", "__import__", "open"}


@pytest.mark.parametrize(
    ("inputs", "points", "words"),
    [
        (INPUTS[0], POINTS, r"inputs.*\(any, 12\).*\(12,\)"),
        (INPUTS, POINTS[:, :1], r"points.*\(any, 2\).*\(5, 1\)"),
    ],
)
def test_a_numpy_file_names_what_is_wrong(tmp_path: Path, inputs: np.ndarray, points: np.ndarray, words: str):
    with pytest.raises(ValueError, match=words):
        run_numpy(to_numpy(trace(make()), double=True), tmp_path).predict(inputs, points)


# -- refusals


class Mean:
    """An estimator that has nothing to do with JAX."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict(self, X: Any) -> Any:
        return np.tile(X.mean(axis=1, keepdims=True), RANK)


def test_what_cannot_be_exported_says_so(tmp_path: Path):
    with pytest.raises(PredictOnlyError, match="a Mean, which predicts only: it cannot be exported"):
        export(make(branch=PredictOnlyBranch(Mean())), "numpy", tmp_path / "model.py")
    with pytest.raises(UsageError, match="a dict cannot be exported"):
        emit({}, None)
    with pytest.raises(UnknownNameError, match="no format 'pickle'; choose one of: onnx, stablehlo, numpy"):
        export(make(), "pickle", tmp_path / "model")
    with pytest.raises(UnknownNameError, match="no precision 'half'"):
        export(make(), "numpy", tmp_path / "model", precision="half")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnx"), ("stablehlo", "flatbuffers")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, package: str):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}; .*trunkfirst\[{to}\]"):
        export(make(), to, tmp_path / "model")


def test_single_precision_where_it_is_enough(tmp_path: Path):
    operator, expected = known("chain")
    with pytest.raises(PrecisionError, match=r"give samples=\(inputs, points\)"):
        export(operator, "numpy", tmp_path / "model.py", precision="single")
    done = export(operator, "numpy", tmp_path / "model.py", precision="single", samples=(INPUTS, POINTS))
    found = run_numpy(done.path.read_bytes(), tmp_path).predict(INPUTS, POINTS)
    worst = max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, expected, strict=True))
    assert done.error == pytest.approx(worst, rel=1e-3)
    assert (done.precision, done.size) == ("single", done.path.stat().st_size)


def test_single_precision_where_it_is_not(tmp_path: Path):
    narrow = Standardise(array(np.full(12, 1e3)), array(np.full(12, 1e-2)))
    samples = (1e3 + 1e-2 * INPUTS, POINTS)
    with pytest.raises(
        PrecisionError, match=r"change the outputs by \d\.\de-0\d.*more than 1e-05; export in double"
    ):
        export(make(narrow), "numpy", tmp_path / "model.py", precision="single", samples=samples)
    assert not any(tmp_path.iterdir())
    with pytest.raises(PrecisionError, match="nan"):  # no sample with a finite output
        export(known("elementwise log")[0], "numpy", tmp_path / "a", precision="single", samples=(-INPUTS, POINTS))


def test_an_operator_in_single_precision_stays_so(tmp_path: Path):
    operator = jax.tree.map(lambda a: a.astype(np.float32) if eqx.is_inexact_array(a) else a, make())
    done = export(operator, "numpy", tmp_path / "model.py")
    assert (done.precision, done.error) == ("single", None)
    expected = operator.predict(INPUTS, POINTS)
    assert distance(run_numpy(done.path.read_bytes(), tmp_path).predict(INPUTS, POINTS), expected) < 5e-6
    assert export(operator, "numpy", tmp_path / "model.py", precision="double").precision == "double"


# -- files and the command line


def test_an_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "old.py").write_text("as it was")
    monkeypatch.setattr(os, "fsync", interrupt)
    for name in ("old.py", "new.py"):
        with pytest.raises(KeyboardInterrupt):
            export(make(), "numpy", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.py"]
    assert (tmp_path / "old.py").read_text() == "as it was"


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("to", ["onnx", "stablehlo", "numpy"])
def test_a_trained_operator_end_to_end(place: Path, tmp_path: Path, call: Call, to: str, precision: str):
    pytest.importorskip({"onnx": "onnx", "stablehlo": "flatbuffers"}.get(to, "numpy"))
    out = tmp_path / "model.py"
    code, printed, err = call(
        "export", place / "run", "--to", to, "--out", out, "--precision", precision, "--json"
    )
    assert (code, err) == (0, "")
    summary = json.loads(printed)
    assert summary["bytes"] == out.stat().st_size
    assert (summary["error"] is None) == (precision == "double")
    data = read_file(place / "new.npz")
    inputs, points, content = data.flat_inputs, data.points[::3], out.read_bytes()
    dtype = {"single": np.float32, "double": np.float64}[precision]
    found = {
        "onnx": lambda: run_onnx(content, inputs, points, dtype),
        "stablehlo": lambda: run_stablehlo(content, inputs, points, dtype),
        "numpy": lambda: run_numpy(content, tmp_path).predict(inputs, points),
    }[to]()
    expected = load(place / "run").predict(inputs, points)
    assert distance(found, expected) < (1e-13 if precision == "double" else 5e-6)


def test_the_command_in_words(place: Path, tmp_path: Path, call: Call):
    out = tmp_path / "model.py"
    code, printed, _ = call("export", place / "run", "--to", "numpy", "--out", out)
    assert code == 0
    assert "numpy in double precision, " in printed
    assert call("export", place / "run", "--to", "html5", "--out", out)[0] == UnknownNameError.exit_code
    assert call("export", place / "run" / "model", "--to", "numpy", "--out", out, "--precision", "single")[0] == 13


def test_a_numpy_file_needs_numpy_alone(tmp_path: Path):
    operator, expected = known("chain")
    export(operator, "numpy", tmp_path / "model.py")
    np.savez(tmp_path / "samples.npz", inputs=INPUTS, points=POINTS)
    script = (
        "import sys, numpy as np\n"
        "sys.modules |= dict.fromkeys(('jax', 'scipy', 'trunkfirst', 'equinox'))\n"
        "from model import predict\n"
        "np.save('found.npy', predict(**np.load('samples.npz')))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert distance(np.load(tmp_path / "found.npy"), expected) < 1e-13


def test_the_lines_of_the_documentation(place: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch):
    for package in ("onnx", "onnxruntime", "flatbuffers"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = [line.split()[1:] for kind, block in blocks if not kind for line in block.splitlines()]
    assert [call(*(place / "run" if word == "runs/mine" else word for word in c))[0] for c in commands] == [0] * 3
    data = read_file(place / "new.npz")
    samples = {"inputs": data.flat_inputs, "points": data.points}
    expected = load(place / "run").predict(**samples)
    programs = [block for kind, block in blocks if kind == "python"]
    assert len(programs) == 3
    with jax.enable_x64(True):
        for program in programs:
            # Setting what is set already would outlive this test.
            (tmp_path / "program.py").write_text(program.replace("jax.config.update", "print"))
            found = runpy.run_path(str(tmp_path / "program.py"), init_globals=samples)
            assert distance(np.asarray(found["outputs"]), expected) < 1e-13
    sys.modules.pop("model")
