"""Test samples that a run kept in full: what goes in and what truly comes out."""

import dataclasses as dc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ..errors import CorruptFileError
from ..files import read_npz

_LABEL = "labels."
_PLACES = ("largest", "2nd largest", "3rd largest")


@dc.dataclass(frozen=True, eq=False)
class Sample:
    """One test sample; of several channels, those whose true field is known."""

    name: str
    inputs: Float[np.ndarray, " sensors"]
    truths: Mapping[int, Float[np.ndarray, " points"]]


@dc.dataclass(frozen=True, eq=False)
class Tested:
    """The samples, or why there are none; what the numbers of an input are called; the triangles."""

    samples: tuple[Sample, ...] = ()
    reason: str = ""
    number_names: tuple[str, ...] | None = None
    triangles: Int[np.ndarray, "triangles 3"] | None = None


def read_tested(folder: Path, points: Float[np.ndarray, "points coordinates"], sensors: int) -> Tested:
    """What `evaluation.npz` holds, if its fields are given at `points`."""
    path = folder / "evaluation.npz"
    if not path.is_file():
        return Tested(reason="The run kept no test samples, so that there is no true field to compare with.")
    arrays = read_npz(path)
    try:
        if not np.array_equal(arrays["points"], points):
            return Tested(
                reason="Every test sample has points of its own: true fields cannot be drawn on the points here."
            )
        tested = _tested(arrays)
        _check(tested, len(points), sensors)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptFileError(f"{path} does not hold test samples: {error}. Evaluate the run again.") from error
    return tested


def _tested(arrays: Mapping[str, np.ndarray]) -> Tested:
    labels = {name[len(_LABEL) :]: label for name, label in arrays.items() if name.startswith(_LABEL)}
    index, inputs, target = int(arrays["example_index"]), arrays["example_input"], arrays["example_target"]
    table = np.stack(list(labels.values()), axis=1) if labels else np.zeros((len(arrays["errors"]), 0))
    is_input = np.array_equal(table[index], inputs)  # the labels of a sample are the numbers that went in

    def words(kind: str, number: int) -> str:
        named = ", ".join(f"{name} = {value:.4g}" for name, value in zip(labels, table[number], strict=True))
        return f"{kind}: {named or f'test sample {number}'} (relative error {arrays['errors'][number]:.1e})"

    truths = dict(enumerate(np.atleast_2d(target.T)))
    samples = [Sample(words("example", index), inputs, truths)]
    worst = arrays.get("worst_inputs", table[arrays["worst_indices"]] if is_input else None)
    if worst is not None:
        rows = zip(arrays["worst_indices"], worst, arrays["worst_channels"], arrays["worst_targets"], strict=True)
        for place, (number, row, channel, truth) in zip(_PLACES, rows, strict=False):
            samples.append(Sample(words(f"{place} error", int(number)), row, {int(channel): truth}))
    return Tested(tuple(samples), "", tuple(labels) if is_input else None, arrays.get("triangles"))


def _check(tested: Tested, points: int, sensors: int) -> None:
    for sample in tested.samples:
        if sample.inputs.shape != (sensors,) or any(t.shape != (points,) for t in sample.truths.values()):
            raise ValueError("inputs or fields of other shapes than those of training")
    triangles = tested.triangles
    if triangles is not None and (triangles.ndim, *triangles.shape[1:]) != (2, 3):
        raise ValueError(f"triangles of shape {triangles.shape}")
    if triangles is not None and triangles.size and not 0 <= triangles.min() <= triangles.max() < points:
        raise ValueError(f"triangles name points {triangles.min()} to {triangles.max()}; there are {points}")
