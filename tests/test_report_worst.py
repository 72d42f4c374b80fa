"""The worst samples in the report: maps in the plane, curves on a line, a reason where there is no picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import write_run
from test_report_pieces import spoil

from trunkfirst.data import OperatorData, scattered_from_lists
from trunkfirst.errors import CorruptFileError
from trunkfirst.evaluation import Evaluation
from trunkfirst.report import write_report
from trunkfirst.runs._arrays import evaluation_arrays


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


@pytest.mark.parametrize(("dimension", "files"), [(1, 2), (2, 4)])
def test_worst_samples_are_drawn(tmp_path: Path, dimension: int, files: int):
    folder = write_run(tmp_path / "run")
    spoil(folder, triangles=None, **worst(dimension))
    page = write_report(folder).read_text()
    assert len(list((folder / "figures").glob("worst-*.svg"))) == files
    assert "the 2 of 5 test samples with the largest relative errors" in page
    assert "(beta = 9.98, 700)" in page
    assert "Sample 4: error" in page


def test_points_in_space_are_not_drawn(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, **worst(3))
    assert "points have more than two coordinates" in write_report(folder).read_text()


def test_predictions_that_are_not_finite_are_not_drawn(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, **worst(2, worst_predictions=np.full((2, 12), np.nan)))
    assert "no prediction of theirs is finite" in write_report(folder).read_text()


def test_arrays_that_do_not_fit_are_told(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    spoil(folder, **worst(2, worst_predictions=np.ones((2, 7))))
    with pytest.raises(CorruptFileError, match="do not fit"):
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
    assert "Sample 1: error" in write_report(folder).read_text()
