"""Requests and answers, as JSON or npz. Requests are checked completely before anything is computed."""

import dataclasses as dc
import ipaddress
import json
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from .. import __version__
from ..errors import CorruptFileError
from ..files.npz import read_npz
from ..files.text_files import fill_template
from .predictor import (
    JSON,
    LEVEL,
    Arrays,
    Refused,
    Shapes,
)

OUTSIDE = "outside_domain"
"""The code of an error: points outside the training domain."""
_DEEPEST = 64


@dc.dataclass(frozen=True)
class Limits:
    """What one client can ask for before it is refused."""

    # of a request
    bytes: int = 8 * 2**20
    """Of a body; answered with 413."""
    numbers: int = 2_000_000
    """samples x points x channels; 422."""
    rows: int = 100_000
    """Of inputs and of points; 422."""
    head_bytes: int = 16 * 2**10
    """Of path and headers; 431."""
    small_bytes: int = 64 * 2**10
    small_numbers: int = 100_000
    """A request beyond one of these waits in a queue of its own, and does not delay the others."""
    # in time
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    request_seconds: float = 60.0
    """From the head to the last byte of the answer."""
    stop_seconds: int = 5
    """For running requests when the server is stopped."""
    # at the same time
    waiting: int = 16
    large_waiting: int = 4
    """Predictions running and waiting, small ones and large ones; 503."""
    connections: int = 64
    """503."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached under `host`: localhost, or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dc.dataclass(frozen=True, eq=False)
class Asked:
    """A request: `points` are None for those of training."""

    inputs: Float[np.ndarray, "samples sensors"]
    points: Float[np.ndarray, "points coordinates"] | None
    extrapolate: bool
    numbers: int
    """samples x points x channels, or the numbers of inputs and points if these are more."""


def read_request(body: bytes, kind: str, shapes: Shapes, limits: Limits) -> Asked:
    """What is asked. Raises `Refused` for what does not fit the operator."""
    found, extrapolate = _from_json(body) if kind == JSON else _from_npz(body)
    points = found.pop("points", None)
    if not found:
        raise Refused(422, f"inputs are missing; expected {_expected(shapes)}")
    for name, array in {"points": points, **found}.items():
        if array is not None and len(array) > limits.rows:
            raise Refused(422, f"{name}: {len(array):,} rows; at most {limits.rows:,} in one request")
    samples = len(next(iter(found.values())))
    count = samples * (shapes.points if points is None else len(points)) * (shapes.channels or 1)
    if count > limits.numbers:
        raise Refused(422, f"{count:,} numbers are asked for; at most {limits.numbers:,} in one request")
    inputs = _joined({name: _numbers(name, array) for name, array in found.items()}, shapes)
    count = max(count, inputs.size)
    if points is None:
        return Asked(inputs, None, extrapolate, count)
    points = _numbers("points", points)
    if points.shape[1] != shapes.coordinates:
        raise Refused(422, f"points: expected shape (any, {shapes.coordinates}), got {points.shape}")
    return Asked(inputs, points, extrapolate, max(count, points.size))


def _expected(shapes: Shapes) -> str:
    names = [f"{name}: {size or 'some'}" for name, size in shapes.inputs.items()]
    by_name = f", or by name ({', '.join(names)} numbers per row)"
    return f"rows of {shapes.sensors} numbers, shape (samples, {shapes.sensors}){by_name}"


# -- JSON


def _from_json(body: bytes) -> tuple[Arrays, bool]:
    """The arrays as an npz file would name them, "inputs" or "inputs.NAME", and whether to extrapolate."""
    value = _parse(body)
    if not isinstance(value, dict):
        raise Refused(422, 'expected an object like {"inputs": [[...]], "points": [[...]]}')
    if unknown := value.keys() - {"inputs", "points", "extrapolate"}:
        raise Refused(422, f"unknown key {_word(min(unknown))}; expected inputs, points and extrapolate")
    extrapolate = value.pop("extrapolate", False)
    if not isinstance(extrapolate, bool):
        raise Refused(422, "extrapolate: expected true or false")
    inputs = value.pop("inputs", {})
    named = {f"inputs.{name}": rows for name, rows in inputs.items()} if isinstance(inputs, dict) else None
    tables = ({"inputs": inputs} if named is None else named) | value
    return {name: _table(name, rows) for name, rows in tables.items()}, extrapolate


def _parse(body: bytes) -> Any:
    """JSON without repeated keys. Depth is limited first, as parsers recurse; brackets in strings count too."""
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
        raise ValueError("a key occurs twice")
    return found


def _table(name: str, rows: Any) -> np.ndarray:
    """Rows of numbers. Strings like "inf" and booleans are refused, although NumPy would convert them."""
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


def _from_npz(body: bytes) -> tuple[Arrays, bool]:
    """Through a temporary file, because the safe reader reads files; it is no larger than the body."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.npz"
        path.write_bytes(body)
        try:
            found = read_npz(path)
        except CorruptFileError as error:
            raise Refused(400, str(error).replace(str(path), "the body").replace(folder, "")) from error
    extrapolate = found.pop("extrapolate", np.asarray(False))
    if extrapolate.dtype != bool or extrapolate.size != 1:
        raise Refused(422, "extrapolate: expected one boolean")
    unknown = [n for n in found if n not in ("inputs", "points") and not n.startswith("inputs.")]
    if unknown:
        raise Refused(422, f"unknown array {_word(min(unknown))}; expected inputs or inputs.NAME, and points")
    for name, array in found.items():
        if array.ndim != 2:
            raise Refused(422, f"{_word(name)}: expected 2 axes (one row each), got shape {array.shape}")
    return found, bool(extrapolate.item())


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


def _joined(found: Arrays, shapes: Shapes) -> Float[np.ndarray, "samples sensors"]:
    inputs = found["inputs"] if set(found) == {"inputs"} else _by_name(found, shapes)
    if inputs.shape[1] != shapes.sensors:
        raise Refused(422, f"inputs: expected {_expected(shapes)}; got shape {inputs.shape}")
    return inputs


def _by_name(found: Arrays, shapes: Shapes) -> np.ndarray:
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
    """A name from a request, shortened and in ASCII."""
    return ascii(name[:60])


# -- the description of both

_EVERYWHERE, _PREDICT = (401, 421, 431, 503), (400, 401, 408, 413, 415, 421, 422, 431, 503)


def openapi(shapes: Shapes, limits: Limits, *, has_token: bool) -> dict[str, Any]:
    """The document that the service answers at /openapi.json."""
    text = fill_template(
        "serve/openapi.json.jinja",
        shapes=shapes,
        limits=limits,
        has_token=has_token,
        version=__version__,
        level=LEVEL,
        outside=OUTSIDE,
        everywhere=tuple(map(HTTPStatus, _EVERYWHERE)),
        predict=tuple(map(HTTPStatus, _PREDICT)),
    )
    return json.loads(text)
