"""What a run ran on: versions, devices, precision."""

import importlib.metadata
import os
import platform
from typing import Any

_PACKAGES = ("trunkfirst", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-fem", "safetensors")

# How many threads XLA and the BLAS divide sums among; empty: as many as there are cores.
_THREADS = ("NPROC", "OPENBLAS_NUM_THREADS")


def environment() -> dict[str, Any]:
    """Versions and devices; equal numbers can be expected only where these are equal."""
    import jax

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": {name: os.environ.get(name, "") for name in _THREADS},
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "devices": [f"{device.platform}:{device.id}" for device in jax.devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }
