"""What is in a file of data, in words and in numbers, and what looks suspicious."""

import dataclasses as dc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from .array_checks import evenly, real_numbers
from .data_display import range_in_words
from .fixed_functions import Spectrum, fixed_functions, spectrum
from .named_arrays import AnyData, list_arrays
from .operator_data import OperatorData
from .read_write import data_and_rest
from .repeated_samples import FEWEST_INPUTS, repeated_rows
from .scattered_data import ScatteredData
from .sharded_data import ShardedData, is_sharded, open_shards

_FEW_SAMPLES = 20
_LARGE_RATIO = 1e3
_ROUGHER = 3
# Large is what lies above the upper quartile by this many times the distance of the quartiles, and is at least ten
# times the median: of lognormal sizes with a deviation of 1 (the logarithm's) one in 3,000.
_LARGE, _LARGER = 20, 10
# Inputs with no more numbers than this, and no coordinates, are parameters: each has a range of its own.
_MOST_PARAMETERS = 20
# Values of the samples of shards that are searched for rank and repetitions.
_MOST_NUMBERS = 2**24


@dc.dataclass(frozen=True)
class DataCheck:
    """The findings of `check_data`."""

    sentences: tuple[str, ...]
    """What the data are, in words."""
    suspicious: tuple[str, ...]
    """What is allowed but seldom intended; empty if nothing was found."""
    numbers: dict[str, Any]
    """The same in plain values, for programs."""


def input_warnings(data: AnyData) -> list[str]:
    """A sentence where there is nothing to learn from."""
    inputs = data.flat_inputs
    if not (inputs != inputs[:1]).any():
        return ["all samples have the same inputs, so that all predictions are the same"]
    if not (repeats := len(repeated_rows(inputs))):
        return []
    what = "to an operator that is noise, and they are left out together"
    if (count := data.samples - repeats) < FEWEST_INPUTS:
        what = f"{count} different inputs are too few to measure the error on others"
    return [f"{repeats} of {data.samples} samples have the inputs of an earlier one, but other outputs: {what}"]


def check_data(source: object, *, keys: Mapping[str, str] | None = None) -> DataCheck:
    """Read data as `read_data` does and describe them.

    The report has axes, sizes and ranges; the numerical rank of the outputs; the smallest error that a DeepONet of
    width N can reach; repeated samples and points; sensors that never change. All shards are read once for damage
    and ranges; the rest is computed from evenly spaced samples.

    Args:
        source: data, arrays by name, an xarray Dataset, or a path.
        keys: other names of the arrays, {"inputs": "f"}.

    Returns:
        A report with `sentences` to print, and their `numbers`.

    Raises:
        DataError: the data are wrong, as in `read_data`.

    >>> import numpy as np
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> found = check_data({"inputs": a, "points": x[:, None], "outputs": a @ np.stack([x, x**2])})
    >>> found.sentences[0]
    '40 samples, all on the same 30 points'
    """
    if isinstance(source, (str, Path)) and is_sharded(source):
        source = open_shards(source)
    if isinstance(source, ShardedData):
        return _check_shards(source)
    if isinstance(source, (OperatorData, ScatteredData)):
        return _check(source, [])
    data, arrays, rest = data_and_rest(source, keys)
    unused = [f"not used: {list_arrays(rest)}"] if rest else []
    return _check(data, [*_precision_notes(arrays), *unused])


def _check(data: AnyData, notes: list[str]) -> DataCheck:
    found = spectrum(data.outputs, data.point_weights) if isinstance(data, OperatorData) else None
    suspicious = (*notes, *_suspicions(data))
    words = _spectrum_in_words(data, found) if found else _scattered_in_words(data)
    fixed = fixed_functions(data) if isinstance(data, OperatorData) else None
    moves = fixed is not None and fixed.features_move
    words = [*words, fixed.in_words()] if fixed is not None and moves else words
    numbers = {**_numbers(data, found), "features_move": moves, "suspicious": list(suspicious)}
    return DataCheck((*data.describe(), *_parameters_in_words(data), *words), suspicious, numbers)


def _parameters(data: AnyData) -> dict[str, Float[np.ndarray, "samples parameters"]]:
    """The inputs that are a few numbers and not a function."""
    return {
        name: f.values
        for name, f in data.inputs.items()
        if f.sensors is None and f.grid_shape is None and 1 < f.values.shape[1] <= _MOST_PARAMETERS
    }


def _parameters_in_words(data: AnyData) -> list[str]:
    return [
        f"parameters of {name}: {', '.join(f'{i} {range_in_words(x)}' for i, x in enumerate(values.T))}"
        for name, values in _parameters(data).items()
    ]


def _check_shards(data: ShardedData) -> DataCheck:
    count = min(data.samples, max(100, _MOST_NUMBERS // data.numbers))
    some = _check(data.take(evenly(data.samples, count)), [])
    found = _ranges(data)
    inputs = {name: {**values, "range": found[name]} for name, values in some.numbers["inputs"].items()}
    whole = {"samples": data.samples, "inputs": inputs, "output_range": found[""]}
    numbers = {**some.numbers, **whole, "shards": len(data.counts), "looked_at": count}
    ranges = ", ".join(f"{name} {range_in_words(np.array(found[name]))}" for name in inputs)
    sentences = (
        data.describe()[0],
        f"looked at all samples: no shard is damaged, all numbers are finite; inputs {ranges}; "
        f"outputs {range_in_words(np.array(found['']))}",
        f"of {count:,} of them, evenly chosen:",
        *some.sentences,
    )
    return DataCheck(sentences, some.suspicious, numbers)


def _ranges(data: ShardedData) -> dict[str, list[float]]:
    """Return the ranges of the input functions, and of the outputs under the name "", in one pass."""
    found: dict[str, list[float]] = {}
    for block in data.blocks():
        arrays = {name: function.values for name, function in block.inputs.items()} | {"": block.outputs}
        for name, values in arrays.items():
            found[name] = _range(np.array([*found.get(name, []), *_range(values)]))
    return found


def _range(values: np.ndarray) -> list[float]:
    return [float(np.nanmin(values)), float(np.nanmax(values))]


def _numbers(data: AnyData, found: Spectrum | None) -> dict[str, Any]:
    inputs = {
        name: {"sensors": f.values.shape[1], "grid_shape": f.grid_shape, "range": _range(f.values)}
        for name, f in data.inputs.items()
    }
    for name, values in _parameters(data).items():
        inputs[name]["ranges"] = [_range(column) for column in values.T]
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


def _scattered_in_words(data: AnyData) -> list[str]:
    count = len(data.pooled()[0]) if isinstance(data, ScatteredData) else len(data.points)
    return [
        f"{count:,} different points in all",
        "rank of the outputs: not known where samples lie on different points",
    ]


def _spectrum_in_words(data: AnyData, found: Spectrum) -> list[str]:
    ranks = ", ".join(f"{rank} (to {tolerance:.0e})" for tolerance, rank in found.ranks.items())
    is_single = data.outputs.dtype == np.float32
    words = [f"rank of the outputs: {ranks}{'; single precision has no digits below 1e-07' if is_single else ''}"]
    if found.best_errors:
        errors = ", ".join(f"{error:.1e} (N = {N})" for N, error in found.best_errors.items())
        words.append(f"mean relative l2 error that a DeepONet of width N can at best reach here: {errors}")
    if found.rows < data.samples * data.channels or found.points < data.outputs.shape[1]:
        words.append(f"rank and error are those of {found.rows:,} rows at {found.points:,} points, evenly chosen")
    return words


# -- allowed, but seldom intended


def _precision_notes(arrays: Mapping[str, Any]) -> Iterator[str]:
    """Say what reading does to the precision of the arrays."""
    main = {name: a for name, a in arrays.items() if name.split(".")[0] in ("inputs", "points", "outputs")}
    for name, array in main.items():
        if array.dtype.name == "float16":
            yield f"{name}: half precision has three digits; used as double"
    used = {name: real_numbers(name, array).dtype.name for name, array in main.items()}
    single = [name for name, kind in used.items() if kind == "float32"]
    if single and "float64" in used.values():
        yield f"{', '.join(single)}: single precision next to double; all are used as double"


def _suspicions(data: AnyData) -> Iterator[str]:
    if data.samples < _FEW_SAMPLES:
        yield f"only {data.samples} samples; a fit needs {_FEW_SAMPLES} or more"
    for name, function in data.inputs.items():
        yield from (f"inputs[{name!r}]: {text}" for text in _constant_sensors(function.values))
    for name, function in data.inputs.items():
        texts = _large_inputs(function.values, is_parameters=name in _parameters(data))
        yield from (f"inputs[{name!r}]: {text}" for text in texts)
    yield from _repeated_samples(data)
    yield from _outputs(data)
    yield from _scattered_points(data) if isinstance(data, ScatteredData) else _points(data)


def _constant_sensors(values: Float[np.ndarray, "samples sensors"]) -> Iterator[str]:
    constant = np.ptp(values, axis=0) == 0
    if len(values) > 1 and constant.any():
        first = int(np.argmax(constant))
        yield f"{int(constant.sum())} of {len(constant)} sensors never change, the first is sensor {first}"


def _large_inputs(values: Float[np.ndarray, "samples sensors"], *, is_parameters: bool) -> Iterator[str]:
    """Samples and sensors much larger than the others, values far from the others of their sensor, and units."""
    sizes = np.abs(values)
    yield from _much_larger("sample", sizes.max(axis=1))
    medians = np.median(sizes, axis=0)
    yield from _different_scales(medians) if is_parameters else _much_larger("sensor", medians)
    if not len(_large(sizes.max(axis=1))):  # else the same is said twice
        yield from _far_values(values)


def _large(sizes: Float[np.ndarray, " many"]) -> np.ndarray:
    """The indices of sizes that are much larger than most."""
    if len(sizes) < _FEW_SAMPLES:
        return np.zeros(0, np.int64)
    low, middle, high = np.quantile(sizes, [0.25, 0.5, 0.75])
    return np.flatnonzero(sizes > max(high + _LARGE * (high - low), _LARGER * middle))


def _much_larger(kind: str, sizes: Float[np.ndarray, " many"]) -> Iterator[str]:
    large = _large(sizes)
    if len(large):
        times = sizes[large].max() / (np.median(sizes) or 1.0)
        yield (
            f"{len(large):,} of {len(sizes):,} {kind}s are much larger than the others, the first is {kind} "
            f"{large[0]}; the largest is {times:.0e} times the median; check its unit"
        )


def _different_scales(sizes: Float[np.ndarray, " parameters"]) -> Iterator[str]:
    used = np.where(sizes > 0, sizes, np.nan)
    if not np.isnan(used).all() and np.nanmax(used) > _LARGE_RATIO * np.nanmin(used):
        high, low = int(np.nanargmax(used)), int(np.nanargmin(used))
        words = f"parameter {high} is about {used[high]:.0e} and parameter {low} about {used[low]:.0e}"
        yield f"{words}; with raw inputs the second hardly counts; standardise them"


def _far_values(values: Float[np.ndarray, "samples sensors"]) -> Iterator[str]:
    if len(values) < _FEW_SAMPLES:
        return
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    is_far = np.abs(values - middle) > np.where(high > low, 2 * _LARGE * (high - low), np.inf)
    if is_far.any():
        sample, sensor = np.argwhere(is_far)[0]
        which = f"{is_far.sum():,} values lie far from the others of their sensor"
        yield f"{which}, the first is {values[sample, sensor]:.4g} of sample {sample}, sensor {sensor}"


def _repeated_samples(data: AnyData) -> Iterator[str]:
    pairs = repeated_rows(data.flat_inputs)
    if len(pairs) == 0:
        return
    yield f"inputs: {len(pairs)} samples repeat an earlier one, the first are samples {_pair(pairs[0])}"
    if isinstance(data, OperatorData):
        axes = tuple(range(1, data.outputs.ndim))
        differ = (data.outputs[pairs[:, 0]] != data.outputs[pairs[:, 1]]).any(axis=axes)
        if differ.any():
            first = _pair(pairs[int(np.argmax(differ))])
            yield f"outputs: samples {first} have the same inputs but other outputs; no operator does that"


def _pair(pair: np.ndarray) -> str:
    return f"{pair[0]} and {pair[1]}"


def _outputs(data: AnyData) -> Iterator[str]:
    for channel, given in data.outputs_by_channel().items():
        name = channel if data.is_multichannel else "outputs"
        values = given if isinstance(data, OperatorData) else np.nan_to_num(given)
        sizes = np.maximum(values.max(axis=1), -values.min(axis=1))
        yield from (f"{name}: {text}" for text in [*_much_larger("sample", sizes)] or _sizes(sizes))
        if isinstance(data, OperatorData) and data.samples > 1 and not np.ptp(values, axis=0).any():
            yield f"{name}: all samples are the same"


def _sizes(sizes: np.ndarray) -> Iterator[str]:
    """Compare the largest values of the samples."""
    zeros = np.flatnonzero(sizes == 0)
    if len(zeros):
        which = f"{len(zeros)} samples are zero everywhere, the first is sample {zeros[0]}"
        yield f"{which}; their relative error is not defined"
    elif sizes.max() > _LARGE_RATIO * sizes.min():
        ratio = f"{sizes.max() / sizes.min():.0e} times as large as sample {sizes.argmin()}"
        yield f"sample {sizes.argmax()} is {ratio}; relative weights treat both alike"


def _points(data: AnyData) -> Iterator[str]:
    pairs = repeated_rows(data.points)
    if len(pairs):
        yield f"points: {len(pairs)} repeat an earlier one, the first are points {_pair(pairs[0])}"
        gaps = np.abs(data.outputs[:, pairs[:, 0]] - data.outputs[:, pairs[:, 1]])
        if gaps.max() > 1e-6 * np.abs(data.outputs).max():
            yield f"outputs: differ by up to {gaps.max():.1e} at points that are the same place"
    yield from _flat_coordinates(data, data.points)
    if _has_swapped_axes(data):
        text = "neighbouring samples are more alike than neighbouring points; if rows are points, use outputs.T"
        yield f"outputs: {text}"


def _has_swapped_axes(data: AnyData) -> bool:
    """Compare roughness along both axes where shapes cannot reveal a swap: as many samples as points."""
    is_line = data.points.shape[1] == 1 and (np.diff(data.points[:, 0]) > 0).all()
    if data.is_multichannel or not is_line or data.samples != len(data.points) or data.samples < _FEW_SAMPLES:
        return False
    down, along = (float(np.abs(np.diff(data.outputs, axis=axis)).mean()) for axis in (0, 1))
    return down * _ROUGHER <= along


def _flat_coordinates(data: AnyData, points: np.ndarray) -> Iterator[str]:
    for i in np.flatnonzero(np.ptp(points, axis=0) == 0) if len(points) > 1 else ():
        yield f"points: coordinate {data.coordinate_names[i]} is {points[0, i]:.6g} at all points"


def _scattered_points(data: ScatteredData) -> Iterator[str]:
    yield from _flat_coordinates(data, data.points[data.mask])
    if data.mask.all() and (data.points == data.points[:1]).all():
        yield "points: all samples have the same points; give them once, as (points, coordinates)"
    few = np.flatnonzero(data.counts < 3)
    if len(few):
        yield f"points: {len(few)} samples have fewer than 3 points, the first is sample {few[0]}"
