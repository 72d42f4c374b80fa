"""Rows of arrays sharded over a mesh of devices with one axis.

Only `use_devices` and the functions that place arrays know of the mesh. The compiler turns a sum over sharded rows
into a sum on each device and one over the devices. Parameters and the minimiser's state are replicated.
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

from ..device_arrays import to_device
from ..errors import UsageError
from .processes import allgather

ROWS = "rows"
_current: ContextVar[Mesh | None] = ContextVar("mesh", default=None)
Tree = TypeVar("Tree")


@contextlib.contextmanager
def use_devices(devices: int | Sequence[Any] | None) -> Generator[None]:
    """Shard the rows of everything that is fitted inside this block over `devices`.

    Args:
        devices: The number of devices in each process, or a sequence of JAX devices. None: one device, or all
            devices of all processes if there are several processes. A CPU is one device; it can be divided into
            virtual ones before JAX is first used.

    Raises:
        UsageError: There are not as many devices.
    """
    mesh = _make_mesh(devices)
    if mesh is None:
        yield
        return
    token = _current.set(mesh)
    try:
        # Each device calls LAPACK from its own thread; with BLAS threads on top this is ten times slower.
        with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        _current.reset(token)


def current_mesh() -> Mesh | None:
    """The mesh of the enclosing `use_devices` block, if any."""
    return _current.get()


def shard_rows(array: ArrayLike, dtype: Any = None, *, axis: int = 0, repeats_last: bool = False) -> Array:
    """Place an array on the devices, its rows sharded over the current mesh.

    Args:
        array: The whole array, in every process; a device receives only its rows.
        dtype: The type of the result.
        axis: The axis that counts the rows. If the mesh does not divide their number, zeros are appended, or
            copies of the last row with `repeats_last`: give them no weight.
        repeats_last: Whether to append copies of the last row instead of zeros.
    """
    mesh = current_mesh()
    if mesh is None:
        return to_device(array, dtype)
    host = np.asarray(array, dtype)
    added = [(0, 0)] * host.ndim
    added[axis] = (0, -host.shape[axis] % mesh.size)
    host = np.pad(host, added, mode="edge" if repeats_last else "constant")
    return _place(host, NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS)))


def gather_rows(array: Array, count: int) -> np.ndarray:
    """The first `count` rows of a sharded array, on the host of every process."""
    whole = np.asarray(array) if array.is_fully_addressable else allgather(array, is_sharded=True)
    return whole[:count]


def replicate_like(tree: Tree, other: Any) -> Tree:
    """Replicate the arrays of `tree` on the devices over which those of `other` are sharded."""
    mesh = next((m for m in map(_mesh_of, jax.tree.leaves(other)) if m is not None), None)
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: _replicated(leaf, mesh) if isinstance(leaf, jax.Array) else leaf, tree)


def to_local(tree: Tree) -> Tree:
    """Turn the replicated arrays of `tree` into arrays of this process alone."""
    return jax.tree.map(lambda leaf: leaf if _mesh_of(leaf) is None else _rebuilt(leaf, jnp.asarray), tree)


def _make_mesh(devices: int | Sequence[Any] | None) -> Mesh | None:
    if devices is None:
        return _as_mesh(jax.devices()) if jax.distributed.is_initialized() else None
    if not isinstance(devices, int):
        return _as_mesh(devices)
    if devices < 1:
        raise UsageError(f"devices is {devices}; expected at least 1")
    with contextlib.suppress(RuntimeError):  # JAX has been used already and keeps its devices
        jax.config.update("jax_num_cpu_devices", devices)
    chosen = [d for process in range(jax.process_count()) for d in jax.local_devices(process)[:devices]]
    if len(chosen) < devices * jax.process_count():
        raise UsageError(
            f"devices is {devices}, but JAX has {jax.local_device_count()} here; a CPU can be divided before JAX "
            "is first used, with trunkfirst.distributed.mesh.use_devices or "
            "jax.config.update('jax_num_cpu_devices', ...)"
        )
    return _as_mesh(chosen)


def _as_mesh(devices: Sequence[Any]) -> Mesh:
    # With explicit axes every product of sharded arrays would have to state the sharding of its result.
    return Mesh(np.asarray(devices), (ROWS,), axis_types=(AxisType.Auto,))


def _mesh_of(leaf: Any) -> Mesh | None:
    sharding = getattr(leaf, "sharding", None)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) else None


def _replicated(leaf: Array, mesh: Mesh) -> Array:
    if _mesh_of(leaf) == mesh and leaf.is_fully_replicated:
        return leaf
    return _rebuilt(leaf, lambda host: _place(host, NamedSharding(mesh, PartitionSpec())))


def _rebuilt(leaf: Array, build: Any) -> Array:
    """Build the leaf again from its values on the host; those of a random key are its data."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jr.wrap_key_data(build(np.asarray(jr.key_data(leaf))))
    return build(np.asarray(leaf))


def _place(host: np.ndarray, sharding: NamedSharding) -> Array:
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
