"""The benchmarks can be asked what they do; what they find is written in one way."""

import importlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py") if path.stem != "against_ngsolve")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script as it sees the world when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_script_does(name: str, load: Any, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        load(name).main(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert " ".join((load(name).__doc__ or "").splitlines()[0].split()) in shown


def test_results_are_a_table_a_record_and_a_figure(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    common = load("_common")
    options = common.options_for("Title.", lambda parser: None, ["--quick", "--out", str(tmp_path)])
    table = common.Table("Times", ("samples", "ms", "word"), [(900, 12.3456, None), (90_000, 1e-7, "x")])
    common.publish("times", options, table, {}, lambda axes: common.draw_curves(axes, {"a": [(1.0, 2.0)]}))
    text = (tmp_path / "times.md").read_text(encoding="utf-8")
    assert text == capsys.readouterr().out
    assert "| 900     | 12.3  | -    |" in text
    assert "| 90,000  | 1e-07 | x    |" in text
    assert str(tmp_path) not in text
    assert json.loads((tmp_path / "times.json").read_text(encoding="utf-8"))["table"]["rows"][0][0] == 900
    assert (tmp_path / "times.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_quick_run_writes_nothing_unless_told_where(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    common = load("_common")
    for folder in ("RESULTS", "IMAGES"):
        monkeypatch.setattr(common, folder, tmp_path)
    options = common.options_for("Title.", lambda parser: None, ["--quick"])
    common.publish("times", options, common.Table("Times", ("a",), [(1,)]), {}, lambda axes: None)
    assert not list(tmp_path.iterdir())


def test_finite_volumes_of_the_hard_sets(load: Any):
    """Against closed forms: layers in series, exact; sin sin, with order 2 under refinement."""
    hard = load("_hard_grids")
    a = np.ones((4, 8))
    a[:, 4:] = 3.0  # resistances 1/2 and 1/6: three quarters of the drop on the left
    x = (np.arange(8) + 0.5) / 8
    exact = np.where(x < 0.5, 1 - 1.5 * x, 0.5 * (1 - x))
    assert np.allclose(hard.solve(a, 0 * a, (1.0, 0.0), is_closed=True), exact, atol=1e-13)
    missed = []
    for n in (16, 32):
        wave = np.sin(np.pi * (np.arange(n) + 0.5) / n)
        u = np.outer(wave, wave)
        missed.append(abs(hard.solve(0 * u + 1, 2 * np.pi**2 * u, (0.0, 0.0), is_closed=False) - u).max())
    assert 3.5 < missed[0] / missed[1] < 4.5


@pytest.mark.parametrize("step", ["trunk", "monolithic"])
def test_the_loss_of_the_open_choices_is_the_mean_of_squares(load: Any, step: str):
    """Inputs and outputs in factors, the gradient with one product less: the same numbers, but for rounding."""
    script = load("paper_open_choices")
    rng = np.random.default_rng(0)
    inputs, points = rng.normal(size=(7, 3)) @ rng.normal(size=(3, 120)), rng.normal(size=(9, 2))
    outputs = rng.normal(size=(7, 2)) @ rng.normal(size=(2, 9))
    widths = ((2, 5, 3), (120, 6, 4))
    problem = script.Problem(points, inputs, outputs, inputs[:2], outputs[:2], *widths, "tanh")
    with jax.enable_x64(True):
        training = script.Training(problem, script.Choices.read(f"step={step}"), seed=1, iterations=10)

        def plain(networks: Any) -> Any:
            C = training.coefficients(networks[1], inputs)
            return jnp.mean((C @ training.functions(networks[0]).T - outputs) ** 2)

        found, expected = (jax.value_and_grad(f)(training.start) for f in (training.loss, plain))
    assert isinstance(training.inputs, tuple) == (step == "monolithic")
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_what_an_earlier_call_measured_is_kept_and_named(load: Any, tmp_path: Path):
    common = load("_common")
    first, again = (
        common.options_for("Title.", lambda parser: None, ["--out", str(tmp_path), "--clock", clock])
        for clock in ("wall", "processor")
    )
    table = common.Table("Times", ("a",), [(1,)])
    measured = dict.fromkeys(("one", "two"), common.source_of(first))
    assert common.published("times", first) == {}
    common.publish("times", first, table, {"measured": measured}, lambda axes: None)
    assert common.published("times", again) == {"measured": measured}
    (note,) = common.notes_of_kept(measured | {"two": common.source_of(again)}, again)
    assert "From an earlier run: one (`" in note
    assert "clock: wall" in note
