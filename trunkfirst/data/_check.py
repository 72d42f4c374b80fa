"""What is in a file of data, in words and in numbers."""

import dataclasses as dc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._arrays import AnyData
from ._check_shards import all_numbers, few_enough
from ._evenly import evenly
from ._exchange import data_and_rest
from ._keys import describe
from ._operator_data import OperatorData
from ._scattered_data import ScatteredData
from ._sharded_data import ShardedData, is_sharded, open_shards
from ._spectrum import Spectrum, spectrum
from ._suspicions import precision_notes, suspicions


@dc.dataclass(frozen=True)
class DataCheck:
    """What a look at data found; what is wrong is an error instead."""

    sentences: tuple[str, ...]
    """What there is, in words."""
    suspicious: tuple[str, ...]
    """What is seldom meant; empty if all is well."""
    numbers: dict[str, Any]
    """The same in plain values, for programs."""


def check_data(
    source: Path | str | Mapping[str, Any] | Any, *, keys: Mapping[str, str] | None = None
) -> DataCheck:
    """Read data as `read_data` does and say what they are.

    Axes, sizes, ranges; the numerical rank of the outputs; the error that a DeepONet of width N can at best
    reach; repeated samples and points, sensors that never change. What is wrong raises, as in `read_data`.
    All shards are passed over; what needs many samples at once is asked of some, as the sentences say.

    >>> import numpy as np
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> found = check_data({"inputs": a, "points": x[:, None], "outputs": a @ np.stack([x, x**2])})
    >>> found.sentences[0]
    '40 samples, all on the same 30 points'
    """
    if isinstance(source, (OperatorData, ScatteredData)):
        return _checked(source, [])
    if isinstance(source, (str, Path)) and is_sharded(Path(source)):
        source = open_shards(source)
    if isinstance(source, ShardedData):
        return _checked_shards(source)
    data, arrays, rest = data_and_rest(source, keys)
    aside = [f"left aside: {describe(rest)}"] if rest else []
    return _checked(data, [*precision_notes(arrays), *aside])


def _checked(data: AnyData, notes: list[str]) -> DataCheck:
    found = spectrum(data.outputs, data.point_weights) if isinstance(data, OperatorData) else None
    suspicious = (*notes, *suspicions(data))
    sentences = (*_axes_in_words(data), *_spectrum_in_words(data, found))
    return DataCheck(sentences, suspicious, {**_numbers(data, found), "suspicious": list(suspicious)})


def _checked_shards(data: ShardedData) -> DataCheck:
    """All samples for damage, numbers that are not finite and ranges; evenly chosen ones for the rest."""
    count = few_enough(data)
    some = _checked(data.take(evenly(data.samples, count)), [])
    numbers = all_numbers(data, some.numbers, count)
    ranges = [
        f"{name} from {values['range'][0]:.4g} to {values['range'][1]:.4g}"
        for name, values in numbers["inputs"].items()
    ]
    low, high = numbers["output_range"]
    sentences = (
        f"{data.samples:,} samples in {len(data.counts):,} shards, all on the same {len(data.points):,} points",
        f"looked at all samples: no shard is damaged, all numbers are finite; inputs {', '.join(ranges)}; "
        f"outputs from {low:.4g} to {high:.4g}",
        f"of {count:,} of them, evenly chosen:",
        *some.sentences,
    )
    return DataCheck(sentences, some.suspicious, numbers)


def _range(values: np.ndarray) -> list[float]:
    return [float(np.nanmin(values)), float(np.nanmax(values))]


def _range_in_words(values: np.ndarray) -> str:
    low, high = _range(values)
    return f"from {low:.4g} to {high:.4g}"


def _numbers(data: AnyData, found: Spectrum | None) -> dict[str, Any]:
    inputs = {
        name: {"sensors": f.values.shape[1], "grid_shape": f.grid_shape, "range": _range(f.values)}
        for name, f in data.inputs.items()
    }
    return {
        "kind": "aligned" if isinstance(data, OperatorData) else "scattered",
        "samples": data.samples,
        "points": data.outputs.shape[1],
        "channels": data.channels,
        "coordinates": {name: _range(data.points[..., i]) for i, name in enumerate(data.coordinate_names)},
        "inputs": inputs,
        "output_range": _range(data.outputs),
        "dtype": data.outputs.dtype.name,
        "rank": None if found is None else {f"{tolerance:.0e}": rank for tolerance, rank in found.ranks.items()},
        "best_mean_relative_l2": None if found is None else found.best_errors,
    }


def _axes_in_words(data: AnyData) -> list[str]:
    words = [f"{data.samples:,} samples, {_points_in_words(data)}"]
    for name, function in data.inputs.items():
        grid = " on a grid of " + " x ".join(map(str, function.grid_shape)) if function.grid_shape else ""
        known = "" if function.sensors is None else ", their places known"
        sensors = f"{function.values.shape[1]:,} sensors{grid}{known}"
        words.append(f"inputs: {name}, {sensors}, values {_range_in_words(function.values)}")
    ranges = [f"{name} {_range_in_words(data.points[..., i])}" for i, name in enumerate(data.coordinate_names)]
    words.append(f"points: {', '.join(ranges)}")
    precision = "single" if data.outputs.dtype == np.float32 else "double"
    for index, name in enumerate(data.channel_names or (data.output_name,)):
        values = data.outputs[..., index] if data.is_multichannel else data.outputs
        words.append(f"outputs: {name}, values {_range_in_words(values)}, {precision} precision")
    return words + _beside_in_words(data)


def _points_in_words(data: AnyData) -> str:
    if isinstance(data, OperatorData):
        return f"all on the same {len(data.points):,} points"
    fewest, most = int(data.counts.min()), int(data.counts.max())
    return f"each on its own {fewest:,} to {most:,} points, {len(data.pooled()[0]):,} different ones in all"


def _beside_in_words(data: AnyData) -> list[str]:
    names = ("point_weights", "sample_weights", "reference_outputs", "triangles")
    there = [name.replace("_", " ") for name in names if getattr(data, name, None) is not None]
    there += [f"label {name}" for name in data.labels]
    return [f"also: {', '.join(there)}"] if there else []


def _spectrum_in_words(data: AnyData, found: Spectrum | None) -> list[str]:
    if found is None:
        return ["rank of the outputs: not known where samples lie on different points"]
    ranks = ", ".join(f"{rank} (to {tolerance:.0e})" for tolerance, rank in found.ranks.items())
    words = [f"rank of the outputs: {ranks}"]
    if data.outputs.dtype == np.float32:
        words[0] += "; single precision cannot tell below 1e-07"
    if found.best_errors:
        errors = ", ".join(f"{error:.1e} (N = {N})" for N, error in found.best_errors.items())
        words.append(f"mean relative l2 error that a DeepONet of width N can at best reach here: {errors}")
    if found.rows < data.samples * data.channels or found.points < data.outputs.shape[1]:
        words.append(f"rank and error are those of {found.rows:,} rows at {found.points:,} points, evenly chosen")
    return words
