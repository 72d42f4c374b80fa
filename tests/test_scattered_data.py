"""Scattered data: every sample has its own points, and NaN marks a missing point."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trunkfirst.data.array_checks import unique_rows
from trunkfirst.data.repeated_samples import repeated_rows
from trunkfirst.data.scattered_data import ScatteredData, scattered_from_lists
from trunkfirst.errors import DataError

NAN = np.nan


def good() -> dict[str, Any]:
    """Three samples with 2, 3 and 1 points in the plane."""
    points = np.arange(18.0).reshape(3, 3, 2)
    points[0, 2] = points[2, 1:] = NAN
    points[1, 2] = points[0, 0]  # a place that two samples share
    return {"inputs": np.arange(6.0).reshape(3, 2), "points": points, "outputs": points.sum(axis=2)}


def with_value(name: str, place: tuple[int, ...], value: float) -> dict[str, Any]:
    array = good()[name].copy()
    array[place] = value
    return {name: array}


def test_mask_counts_and_samples():
    data = ScatteredData(**good())
    assert data.mask.tolist() == [[True, True, False], [True, True, True], [True, False, False]]
    assert data.counts.tolist() == [2, 3, 1]
    assert (data.samples, data.channels, data.coordinate_names) == (3, 1, ("x", "y"))


def test_pooled_points_are_distinct_and_lead_back():
    data = ScatteredData(**good())
    points, places = data.pooled()
    assert len(points) == 5
    assert np.array_equal(np.unique(points, axis=0), points)
    assert np.array_equal(points[places][data.mask], data.points[data.mask])
    assert (places[~data.mask] == 0).all()


def test_take_goes_through_everything_that_belongs_to_a_sample():
    weights = np.where(np.isnan(good()["outputs"]), NAN, 2.0)
    data = ScatteredData(
        **good(),
        point_weights=weights,
        sample_weights=[1, 2, 3],
        labels={"beta": [1, 2, 3]},
        output_name="pressure",
    )
    part = data.take(np.array([1, 0]))
    assert np.array_equal(part.points, data.points[[1, 0]], equal_nan=True)
    assert np.array_equal(part.outputs, data.outputs[[1, 0]], equal_nan=True)
    assert np.array_equal(part.flat_inputs, data.flat_inputs[[1, 0]])
    assert part.point_weights is not None
    assert np.allclose(part.point_weights, [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0]], rtol=1e-15)
    assert part.sample_weights is not None
    assert part.sample_weights.tolist() == [2, 1]
    assert part.labels["beta"].tolist() == [2, 1]
    assert part.output_name == "pressure"
    assert part.mask.tolist() == data.mask[[1, 0]].tolist()


@pytest.mark.parametrize("channels", [None, 2])
def test_from_lists(channels: int | None):
    rng = np.random.default_rng(0)
    counts = [4, 1, 3]
    points = [rng.normal(size=(n, 2)) for n in counts]
    outputs = [rng.normal(size=(n,) if channels is None else (n, channels)) for n in counts]
    data = scattered_from_lists(np.ones((3, 1)), points, outputs, output_name="u")
    assert data.counts.tolist() == counts
    for k, n in enumerate(counts):
        assert np.array_equal(data.points[k, :n], points[k])
        assert np.array_equal(data.outputs[k, :n], outputs[k])
    assert (data.channels, data.is_multichannel, data.output_name) == (channels or 1, channels is not None, "u")


P, U = np.ones((2, 1)), np.ones(2)
BAD_LISTS: list[tuple[list[Any], list[Any], str]] = [
    ([P], [U, U], "points of 1 samples and outputs of 2"),
    ([], [], "points of 0 samples"),
    ([P, np.ones((2, 2))], [U, U], "points[1]: shape (2, 2) does not match (2, 1) of points[0]"),
    ([P, P], [U, np.ones(3)], "outputs[1]: axis 'points' has 3 entries, but points[1] has 2"),
    ([P, P], [U, np.ones((2, 2))], "outputs[1]: shape (2, 2) does not match (2,) of outputs[0]"),
    ([P, np.ones((0, 1))], [U, np.ones(0)], "points[1]: axis 'points' is empty"),
    ([P, P * NAN], [U, U], "points[1]: 2 of 2 values are not finite"),
    ([P, np.ones(2)], [U, U], "points[1]: expected 2 axes"),
]


@pytest.mark.parametrize(("points", "outputs", "words"), BAD_LISTS, ids=[words[:30] for *_, words in BAD_LISTS])
def test_lists_that_do_not_go_together(points: list[Any], outputs: list[Any], words: str):
    with pytest.raises(DataError) as caught:
        scattered_from_lists(np.ones((max(len(outputs), 1), 1)), points, outputs)
    assert words in str(caught.value)


BAD: list[tuple[dict[str, Any], str]] = [
    (with_value("points", (1, 0, 1), NAN), "points: sample 1, point 0 has NaN in some coordinates only"),
    (with_value("outputs", (1, 2), NAN), "outputs: sample 1, point 2 is NaN, but points has coordinates there"),
    (with_value("outputs", (0, 2), 1.0), "outputs: sample 0, point 2 has a value, but points is NaN there"),
    (with_value("outputs", (1, 1), np.inf), "outputs: 1 of 9 values are not finite; the first is inf"),
    (with_value("points", (1, 1, 0), -np.inf), "points: 1 of 18 values are not finite"),
    (
        {"points": with_value("points", (2, 0), NAN)["points"], **with_value("outputs", (2, 0), NAN)},
        "points: sample 2 has no points",
    ),
    ({"outputs": np.ones((3, 4))}, "outputs: axis 'points' has 4 entries, but points has 3"),
    ({"outputs": np.ones((2, 3))}, "outputs: axis 'samples' has 2"),
    ({"points": np.ones((2, 4, 1)), "outputs": np.ones((4, 2))}, "outputs looks transposed"),
    ({"points": np.ones((3, 3))}, "points: expected 3 axes (samples, points, coordinates)"),
    ({"outputs": np.ones((3, 3, 0))}, "outputs: axis 'channels' is empty"),
    ({"inputs": np.ones((2, 2))}, "inputs['input']: axis 'samples' has 2"),
    ({"point_weights": np.ones(3)}, "point_weights: expected 2 axes"),
    ({"point_weights": np.ones((3, 2))}, "point_weights: axis 'points' has 2"),
    ({"point_weights": -np.ones((3, 3))}, "point_weights: sample 0, point 0 is negative or NaN"),
    ({"point_weights": np.diag([1.0, 0, 1])}, "point_weights: the weights of sample 1 are all zero"),
    ({"sample_weights": np.ones(2)}, "sample_weights: axis 'samples' has 2"),
    ({"labels": {"beta": np.ones(4)}}, "labels['beta']: axis 'samples' has 4"),
    ({"channel_names": ("a", "b")}, "channel_names: got 2 names"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str):
    with pytest.raises(DataError) as caught:
        ScatteredData(**{**good(), **changes})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# -- rows that are alike, against NumPy's own


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from([-1.0, -0.0, 0.0, 2.5])] * 2), min_size=1, max_size=20))
def test_unique_rows(rows: list[tuple[float, ...]]):
    array = np.array(rows)
    distinct, inverse = unique_rows(array)
    expected, expected_inverse = np.unique(array, axis=0, return_inverse=True)
    assert np.array_equal(distinct, expected)
    assert np.array_equal(inverse, expected_inverse.ravel())
    pairs = repeated_rows(array)
    assert len(pairs) == len(array) - len(expected)
    assert all(first < again and np.array_equal(array[first], array[again]) for first, again in pairs)
