"""One file of a journal: steps with their arrays, sealed by a SHA-256."""

import dataclasses as dc
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from ..errors import CorruptFileError, OutputNotWritableError
from ..files import atomic_write

_MAGIC = b"trunkfirst checkpoint 1\n"
_SEAL_BYTES = 64


@dc.dataclass(frozen=True, eq=False)
class Step:
    """A step, finished or under way; `following` is the number of the step that comes after it."""

    name: str
    number: int
    following: int
    arrays: Mapping[str, np.ndarray]
    note: Mapping[str, Any]


@dc.dataclass(frozen=True, eq=False)
class Bundle:
    """What one file holds: steps of the computation called `identity`; the file is its `order`-th."""

    identity: str
    order: int
    steps: tuple[Step, ...]


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write a bundle, whole or not at all."""
    about = {
        "identity": bundle.identity,
        "order": bundle.order,
        "steps": [[step.name, step.number, step.following, dict(step.note)] for step in bundle.steps],
    }
    arrays = {
        f"{place} {name}": np.asarray(array, order="C")
        for place, step in enumerate(bundle.steps)
        for name, array in step.arrays.items()
    }
    payload = safetensors.numpy.save(arrays, {"about": json.dumps(about)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {path.parent}: {error.strerror}") from error
    with atomic_write(path) as file:
        file.write(_MAGIC + hashlib.sha256(payload).hexdigest().encode() + payload)


def read_bundle(path: Path, identity: str) -> Bundle:
    """Read a bundle; damage, or another computation's file, is a `CorruptFileError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error
    start = len(_MAGIC) + _SEAL_BYTES
    seal, payload = content[len(_MAGIC) : start], content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).hexdigest().encode() != seal:
        raise CorruptFileError(f"{path} is damaged: its content is not what its SHA-256 says")
    try:
        bundle = _parse(payload)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not a checkpoint: {error}") from error
    if bundle.identity != identity:
        raise CorruptFileError(f"{path} belongs to another run")
    return bundle


def _parse(payload: bytes) -> Bundle:
    header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    about = json.loads(header["__metadata__"]["about"])
    arrays: dict[int, dict[str, np.ndarray]] = {}
    for key, array in safetensors.numpy.load(payload).items():
        place, _, name = key.partition(" ")
        arrays.setdefault(int(place), {})[name] = array
    steps = tuple(
        Step(str(name), int(number), int(following), arrays.get(place, {}), dict(note))
        for place, (name, number, following, note) in enumerate(about["steps"])
    )
    return Bundle(str(about["identity"]), int(about["order"]), steps)
