"""What the server is asked with."""

import io
from typing import Any

import numpy as np

_RNG = np.random.default_rng(0)
INPUTS, POINTS = _RNG.uniform(1, 2, (5, 3)), _RNG.uniform(-1, 1, (7, 2))
JSON = [(b"content-type", b"application/json")]
NPZ = [(b"content-type", b"application/x-npz")]


def npz(**arrays: Any) -> bytes:
    """The arrays as the bytes of a file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def as_json(**arrays: Any) -> dict[str, Any]:
    """The arrays as lists."""
    return {name: np.asarray(array).tolist() for name, array in arrays.items()}
