"""Single test samples in the report: error maps, worst samples, input and output; reasons where none is drawn."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import grid, spoil, write_comparison, write_run

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.errors import CorruptFileError
from trunkfirst.evaluation import Evaluation, evaluation_arrays
from trunkfirst.report.pages import write_report

pytestmark = pytest.mark.usefixtures("unrendered")

# -- a typical and the worst sample


@pytest.mark.parametrize(("coordinates", "drawings"), [(1, 4), (2, 6), (3, 2)])
def test_a_report_begins_with_a_typical_and_the_worst_sample(tmp_path: Path, coordinates: int, drawings: int):
    rng, folder = np.random.default_rng(0), write_run(tmp_path / "run")
    points, outputs = rng.uniform(size=(9, coordinates)), rng.normal(size=(5, 9, 2))
    data = OperatorData(np.ones((5, 1)), points, outputs, channel_names=("speed", "heat"))
    errors = np.array([0.1, 0.5, 0.2, 0.3, 0.4])
    by_channel = {"speed": errors / 2, "heat": errors}
    arrays = evaluation_arrays(None, Evaluation(outputs + 1e-3, errors, errors, channel_errors=by_channel), data)
    np.savez(folder / "evaluation.npz", **arrays)
    names = {"coordinate_names": ["a", "b", "c"][:coordinates], "channel_names": ["speed", "heat"]}
    domain = {"fields": {**names, "units": {"mapping": {"heat": "K"}}}}
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "model.json").write_text(json.dumps({"operator": {"fields": {"domain": domain}}}))
    metrics = json.loads((folder / "metrics.json").read_text()) | {"problem": "mine"}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    page = write_report(folder).read_text()
    first, _, rest = page.partition("A typical and the worst test sample")[2].partition("</figure>")
    assert first.count("<svg") == drawings
    assert "<table" in rest
    assert "<table" not in page.partition("A typical and the worst")[0]
    for words in ("Typical, error 3.00e-1", "Worst, error 5.00e-1", "heat (K)", ">1.00e-3<"):
        assert words in first


# -- error maps


def test_no_map_outside_of_the_plane(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, points=grid()[0][:, :1])
    assert "the points are not in the plane" in write_report(folder).read_text()


@pytest.mark.parametrize("triangles", [None, np.empty((0, 3), int)])
def test_points_without_triangles_have_those_of_delaunay(tmp_path: Path, triangles: np.ndarray | None):
    folder = write_run(tmp_path / "run")
    spoil(folder, triangles=triangles)
    write_report(folder)
    assert (folder / "figures" / "map-target.svg").is_file()


def test_no_map_of_a_prediction_that_is_not_finite(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, example_prediction=np.full(len(grid()[0]), np.inf))
    assert "no run has a finite prediction" in write_report(folder).read_text()


def test_of_several_channels_the_first_is_drawn(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    with np.load(folder / "evaluation.npz") as archive:
        fields = {name: archive[name] for name in ("example_target", "example_prediction")}
    before = write_report(folder).read_text()
    spoil(folder, **{name: np.stack([field, 7 + 0 * field], axis=1) for name, field in fields.items()})
    page = write_report(folder).read_text()
    assert page.replace(" (the first of 2 output channels)", "") == before != page


def test_error_maps_are_of_one_sample(tmp_path: Path):
    compared = write_comparison(tmp_path)
    other = np.sin(grid()[0][:, 0])
    spoil(compared / "monolithic-seed0", example_index=np.array(2), example_target=other, example_prediction=other)
    assert "Not shown" not in write_report(compared).read_text()  # seed 1 holds the sample of the others
    spoil(compared / "monolithic-seed1", example_index=np.array(2), example_target=other, example_prediction=other)
    page = write_report(compared).read_text()
    assert "Not shown, because the files have no finite prediction of this sample: monolithic." in page
    assert not (compared / "figures" / "map-error-monolithic.svg").exists()


def test_the_example_does_not_depend_on_the_method():
    outputs = np.array([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]])
    data = OperatorData(np.ones((3, 1)), np.arange(2.0)[:, None], outputs)
    for errors in ([0.1, 0.2, 0.3], [0.3, 0.1, 0.2]):
        found = evaluation_arrays(None, Evaluation(outputs, np.array(errors), np.array(errors)), data)
        assert found["example_index"] == 2  # the output of median size


def test_inverse_problem_shows_geometry_and_pair(tmp_path: Path):
    folder = write_run(tmp_path / "run", problem="discontinuous-conductivity")
    assert "and conductivity κ, with conductivity of the disk β = 5." in write_report(folder).read_text()
    assert (folder / "figures" / "geometry.svg").is_file()


# -- the worst samples


def worst(dimension: int = 2, **changes: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    targets = rng.random((2, 12))
    return {
        "worst_indices": np.array([4, 2]),
        "worst_channels": np.array([0, 0]),
        "worst_points": rng.random((2, 12, dimension)),
        "worst_targets": targets,
        "worst_predictions": targets + 0.01,
        **changes,
    }


@pytest.mark.usefixtures("rendered")
@pytest.mark.parametrize(("dimension", "files"), [(1, 4), (2, 6), (3, 2)])
def test_worst_samples_are_drawn(tmp_path: Path, dimension: int, files: int):
    folder = write_run(tmp_path / "run")
    spoil(folder, triangles=None, **worst(dimension))
    page = write_report(folder).read_text()
    assert len(list((folder / "figures").glob("worst-*.svg"))) == files
    assert "the 2 of 5 test samples with the largest relative errors" in page
    assert "(conductivity factor β = 9.98, 700)" in page
    assert "Sample 4, error" in page


def test_predictions_that_are_not_finite_are_not_drawn(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, **worst(2, worst_predictions=np.full((2, 12), np.nan)))
    assert "none of their predictions is finite" in write_report(folder).read_text()


def test_arrays_that_contradict_each_other_are_refused(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, **worst(2, worst_predictions=np.ones((2, 7))))
    with pytest.raises(CorruptFileError, match=r"worst_predictions has shape \(2, 7\)"):
        write_report(folder)


def test_the_channel_that_is_worst_is_kept():
    outputs = np.arange(4 * 5 * 2, dtype=float).reshape(4, 5, 2)
    data = OperatorData(np.ones((4, 1)), np.arange(5.0)[:, None], outputs, channel_names=("a", "b"))
    by_channel = {"a": np.array([1.0, 4.0, 0.0, 3.0]), "b": np.array([2.0, 0.0, 1.0, 9.0])}
    errors = (by_channel["a"] + by_channel["b"]) / 2
    arrays = evaluation_arrays(None, Evaluation(outputs, errors, errors, channel_errors=by_channel), data)
    assert arrays["worst_indices"].tolist() == [3, 1, 0]
    assert arrays["worst_channels"].tolist() == [1, 0, 1]
    assert np.array_equal(arrays["worst_targets"][0], outputs[3, :, 1])


def test_scattered_samples_keep_their_own_points(tmp_path: Path):
    points = [np.arange(float(count))[:, None] for count in (3, 5, 4, 2)]
    data = scattered_from_lists(np.arange(4.0)[:, None], points, [p[:, 0] for p in points])
    errors = np.array([0.1, 0.4, 0.2, 0.3])
    arrays = evaluation_arrays(None, Evaluation(np.nan_to_num(data.outputs), errors, errors), data)
    folder = write_run(tmp_path / "run")
    spoil(folder, triangles=None, **{name: value for name, value in arrays.items() if name.startswith("worst")})
    assert "Sample 1, error" in write_report(folder).read_text()


def test_without_test_samples_there_is_no_empty_section(tmp_path: Path):
    """The title is the name of the folder, as arrays have none."""
    a, x = np.random.default_rng(0).normal(size=(30, 2)), np.linspace(0, 1, 12)
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Linear(), inputs="standardise", weights="none")
    fields = {"T": a @ np.stack([x, x**2]), "q": a @ np.stack([x**3, x])}
    for share, folder in ((0.0, tmp_path / "beam"), (0.2, tmp_path / "tested")):
        trunkfirst.fit(a, fields, x, method=method, out=folder, test_share=share)
    page, tested = (write_report(tmp_path / name).read_text() for name in ("beam", "tested"))
    assert "<h1>beam</h1>" in page
    assert "No samples were held back for testing" in page
    assert "Single test samples" not in page
    assert "no run holds a finite" not in page
    assert "Single test samples" in tested
    assert re.search("not used for training. Shown is [Tq], one of 2 channels.", tested)
