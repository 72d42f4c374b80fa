"""Linear algebra on the host: orthonormal bases, compression, limits, errors."""

from ._blocks import row_blocks
from ._compression import Compressed, Factor, compress, principal_directions
from ._leverage import leverage_sample
from ._limits import is_limited_by_network, trunk_limit, trunk_limit_bounds
from ._norms import projection, relative_errors
from ._orthonormalise import QR, SVD, AbstractOrthonormaliser, Orthonormal, smallest_sufficient_rank
from ._row_factor import RowFactor, row_factor_bytes
from ._tall_qr import tall_qr, triangle
from ._threads import one_blas_thread

__all__ = [
    "QR",
    "SVD",
    "AbstractOrthonormaliser",
    "Compressed",
    "Factor",
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
