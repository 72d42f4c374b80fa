"""Checks of arrays at the boundary: each message names the array, the axis, what came and what was expected."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..errors import DataError


def real_array(name: str, value: object, axes: Sequence[str]) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite real array with one axis for each name in `axes`.

    Integers become double precision; single and double precision stay as they are.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name}: rows have different lengths; give one rectangular array") from error
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.name not in ("float32", "float64"):
        raise DataError(f"{name}: expected real numbers, got dtype {array.dtype}; convert with .astype(float)")
    if array.ndim != len(axes):
        raise DataError(
            f"{name}: expected {len(axes)} axes ({', '.join(axes)}), got shape {array.shape}"
            + ("; add an axis with [:, None]" if array.ndim == len(axes) - 1 else "")
        )
    for axis, length in zip(axes, array.shape, strict=True):
        if length == 0:
            raise DataError(f"{name}: axis '{axis}' is empty (shape {array.shape})")
    _check_finite(name, array, axes)
    return array


def _check_finite(name: str, array: Float[np.ndarray, "..."], axes: Sequence[str]) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):  # one pass; a sum that is not finite is looked at more closely
            return
    bad = ~np.isfinite(array)
    if bad.any():
        first = np.unravel_index(int(np.argmax(bad)), array.shape)
        place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, first, strict=True))
        raise DataError(
            f"{name}: {int(bad.sum())} of {array.size} values are not finite; the first is {array[first]} at "
            f"{place}; remove or repair these samples"
        )


def check_length(name: str, axis: str, length: int, expected: int, other: str) -> None:
    """The axis of `name` must be as long as that of `other`."""
    if length != expected:
        raise DataError(f"{name}: axis '{axis}' has {length} entries, but {other} has {expected}")
