"""Data as named arrays: the keys used in files and dictionaries, and the conversion in both directions."""

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from ..errors import DataError, UsageError, without_controls
from .array_checks import plain_name, real_numbers
from .gridded import Arrays, column, family
from .operator_data import InputFunction, OperatorData, default_coordinate_names
from .scattered_data import AnyData, ScatteredData

Keys: TypeAlias = Mapping[str, str | Sequence[str]]
"""The names of arrays in a source by our keys; several names, or "a,b", are several coordinates or channels."""

_REQUIRED = ("inputs", "points", "outputs")
_OF_INPUTS = ("sensors", "sensor_weights", "grid_shape")
# Keys that may be followed by a name, as in "inputs.pressure"; the first three may name several arrays.
_SEVERAL = ("inputs", "points", "outputs")
_FAMILIES = (*_SEVERAL, *_OF_INPUTS, "labels", "units")
_OPTIONAL = ("point_weights", "sample_weights", "is_suggested", "reference_outputs", "triangles")
_WORDS = ("axes", "input_names", "coordinate_names", "channel_names", "output_name")
_KEYS = (*_REQUIRED, *_OF_INPUTS, *_OPTIONAL, *_WORDS)
_KNOWN = ", ".join((*_KEYS, *(f"{name}.NAME" for name in (*_SEVERAL, "labels", "units"))))
_PER_SAMPLE = ("inputs", "outputs", "sample_weights", "is_suggested", "reference_outputs", "labels")
# Of a point, in a guess which array is which: space and time.
_MOST_COORDINATES = 4


# -- keys


def parse_keys(pairs: Iterable[str]) -> dict[str, str]:
    """Return the options `--key KEY=NAME` as a dictionary; a key given twice is a `UsageError`.

    >>> parse_keys(["inputs=a", "outputs=u"])
    {'inputs': 'a', 'outputs': 'u'}
    """
    keys: dict[str, str] = {}
    for pair in pairs:
        key, separator, name = pair.partition("=")
        if not (key and separator and name):
            raise UsageError(f"--key {pair} is not KEY=NAME; write for example --key inputs=a")
        if key in keys:
            raise UsageError(f"--key {key} is given twice, as {keys[key]!r} and as {name!r}; leave one out")
        keys[key] = name
    return keys


def canonical(name: str) -> str:
    """Return our spelling of a key: "inputs/f" and, for MATLAB, "inputs_f" are "inputs.f"."""
    name = name.replace("/", ".", 1)
    if name in _KEYS:
        return name
    for start in sorted(_FAMILIES, key=len, reverse=True):
        if name.startswith(f"{start}_"):
            return f"{start}.{name[len(start) + 1 :]}"
    return name


def is_key(name: str) -> bool:
    """Whether `name` is one of our keys."""
    family, _, rest = name.partition(".")
    return name in _KEYS or (family in _FAMILIES and rest != "")


def is_per_sample(name: str) -> bool:
    """Whether the array of this key has an entry for every sample."""
    return name.split(".")[0] in _PER_SAMPLE


def name_arrays(
    arrays: Mapping[str, Any], keys: Keys | None = None, required: Sequence[str] = _REQUIRED
) -> tuple[dict[str, str], list[str]]:
    """Return the names of the arrays by our keys, and those that are not used.

    `keys` gives their names in the source, as in {"inputs": "a", "points": "x,t"}. A name that looks like a
    misspelt key is an error.
    """
    chosen = set(keys or ())
    keys = _expanded(arrays, keys or {})
    _check_keys(arrays, keys)
    named = {canonical(key): name for key, name in keys.items()}
    others = _not_chosen(arrays, keys, chosen)
    unused: list[str] = []
    for name in arrays:
        key = canonical(name)
        if name in keys.values():
            continue
        if not is_key(key) or name in others:
            unused.append(name)
        elif key in named:
            raise DataError(f"two arrays are given for {key!r}, one of them {name!r}; leave one out")
        else:
            named[key] = name
    _check_families(named)
    _check_complete({key: arrays[name] for key, name in named.items()}, arrays, required)
    if refused := [name for name in unused if _nearest(name, _KEYS)]:
        words = [f"{name!r}{_did_you_mean(name, _KEYS)}" for name in refused]
        raise DataError(f"unknown array {', '.join(words)}; known keys: {_KNOWN}; rename it or leave it out")
    return named, unused


def name_inputs(arrays: Mapping[str, Any], keys: Keys | None, inputs: Sequence[str]) -> dict[str, str]:
    """Return the names of the arrays of inputs by our keys; `inputs` are the names that training had."""
    given = _expanded(arrays, keys or {})
    _check_keys(arrays, given)
    named = {canonical(key): name for key, name in given.items()}
    left_out = _not_chosen(arrays, given, set(keys or ()))
    others = {canonical(name): name for name in arrays if name not in left_out}
    if not any(key.split(".")[0] == "inputs" for key in (*named, *others)):
        named |= {f"inputs.{name}": name for name in inputs if name in arrays}
    named = {**others, **named}
    return {
        key: name for key, name in named.items() if key.split(".")[0] in ("inputs", "input_names", *_OF_INPUTS)
    }


def _expanded(arrays: Mapping[str, Any], keys: Keys) -> dict[str, str]:
    """The keys with one array each: {"points": "x,t"} is {"points.x": "x", "points.t": "t"}.

    {"outputs": "T"} is "outputs.T" too, as fields of meshes and columns of tables are called.
    """
    found: dict[str, str] = {}
    for key, given in keys.items():
        names = [given] if isinstance(given, str) and given in arrays else listed(given)
        full = {name: f"{key}.{name}" for name in names}
        if key in _SEVERAL and all(name not in arrays and full[name] in arrays for name in names):
            found |= {name: name for name in full.values()}
            continue
        is_coordinate = key == "points" and np.ndim(arrays.get(names[0], np.empty((0, 0)))) == 1
        if key in _SEVERAL and (len(names) > 1 or is_coordinate):
            found |= {full[name]: name for name in names}
        else:
            found[key] = names[0] if len(names) == 1 else str(given)
    return found


def _not_chosen(arrays: Mapping[str, Any], expanded: Mapping[str, str], keys: set[str]) -> set[str]:
    """The other "inputs.NAME" where {"inputs": "a"} chose "inputs.a", and so on."""
    families = {key.split(".")[0] for key, name in expanded.items() if key == name and key not in keys}
    return {name for name in arrays if name.split(".")[0] in families} - set(expanded.values())


def listed(names: str | Sequence[str]) -> list[str]:
    """Return the names of "a,b" or of a sequence."""
    return names.split(",") if isinstance(names, str) else list(names)


def list_arrays(arrays: Mapping[str, Any]) -> str:
    """Return names, shapes and types in a line, at most ten of them."""
    words = [
        f"{without_controls(name)} {array.shape} {array.dtype}"
        if isinstance(array, np.ndarray)
        else f"{without_controls(name)} ({type(array).__name__})"
        for name, array in arrays.items()
    ]
    return (", ".join(words[:10]) + (f" and {len(words) - 10} more" if len(words) > 10 else "")) or "nothing"


def _check_families(named: Mapping[str, Any]) -> None:
    for key in ("points", "outputs"):
        if key in named and (others := family(named, key)):
            raise DataError(f"both {key!r} and '{key}.{next(iter(others))}' are given; leave one of them out")


def _nearest(name: str, known: Sequence[str], *, cutoff: float = 0.75) -> str | None:
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1, cutoff=cutoff)), None)


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    near = _nearest(name, known, cutoff=0.6)
    return f" (did you mean {near!r}?)" if near else ""


def _check_keys(arrays: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    for key, name in keys.items():
        if not is_key(canonical(key)):
            raise DataError(f"there is no key {key!r}{_did_you_mean(key, _KEYS)}; known keys: {_KNOWN}")
        if name not in arrays:
            near = _did_you_mean(name, list(arrays))
            raise DataError(f"no array {name!r} for {key!r} here{near}; choose from: {list_arrays(arrays)}")


def _check_complete(named: Mapping[str, Any], arrays: Mapping[str, Any], required: Sequence[str]) -> None:
    present = {name.split(".")[0]: array for name, array in named.items()}
    missing = [key for key in required if key not in present]
    if missing:
        others = {name: array for name, array in arrays.items() if not is_key(canonical(name))}
        guess = _guess(present, missing, others)
        example = {key: guess.get(key) or _nearest(key, list(others)) or "NAME" for key in missing}
        options = " ".join(f"--key {key}={name}" for key, name in example.items())
        words = " or ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise DataError(
            f"no {words} here; found: {list_arrays(arrays)}; name the arrays with {options}, in Python with "
            f"trunkfirst.read_data(..., keys={example})"
        )


def _guess(present: Mapping[str, Any], missing: Sequence[str], others: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that all assignments with matching shapes agree in; outputs may be transposed."""
    shapes = {name: np.shape(array) for name, array in others.items()}
    known = {key: np.shape(array) for key, array in present.items()}
    if len(shapes) > 8:
        return {}
    if not {*known, *missing} >= {*_REQUIRED}:  # axes have names, and coordinates need no key
        return {key: name for key, name in _guess_grid(known, shapes, 2).items() if key in missing}
    choices = [dict(zip(missing, names, strict=True)) for names in itertools.permutations(shapes, len(missing))]
    for turn in (1, -1):
        fits = [c for c in choices if _match(known | {key: shapes[name] for key, name in c.items()}, turn)]
        if fits:
            return {key: name for key, name in fits[0].items() if all(c[key] == name for c in fits)}
    return _guess_grid(known, shapes) if "points" in missing else {}


def _guess_grid(
    known: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]], axes: int = 3
) -> dict[str, str]:
    """Return names if an array of this many axes has one vector for each of them but samples and channels."""
    fields = {"outputs": known["outputs"]} if "outputs" in known else shapes
    found: list[dict[str, str]] = []
    for name, shape in fields.items():
        vectors = [[other for other, own in shapes.items() if own == (length,)] for length in shape[1:]]
        points = [names[0] for names in vectors if names]
        if len(shape) >= axes and max(map(len, vectors)) == 1 and len(points) >= max(1, len(vectors) - 1):
            rows = [o for o, own in shapes.items() if own[:1] == shape[:1] and len(own) == 2 and o != name]
            inputs = {"inputs": rows[0]} if len(rows) == 1 else {}
            found.append({"points": ",".join(points), "outputs": name, **inputs})
    return found[0] if len(found) == 1 else {}


def _match(shapes: Mapping[str, tuple[int, ...]], turn: int) -> bool:
    if "points" not in shapes:  # of arrays with named axes
        return False
    inputs, points, outputs = (shapes[key] for key in _REQUIRED)
    if len(inputs) != 2 or len(points) != 2 or points[1] > _MOST_COORDINATES or len(outputs) not in (2, 3):
        return False
    return outputs[:2][::turn] == (inputs[0], points[0])


# -- data from arrays


def data_from_arrays(arrays: Arrays) -> AnyData:
    """Make data from arrays by our keys; scattered where `points` has three axes.

    More tolerant than the constructors where nothing is lost: one axis of points, sensors or inputs means one
    coordinate or one sensor; inputs with more axes are values on a grid; a column or row is a vector, of points
    too, if the outputs are as long; single next to double precision becomes double.
    """
    points, outputs = (real_numbers(key, arrays[key]) for key in ("points", "outputs"))
    if points.ndim == 2 and len(points) == 1 < points.shape[1] == outputs.shape[-1]:
        points = points.T
    inputs = inputs_from_arrays(arrays)
    dtype = np.result_type(points, outputs, *(function.values for function in inputs.values()))
    fields: dict[str, Any] = {name: arrays[name] for name in _OPTIONAL if name in arrays}
    vectors = ("sample_weights", "is_suggested", *(() if points.ndim == 3 else ("point_weights",)))
    fields |= {name: _vector(arrays[name]) for name in vectors if name in arrays}
    if "output_name" in arrays:
        fields["output_name"] = _word("output_name", arrays["output_name"])
    return (ScatteredData if points.ndim == 3 else OperatorData)(
        {name: _with_dtype(function, dtype) for name, function in inputs.items()},
        column(points).astype(dtype, copy=False),
        outputs.astype(dtype, copy=False),
        labels={name: _vector(label) for name, label in family(arrays, "labels").items()},
        units={name: _word(f"units.{name}", unit) for name, unit in family(arrays, "units").items()},
        coordinate_names=_words(arrays, "coordinate_names"),
        channel_names=_words(arrays, "channel_names"),
        **fields,
    )


@runtime_checkable
class Dataset(Protocol):
    """An xarray Dataset."""

    @property
    def data_vars(self) -> Any: ...


class NewInputs(NamedTuple):
    """Input functions for predictions, with the name of the samples' axis and what a Dataset has along it."""

    functions: dict[str, InputFunction]
    sample_axis: str = "samples"
    sample_coordinates: Mapping[str, Any] = {}


def inputs_from_arrays(arrays: Arrays) -> dict[str, InputFunction]:
    """Return input functions by name, from arrays by our keys."""
    values = family(arrays, "inputs")
    if "inputs" in arrays and values:
        raise DataError(f"both 'inputs' and 'inputs.{next(iter(values))}' are given; leave one of them out")
    names = _words(arrays, "input_names") or tuple(values) or ("input",)
    if "inputs" in arrays:
        values = {names[0]: arrays["inputs"]}
    if set(names) != set(values):
        advice = (
            f"save one array for each, inputs.{names[0]} and so on" if len(values) == 1 else "use the same names"
        )
        raise DataError(f"input_names: {names} are not the inputs {tuple(values)}; {advice}")
    for key in _OF_INPUTS:
        if key in arrays and len(values) > 1:
            raise DataError(f"{key}: there are {len(values)} inputs; name one of them, as in {key}.{names[0]}")
        for name in family(arrays, key):
            if name not in values:
                raise DataError(f"{key}.{name}: there is no input {name!r}; inputs: {', '.join(values)}")
    return {plain_name(name): _input(arrays, name, values[name], is_only=len(names) == 1) for name in names}


def _input(arrays: Arrays, name: str, value: np.ndarray, *, is_only: bool) -> InputFunction:
    def part(key: str) -> np.ndarray | None:
        return arrays.get(f"{key}.{name}", arrays.get(key) if is_only else None)

    sensors, weights, shape = map(part, _OF_INPUTS)
    values = real_numbers(f"inputs[{name!r}]", value)
    if shape is None and values.ndim > 2:
        shape = np.array(values.shape[1:])
    return InputFunction(
        values.reshape(len(values), math.prod(values.shape[1:])) if values.ndim > 2 else column(values),
        sensors=None if sensors is None else column(sensors),
        sensor_weights=None if weights is None else _vector(weights),
        grid_shape=None if shape is None else _vector(shape),
    )


def _with_dtype(function: InputFunction, dtype: np.dtype) -> InputFunction:
    values = function.values.astype(dtype, copy=False)
    return InputFunction(values, function.sensors, function.sensor_weights, function.grid_shape)


def _vector(array: np.ndarray) -> np.ndarray:
    """Return one axis from a column or row, because MATLAB and CSV have two axes at least."""
    return array.ravel() if array.ndim == 2 and 1 in array.shape else array


def _words(arrays: Arrays, key: str) -> tuple[str, ...]:
    array = arrays.get(key)
    if array is None:
        return ()
    if array.dtype.kind not in "US":
        raise DataError(f"{key}: expected words, got dtype {array.dtype}; give strings")
    text = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    return tuple(np.char.strip(text).ravel().tolist())


def _word(key: str, array: np.ndarray) -> str:
    words = _words({key: array}, key)
    if len(words) != 1:
        raise DataError(f"{key}: expected one word, got {len(words)}; leave out the others")
    return words[0]


# -- arrays from data


def arrays_from_data(data: AnyData) -> dict[str, np.ndarray]:
    """Return all arrays of `data` by our keys; those that have their default are left out."""
    ending = {name: "" if list(data.inputs) == ["input"] else f".{name}" for name in data.inputs}
    arrays: dict[str, Any] = {}
    for name, function in data.inputs.items():
        arrays[f"inputs{ending[name]}"] = function.values
        arrays |= {f"{key}{ending[name]}": getattr(function, key) for key in _OF_INPUTS}
    arrays["input_names"] = list(data.inputs) if len(data.inputs) > 1 else None
    arrays |= {"points": data.points, "outputs": data.outputs}
    arrays |= {name: getattr(data, name) for name in _OPTIONAL}
    arrays["is_suggested"] = None if data.is_suggested is None else data.is_suggested.astype(np.uint8)
    arrays |= {f"labels.{name}": label for name, label in data.labels.items()}
    arrays |= {f"units.{name}": unit for name, unit in data.units.items()}
    has_names = data.coordinate_names != default_coordinate_names(data.points.shape[-1])
    arrays["coordinate_names"] = data.coordinate_names if has_names else None
    arrays["channel_names"] = data.channel_names or None
    arrays["output_name"] = data.output_name if data.output_name != "output" else None
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}
