"""Incomplete and damaged run directories, and the numbers of which figures and tables are made."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from report_runs import grid, metrics, rows, spoil, write_comparison, write_run

from trunkfirst.errors import CorruptFileError, DataError
from trunkfirst.report.figures import band, mean_and_spread
from trunkfirst.report.pages import write_report
from trunkfirst.report.run_files import Curve, best_on_common_steps, read_run
from trunkfirst.report.tables import scientific

pytestmark = pytest.mark.usefixtures("unrendered")


def test_null_metrics_and_no_test_samples(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    content = metrics("two-step", 0, "nonlinear-conductivity") | {"test": None, "branch": None, "trunk": None}
    (folder / "metrics.json").write_text(json.dumps(content))
    spoil(folder, errors=np.empty(0), optimal_errors=np.empty(0), **{"labels.beta": np.empty(0)})
    page = write_report(folder).read_text()
    assert "the accuracy is unknown" in page
    assert "No finite training loss was recorded." in page


def test_monolithic_has_no_branch_figure(tmp_path: Path):
    page = write_report(write_run(tmp_path / "run", method="monolithic")).read_text()
    assert "trains both networks at once and has no branch step" in page


def test_diverged_run_is_named_and_left_out(tmp_path: Path):
    compared = write_comparison(tmp_path)
    folder = compared / "monolithic-seed1"
    spoil(folder, errors=np.full(5, np.nan), example_prediction=np.full(len(grid()[0]), np.nan))
    content = metrics("monolithic", 1, "nonlinear-conductivity")
    content["trunk"]["loss"] = math.nan
    (folder / "metrics.json").write_text(json.dumps(content))
    lines = [{"stage": "monolithic", "iteration": i, "loss": None, "best_loss": math.nan} for i in range(3)]
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    page = write_report(compared).read_text()
    assert "monolithic, seed 1: not all test errors are finite" in page
    assert "independent seeds: 2 of two-step. Shaded" in page
    assert ["Trunk loss (monolithic: overall loss)", "3.75e-7 ± 1.77e-7", "1.50e-5"] in rows(page)
    assert any(row[:2] == ["monolithic", "1"] and "not finite" in row for row in rows(page))


def test_several_labels_lead_to_the_histogram_alone(tmp_path: Path):
    folder = write_run(tmp_path / "run", problem="multiple-inputs")
    spoil(folder, **{"labels.f": np.ones(5), "labels.g": np.ones(5)})
    page = write_report(folder).read_text()
    assert "test samples are not labelled by a single number" in page
    assert (folder / "figures" / "errors-histogram.svg").is_file()
    assert not (folder / "figures" / "errors.svg").exists()


def test_zero_errors_do_not_break_logarithmic_axes(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    target = np.cos(grid()[0][:, 0])
    spoil(folder, errors=np.zeros(5), optimal_errors=np.zeros(5), example_prediction=target)
    assert "Histogram of errors" in write_report(folder).read_text()


@pytest.mark.parametrize(
    ("status", "remark"),
    [("interrupted", "it was interrupted"), ("diverged", "produced a number that is not finite")],
)
def test_status_is_shown(tmp_path: Path, status: str, remark: str):
    content = [metrics("two-step", 3, "multiple-inputs") | {"status": status}]
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    page = write_report(tmp_path).read_text()
    assert "two-step, seed 3: it" in page
    assert remark in page


def test_unfinished_run_is_named(tmp_path: Path):
    compared = write_comparison(tmp_path)
    (compared / "two-step-seed2").mkdir()
    (compared / "two-step-seed2" / "config.toml").write_text("")
    assert "two-step-seed2 was started but not finished" in write_report(compared).read_text()


def test_metrics_list_alone_gives_tables(tmp_path: Path):
    (tmp_path / "metrics.json").write_text(json.dumps([metrics("two-step", 0, "multiple-inputs")]))
    assert ["Test error, mean", "7.89e-4"] in rows(write_report(tmp_path).read_text())


def test_a_folder_without_runs_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="has neither metrics"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels.beta": np.ones(4)}, r"labels.beta has shape \(4,\), which does not fit \(samples\)"),
        ({"optimal_errors": np.ones((5, 1))}, "optimal_errors has shape"),
        ({"example_prediction": np.ones(3)}, "example_prediction has shape"),
        ({"triangles": np.array([[0, 1, 99]])}, "triangles have points 0 to 99"),
    ],
)
def test_contradicting_arrays_are_refused(tmp_path: Path, change: dict, message: str):
    folder = write_run(tmp_path / "run")
    spoil(folder, **change)
    with pytest.raises(CorruptFileError, match=message):
        write_report(folder)


def test_history_may_end_in_the_middle_of_a_line(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    path = folder / "history.jsonl"
    path.write_text(path.read_text()[:-10])
    assert len(read_run(folder).history["branch"].losses) == 9
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(CorruptFileError, match="line 1: not JSON"):
        read_run(folder)


def test_mean_and_spread_against_numpy_by_hand():
    mean, spread = mean_and_spread(np.array([[1.0, 2.0], [3.0, 2.0]]))
    np.testing.assert_allclose(mean, [2, 2])
    np.testing.assert_allclose(spread, [math.sqrt(2), 0])
    lower, upper = band(np.array([1.0, 1.0]), np.array([0.5, 2.0]))
    np.testing.assert_allclose(upper, [1.5, 3])
    assert lower[0] == 0.5
    assert 0 < lower[1] < 1e-6


def test_curves_of_unequal_length_meet_on_common_steps():
    long = Curve(np.array([0.0, 10, 20, 30]), np.zeros(4), np.array([8.0, 4, 2, 1]))
    short = Curve(np.array([0.0, 15]), np.zeros(2), np.array([6.0, 3]))
    steps, best = best_on_common_steps([long, short])
    np.testing.assert_array_equal(steps, [0, 10, 15])
    np.testing.assert_array_equal(best, [[8, 4, 4], [6, 6, 3]])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((2.11e-7, "2.11e-7"), (0.126, "1.26e-1"), (0.0, "0.00"), (1.256, "1.26"), (-12.56, "-12.6")),
        *((9.999, "10.0"), (126.0, "126"), (999.6, "1.00e3"), (12345.0, "1.23e4")),
        *((None, "\u2013"), (math.nan, "not finite")),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str):
    assert scientific(value) == text


def test_report_imports_neither_jax_nor_pyplot(tmp_path: Path):
    write_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from trunkfirst.report.pages import write_report; "
        f"assert 'matplotlib' not in sys.modules; write_report(Path({str(tmp_path / 'run')!r})); "
        "assert not {'jax', 'matplotlib.pyplot'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])
