"""Reading and writing text: JSON, TOML, plain. None of them runs code."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, SettingError
from ._atomic import atomic_write


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


def read_json(path: Path | str) -> Any:
    """Read JSON; damage is a `CorruptFileError` that names the file."""
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptFileError(f"cannot read {path} as JSON: {error}") from error


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a configuration file; a slip in its syntax is a `SettingError` with the line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error
