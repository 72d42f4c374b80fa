"""What clients send and receive: JSON and npz, checked before anything is computed with it."""

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import CorruptFileError
from ..files import read_npz
from ._server_predictor import LEVEL, Prediction, Shapes

JSON, NPZ = "application/json", "application/x-npz"
_DEEPEST = 64
_BLOCK = 4096  # numbers that are written at a time: a server with one core answers others in between
_Arrays = dict[str, np.ndarray]


class Refused(Exception):  # noqa: N818  (it is an answer, not a fault)
    """A request that is answered with this status and sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.headers = status, headers or {}


def read_request(
    body: bytes, kind: str, shapes: Shapes, *, most_numbers: int, most_rows: int
) -> tuple[Float[np.ndarray, "samples sensors"], Float[np.ndarray, "points coordinates"] | None]:
    """Inputs side by side, and points or None; what does not fit the operator is refused in a sentence."""
    found = _from_json(body, shapes) if kind == JSON else _from_npz(body)
    points = found.pop("points", None)
    if not found:
        raise Refused(422, f"inputs are missing; expected {expected_inputs(shapes)}")
    for name, array in {"points": points, **found}.items():
        if array is not None and len(array) > most_rows:
            raise Refused(422, f"{name}: {len(array):,} rows; at most {most_rows:,} in one request")
    samples = len(next(iter(found.values())))
    count = samples * (shapes.points if points is None else len(points)) * (shapes.channels or 1)
    if count > most_numbers:
        raise Refused(422, f"{count:,} numbers are asked for; at most {most_numbers:,} in one request")
    inputs = _side_by_side({name: _numbers(name, array) for name, array in found.items()}, shapes)
    if points is None:
        return inputs, None
    points = _numbers("points", points)
    if points.shape[1] != shapes.coordinates:
        raise Refused(422, f"points: expected shape (any, {shapes.coordinates}), got {points.shape}")
    return inputs, points


def expected_inputs(shapes: Shapes) -> str:
    """In words."""
    names = [f"{name}: {size or 'some'}" for name, size in shapes.inputs.items()]
    by_name = f", or by name ({', '.join(names)} numbers a row)"
    return f"rows of {shapes.sensors} numbers, shape (samples, {shapes.sensors}){by_name}"


# -- JSON


def _from_json(body: bytes, shapes: Shapes) -> _Arrays:
    """The arrays as an npz file would name them, "inputs" or "inputs.NAME"."""
    value = _parse(body)
    if not isinstance(value, dict):
        raise Refused(422, 'expected an object like {"inputs": [[...]], "points": [[...]]}')
    if unknown := value.keys() - {"inputs", "points"}:
        raise Refused(422, f"unknown key {_word(min(unknown))}; expected inputs and points")
    if "inputs" not in value:
        raise Refused(422, f"inputs are missing; expected {expected_inputs(shapes)}")
    inputs = value.pop("inputs")
    named = {f"inputs.{name}": rows for name, rows in inputs.items()} if isinstance(inputs, dict) else None
    tables = ({"inputs": inputs} if named is None else named) | value
    return {name: _table(name, rows) for name, rows in tables.items()}


def _parse(body: bytes) -> Any:
    """JSON with every key once. Depth is counted first, brackets inside of texts with it, as parsers recurse."""
    codes = np.frombuffer(body, np.uint8)
    steps = ((codes == ord("[")) | (codes == ord("{"))).astype(np.int8)
    steps -= (codes == ord("]")) | (codes == ord("}"))
    if len(codes) and int(np.cumsum(steps, dtype=np.int32).max()) > _DEEPEST:
        raise Refused(400, f"more than {_DEEPEST} brackets inside each other")
    try:
        return json.loads(body.decode(), object_pairs_hook=_once)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _table(name: str, rows: Any) -> np.ndarray:
    """Rows of numbers; a text such as "inf" is none, though NumPy would take it, and neither is true."""
    name = name if name in ("inputs", "points") else _word(name)
    if not isinstance(rows, list) or not all(type(row) is list for row in rows):
        raise Refused(422, f"{name}: expected a list of rows, each a list of numbers")
    if len({len(row) for row in rows}) > 1:
        raise Refused(422, f"{name}: rows of different lengths, {_two_lengths(rows)}")
    if {type(number) for row in rows for number in row} - {int, float}:
        place = next(
            (i, j) for i, row in enumerate(rows) for j, n in enumerate(row) if type(n) not in (int, float)
        )
        raise Refused(422, f"{name}: row {place[0]}, column {place[1]} is not a number")
    try:
        return np.array(rows, np.float64).reshape(len(rows), len(rows[0]) if rows else 0)
    except OverflowError as error:
        raise Refused(422, f"{name}: a number is too large for double precision") from error


def _two_lengths(rows: list[list[Any]]) -> str:
    other = next(i for i, row in enumerate(rows) if len(row) != len(rows[0]))
    return f"{len(rows[0])} in row 0 and {len(rows[other])} in row {other}"


# -- npz


def _from_npz(body: bytes) -> _Arrays:
    """Through a temporary file, because the safe reader reads files; it is no larger than the body."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.npz"
        path.write_bytes(body)
        try:
            found = read_npz(path)
        except CorruptFileError as error:
            raise Refused(400, str(error).replace(str(path), "the body").replace(folder, "")) from error
    unknown = [n for n in found if n not in ("inputs", "points") and not n.startswith("inputs.")]
    if unknown:
        raise Refused(422, f"unknown array {_word(min(unknown))}; expected inputs or inputs.NAME, and points")
    for name, array in found.items():
        if array.ndim != 2:
            raise Refused(422, f"{_word(name)}: expected 2 axes (one row each), got shape {array.shape}")
    return found


# -- both


def _numbers(name: str, array: np.ndarray) -> Float[np.ndarray, "rows columns"]:
    """Finite, in double precision, at least one row."""
    name = name if name in ("inputs", "points") else _word(name)
    if array.dtype.kind not in "fiu":
        raise Refused(422, f"{name}: expected real numbers, got type {array.dtype}")
    if not len(array):
        raise Refused(422, f"{name}: expected at least one row, got shape {array.shape}")
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float64)
    if not (is_good := np.isfinite(numbers)).all():
        row, column = np.argwhere(~is_good)[0]
        raise Refused(422, f"{name}: row {row}, column {column} is not finite")
    return numbers


def _side_by_side(found: _Arrays, shapes: Shapes) -> Float[np.ndarray, "samples sensors"]:
    inputs = found["inputs"] if set(found) == {"inputs"} else _join(found, shapes)
    if inputs.shape[1] != shapes.sensors:
        raise Refused(422, f"inputs: expected {expected_inputs(shapes)}; got shape {inputs.shape}")
    return inputs


def _join(found: _Arrays, shapes: Shapes) -> np.ndarray:
    names = {f"inputs.{name}": size for name, size in shapes.inputs.items()}
    if set(found) != set(names):
        given = ", ".join(_word(name) for name in sorted(found)[:10])
        raise Refused(422, f"inputs: expected {', '.join(shapes.inputs)}; got {given}")
    for name, array in found.items():
        if names[name] not in (None, array.shape[1]):
            raise Refused(422, f"{name}: expected shape (samples, {names[name]}), got {array.shape}")
    if len({len(array) for array in found.values()}) > 1:
        counts = ", ".join(f"{name} {len(array)}" for name, array in found.items())
        raise Refused(422, f"inputs: all need the same number of rows; got {counts}")
    return np.concatenate([found[name] for name in names], axis=1)


def _word(name: str) -> str:
    """A name from outside, short and harmless."""
    return ascii(name[:60])


# -- answers


def write_answer(prediction: Prediction, kind: str) -> bytes:
    """In the format of the request."""
    if not (is_good := np.isfinite(prediction.outputs)).all():
        sample, point = np.argwhere(~is_good)[0][:2]
        raise Refused(422, f"the operator has no finite output for sample {sample} at point {point}")
    return _to_json(prediction) if kind == JSON else _to_npz(prediction)


def _to_json(prediction: Prediction) -> bytes:
    parts = {"outputs": json_of(prediction.outputs)}
    if prediction.familiar is not None:
        parts["familiar"] = json.dumps(prediction.familiar.tolist())
    if prediction.half_width is not None:
        parts["interval"] = f'{{"level": {LEVEL}, "half_width": {json_of(prediction.half_width)}}}'
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in parts.items()) + "}").encode()


def json_of(array: np.ndarray) -> str:
    """Numbers as nested lists, all digits, piece by piece."""
    if array.size <= _BLOCK:
        return json.dumps(array.tolist())
    if array.ndim > 1:
        return "[" + ", ".join(map(json_of, array)) + "]"
    pieces = (json.dumps(array[i : i + _BLOCK].tolist())[1:-1] for i in range(0, len(array), _BLOCK))
    return "[" + ", ".join(pieces) + "]"


def _to_npz(prediction: Prediction) -> bytes:
    arrays = {"outputs": prediction.outputs}
    if prediction.familiar is not None:
        arrays["familiar"] = prediction.familiar
    if prediction.half_width is not None:
        arrays |= {"half_width": prediction.half_width, "level": np.asarray(LEVEL)}
    file = io.BytesIO()
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    return file.getvalue()
