"""QR of matrices with many rows: on the host, in blocks, or spread over a mesh of devices (TSQR).

Demmel, Grigori, Hoemmen and Langou (2012): every block, or device, factorises its own rows, and the small
triangles together are factorised once more. `jnp.linalg.qr` of a spread matrix would bring all rows to every
device instead.
"""

import functools as ft
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from ..distributed.mesh import ROWS, current_mesh, gather_rows, shard_rows
from ._blocks import row_blocks

Matrix = Float[np.ndarray, "_ _"]


def tall_qr(matrix: Float[np.ndarray, "rows columns"]) -> tuple[Matrix, Matrix]:
    """Q (rows, columns) with orthonormal columns and R: the matrix is Q R."""
    if current_mesh() is None:
        return np.linalg.qr(matrix)
    Q, R = spread_qr(matrix)
    return gather_rows(Q, len(matrix)), np.asarray(R)


def tall_qr_in_place(matrix: Float[np.ndarray, "rows columns"]) -> tuple[Matrix, Matrix]:
    """The same for a matrix that may be written over: without a mesh Q takes its place, block by block."""
    if current_mesh() is not None:
        Q, R = tall_qr(matrix)
        return np.array(Q), R
    triangles: list[Matrix] = []
    blocks = row_blocks(len(matrix))
    for block in blocks:
        matrix[block], R = np.linalg.qr(matrix[block])
        triangles.append(R)
    upper, R = np.linalg.qr(np.concatenate(triangles))
    for block, part in zip(blocks, np.split(upper, len(blocks)), strict=True):
        matrix[block] = matrix[block] @ part
    return matrix, R


def wide_triangle(matrix: Float[np.ndarray, "rows columns"]) -> Matrix:
    """R with R^T R = matrix matrix^T, for few rows of many columns, which are looked at in blocks."""
    columns = row_blocks(matrix.shape[1])
    triangles = [np.linalg.qr(matrix[:, block].T, mode="r") for block in columns]
    return np.linalg.qr(np.concatenate(triangles), mode="r")  # pyright: ignore[reportReturnType]


def triangle(matrix: Float[np.ndarray, "rows columns"]) -> Matrix:
    """R alone, with R^T R = matrix^T matrix."""
    if current_mesh() is None:
        return np.linalg.qr(matrix, mode="r")  # pyright: ignore[reportReturnType]
    return np.asarray(spread_qr(matrix)[1])


def spread_qr(
    matrix: Float[np.ndarray, "rows columns"],
) -> tuple[Float[Array, "padded columns"], Float[Array, "columns columns"]]:
    """Q with its rows spread over the mesh, R whole on every device."""
    mesh = current_mesh()
    assert mesh is not None
    with jax.enable_x64(True):
        return _tsqr_on(mesh)(shard_rows(matrix))


def householder_signs(top: Float[np.ndarray, "columns columns"]) -> Float[np.ndarray, " columns"]:
    """By which signs the columns of Q, of which these are the first rows, differ from what LAPACK would return.

    Q - diag(signs) is the product of two triangles, Householder's vectors being one of them (Ballard and others,
    2014): its elimination meets the signs one by one. Without them another number of devices would turn the basis.
    """
    Y, signs = top.copy(), np.empty(len(top))
    for i in range(len(top)):
        signs[i] = -1.0 if Y[i, i] >= 0 else 1.0
        Y[i, i] -= signs[i]
        Y[i + 1 :, i] /= Y[i, i]
        Y[i + 1 :, i + 1 :] -= np.outer(Y[i + 1 :, i], Y[i, i + 1 :])
    return signs


@ft.cache
def _tsqr_on(mesh: Mesh) -> Callable[[Array], tuple[Array, Array]]:
    spread = PartitionSpec(ROWS)
    return jax.jit(
        # That R is the same everywhere follows from the gathering, which the checker does not see.
        jax.shard_map(_tsqr, mesh=mesh, in_specs=spread, out_specs=(spread, PartitionSpec()), check_vma=False)
    )


def _tsqr(own: Array) -> tuple[Array, Array]:
    Q, R = jnp.linalg.qr(own)
    upper, R_all = jnp.linalg.qr(jax.lax.all_gather(R, ROWS, tiled=True))
    return Q @ jax.lax.dynamic_slice_in_dim(upper, jax.lax.axis_index(ROWS) * len(R), len(R)), R_all
