"""Records are read back as they were written, and files of version 0.1 as far as they go."""

import dataclasses as dc
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from trunkfirst.records import CandidateSettings, Choice, Claim, EvaluationRecord, LogEntry, mapping_at, number_at


def through_json(record: LogEntry | Claim) -> dict:
    return json.loads(json.dumps(dc.asdict(record)))


def test_log_entries_and_claims_are_read_as_written():
    entry = LogEntry("trunk, ridge 1e-05", 10, 40, 0.5, 0.25, 1e-3, 12.0)
    assert LogEntry.from_json(through_json(entry)) == entry
    assert entry.step == "trunk"
    for holds in (True, False, None):
        claim = Claim("QR helps", "1e-9", "3e-9", holds)
        assert Claim.from_json(through_json(claim)) == claim


def test_a_log_entry_may_lack_numbers():
    entry = LogEntry.from_json({"stage": "branch", "iteration": math.nan, "loss": None, "best_loss": True})
    assert (entry.stage, entry.iteration, entry.iterations) == ("branch", 0, 0)
    assert all(math.isnan(value) for value in (entry.loss, entry.best_loss, entry.rate, entry.seconds))


def test_choices_are_read_as_written():
    settings = {
        "a": CandidateSettings("network", "log", "none", 1e-6),
        "b": CandidateSettings("kernel", "", "", 0, False),
    }
    choice = Choice("a", {"a": 0.1, "b": 0.2}, "a", settings)
    written = {
        "candidate": "a",
        "validation_errors": dict(choice.errors),
        "best_network": "a",
        "candidates": {name: dc.asdict(each) for name, each in settings.items()},
    }
    assert Choice.from_json(json.loads(json.dumps(written))) == choice
    assert choice.error == 0.1
    old = Choice.from_json({"encoder": "log", "validation_errors": {"log": None}})
    assert old is not None
    assert (old.name, old.best_network, old.candidates) == ("log", None, {})
    assert math.isnan(old.error)


def test_evaluations_are_read_as_written():
    points = np.array([[0.0], [1.0], [2.0]])
    written = EvaluationRecord(
        errors=np.array([0.1, 0.2]),
        points=points,
        example_index=np.array(1),
        example_target=np.ones((3, 2)),
        example_prediction=np.zeros((3, 2)),
        worst_indices=np.array([1]),
        worst_channels=np.array([1]),
        worst_points=np.array([[[0.0], [np.nan]]]),
        worst_targets=np.array([[5.0, 0.0]]),
        worst_predictions=np.array([[6.0, 0.0]]),
        labels={"beta": np.array([3.0, 4.0])},
    )
    read = EvaluationRecord.from_arrays({**written.arrays(), "unknown": np.ones(7)})
    assert read.arrays().keys() == written.arrays().keys()
    assert all(
        np.array_equal(array, read.arrays()[name], equal_nan=True) for name, array in written.arrays().items()
    )
    assert read.channels == 2
    example, (worst,) = read.example, read.worst
    assert example is not None
    assert (example.index, example.target.tolist(), example.prediction.tolist()) == (1, [1, 1, 1], [0, 0, 0])
    assert (worst.index, worst.channel) == (1, 1)
    assert (worst.points.tolist(), worst.target.tolist(), worst.prediction.tolist()) == ([[0.0]], [5.0], [6.0])


@pytest.mark.parametrize("indices", [[-1], [2]])
def test_worst_samples_must_exist(indices: list[int]):
    fields = {
        "worst_points": np.ones((1, 2, 1)),
        "worst_targets": np.ones((1, 2)),
        "worst_predictions": np.ones((1, 2)),
    }
    with pytest.raises(ValueError, match="samples that do not exist"):
        EvaluationRecord.from_arrays({"errors": np.ones(2), "worst_indices": np.array(indices), **fields})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": np.ones(3)}, r"points has shape \(3,\), which does not fit \(points, coordinates\)"),
        ({"example_index": np.ones(2)}, r"example_index has shape \(2,\)"),
        ({"points": np.ones((3, 1)), "example_target": np.ones((3, 0))}, "example_target has shape"),
        ({"errors": np.array(["x", "y"])}, "could not convert"),
    ],
)
def test_arrays_of_other_shapes_are_refused(change: dict[str, np.ndarray], message: str):
    with pytest.raises(ValueError, match=message):
        EvaluationRecord.from_arrays({"errors": np.ones(2), **change})


def test_paths_end_in_mappings_and_numbers():
    content = {"trunk": {"loss": 1, "is_sound": True, "name": "x"}, "branch": None}
    assert number_at(content, "trunk", "loss") == 1.0
    for path in (
        ("trunk", "is_sound"),
        ("trunk", "name"),
        ("branch", "loss"),
        ("trunk", "loss", "more"),
        ("none",),
    ):
        assert number_at(content, *path) is None
    assert mapping_at(content, "branch") == mapping_at(None) == {}


def test_records_import_neither_jax_nor_matplotlib():
    code = "import sys, trunkfirst.records; assert not {'jax', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
