"""Exported files: what is refused, single precision, and a trained operator end to end."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exported import INPUTS, POINTS, RANK, array, distance, known, make, run_numpy, run_onnx, run_stablehlo
from helpers import read_file
from own_problems import Call

from trunkfirst.encoders import Identity, Standardise
from trunkfirst.errors import MissingExtraError, PrecisionError, PredictOnlyError, UnknownNameError, UsageError
from trunkfirst.exporters.formats import export
from trunkfirst.networks.branches import PredictOnlyBranch
from trunkfirst.networks.operator import load


class Mean:
    """An estimator that has nothing to do with JAX."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict(self, X: Any) -> Any:
        return np.tile(X.mean(axis=1, keepdims=True), RANK)


class Cumulative(Identity):
    """An encoder with a primitive that no exporter knows."""

    def __call__(self, inputs: Any) -> Any:
        return jnp.cumsum(inputs, axis=1)


def test_what_cannot_be_exported_says_so(tmp_path: Path):
    with pytest.raises(PredictOnlyError, match="a Mean, which predicts only: it cannot be exported"):
        export(make(branch=PredictOnlyBranch(Mean())), "numpy", tmp_path / "model.py")
    with pytest.raises(
        UsageError, match="no rule for the JAX primitive 'cumsum'; predict with `trunkfirst predict`"
    ):
        export(make(Cumulative()), "numpy", tmp_path / "model.py")
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
    # the model remembers training inputs, on which the error of single precision is measured
    assert call("export", place / "run" / "model", "--to", "numpy", "--out", out, "--precision", "single")[0] == 0


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
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert [call(*(place / "run" if word == "runs/mine" else word for word in c))[0] for c in commands] == [0] * 3
    data = read_file(place / "new.npz")
    samples = {"inputs": data.flat_inputs, "points": data.points}
    operator = load(place / "run")
    expected = operator.predict(data.flat_inputs, data.points)
    programs = [block for kind, block in blocks if kind == "python"]
    assert len(programs) == 3
    with jax.enable_x64(True):
        for program in programs:
            # Setting what is set already would outlive this test.
            (tmp_path / "program.py").write_text(program.replace("jax.config.update", "print"))
            found = runpy.run_path(str(tmp_path / "program.py"), init_globals=samples)
            assert distance(np.asarray(found["outputs"]), expected) < 1e-13
            if "onnxruntime" in program:
                assert np.array_equal([found["low"], found["high"]], operator.domain.box_with_margin())
                assert not found["is_outside"].any()
    sys.modules.pop("model")
