"""Operator data: errors name what is wrong; taking, showing, plotting and splitting samples."""

import dataclasses as dc
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.data.sharded_data import write_shards
from trunkfirst.errors import DataError, TrunkfirstError, ValueRangeError
from trunkfirst.run_data import Split

GOOD: dict[str, Any] = {
    "inputs": np.arange(6.0).reshape(3, 2),
    "points": np.arange(8.0).reshape(4, 2),
    "outputs": np.arange(12.0).reshape(3, 4),
}


def with_value(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    array = array.astype(float)
    array[place] = value
    return array


BAD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # axes
    (
        {"points": np.zeros((2, 2, 3))},
        ("points: expected 2 axes (points, coordinates)", "(2, 2, 3)", "reshape(-1, 3)"),
    ),
    (
        {"outputs": np.zeros((3, 4, 1, 1))},
        ("outputs: expected 2 axes (samples, points) or one more (channels)", "(3, 4, 1, 1)"),
    ),
    ({"outputs": 1.0}, ("outputs: expected 2 axes", "()")),
    ({"inputs": np.zeros(3)}, ("inputs['input']: expected 2 axes (samples, sensors)", "(3,)")),
    ({"point_weights": np.ones((4, 1))}, ("point_weights: expected 1 axes (points)",)),
    # lengths
    ({"outputs": np.zeros((3, 5))}, ("outputs: axis 'points' has 5", "points has 4")),
    ({"inputs": np.zeros((2, 2))}, ("inputs['input']: axis 'samples' has 2", "outputs has 3")),
    ({"inputs": {"f": np.zeros((3, 1)), "g": np.zeros((4, 1))}}, ("inputs['g']: axis 'samples' has 4",)),
    ({"reference_outputs": np.zeros((2, 4))}, ("reference_outputs: axis 'samples' has 2",)),
    ({"reference_outputs": np.zeros((3, 3))}, ("reference_outputs: axis 'points' has 3",)),
    ({"point_weights": np.ones(3)}, ("point_weights: axis 'points' has 3",)),
    ({"sample_weights": np.ones(4)}, ("sample_weights: axis 'samples' has 4",)),
    ({"labels": {"beta": np.ones(2)}}, ("labels['beta']: axis 'samples' has 2",)),
    ({"reference_outputs": np.zeros((3, 4, 2))}, ("reference_outputs: expected 2 axes",)),
    # turned round
    ({"outputs": np.zeros((4, 3))}, ("outputs: axis 'points' has 3", "outputs looks transposed; use .T")),
    ({"points": np.zeros((2, 4))}, ("outputs: axis 'points' has 4", "points looks transposed; use .T")),
    ({"inputs": np.zeros((5, 3))}, ("inputs['input']: axis 'samples' has 5", "looks transposed; use .T")),
    ({"outputs": np.zeros((3, 2, 4))}, ("np.moveaxis(outputs, 1, 2)",)),
    ({"outputs": np.zeros((3, 2, 2))}, ("outputs.reshape(len(outputs), -1)",)),
    ({"points": np.zeros((3, 5)), "outputs": np.zeros((3, 5))}, ("points[:, :, None]",)),
    # words and corners
    ({"coordinate_names": ("x",)}, ("coordinate_names: got 1 names, ('x',), for 2 coordinates",)),
    ({"channel_names": ("a", "b")}, ("channel_names: got 2 names, ('a', 'b'), for 1 channels",)),
    ({"coordinate_names": ("x", "x")}, ("coordinate_names: ('x', 'x') are not all different",)),
    ({"triangles": [[0, 1, 4]]}, ("triangles: has points 0 to 4, but there are only 0 to 3",)),
    ({"triangles": [[1, 2, 3], [2, 3, 4]]}, ("triangles:", "count from 0: subtract 1")),
    ({"triangles": [[0, 1]]}, ("triangles: axis 'corners' has 2",)),
    ({"triangles": [[0, 1, 1.5]]}, ("triangles: expected whole numbers, got 1.5",)),
    # emptiness
    ({"inputs": {}}, ("no input function",)),
    ({"inputs": np.zeros((3, 0))}, ("inputs['input']: axis 'sensors' is empty",)),
    ({"points": np.zeros((0, 2)), "outputs": np.zeros((3, 0))}, ("points: axis 'points' is empty",)),
    ({"inputs": np.zeros((0, 2)), "outputs": np.zeros((0, 4))}, ("outputs: axis 'samples' is empty",)),
    # types
    ({"outputs": np.zeros((3, 4), complex)}, ("outputs: expected real numbers", "complex128")),
    ({"outputs": np.zeros((3, 4), object)}, ("outputs: expected real numbers", "object")),
    ({"outputs": [["a"] * 4] * 3}, ("outputs: expected real numbers",)),
    ({"outputs": np.zeros((3, 4), np.longdouble)}, ("outputs: expected real numbers", ".astype(float)")),
    ({"outputs": np.zeros((3, 4), "datetime64[s]")}, ("outputs: expected real numbers", "np.timedelta64(1, 's')")),
    ({"outputs": np.full((3, 4), 2**60)}, ("outputs: has integers beyond 2^53",)),
    ({"outputs": np.ma.masked_less(np.arange(12.0).reshape(3, 4), 2)}, ("outputs: 2 values are masked",)),
    ({"points": None}, ("points: expected real numbers", "got None")),
    ({"outputs": [[1.0, 2.0], [1.0], [2.0]]}, ("outputs: rows have different lengths",)),
    # values
    (
        {"outputs": with_value(GOOD["outputs"], (1, 3), np.nan)},
        ("outputs: 1 of 12 values are not finite", "nan", "samples 1, points 3"),
    ),
    (
        {"inputs": with_value(GOOD["inputs"], (2, 0), -np.inf)},
        ("inputs['input']: 1 of 6", "-inf", "samples 2, sensors 0"),
    ),
    (
        {"outputs": with_value(with_value(GOOD["outputs"], (0, 1), np.inf), (2, 2), -np.inf)},
        ("outputs: 2 of 12", "inf at samples 0, points 1"),
    ),
    ({"labels": {"beta": with_value(np.ones(3), (1,), np.nan)}}, ("labels['beta']: 1 of 3", "samples 1")),
    ({"point_weights": [1, 1, -1, 1]}, ("point_weights: weights must not be negative", "-1")),
    ({"sample_weights": [0, 0, 0]}, ("sample_weights:", "not all zero")),
    # sensors
    (
        {"inputs": {"f": InputFunction(np.zeros((3, 2)), sensors=np.zeros((3, 1)))}},
        ("inputs['f'].sensors:", "has 3"),
    ),
    (
        {"inputs": {"f": InputFunction(np.zeros((3, 2)), sensor_weights=np.zeros(1))}},
        ("inputs['f'].sensor_weights: axis 'sensors' has 1",),
    ),
    (
        {"inputs": {"f": InputFunction(np.zeros((3, 4)), grid_shape=(2, 3))}},
        ("inputs['f'].grid_shape: the product of (2, 3) is not the number of sensors, 4",),
    ),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[words[0][:40] for _, words in BAD])
def test_what_is_wrong_is_named(changes: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(DataError) as caught:
        OperatorData(**{**GOOD, **changes})
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_large_finite_values_are_fine_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = OperatorData(**{**GOOD, "outputs": np.full((3, 4), 3e38, np.float32)})
    assert data.outputs.dtype == np.float32


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("int64", "float64"),
        ("bool", "float64"),
        ("float16", "float64"),
        ("float32", "float32"),
        (">f4", "float32"),
    ],
)
def test_types(given: str, kept: str):
    data = OperatorData(**{name: array.astype(given) for name, array in GOOD.items()})
    assert {array.dtype.name for array in (data.points, data.outputs, data.flat_inputs)} == {kept}


def test_other_byte_orders_become_native():
    assert OperatorData(**{**GOOD, "outputs": GOOD["outputs"].astype(">f8")}).outputs.dtype.isnative


def test_channels():
    outputs = np.arange(24.0).reshape(3, 4, 2)
    data = OperatorData(**{**GOOD, "outputs": outputs, "reference_outputs": outputs + 1})
    assert (data.channels, data.is_multichannel, data.channel_names) == (2, True, ("output 1", "output 2"))
    part = data.take(np.array([2]))
    assert np.array_equal(part.outputs, outputs[[2]])
    assert part.reference_outputs is not None
    assert np.array_equal(part.reference_outputs, outputs[[2]] + 1)
    plain = OperatorData(**GOOD)
    assert (plain.channels, plain.is_multichannel, plain.channel_names) == (1, False, ())
    named = OperatorData(**{**GOOD, "outputs": outputs, "channel_names": ["u", "v"]})
    assert named.take(slice(0, 1)).channel_names == ("u", "v")


def test_lists_are_taken_for_every_array():
    lists = {name: array.tolist() for name, array in GOOD.items()}
    data = OperatorData(
        **lists,
        point_weights=[1, 1, 1, 1],
        sample_weights=[1, 2, 3],
        reference_outputs=lists["outputs"],
        labels={"beta": [0.1, 0.2, 0.3]},
    )
    part = data.take(np.array([2, 0]))
    assert part.reference_outputs is not None
    assert np.array_equal(part.reference_outputs, GOOD["outputs"][[2, 0]])
    assert np.array_equal(part.labels["beta"], [0.3, 0.1])


def test_point_weights_sum_to_one():
    weights = OperatorData(**GOOD, point_weights=[1, 2, 3, 4]).point_weights
    assert weights is not None
    assert np.allclose(weights, [0.1, 0.2, 0.3, 0.4], rtol=1e-15)


def test_inputs_side_by_side_and_by_name():
    f, g = np.arange(3.0)[:, None], np.arange(6.0).reshape(3, 2)
    data = OperatorData(**{**GOOD, "inputs": {"f": f, "g": g}})
    assert list(data.inputs) == ["f", "g"]
    assert np.array_equal(data.flat_inputs, np.hstack([f, g]))
    assert list(OperatorData(**GOOD).inputs) == ["input"]


@pytest.mark.parametrize(
    "indices",
    [np.array([2, 0]), slice(1, 3), [0, -1], [True, False, True]],
    ids=["array", "slice", "list", "mask"],
)
def test_take_goes_through_everything_that_belongs_to_a_sample(indices: Any):
    data = OperatorData(
        **GOOD,
        sample_weights=np.arange(1.0, 4.0),
        reference_outputs=GOOD["outputs"] + 1,
        labels={"beta": np.arange(3.0)},
        output_name="pressure",
    )
    part = data.take(indices)
    assert part.samples == 2
    assert np.array_equal(part.outputs, GOOD["outputs"][indices])
    assert np.array_equal(part.flat_inputs, GOOD["inputs"][indices])
    assert part.sample_weights is not None
    assert np.array_equal(part.sample_weights, np.arange(1.0, 4.0)[indices])
    assert part.reference_outputs is not None
    assert np.array_equal(part.reference_outputs, GOOD["outputs"][indices] + 1)
    assert np.array_equal(part.labels["beta"], np.arange(3.0)[indices])
    assert (part.output_name, part.points is data.points) == ("pressure", True)


@pytest.mark.parametrize(("dimensions", "names"), [(1, "x"), (3, "x y z"), (4, "x1 x2 x3 x4")])
def test_coordinates_have_names(dimensions: int, names: str):
    data = OperatorData(**{**GOOD, "points": np.zeros((4, dimensions))})
    assert data.coordinate_names == tuple(re.split(" ", names))


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([3], "indices: 3 to 3, but there are 3 samples"),
        ([-4, 0], "indices: -4 to 0, but there are 3 samples"),
        ([0.5], "indices: expected one axis of integers or a mask of 3 samples, got shape (1,) of float64"),
        ([True, False], "indices: expected one axis of integers or a mask"),
        (1, "got shape () of int64"),
        ([], "axis 'samples' is empty"),
    ],
)
def test_indices_that_are_no_samples(indices: Any, words: str, tmp_path: Path):
    data = OperatorData(**GOOD)
    for kind in (data, write_shards([data], tmp_path / "shards")):
        with pytest.raises(DataError) as caught:
            kind.take(indices)
        assert words in str(caught.value)


# -- how data are shown


def test_the_three_kinds_of_data_answer_the_same_questions(tmp_path: Path):
    aligned = OperatorData(**GOOD, units={"x": "m"})
    scattered = scattered_from_lists(GOOD["inputs"], [GOOD["points"]] * 3, list(GOOD["outputs"]), units={"x": "m"})
    sharded = write_shards([aligned.take(slice(0, 2)), aligned.take(slice(2, 3))], tmp_path / "shards")
    for data in (aligned, scattered, sharded):
        assert (data.samples, data.channels, data.is_multichannel) == (3, 1, False)
        assert (data.output_name, data.coordinate_names, data.channel_names) == ("output", ("x", "y"), ())
        assert (data.units, data.point_weights, data.points.shape[-2:]) == ({"x": "m"}, None, (4, 2))
        assert np.array_equal(data.outputs, GOOD["outputs"])
        assert np.array_equal(data.flat_inputs, GOOD["inputs"])
        assert np.array_equal(data.inputs["input"].values, GOOD["inputs"])
        assert np.array_equal(data.take([-1, 0]).outputs, GOOD["outputs"][[2, 0]])
        text, html = repr(data), data._repr_html_()
        assert text == "\n".join([text.split("\n")[0], *data.describe()])
        assert text.startswith(type(data).__name__)
        assert "inputs: input, 2 sensors" in text
        assert "points: x [m] from 0 to 6, y from 1 to 7" in text
        assert html.startswith("<table><caption")
        assert html.count("<tr>") == 3
        assert "3 samples" in html


def test_names_are_escaped_in_html():
    assert "<b>bold" not in OperatorData(**GOOD, output_name="<b>bold")._repr_html_()


GRID = np.stack(np.meshgrid([0.0, 1, 2], [0.0, 1], indexing="ij"), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize(
    ("points", "triangles", "kind"),
    [
        (np.linspace(1, 0, 6)[:, None], None, "line"),
        (GRID, None, "QuadMesh"),
        (GRID, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], "TriMesh"),
        (GRID + np.arange(6)[:, None] ** 2, None, "TriMesh"),
        (np.ones((6, 3)), None, "line"),
        (np.arange(6.0)[:, None] * [1, 2], None, "line"),
    ],
    ids=["line", "grid", "mesh", "scattered", "three coordinates", "on a straight line"],
)
def test_plot(points: np.ndarray, triangles: Any, kind: str):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    inputs = {"f": InputFunction(np.arange(24.0).reshape(4, 6), grid_shape=(2, 3)), "g": np.ones((4, 2))}
    data = OperatorData(inputs, points, np.arange(24.0).reshape(4, 6), triangles=triangles, output_name="u")
    axes = data.plot(2)
    assert axes.shape == (2, 3)  # the input f is a map
    assert [place.get_title() for place in axes[0]] == ["f", "g", "u"]
    drawn = axes[1, 2].lines or axes[1, 2].collections
    assert (len(drawn), type(drawn[0]).__name__) == (1, "Line2D" if kind == "line" else kind)
    lines = dc.replace(data, inputs=np.ones((4, 2))).plot()
    assert lines.shape == ((1, 2) if kind == "line" else (3, 2))
    if kind == "line" and points.shape[1] == 1:
        assert np.array_equal(lines[0, 1].lines[2].get_xydata()[:, 1], data.outputs[3][::-1])
    with pytest.raises(ValueRangeError, match="samples is 0"):
        data.plot(0)
    for place in (axes[0, 0], lines[0, 0]):
        matplotlib.pyplot.close(place.figure)


# -- splits: disjoint, complete, with a seed of their own


@pytest.mark.parametrize("samples", [4, 20, 1001])
@pytest.mark.parametrize(("validation_share", "test_share"), [(0.0, 0.1), (0.25, 0.25), (0.1, 0.0)])
def test_disjoint_and_complete(samples: int, validation_share: float, test_share: float):
    split = Split.random(samples, validation_share=validation_share, test_share=test_share, seed=1)
    parts = [split.train, split.validation, split.test]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert [len(part) for part in parts[1:]] == [round(validation_share * samples), round(test_share * samples)]
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


def test_reproducible_by_its_seed():
    first, again, other = (Split.random(100, validation_share=0.1, test_share=0.1, seed=s) for s in (5, 5, 6))
    assert np.array_equal(first.test, again.test)
    assert np.array_equal(first.validation, again.validation)
    assert not np.array_equal(first.test, other.test)


def test_test_part_does_not_depend_on_the_validation_share():
    tests = [Split.random(50, validation_share=s, test_share=0.2, seed=0).test for s in (0.0, 0.1, 0.5)]
    assert np.array_equal(tests[0], tests[1])
    assert np.array_equal(tests[0], tests[2])


@pytest.mark.parametrize(
    ("samples", "validation_share", "test_share", "error", "words"),
    [
        (10, -0.1, 0.1, ValueRangeError, "validation_share is -0.1"),
        (10, 0.1, 1.0, ValueRangeError, "test_share is 1.0"),
        (10, 0.1, float("nan"), ValueRangeError, "test_share is nan"),
        (10, 0.5, 0.5, DataError, "leave none for training"),
        (1, 0.0, 0.9, DataError, "1 samples leave none"),
    ],
)
def test_splits_that_are_refused(
    samples: int, validation_share: float, test_share: float, error: type[TrunkfirstError], words: str
):
    with pytest.raises(error, match=words):
        Split.random(samples, validation_share=validation_share, test_share=test_share, seed=0)
