"""`trunkfirst doctor`."""

import os

from ._console import print_json, print_table


def doctor_command(*, json: bool, quiet: bool) -> int:
    """Check this machine; the exit code is 1 if something that a run needs is missing."""
    from ..problems import cache_folder
    from ..runs import environment

    found = environment()
    found["double_precision"] = _has_double_precision()
    cache = cache_folder(None)
    nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
    found["cache"] = str(cache)
    found["cache_writable"] = os.access(nearest, os.W_OK)
    if json:
        print_json(found)
    else:
        flat = {**found, **found["packages"]}
        rows = [[name, str(value)] for name, value in flat.items() if name != "packages"]
        print_table("trunkfirst doctor", ["what", "found"], rows, quiet=quiet)
    return 0 if found["double_precision"] and found["cache_writable"] else 1


def _has_double_precision() -> bool:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        return bool(jnp.ones(()) + 1e-12 != 1)
