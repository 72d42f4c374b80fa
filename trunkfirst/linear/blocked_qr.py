"""QR of matrices with many rows: in blocks on the host, or sharded over a mesh of devices (TSQR).

Demmel, Grigori, Hoemmen and Langou (2012): every block, or device, factorises its own rows, and the small
triangles together are factorised once more. `jnp.linalg.qr` of a sharded matrix would copy all rows to every
device instead.
"""

import contextlib
import functools as ft
import itertools
from collections.abc import Callable, Generator

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401  # pyright: ignore[reportUnusedImport]  # brings a BLAS of its own
import threadpoolctl
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from ..distributed.mesh import ROWS, current_mesh, gather_rows, shard_rows

Matrix = Float[np.ndarray, "rows columns"]
Small = Float[np.ndarray, "_ _"]

_BLOCK = 2**16


@contextlib.contextmanager
def one_blas_thread() -> Generator[None]:
    """Limit BLAS to one thread inside this block: NumPy and SciPy then give the same bits on any machine size."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@ft.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    """The BLAS libraries, looked for once: each look reads every mapped file of the process, some milliseconds."""
    return threadpoolctl.ThreadpoolController()


def row_blocks(count: int) -> list[slice]:
    """Split `count` rows into blocks of about equal size, at most 65,536 rows each; always at least one block."""
    parts = max(-(-count // _BLOCK), 1)
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def is_long(matrix: Matrix) -> bool:
    """Whether the rows take more than one block."""
    return len(matrix) > _BLOCK


def multiply_in_place(matrix: Matrix, right: Float[np.ndarray, "columns columns"]) -> None:
    """Overwrite `matrix` with matrix @ right."""
    for block in row_blocks(len(matrix)):
        matrix[block] = matrix[block] @ right


def tall_qr(matrix: Matrix) -> tuple[Small, Small]:
    """Q (rows, columns) with orthonormal columns and R with matrix = Q R, on the mesh if there is one."""
    if current_mesh() is None:
        return np.linalg.qr(matrix)
    Q, R = _sharded_qr(matrix)
    return gather_rows(Q, len(matrix)), np.asarray(R)


def tall_qr_in_place(matrix: Matrix) -> tuple[Small, Small]:
    """Q and R of a matrix that may be overwritten: without a mesh Q takes its place, block by block."""
    if current_mesh() is not None:
        Q, R = tall_qr(matrix)
        return np.array(Q), R
    triangles: list[np.ndarray] = []
    blocks = row_blocks(len(matrix))
    for block in blocks:
        matrix[block], R = np.linalg.qr(matrix[block])
        triangles.append(R)
    upper, R = np.linalg.qr(np.concatenate(triangles))
    for block, part in zip(blocks, np.split(upper, len(blocks)), strict=True):
        matrix[block] = matrix[block] @ part
    return matrix, R


def triangle(matrix: Matrix) -> Small:
    """R with R^T R = matrix^T matrix."""
    if current_mesh() is None:
        return np.linalg.qr(matrix, mode="r")  # pyright: ignore[reportReturnType]
    return np.asarray(_sharded_qr(matrix)[1])


def wide_triangle(matrix: Matrix) -> Small:
    """R with R^T R = matrix matrix^T, for few rows of many columns; reads the columns in blocks."""
    triangles = [np.linalg.qr(matrix[:, block].T, mode="r") for block in row_blocks(matrix.shape[1])]
    return np.linalg.qr(np.concatenate(triangles), mode="r")  # pyright: ignore[reportReturnType]


def householder_signs(top: Float[np.ndarray, "columns columns"]) -> Float[np.ndarray, " columns"]:
    """Signs by which the columns of Q, whose first rows are `top`, differ from what LAPACK would return.

    Q - diag(signs) is the product of two triangular matrices, one of them Householder's vectors (Ballard et al.,
    2014): its elimination finds the signs one by one. Without them the basis would depend on the device count.
    """
    Y, signs = top.copy(), np.empty(len(top))
    for i in range(len(top)):
        signs[i] = -1.0 if Y[i, i] >= 0 else 1.0
        Y[i, i] -= signs[i]
        Y[i + 1 :, i] /= Y[i, i]
        Y[i + 1 :, i + 1 :] -= np.outer(Y[i + 1 :, i], Y[i, i + 1 :])
    return signs


def _sharded_qr(matrix: Matrix) -> tuple[Float[Array, "padded columns"], Float[Array, "columns columns"]]:
    """Q with its rows sharded over the mesh, R replicated on every device."""
    mesh = current_mesh()
    assert mesh is not None
    with jax.enable_x64(True):
        return _tsqr_on(mesh)(shard_rows(matrix))


@ft.cache
def _tsqr_on(mesh: Mesh) -> Callable[[Array], tuple[Array, Array]]:
    rows = PartitionSpec(ROWS)
    # The checker does not see that R, made of gathered triangles, is the same everywhere.
    return jax.jit(
        jax.shard_map(_tsqr, mesh=mesh, in_specs=rows, out_specs=(rows, PartitionSpec()), check_vma=False)
    )


def _tsqr(own: Array) -> tuple[Array, Array]:
    Q, R = jnp.linalg.qr(own)
    upper, R_all = jnp.linalg.qr(jax.lax.all_gather(R, ROWS, tiled=True))
    return Q @ jax.lax.dynamic_slice_in_dim(upper, jax.lax.axis_index(ROWS) * len(R), len(R)), R_all
