"""What arrays are called in files and dictionaries, and what to say where they are called otherwise."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError

REQUIRED = ("inputs", "points", "outputs")
FAMILIES = ("inputs", "sensors", "sensor_weights", "grid_shape", "labels", "units")
"""Keys that may be followed by a name, as in "inputs.pressure"."""
KEYS = (
    *REQUIRED,
    "sensors",
    "sensor_weights",
    "grid_shape",
    "point_weights",
    "sample_weights",
    "reference_outputs",
    "triangles",
    "input_names",
    "coordinate_names",
    "channel_names",
    "output_name",
)
_KNOWN = ", ".join((*KEYS, "inputs.NAME", "labels.NAME", "units.NAME"))
# Of a point, in a guess which array is which: space and time.
_MOST_COORDINATES = 4


def name_arrays(
    arrays: Mapping[str, Any], keys: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by our keys, and those that are left aside.

    `keys` says what they are called in the source, as in {"inputs": "a", "outputs": "u"}. An array that is not
    known is an error; where `keys` are given it is left aside, unless its name looks like a slip of the pen.
    """
    keys = dict(keys or {})
    _check_keys(arrays, keys)
    named = {canonical(key): arrays[name] for key, name in keys.items()}
    others = {name: array for name, array in arrays.items() if name not in keys.values()}
    unknown = {name: array for name, array in others.items() if not is_key(canonical(name))}
    for name in others:
        if name not in unknown and canonical(name) in named:
            raise DataError(f"two arrays stand for {canonical(name)!r}, one of them {name!r}; leave one out")
        if name not in unknown:
            named[canonical(name)] = others[name]
    _check_complete(named, arrays)
    slips = {name: near for name in unknown if (near := nearest(name, KEYS)) or not keys}
    if slips:
        raise DataError(_unknown_message(list(slips)))
    return named, unknown


def canonical(name: str) -> str:
    """Our spelling of a key: "inputs/f" and, for MATLAB, "inputs_f" are "inputs.f"."""
    name = name.replace("/", ".", 1)
    if name in KEYS:
        return name
    for family in sorted(FAMILIES, key=len, reverse=True):
        if name.startswith(f"{family}_"):
            return f"{family}.{name[len(family) + 1 :]}"
    return name


def is_key(name: str) -> bool:
    """Whether we know what to do with an array of this name."""
    family, _, rest = name.partition(".")
    return name in KEYS or (family in FAMILIES and rest != "")


def nearest(name: str, known: Sequence[str], *, cutoff: float = 0.75) -> str | None:
    """The known name that was perhaps meant."""
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    return found[0] if found else None


def _check_keys(arrays: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    for key, name in keys.items():
        if not is_key(canonical(key)):
            near = nearest(key, KEYS, cutoff=0.6)
            raise DataError(f"there is no key {key!r}{_meant(near)}; known keys: {_KNOWN}")
        if name not in arrays:
            near = nearest(name, list(arrays), cutoff=0.6)
            raise DataError(f"no array {name!r} for {key!r} here{_meant(near)}; found: {describe(arrays)}")


def _either(words: list[str]) -> str:
    """a; a or b; a, b or c."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _check_complete(named: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    present = {name.split(".")[0]: array for name, array in named.items()}
    missing = [key for key in REQUIRED if key not in present]
    if missing:
        others = {name: array for name, array in arrays.items() if not is_key(canonical(name))}
        guess = _guess(present, missing, others)
        example = {key: guess.get(key) or nearest(key, list(others)) or "NAME" for key in missing}
        options = " ".join(f"--key {key}={name}" for key, name in example.items())
        raise DataError(
            f"no {_either(missing)} here; found: {describe(arrays)}; which is which? "
            f"Say so with keys={example} in Python or {options} on the command line"
        )


def _guess(present: Mapping[str, Any], missing: Sequence[str], others: Mapping[str, Any]) -> dict[str, str]:
    """The names among the `others` in which all choices that fit by shape agree; outputs may be transposed."""
    shapes = {name: np.shape(array) for name, array in others.items()}
    known = {key: np.shape(array) for key, array in present.items()}
    if len(shapes) > 8:
        return {}
    choices = [dict(zip(missing, names, strict=True)) for names in itertools.permutations(shapes, len(missing))]
    for turn in (1, -1):
        fits = [c for c in choices if _fit(known | {key: shapes[name] for key, name in c.items()}, turn)]
        if fits:
            return {key: name for key, name in fits[0].items() if all(c[key] == name for c in fits)}
    return {}


def _fit(shapes: Mapping[str, tuple[int, ...]], turn: int) -> bool:
    inputs, points, outputs = (shapes[key] for key in REQUIRED)
    if len(inputs) != 2 or len(points) != 2 or points[1] > _MOST_COORDINATES or len(outputs) not in (2, 3):
        return False
    return outputs[:2][::turn] == (inputs[0], points[0])


def describe(arrays: Mapping[str, Any]) -> str:
    """Names, shapes and types in a line, at most ten of them."""
    words = [
        f"{name} {array.shape} {array.dtype}"
        if isinstance(array, np.ndarray)
        else f"{name} ({type(array).__name__})"
        for name, array in arrays.items()
    ]
    return (", ".join(words[:10]) + (f" and {len(words) - 10} more" if len(words) > 10 else "")) or "nothing"


def _unknown_message(names: list[str]) -> str:
    words = [f"{name!r}{_meant(nearest(name, KEYS, cutoff=0.6))}" for name in names]
    return f"unknown array {', '.join(words)}; known keys: {_KNOWN}; rename it or leave it out"


def _meant(near: str | None) -> str:
    return f" (did you mean {near!r}?)" if near else ""
