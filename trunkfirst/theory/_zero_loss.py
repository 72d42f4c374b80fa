"""thm:zero-loss-deeponet, built: an operator that reproduces its training data."""

import jax
import jax.numpy as jnp
import numpy as np

from ..data import OperatorData
from ..linear import QR
from ..networks import Identity, Operator, Trunk
from ._interpolating_branch import interpolating_branch
from ._interpolating_trunk import shallow_interpolating_trunk


def zero_loss_operator(data: OperatorData, trunk: Trunk | None = None) -> Operator:
    """The two steps of the paper without training: trunk, orthonormalise, interpolate the coefficients.

    `trunk` must span the outputs at the points, as those of `interpolating_trunk` and
    `shallow_interpolating_trunk` do for N >= rank; None stands for the shallow one. The loss is that of rounding.
    A proof of existence: between the training samples the operator promises nothing.
    """
    rows = data.outputs.swapaxes(1, 2).reshape(-1, len(data.points)) if data.is_multichannel else data.outputs
    trunk = shallow_interpolating_trunk(data.points, rows) if trunk is None else trunk
    with jax.enable_x64(True):
        basis = QR()(np.asarray(trunk(jnp.asarray(data.points))))
        targets = basis.coefficients(rows).reshape(data.samples, -1)
        branch = interpolating_branch(data.flat_inputs, targets)
        channels = data.channels if data.is_multichannel else None
        T = jnp.asarray(basis.transform)
    return Operator(Identity(), branch, trunk, T, tuple(data.inputs), channels=channels)
