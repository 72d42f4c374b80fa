"""What aligned and scattered data have in common: everything that belongs to samples rather than to points."""

import abc
import dataclasses as dc
from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from ._checks import check_length, checked_names, checked_weights, real_array
from ._input_functions import InputFunction, named_inputs

Indices: TypeAlias = Int[np.ndarray, " chosen"] | slice


class AbstractData(abc.ABC):
    """Samples of an operator; the fields are those of the records below."""

    inputs: Mapping[str, InputFunction]
    points: Float[np.ndarray, "..."]
    outputs: Float[np.ndarray, "samples points ..."]
    sample_weights: Float[np.ndarray, " samples"] | None
    labels: Mapping[str, Float[np.ndarray, " samples"]]
    output_name: str
    coordinate_names: tuple[str, ...]
    channel_names: tuple[str, ...]
    units: Mapping[str, str]

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(self.outputs)

    @property
    def is_multichannel(self) -> bool:
        """Whether the outputs have an axis of channels."""
        return self.outputs.ndim == 3

    @property
    def channels(self) -> int:
        """How many output functions a sample has."""
        return self.outputs.shape[2] if self.is_multichannel else 1

    @property
    def flat_inputs(self) -> Float[np.ndarray, "samples sensors"]:
        """All input functions side by side."""
        values = [function.values for function in self.inputs.values()]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=1)

    def with_inputs(self, values: Float[np.ndarray, "samples sensors"]) -> Self:
        """The same samples with other numbers as inputs, all functions side by side as one."""
        return dc.replace(self, inputs={"input": InputFunction(values)})  # pyright: ignore[reportArgumentType]

    @abc.abstractmethod
    def take(self, indices: Indices) -> Self:
        """The samples at `indices`."""

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _check_samples(self, points: Float[np.ndarray, "..."], outputs: Float[np.ndarray, "..."]) -> None:
        """Check and set what both kinds of data share."""
        coordinates = points.shape[-1]
        channels = outputs.shape[2] if outputs.ndim == 3 else 1
        channel_names = checked_names("channel_names", self.channel_names, channels, "channels")
        if outputs.ndim == 3 and not channel_names:
            channel_names = tuple(f"output {number + 1}" for number in range(channels))
        coordinate_names = checked_names("coordinate_names", self.coordinate_names, coordinates, "coordinates")
        self._set(
            inputs=named_inputs(self.inputs, len(outputs)),
            points=points,
            outputs=outputs,
            sample_weights=checked_weights("sample_weights", self.sample_weights, "samples", len(outputs)),
            labels=_checked_labels(self.labels, len(outputs)),
            coordinate_names=coordinate_names or default_coordinate_names(coordinates),
            channel_names=channel_names,
        )

    def _taken(self, indices: Indices) -> dict[str, Any]:
        """What `take` does to the fields that both kinds of data share."""
        return {
            "inputs": {name: dc.replace(f, values=f.values[indices]) for name, f in self.inputs.items()},
            "outputs": self.outputs[indices],
            "sample_weights": rows_of(self.sample_weights, indices),
            "labels": {name: label[indices] for name, label in self.labels.items()},
        }


def rows_of(array: np.ndarray | None, indices: Indices) -> np.ndarray | None:
    """The rows of an array that may be absent."""
    return None if array is None else array[indices]


def default_coordinate_names(dimensions: int) -> tuple[str, ...]:
    """x, y, z; beyond three x1, x2, ..."""
    return ("x", "y", "z")[:dimensions] if dimensions <= 3 else tuple(f"x{i + 1}" for i in range(dimensions))


def _checked_labels(labels: Mapping[str, Any], samples: int) -> dict[str, Float[np.ndarray, " samples"]]:
    checked = {name: real_array(f"labels[{name!r}]", label, ("samples",)) for name, label in labels.items()}
    for name, label in checked.items():
        check_length(f"labels[{name!r}]", "samples", len(label), samples, "outputs")
    return checked
