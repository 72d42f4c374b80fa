"""A mesh of devices with one axis, over which the rows of arrays are spread.

Nothing else has to know of it: a sum over spread rows becomes a sum on each device and one over the devices, which
the compiler puts in. Parameters, and what a minimiser keeps, are whole on every device.
"""

import contextlib
from collections.abc import Generator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import threadpoolctl
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike

from ..errors import UsageError
from ._processes import allgather

ROWS = "rows"
_current: ContextVar[Mesh | None] = ContextVar("mesh", default=None)
Tree = TypeVar("Tree")


@contextlib.contextmanager
def use_devices(devices: int | Sequence[Any] | None) -> Generator[None]:
    """Whatever is fitted inside this block is spread over `devices`: so many of each process, or these of JAX's.

    None leaves things as they are: one device, or, where JAX runs in several processes, all devices of all of
    them. A CPU counts as one device; before JAX is first used it can be divided, and is, into as many as asked.
    """
    mesh = _make_mesh(devices)
    if mesh is None:
        yield
        return
    token = _current.set(mesh)
    try:
        # Every device calls LAPACK from a thread of its own: threads of threads would be ten times slower.
        with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        _current.reset(token)


def current_mesh() -> Mesh | None:
    """The mesh of `use_devices`, if this is inside of it."""
    return _current.get()


def spread_rows(array: ArrayLike, dtype: Any = None, *, axis: int = 0, repeats_last: bool = False) -> Array:
    """The array on the devices, its rows spread over the mesh if there is one.

    Rows are counted along `axis`. Where their number does not divide, zeros are added, or the last row again: give
    them no weight. Every process must have the array, but its devices get their own rows alone.
    """
    mesh = current_mesh()
    if mesh is None:
        return jnp.asarray(array, dtype)
    host = np.asarray(array, dtype)
    added = [(0, 0)] * host.ndim
    added[axis] = (0, -host.shape[axis] % mesh.size)
    host = np.pad(host, added, mode="edge" if repeats_last else "constant")
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS))
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def gather_rows(array: Array, count: int) -> np.ndarray:
    """The first `count` rows of a spread array, on the host of every process."""
    whole = np.asarray(array) if array.is_fully_addressable else allgather(array, is_spread=True)
    return whole[:count]


def replicate_beside(tree: Tree, other: Any) -> Tree:
    """The arrays of `tree`, whole on every device that those of `other` are spread over."""
    mesh = next((m for m in map(_mesh_of, jax.tree.leaves(other)) if m is not None), None)
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: _replicated(leaf, mesh) if isinstance(leaf, jax.Array) else leaf, tree)


def home(tree: Tree) -> Tree:
    """The arrays of `tree`, which are whole on every device, as arrays of this process alone."""
    return jax.tree.map(lambda leaf: leaf if _mesh_of(leaf) is None else _rebuilt(leaf, jnp.asarray), tree)


def _make_mesh(devices: int | Sequence[Any] | None) -> Mesh | None:
    if devices is None:
        return _as_mesh(jax.devices()) if jax.distributed.is_initialized() else None
    if not isinstance(devices, int):
        return _as_mesh(devices)
    if devices < 1:
        raise UsageError(f"devices is {devices}; expected at least 1")
    with contextlib.suppress(RuntimeError):  # too late: JAX has been used, and has the devices that it has
        jax.config.update("jax_num_cpu_devices", devices)
    chosen = [d for process in range(jax.process_count()) for d in jax.local_devices(process)[:devices]]
    if len(chosen) < devices * jax.process_count():
        raise UsageError(
            f"devices is {devices}, but JAX has {jax.local_device_count()} here; a CPU can be divided before JAX "
            "is first used, with trunkfirst.devices.use_devices or jax.config.update('jax_num_cpu_devices', ...)"
        )
    return _as_mesh(chosen)


def _as_mesh(devices: Sequence[Any]) -> Mesh:
    # With explicit axes every product of spread arrays would have to say how its result is spread.
    return Mesh(np.asarray(devices), (ROWS,), axis_types=(AxisType.Auto,))


def _mesh_of(leaf: Any) -> Mesh | None:
    sharding = getattr(leaf, "sharding", None)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) else None


def _replicated(leaf: Array, mesh: Mesh) -> Array:
    if _mesh_of(leaf) == mesh and leaf.is_fully_replicated:
        return leaf
    sharding = NamedSharding(mesh, PartitionSpec())
    return _rebuilt(leaf, lambda host: jax.make_array_from_callback(host.shape, sharding, lambda i: host[i]))


def _rebuilt(leaf: Array, build: Any) -> Array:
    """The leaf made anew from its numbers; a random key is a pair of them."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jr.wrap_key_data(build(np.asarray(jr.key_data(leaf))))
    return build(np.asarray(leaf))
