"""Checks of arrays at the boundary, and rows by index. A message names array, axis, value and what to do."""

import contextlib
import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from ..errors import DataError, without_controls

Indices: TypeAlias = npt.ArrayLike | slice
"""Samples to take: indices, a mask with an entry for each sample, or a slice."""

# Advice for dtypes that are not real numbers, by NumPy's letter for the kind.
_ADVICE = {
    "c": "give real and imaginary part as two channels",
    "M": "subtract the first time and divide by np.timedelta64(1, 's')",
    "m": "divide by np.timedelta64(1, 's')",
    "O": "make one full array of numbers",
    "V": "give each of its fields as an array of its own",
}
# Above this, double precision skips integers.
_LARGEST_EXACT = 2**53
# Of a block of samples.
_NUMBERS = 2**21


def real_array(
    name: str, value: object, axes: Sequence[str], *, last: str | None = None, may_be_nan: bool = False
) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite real array with one axis for each name in `axes`.

    `last` names an axis that may follow them. Integers and half precision become double precision; single and
    double precision are kept. With `may_be_nan` only infinities are refused.
    """
    array = real_numbers(name, value)
    if last is not None and array.ndim == len(axes) + 1:
        axes = (*axes, last)
    if array.ndim != len(axes):
        advice = "add an axis with [:, None]" if array.ndim == len(axes) - 1 else "reshape it"
        raise DataError(
            f"{name}: expected {len(axes)} axes ({', '.join(axes)}){f' or one more ({last})' if last else ''}, "
            f"got shape {array.shape}; {advice}"
        )
    for axis, length in zip(axes, array.shape, strict=True):
        if length == 0:
            raise DataError(f"{name}: axis '{axis}' is empty (shape {array.shape}); give at least one entry")
    _check_finite(name, array, axes, may_be_nan=may_be_nan)
    return array


def real_numbers(name: str, value: object) -> Float[np.ndarray, "..."]:
    """Return `value` in single or double precision, of any shape; a dtype that would lose digits is an error."""
    array = any_array(name, value)
    if array.dtype.kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _LARGEST_EXACT:
        raise DataError(f"{name}: has integers beyond 2^53, which double precision cannot represent; rescale them")
    if array.dtype.kind in "iub" or array.dtype.name == "float16":
        array = array.astype(np.float64)
    if array.dtype.name not in ("float32", "float64"):
        advice = _ADVICE.get(array.dtype.kind, "convert with .astype(float)")
        raise DataError(f"{name}: expected real numbers, got {_in_words(array)}; {advice}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _in_words(array: np.ndarray) -> str:
    """The dtype, and of objects the first that is no number."""
    if array.dtype.kind != "O":
        return f"dtype {array.dtype}"
    bad = np.array([not isinstance(entry, int | float) for entry in array.flat], bool).reshape(array.shape)
    if not bad.any():
        return "dtype object"
    first = first_index(bad)
    if not first:
        return without_controls(repr(array.item())[:40])
    return f"dtype object; entry {', '.join(map(str, first))} is {without_controls(repr(array[first])[:40])}"


def any_array(name: str, value: object) -> np.ndarray:
    """Return `value` as an array of any dtype."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        count = int(np.ma.count_masked(value))
        raise DataError(f"{name}: {count} values are masked; remove or repair these samples")
    try:
        return np.asarray(value)
    except ValueError as error:
        other = ", or use scattered_from_lists" if name in ("points", "outputs") else ""
        other += "; coordinates of a grid have names: {'x': x, 't': t}" if name == "points" else ""
        raise DataError(f"{name}: rows have different lengths; give one rectangular array{other}") from error
    except (TypeError, RuntimeError) as error:  # a tensor on a device, or one that requires its gradient
        raise DataError(f"{name}: cannot be read as an array: {str(error).splitlines()[0]}") from error


def whole_numbers(name: str, value: object, axes: Sequence[str]) -> Int[np.ndarray, "..."]:
    """Return `value` as an array of integers; 3.0 is accepted, 3.5 is not."""
    array = real_array(name, value, axes)
    if (array != np.round(array)).any():
        raise DataError(f"{name}: expected whole numbers, got {array[array != np.round(array)][0]}; round them")
    return array.astype(np.int64)


@contextlib.contextmanager
def source_named(source: object) -> Generator[None]:
    """A `DataError` of the block names the file or folder that the data come from."""
    try:
        yield
    except DataError as error:
        if isinstance(source, (str, Path)):
            raise DataError(f"{source}: {error}") from error
        raise


def checked_rows(name: str, value: Any, axes: tuple[str, str], columns: int | None) -> np.ndarray:
    """`value` as a matrix of finite real numbers with the right number of columns, or a `DataError`."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name}: cannot be converted to an array: {error}") from error
    if array.dtype.kind in "OSUMmc":
        hint = "" if array.ndim else "; give an array, not the name of a file"
        raise DataError(f"{name}: expected real numbers, got values of type {array.dtype}{hint}")
    if axes[1] == "sensors" and array.ndim > 2:  # on a grid
        array = array.reshape(len(array), math.prod(array.shape[1:]))
    if array.ndim != 2:
        hint = "; one row is x[None], one column x[:, None]" if array.ndim == 1 else ""
        raise DataError(f"{name}: expected 2 axes ({', '.join(axes)}), got shape {array.shape}{hint}")
    if columns is not None and array.shape[1] != columns:
        raise DataError(f"{name}: expected {columns} {axes[1]} on axis 1, as in training, got {array.shape[1]}")
    if len(array) == 0:
        raise DataError(f"{name}: there are no {axes[0]}; axis 0 is empty")
    is_wrong = ~np.isfinite(array)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        count = f"{is_wrong.sum():,} of {array.size:,} values"
        raise DataError(f"{name}[{row}, {column}] is {array[row, column]}; {count} are not finite")
    return array


def _check_finite(name: str, array: Float[np.ndarray, "..."], axes: Sequence[str], *, may_be_nan: bool) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):  # one pass; the entries are searched only if the sum is not finite
            return
    bad = np.isinf(array) if may_be_nan else ~np.isfinite(array)
    if bad.any():
        first = first_index(bad)
        place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, first, strict=True))
        raise DataError(
            f"{name}: {int(bad.sum())} of {array.size} values are not finite; the first is {array[first]} at "
            f"{place}; remove or repair these samples"
        )


def unit_of(
    array: Float[np.ndarray, "..."], axis: tuple[int, ...] | int | None = None
) -> Float[np.ndarray, "..."]:
    """A power of two near the largest magnitude along the axes: in these units squares are finite and not zero.

    Division by it is exact. 1 where all is zero or NaN; NaN is ignored.

    >>> unit_of(np.array([[3e200, -4e200], [0, 0]]), axis=1)
    array([3.06180207e+200, 1.00000000e+000])
    """
    high, low = (find(array, axis=axis, initial=0.0) for find in (np.fmax.reduce, np.fmin.reduce))
    size = np.nan_to_num(np.fmax(high, -low))
    return np.ldexp(1.0, np.frexp(size)[1] - 1) ** (size > 0)


def sample_blocks(shape: tuple[int, ...]) -> list[slice]:
    """Samples of outputs of this shape in blocks of 16 MiB, so that no second array of all of them is needed."""
    size = max(_NUMBERS // max(math.prod(shape[1:]), 1), 16)
    return [slice(begin, min(begin + size, shape[0])) for begin in range(0, max(shape[0], 1), size)]


def first_index(is_bad: np.ndarray) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(is_bad)), is_bad.shape))


def check_length(name: str, axis: str, length: int, expected: int, other: str, *, hint: str = "") -> None:
    """Refuse an axis of `name` that is not as long as that of `other`; `hint` gives the likely cause."""
    if length != expected:
        advice = hint or f"; both must have the same number of {axis}"
        raise DataError(f"{name}: axis '{axis}' has {length} entries, but {other} has {expected}{advice}")


def checked_weights(name: str, weights: object, axis: str, expected: int) -> Float[np.ndarray, "..."] | None:
    """Return weights that are not negative and not all zero, or None."""
    if weights is None:
        return None
    array = real_array(name, weights, (axis,))
    check_length(name, axis, len(array), expected, "outputs")
    if (array < 0).any() or array.sum() <= 0:
        raise DataError(f"{name}: weights must not be negative and not all zero; the smallest is {array.min()}")
    return array


def plain_name(name: str) -> str:
    """The name without control characters, which could change what a terminal shows; a warning says so.

    >>> plain_name("pressure")
    'pressure'
    """
    plain = without_controls(name)
    if plain != name:
        text = f"names: control characters were removed from {name!a}; it is called {plain!r}"
        warnings.warn(text, UserWarning, stacklevel=2)
    return plain


def checked_names(name: str, names: Sequence[str], expected: int, axis: str) -> tuple[str, ...]:
    """Return distinct names, one for each entry of an axis; or none at all."""
    found = (names,) if isinstance(names, str) else tuple(str(word) for word in names)
    found = tuple(map(plain_name, found))
    if found and len(found) != expected:
        raise DataError(f"{name}: got {len(found)} names, {found}, for {expected} {axis}; give one for each")
    if len(set(found)) != len(found):
        raise DataError(f"{name}: {found} are not all different; rename one")
    return found


def sample_indices(indices: Indices, samples: int) -> Int[np.ndarray, " chosen"]:
    """Return the chosen samples as indices from 0; negative ones count from the end."""
    if isinstance(indices, slice):
        return np.arange(samples)[indices]
    array = any_array("indices", indices)
    if array.dtype == bool and array.shape == (samples,):
        return np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            f"indices: expected one axis of integers or a mask of {samples} samples, "
            f"got shape {array.shape} of {array.dtype}"
        )
    if array.size and not -samples <= array.min() <= array.max() < samples:
        raise DataError(f"indices: {array.min()} to {array.max()}, but there are {samples} samples")
    return np.where(array < 0, array + samples, array).astype(np.int64)


def evenly(count: int, most: int) -> Int[np.ndarray, " chosen"]:
    """Return at most `most` indices below `count`, evenly spaced, the first and the last included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def some_indices(samples: int, most: int, *, seed: int) -> Int[np.ndarray, " chosen"]:
    """Return at most `most` indices below `samples`, drawn at random, in rising order."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(np.random.default_rng(seed).choice(samples, most, replace=False))


def unique_rows(
    rows: Float[np.ndarray, "rows columns"],
) -> tuple[Float[np.ndarray, "distinct columns"], Int[np.ndarray, " rows"]]:
    """Return the distinct rows in rising order, and for every row its index among them.

    The same as `np.unique(rows, axis=0, return_inverse=True)`, several times as fast.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    is_new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = np.cumsum(is_new) - 1
    return ordered[is_new], inverse


def refuse_swapped(inputs: object, points: object, outputs: object) -> None:
    """Refuse outputs that belong to other points, if the inputs would fit these."""
    if isinstance(inputs, Mapping):
        inputs = next(iter(inputs.values())) if len(inputs) == 1 else None
    values = inputs if hasattr(inputs, "shape") else getattr(inputs, "values", None)
    (samples, *sensors), (count, *coordinates), (rows, *columns) = (
        getattr(array, "shape", None) or (None,) for array in (values, points, outputs)
    )
    if samples is None or samples != rows or len(coordinates) > 1 or not columns:
        return
    is_transposed = coordinates == columns[:1]  # the points, which has a message of its own
    if sensors == [count] and columns[0] != count and not is_transposed:
        raise DataError(
            f"outputs: axis 'points' has {columns[0]} entries, but points has {count}, as many as a row of "
            "inputs; inputs and outputs look swapped"
        )


def checked_labels(labels: Mapping[str, object], samples: int) -> dict[str, Float[np.ndarray, " samples"]]:
    """Labels, one number for each sample."""
    checked = {name: real_array(f"labels[{name!r}]", label, ("samples",)) for name, label in labels.items()}
    for name, label in checked.items():
        check_length(f"labels[{name!r}]", "samples", len(label), samples, "outputs")
    return checked


def checked_marks(marks: object, samples: int) -> Bool[np.ndarray, " samples"]:
    """Whether each sample was suggested."""
    array = whole_numbers("is_suggested", marks, ("samples",))
    check_length("is_suggested", "samples", len(array), samples, "outputs")
    if not np.isin(array, (0, 1)).all():
        raise DataError(
            f"is_suggested: expected True or False for each sample, got {array.min()} to {array.max()}"
        )
    return array.astype(bool)
