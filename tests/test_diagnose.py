"""`trunkfirst diagnose`: a run's budget in text, JSON and report; what cannot be evaluated is one line."""

import dataclasses as dc
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network
from own_problems import Call, antiderivative, fit_branch, known_trunk

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import read_data, write_data
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.errors import DataError, UsageError
from trunkfirst.evaluation import evaluate
from trunkfirst.files.integrity import verify_manifest, write_manifest
from trunkfirst.files.npz import read_npz
from trunkfirst.files.text_files import read_json, write_json, write_text
from trunkfirst.inputs import Coordinates, RawInputs, fit_standardise
from trunkfirst.minimisers.adam import Adam
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.outputs import OutputMap
from trunkfirst.problems.generate import make_data
from trunkfirst.regressors.ridge import Linear
from trunkfirst.report.pages import write_report
from trunkfirst.run_data import load_run_data
from trunkfirst.runs import diagnose as diagnose_module
from trunkfirst.runs.config import load_config, make_config
from trunkfirst.runs.diagnose import gather_case
from trunkfirst.settings import to_toml
from trunkfirst.trunks import JointTrunk
from trunkfirst.two_step import TwoStep


def finer(points: int = 101, samples: int = 40) -> OperatorData:
    """The training file of `place` with the same inputs, at other points."""
    data = antiderivative(samples)
    k, x = np.arange(1, 6)[:, None], np.linspace(0, 1, points)
    a = np.random.default_rng(0).normal(size=(samples, 5)) / k[:, 0]
    return OperatorData(data.inputs, x[:, None], a @ (np.sin(np.pi * k * x) / (np.pi * k)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on own data with a trunk that needed no training."""
    folder = tmp_path_factory.mktemp("own")
    write_data(antiderivative(40), folder / "train.npz")
    config = make_config({"data": {"file": str(folder / "train.npz")}})
    prepared = load_run_data(config.data)
    method = TwoStep(
        JointTrunk(
            hidden=(40,), width=8, activation="tanh", initialisation="he", minimiser=Adam(0.001), iterations=1
        ),
        Linear(ridge=0.001),
        inputs=RawInputs(),
        coordinates=Coordinates(rescale=False),
        weights="none",
    )
    operator = fit_branch(prepared.train, method, known_trunk(functions=8), key=0).operator
    save(operator, folder / "run" / "model")
    write_text(folder / "run" / "config.toml", to_toml(config))
    samples = {"train": 32, "validation": 4, "test": 4}
    write_json(folder / "run" / "metrics.json", {"problem": "train", "method": "two-step", "samples": samples})
    write_manifest(folder / "run")
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be written into."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are drawn, slowly, in one test."""
    monkeypatch.setattr("trunkfirst.report.pages.write_report", lambda folder: folder / "report.html")


def without_test_share(run: Path) -> Path:
    text = (run / "config.toml").read_text().replace("test_share = 0.1", "test_share = 0.0")
    (run / "config.toml").write_text(text)
    return run


def test_a_run_without_test_samples_is_evaluated_on_a_file_of_others(run: Path, tmp_path: Path):
    """Some of the file are training samples: they do not count. Points of training may be among more."""
    k, x = np.arange(1, 6)[:, None], np.linspace(0, 1, 24)
    more = np.sort(np.r_[x, 0.5 * (x[1:] + x[:-1])])
    a = np.random.default_rng(7).normal(size=(9, 5)) / k[:, 0]
    new = OperatorData(a @ np.cos(np.pi * k * x), more[:, None], a @ (np.sin(np.pi * k * more) / (np.pi * k)))
    write_data(new, tmp_path / "new.npz")
    case = gather_case(without_test_share(run), data=tmp_path / "new.npz")
    assert (case.test.samples, case.all_tests, case.is_finer) == (9, 9, True)
    assert np.array_equal(case.at_sensors.points, x[:, None])
    assert np.allclose(case.at_sensors.outputs, a @ (np.sin(np.pi * k * x) / (np.pi * k)), atol=1e-14)
    same = antiderivative(12, seed=3)
    mixed = dc.replace(
        same,
        inputs=np.concatenate([same.flat_inputs, antiderivative(40).flat_inputs[:5]]),
        outputs=np.concatenate([same.outputs, antiderivative(40).outputs[:5]]),
    )
    write_data(mixed, tmp_path / "mixed.npz")
    case = gather_case(run, data=tmp_path / "mixed.npz")
    assert (case.test.samples, case.is_finer) == (12, False)
    assert "the training points themselves" in case.where


@pytest.mark.parametrize(
    ("change", "words"), [("all seen", "give unseen ones"), ("other points", "point 1 of training is missing")]
)
def test_files_that_do_not_serve_a_run_without_test_samples(run: Path, tmp_path: Path, change: str, words: str):
    data = antiderivative(40) if change == "all seen" else antiderivative(40, seed=3)
    points = data.points if change == "all seen" else np.where(np.arange(24)[:, None] == 1, 0.01, data.points)
    write_data(dc.replace(data, points=points), tmp_path / "new.npz")
    with pytest.raises(DataError, match=words):
        gather_case(without_test_share(run), data=tmp_path / "new.npz")


def diagnosed(call: Call, *arguments: str | Path) -> dict[str, Any]:
    code, out, err = call("diagnose", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.usefixtures("undrawn")
def test_json_adds_up_at_finer_points(call: Call, run: Path, tmp_path: Path):
    write_data(finer(), tmp_path / "finer.npz")
    found = diagnosed(call, run, "--data", tmp_path / "finer.npz")
    budget = found["budget"]
    for part in (budget, budget["relative"]):
        total = part["total_squared"]
        assert part["trunk_squared"] + part["coefficients_squared"] == pytest.approx(total, rel=1e-10, abs=0)
        assert abs(part["remainder"]) < 1e-10 * total
        inner = part["sensors_squared"] + part["branch_squared"] + part["cross"]
        assert part["coefficients_squared"] == pytest.approx(inner, rel=1e-9, abs=0)
    assert found["samples"] == {"test": 4, "of": 4, "training": 36}
    assert found["points"] == {
        "evaluation": 101,
        "sensors": 24,
        "is_finer": True,
        "where": "the 101 points of finer.npz",
    }
    assert budget["sensors_squared"] > 0
    assert set(budget["chain"]) == {f"{n}_squared" for n in ("operator", "sensors", "training", "network")} | {
        "relative"
    }


@pytest.mark.usefixtures("undrawn")
def test_the_total_is_that_of_predictions(call: Call, run: Path, tmp_path: Path):
    write_data(finer(), tmp_path / "finer.npz")
    found = diagnosed(call, run, "--data", tmp_path / "finer.npz")
    case = gather_case(run, data=tmp_path / "finer.npz")
    errors = load(run).predict(case.test.flat_inputs, case.test.points) - case.test.outputs
    assert found["budget"]["total_squared"] == pytest.approx(np.mean(errors**2), rel=1e-12, abs=0)
    arrays = read_npz(run / "diagnosis.npz")
    assert arrays["total_squared"].mean() == pytest.approx(np.mean(errors**2), rel=1e-12, abs=0)
    assert read_json(run / "diagnosis.json") == found


@pytest.mark.usefixtures("undrawn")
def test_own_points_show_no_part_of_the_sensors_and_the_text_says_so(call: Call, run: Path):
    code, out, err = call("diagnose", run)
    assert (code, err) == (0, "")
    assert "the part of the sensors is zero by construction; give --data FILE" in out
    assert "Improve the " in out
    assert "What the paper's error bound assumes" in out
    assert "through the nearest training sample" in " ".join(out.split())
    found = read_json(run / "diagnosis.json")
    assert found["budget"]["sensors_squared"] < 1e-20 * found["budget"]["total_squared"]
    assert found["assumptions"]["L_c, weights"]["value"] is None  # the branch is linear
    assert found["assumptions"]["K_N"]["value"] > 1
    evaluated = evaluate(load(run), gather_case(run).test)
    relative = found["budget"]["relative"]
    assert relative["total_squared"] == pytest.approx(np.mean(evaluated.errors**2), rel=1e-10, abs=0)
    assert relative["trunk_squared"] == pytest.approx(np.mean(evaluated.optimal_errors**2), rel=1e-6, abs=0)
    assert call("diagnose", run, "--quiet") == (0, "", "")


@pytest.mark.usefixtures("unrendered")
def test_the_report_has_a_section(call: Call, run: Path):
    """Twice the same bytes, and a manifest that holds."""
    sentence = diagnosed(call, run)["improve"]["sentence"]
    verify_manifest(run)
    page = (run / "report.html").read_text()
    assert "<h2>Error budget</h2>" in page
    assert sentence.split(";")[0] in page
    assert "nearest training sample" in page
    assert "K_N" in page
    drawn = {path.name for path in (run / "figures").iterdir()}
    assert {"budget-parts-0.svg", "budget-samples-0.svg", "learning-curve-0.svg"} <= drawn
    assert "How many samples" in page
    assert write_report(run).read_text() == page
    (run / "diagnosis.json").unlink()
    assert "Error budget" not in write_report(run).read_text()
    assert not list((run / "figures").glob("budget-*"))
    assert not list((run / "figures").glob("learning-*"))


def test_a_file_with_the_test_samples_alone(run: Path, tmp_path: Path):
    """In another order; there is no training sample at its points, and so no chain."""
    case = gather_case(run)
    rows = load_run_data(load_config(run / "config.toml").data).split.test[::-1]
    write_data(finer().take(rows), tmp_path / "some.npz")
    found = gather_case(run, data=tmp_path / "some.npz")
    assert found.nearest is None
    assert found.finer_training is None
    assert np.array_equal(found.test.flat_inputs, case.at_sensors.flat_inputs)
    assert np.array_equal(found.test.outputs, finer().take(rows[::-1]).outputs)


def test_many_test_samples_are_thinned(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diagnose_module, "_MAX_FLOATS", 50)
    case = gather_case(run)
    assert (case.test.samples, case.all_tests) == (2, 4)


# -- problems of this library


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one of our problems that was never trained, with outputs that are positive by an output map."""
    folder = tmp_path_factory.mktemp("problem")
    config = make_config(
        {"problem": "nonlinear-conductivity", "data": {"samples": 20, "points": "random:30", "test_share": 0.2}}
    )
    write_text(folder / "config.toml", to_toml(config))
    write_json(folder / "metrics.json", {"samples": {"train": 14, "validation": 2, "test": 4}})
    with jax.enable_x64(True):
        positive = OutputMap(jnp.ones(1), is_positive=True)
        encoder = fit_standardise(np.linspace(1.0, 1000.0, 20)[:, None])
    networks = make_network(1, 4, 6, seed=1), Trunk(make_network(2, 5, 5))
    save(Operator(encoder, *networks, None, ("conductivity",), positive), folder / "model")
    write_manifest(folder)
    return folder


def test_a_problem_is_evaluated_on_a_finer_grid(problem: Path):
    case = gather_case(problem)
    assert len(case.test.points) == 17**2
    assert case.is_finer
    weights = case.test.point_weights
    assert weights is not None
    assert weights @ case.test.points**2 == pytest.approx(np.full(2, 1 / 3), abs=5e-3)
    assert np.array_equal(case.test.flat_inputs, case.at_sensors.flat_inputs)
    whole = make_data("nonlinear-conductivity", samples=20, points="grid:16")
    row = int(np.flatnonzero(whole.flat_inputs[:, 0] == case.test.flat_inputs[1, 0])[0])
    assert np.array_equal(case.test.outputs[1], whole.outputs[row])
    assert case.nearest is not None
    assert case.finer_training is not None
    assert case.finer_training.samples == 16
    gaps = np.abs(case.nearest[0].flat_inputs - case.test.flat_inputs)
    assert gaps.max() <= 2.01 * 999 / 19


@pytest.mark.usefixtures("undrawn")
def test_an_output_map_that_is_not_linear_leaves_a_remainder(call: Call, problem: Path):
    code, out, _ = call("diagnose", problem)
    assert code == 0
    assert re.search(r"Remainder .*output map that is not linear.* -?[\d.]+%", out), out
    budget = read_json(problem / "diagnosis.json")["budget"]
    parts = budget["trunk_squared"] + budget["coefficients_squared"] + budget["remainder"]
    assert parts == pytest.approx(budget["total_squared"], rel=1e-12, abs=0)
    assert abs(budget["remainder"]) > 1e-6 * budget["total_squared"]


# -- refusals


def without_tests(run: Path) -> None:
    text = (run / "config.toml").read_text().replace("test_share = 0.1", "test_share = 0.0")
    (run / "config.toml").write_text(text)


def with_more_samples(run: Path) -> None:
    metrics = read_json(run / "metrics.json")
    write_json(run / "metrics.json", {**metrics, "samples": {"train": 99}})


def without_config(run: Path) -> None:
    (run / "config.toml").unlink()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_tests, "has no test samples"),
        (with_more_samples, "more samples than its configuration names"),
        (without_config, "has no run"),
    ],
)
def test_runs_without_test_samples(call: Call, run: Path, spoil: Callable[[Path], None], message: str):
    spoil(run)
    write_manifest(run)
    code, out, err = call("diagnose", run, "--json")
    assert (code, out) == (UsageError.exit_code, "")
    assert message in err


def renamed(data: OperatorData) -> OperatorData:
    return dc.replace(data, inputs={"f": data.flat_inputs[:, :12], "g": data.flat_inputs[:, 12:]})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (antiderivative(40, seed=8), "is missing; the file must have the same inputs"),
        (antiderivative(40, sensors=30), "30 numbers a sample, but the run has 24"),
        (renamed(finer()), "expected f, as in the run; got f, g"),
        (finer(1), "1 evaluation points"),
        (
            dc.replace(finer(), points=np.repeat(finer().points, 2, axis=1), coordinate_names=()),
            "'coordinates' has 2 entries",
        ),
        (
            dc.replace(finer(), outputs=np.repeat(finer().outputs[..., None], 2, axis=2)),
            "'channels' has 2 entries",
        ),
    ],
    ids=["other inputs", "other sensors", "other names", "one point", "coordinates", "channels"],
)
def test_files_that_do_not_go_with_the_run(
    call: Call, run: Path, tmp_path: Path, data: OperatorData, message: str
):
    write_data(data, tmp_path / "other.npz")
    code, _, err = call("diagnose", run, "--data", tmp_path / "other.npz")
    assert code == DataError.exit_code
    assert message in err
    assert not (run / "diagnosis.json").exists()


def test_scattered_data_are_refused(run: Path, tmp_path: Path):
    data = antiderivative(40)
    scattered = scattered_from_lists(data.flat_inputs, [data.points] * 40, list(data.outputs))
    write_data(scattered, tmp_path / "scattered.npz")
    with pytest.raises(UsageError, match="holds scattered data"):
        gather_case(run, data=tmp_path / "scattered.npz")
    text = (run / "config.toml").read_text()
    name = next(line for line in text.splitlines() if line.startswith("file"))
    write_text(run / "config.toml", text.replace(name, f'file = "{tmp_path / "scattered.npz"}"'))
    assert read_data(tmp_path / "scattered.npz").samples == 40
    with pytest.raises(UsageError, match="trained on scattered data"):
        gather_case(run)
