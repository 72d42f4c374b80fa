"""Reading and writing text: JSON, TOML, plain. None of them runs code."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, SettingError
from ._atomic import atomic_write
from ._limits import read_bytes

# Python needs up to 20 bytes of memory for a byte of JSON.
_MOST_JSON = 2**22
_MOST_TOML = 2**18
_MOST_TEXT = 2**26
_DEEPEST = 64
# A string, or a bracket outside of strings.
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: Path | str, value: object) -> None:
    """Write strict JSON: a number that is not finite becomes null."""
    write_text(path, to_json(value) + "\n")


def to_json(value: object, *, indent: int | None = 2) -> str:
    """Strict JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def read_text(path: Path | str) -> str:
    """Read UTF-8 text; damage is a `CorruptFileError` that names the file."""
    try:
        return read_bytes(path, most=_MOST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"cannot read {path} as text: {error}") from error


def read_json(path: Path | str) -> Any:
    """Read JSON; damage is a `CorruptFileError` that names the file."""
    return parse_json(read_bytes(path, most=_MOST_JSON), path)


def parse_json(text: bytes | str, source: object) -> Any:
    """JSON with every key once and at most 64 levels; else a `CorruptFileError` that names `source`."""
    try:
        text = text if isinstance(text, str) else text.decode()
        _check_depth(text)
        value = json.loads(text, object_pairs_hook=_once)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except ValueError as error:
        raise CorruptFileError(f"cannot read {source} as JSON: {error}") from error
    return value


def _check_depth(text: str) -> None:
    depth = 0
    for mark in _MARKS.finditer(text):
        depth += (mark[1] is not None) - (mark[2] is not None)
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} brackets inside each other")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in found if names.count(name) > 1)!r} stands there twice")
    return found


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a configuration file; a slip in its syntax is a `SettingError` with the line."""
    try:
        values = tomllib.loads(read_bytes(path, most=_MOST_TOML).decode())
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits is no TOMLDecodeError
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    if _is_deep(values):
        raise SettingError(f"{path} has more than {_DEEPEST} tables or lists inside each other")
    return values


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_DEEPEST):
        layer = [
            inner
            for item in layer
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return len(layer) > 0
