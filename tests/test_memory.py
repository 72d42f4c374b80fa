"""What a run remembers: sensors for interpolation, inputs for warnings, points, intervals."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.errors import CorruptFileError, DataError
from trunkfirst.files.npz import read_npz, write_npz
from trunkfirst.intervals import Intervals
from trunkfirst.training_summary import TrainingSummary, read_summary, summarise, write_summary

LINE = np.linspace(0, 1, 20)[:, None]
SQUARE = np.stack(np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 2, 4)), axis=-1).reshape(-1, 2)


def wave(x: np.ndarray) -> np.ndarray:
    """Three functions at sensors on a line."""
    return np.stack([np.sin(3 * x[:, 0]), np.exp(x[:, 0]), x[:, 0] ** 2])


def plane(x: np.ndarray) -> np.ndarray:
    """Two linear functions at sensors in the plane."""
    return np.stack([x @ [1.0, 2.0] + 3, x @ [-1.0, 0.5]])


MEMORY = TrainingSummary(np.zeros((2, 1)), {"line": LINE, "square": SQUARE})


# -- inputs on other sensors


@pytest.mark.parametrize("sensors", [None, LINE, LINE + 1e-12], ids=["not given", "the same", "nearly the same"])
def test_inputs_on_the_sensors_of_training_pass(sensors: np.ndarray | None):
    values = wave(LINE)
    assert MEMORY.at_sensors("line", InputFunction(values, sensors), 20) is values


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_other_sensors_on_a_line_are_interpolated(order: str):
    other = np.linspace(0, 1, 50)[:, None]
    other = np.random.default_rng(0).permutation(other) if order == "shuffled" else other
    found = MEMORY.at_sensors("line", InputFunction(wave(other), other), 20)
    assert np.abs(found - wave(LINE)).max() < 1e-5


def test_interpolation_on_a_line_is_of_fourth_order():
    errors: list[float] = []
    for count in (21, 41, 81):
        other = np.linspace(0, 1, count)[:, None]
        missed = MEMORY.at_sensors("line", InputFunction(wave(other), other), 20) - wave(LINE)
        errors.append(float(np.abs(missed[0]).max()))
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (rates > 3.3).all()


def test_as_many_sensors_at_other_places_are_interpolated_too():
    other = LINE**1.5
    found = MEMORY.at_sensors("line", InputFunction(wave(other), other), 20)
    assert np.abs(found - wave(LINE)).max() < 1e-3


def test_other_sensors_in_the_plane_are_interpolated():
    """Linear functions exactly, also on the corners of the box."""
    rng = np.random.default_rng(0)
    other = np.vstack([[[0, 0], [1, 0], [0, 2], [1, 2]], rng.uniform([0, 0], [1, 2], (40, 2))])
    found = MEMORY.at_sensors("square", InputFunction(plane(other), other), 20)
    assert np.allclose(found, plane(SQUARE), rtol=0, atol=1e-12)


REFUSED: dict[str, tuple[str, InputFunction, str]] = {
    "coordinates not given": (
        "line",
        InputFunction(np.ones((3, 7))),
        r"inputs\['line'\]: 7 sensors, but training had 20; .* give them as 'sensors'",
    ),
    "coordinates not known": (
        "other",
        InputFunction(np.ones((3, 7)), LINE[:7]),
        "7 sensors, but training had 20; .* the training data had none",
    ),
    "transposed": ("line", InputFunction(np.ones((20, 3))), r"the shape is \(20, 3\); it looks transposed"),
    "not covered": ("line", InputFunction(np.ones((3, 7)), LINE[3:10]), "do not cover those of training"),
    "not covered in the plane": ("square", InputFunction(np.ones((2, 8)), SQUARE[:8]), "do not cover"),
    "another dimension": (
        "line",
        InputFunction(np.ones((3, 20)), SQUARE),
        "sensors have 2 coordinates, but those of training 1",
    ),
    "twice the same": ("line", InputFunction(np.ones((3, 21)), np.vstack([LINE, LINE[:1]])), "at the same place"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_interpolated_is_refused(name: str):
    where, function, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        MEMORY.at_sensors(where, function, 20)


# -- from data, to a file and back


def some_data() -> OperatorData:
    rng = np.random.default_rng(0)
    inputs = {
        "f": InputFunction(rng.normal(size=(10, 20)), LINE),
        "a": InputFunction(rng.normal(size=(10, 2))),
    }
    return OperatorData(inputs, rng.uniform(size=(6, 2)), rng.normal(size=(10, 6)))


@pytest.mark.parametrize("has_intervals", [False, True])
def test_a_memory_is_written_and_read(tmp_path: Path, has_intervals: bool):
    data = some_data()
    intervals = (
        Intervals(np.array([0.9]), np.array([0.1]), data.points, np.ones((1, 6))) if has_intervals else None
    )
    memory = summarise(data, intervals)
    write_summary(tmp_path, memory)
    back = read_summary(tmp_path)
    assert np.array_equal(back.points, data.points)
    assert list(back.sensors) == ["f"]
    assert np.array_equal(back.sensors["f"], LINE)
    assert back.novelty is not None
    assert not back.novelty.is_outlier(data.flat_inputs).any()
    assert (back.intervals is not None) == has_intervals
    if back.intervals is not None:
        assert np.array_equal(back.intervals.pointwise, np.ones((1, 6)))


@pytest.mark.parametrize("name", ["familiarity.matrix", "familiarity.seen", "intervals.points"])
@pytest.mark.parametrize("change", [lambda a: np.full_like(a, np.nan), lambda a: a[:0]], ids=["nan", "empty"])
def test_arrays_that_cannot_be_searched_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]
):
    """With a new manifest they ended in a traceback at the first prediction."""
    data = some_data()
    write_summary(tmp_path, summarise(data, Intervals(np.ones(1), np.ones(1), data.points, np.ones((1, 6)))))
    arrays = read_npz(tmp_path / "training.npz")
    write_npz(tmp_path / "training.npz", {**arrays, name: change(arrays[name])})
    with pytest.raises(CorruptFileError, match="is not the summary of a training"):
        read_summary(tmp_path)


@pytest.mark.parametrize("name", ["familiarity.seen", "intervals.points"])
def test_what_is_too_far_to_be_searched_is_refused(tmp_path: Path, name: str):
    test_arrays_that_cannot_be_searched_are_refused(tmp_path, name, lambda a: np.full_like(a, 1e300))


def test_scattered_points_are_remembered_together():
    points = [np.array([[0.0], [1.0]]), np.array([[1.0], [2.0], [3.0]])]
    data = scattered_from_lists(np.ones((2, 1)), points, [np.ones(2), np.ones(3)])
    assert summarise(data, None).points[:, 0].tolist() == [0, 1, 2, 3]


def test_a_folder_without_a_memory(tmp_path: Path):
    with pytest.raises(CorruptFileError, match=r"training\.npz"):
        read_summary(tmp_path)
