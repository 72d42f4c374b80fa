"""Linear algebra on the host: orthonormal bases, low-rank factors, error limits."""

from .blocked_qr import one_blas_thread, row_blocks, tall_qr, triangle
from .low_rank import (
    Compressed,
    RowFactor,
    compress,
    is_limited_by_network,
    leverage_sample,
    principal_directions,
    row_factor_bytes,
    trunk_limit,
    trunk_limit_bounds,
)
from .orthonormalise import (
    QR,
    SVD,
    AbstractOrthonormaliser,
    Orthonormal,
    projection,
    relative_errors,
    smallest_sufficient_rank,
)

__all__ = [
    "QR",
    "SVD",
    "AbstractOrthonormaliser",
    "Compressed",
    "Orthonormal",
    "RowFactor",
    "compress",
    "is_limited_by_network",
    "leverage_sample",
    "one_blas_thread",
    "principal_directions",
    "projection",
    "relative_errors",
    "row_blocks",
    "row_factor_bytes",
    "smallest_sufficient_rank",
    "tall_qr",
    "triangle",
    "trunk_limit",
    "trunk_limit_bounds",
]
