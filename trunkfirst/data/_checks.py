"""Checks of arrays at the boundary: each message names the array, the axis, what came and what was expected."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError

# What to do about numbers that are not real, by NumPy's letter for the kind.
_ADVICE = {
    "c": "give real and imaginary part as two channels",
    "M": "subtract the first time and divide by np.timedelta64(1, 's')",
    "m": "divide by np.timedelta64(1, 's')",
    "O": "its entries are objects (lists, a cell, a sparse matrix); make one full array of numbers",
    "V": "give each of its fields as an array of its own",
}
# Above this, double precision skips integers.
_LARGEST_EXACT = 2**53


def real_array(
    name: str, value: object, axes: Sequence[str], *, last: str | None = None, may_be_nan: bool = False
) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite real array with one axis for each name in `axes`.

    `last` names an axis that may follow them. Integers and half precision become double precision; single and
    double precision stay as they are. With `may_be_nan` only infinities are refused.
    """
    array = real_numbers(name, value)
    if last is not None and array.ndim == len(axes) + 1:
        axes = (*axes, last)
    if array.ndim != len(axes):
        raise DataError(
            f"{name}: expected {len(axes)} axes ({', '.join(axes)}){f' or one more ({last})' if last else ''}, "
            f"got shape {array.shape}" + ("; add an axis with [:, None]" if array.ndim == len(axes) - 1 else "")
        )
    for axis, length in zip(axes, array.shape, strict=True):
        if length == 0:
            raise DataError(f"{name}: axis '{axis}' is empty (shape {array.shape})")
    _check_finite(name, array, axes, may_be_nan=may_be_nan)
    return array


def real_numbers(name: str, value: object) -> Float[np.ndarray, "..."]:
    """`value` in single or double precision, whatever its shape; what cannot be so without loss is an error."""
    array = any_array(name, value)
    if array.dtype.kind in "iu" and array.size and max(int(array.max()), -int(array.min())) > _LARGEST_EXACT:
        raise DataError(f"{name}: holds integers beyond 2^53, which double precision cannot keep; rescale them")
    if array.dtype.kind in "iub" or array.dtype.name == "float16":
        array = array.astype(np.float64)
    if array.dtype.name not in ("float32", "float64"):
        advice = _ADVICE.get(array.dtype.kind, "convert with .astype(float)")
        raise DataError(f"{name}: expected real numbers, got dtype {array.dtype}; {advice}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def any_array(name: str, value: object) -> np.ndarray:
    """`value` as an array of any type."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DataError(
            f"{name}: {int(np.ma.count_masked(value))} values are masked; remove or repair these samples"
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        other = ", or use scattered_from_lists" if name in ("points", "outputs") else ""
        raise DataError(f"{name}: rows have different lengths; give one rectangular array{other}") from error
    except (TypeError, RuntimeError) as error:  # a tensor on a device, or one that wants its gradient
        raise DataError(f"{name}: cannot be read as an array: {str(error).splitlines()[0]}") from error


def whole_numbers(name: str, value: object, axes: Sequence[str]) -> Int[np.ndarray, "..."]:
    """`value` as an array of integers; 3.0 is one, 3.5 is not."""
    array = real_array(name, value, axes)
    if (array != np.round(array)).any():
        raise DataError(f"{name}: expected whole numbers, got {array[array != np.round(array)][0]}")
    return array.astype(np.int64)


def _check_finite(name: str, array: Float[np.ndarray, "..."], axes: Sequence[str], *, may_be_nan: bool) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):  # one pass; a sum that is not finite is looked at more closely
            return
    bad = np.isinf(array) if may_be_nan else ~np.isfinite(array)
    if bad.any():
        first = first_place(bad)
        raise DataError(
            f"{name}: {int(bad.sum())} of {array.size} values are not finite; the first is {array[first]} at "
            f"{place_in_words(axes, first)}; remove or repair these samples"
        )


def first_place(is_bad: np.ndarray) -> tuple[int, ...]:
    """Where the first True is."""
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(is_bad)), is_bad.shape))


def place_in_words(axes: Sequence[str], place: Sequence[int]) -> str:
    """As in "samples 3, points 5"."""
    return ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=True))


def check_length(name: str, axis: str, length: int, expected: int, other: str, *, hint: str = "") -> None:
    """The axis of `name` must be as long as that of `other`; `hint` says what may have happened."""
    if length != expected:
        raise DataError(f"{name}: axis '{axis}' has {length} entries, but {other} has {expected}{hint}")


def checked_weights(name: str, weights: Any, axis: str, expected: int) -> Float[np.ndarray, "..."] | None:
    """Weights that are not negative and not all zero, or None."""
    if weights is None:
        return None
    array = real_array(name, weights, (axis,))
    check_length(name, axis, len(array), expected, "outputs")
    if (array < 0).any() or array.sum() <= 0:
        raise DataError(f"{name}: weights must not be negative and not all zero; the smallest is {array.min()}")
    return array


def checked_names(name: str, names: Any, expected: int, axis: str) -> tuple[str, ...]:
    """Different names, one for each entry of an axis; or none at all."""
    found = (names,) if isinstance(names, str) else tuple(str(word) for word in names)
    if found and len(found) != expected:
        raise DataError(f"{name}: {len(found)} names {found} for {expected} {axis}; give one for each")
    if len(set(found)) != len(found):
        raise DataError(f"{name}: {found} are not all different")
    return found
