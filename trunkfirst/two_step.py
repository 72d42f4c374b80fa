"""The two-step method: fit the trunk, orthonormalise it, fit the branch."""

import dataclasses as dc
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from jaxtyping import PRNGKeyArray

from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .device_arrays import to_device
from .encode import EncodedData, encode
from .errors import UsageError
from .fields import Basis, TrunkResult
from .linear.orthonormalise import QR, SVD, AbstractOrthonormaliser
from .method import AbstractMethod, Trained, make_operator, named_key, trunk_diagnostics
from .minimisers.loop import OnStep, worst_status
from .moving_trunk import MovingTrunk
from .network_trunk import NetworkTrunk, SeparateTrunks
from .networks.layers import count_parameters
from .regressors.active_neurons import ActiveNeurons
from .regressors.base import AbstractRegressor, Regression
from .regressors.fourier import FourierBranch
from .regressors.network import AutoBranch, JointBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .settings import Field, OneOf, kind_field, record
from .stream import encode_stream
from .trunks import AbstractTrunk, AutoTrunk, JointTrunk, ModesTrunk

_TRUNKS = OneOf(AutoTrunk, ModesTrunk, NetworkTrunk, MovingTrunk, JointTrunk, SeparateTrunks)
_BRANCHES = OneOf(AutoBranch, NetworkBranch, JointBranch, ActiveNeurons, Kernel, Linear, FourierBranch)
# A file has no None: "none" is the paper's two-step method without QR.
_WITHOUT = pydantic.BeforeValidator(lambda value: None if value in ("none", {"kind": "none"}) else value)
_AS_WORD = pydantic.WrapSerializer(lambda value, dump: "none" if value is None else dump(value))


@record
class TwoStep(AbstractMethod):
    """The two-step method: fit the trunk, orthonormalise it, fit the branch to the coefficients.

    `trunkfirst.fit` chooses trunk, branch, encoder of the inputs and weights if they are left out, by the error of
    the whole operator on samples that are left out. `orthonormalise=None` is the two-step method without QR.

    >>> import trunkfirst
    >>> method = TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="standardise", weights="none")
    >>> method.name
    'two-step'
    """

    trunk: Annotated[AbstractTrunk, _TRUNKS] = Field(default=AutoTrunk(), description="step 1")
    branch: Annotated[AbstractRegressor, _BRANCHES] = Field(default=AutoBranch(), description="step 2")
    orthonormalise: Annotated[Annotated[AbstractOrthonormaliser, OneOf(QR, SVD)] | None, _WITHOUT, _AS_WORD] = (
        Field(default=QR(), description='between the steps; "none" for the two-step method without QR')
    )
    images: int | None = Field(
        default=None,
        ge=1,
        description="for inputs on a grid: the branch also learns from images of the samples under the "
        "symmetries that they show, up to this many samples and images",
    )
    kind: Literal["two-step"] = kind_field("two-step")

    @property
    def name(self) -> str:
        return "two-step" if self.orthonormalise else "two-step-without-qr"

    def fit(
        self,
        data: AnyData | ShardedData,
        *,
        key: PRNGKeyArray,
        on_step: OnStep | None = None,
        trunk_result: TrunkResult | None = None,
    ) -> Trained:
        """Steps 1 and 2; a finished step 1 may be given."""
        encoded = self.encode(data)
        # min over mu, A of |Phi(mu) A - U|
        step1 = trunk_result or self.trunk.fit(
            encoded.fields, dtype=self.dtype, key=named_key(key, "trunk"), on_step=on_step
        )
        encoded = encoded.after_trunk()
        # Phi T orthonormal, targets R A
        basis = encoded.fields.basis(step1, self.orthonormalise)
        # min over theta of |C(theta) - R A|
        branch = self.branch if step1.status == "finished" else self.branch.with_minimal_budget()
        step2 = encoded.fit_branch(
            branch, basis, images=self.images, key=named_key(key, "branch"), on_step=on_step
        )
        return _assemble(self.branch, encoded, step1, basis, step2)

    def encode(self, data: AnyData | ShardedData) -> EncodedData:
        """The data as the steps see them; `ShardedData` are never in memory at once."""
        if not isinstance(data, ShardedData):
            return encode(data, self, self.dtype)
        has_factor = isinstance(self.trunk, ModesTrunk | AutoTrunk) or (
            isinstance(self.trunk, NetworkTrunk) and self.trunk.p == 2 and self.orthonormalise is not None
        )
        if not has_factor:
            raise UsageError(
                "data in shards need the two-step method with a trunk of kind modes, or an orthonormalised one of "
                "kind network with p = 2; "
                "for other methods take as many samples as fit into memory: data.take(indices), or data.samples"
            )
        return encode_stream(data, self, self.dtype)


def _kind(branch: AbstractRegressor) -> str:
    """The kind of branch in `metrics.json`: a network, however it is trained."""
    return "network" if isinstance(branch, JointBranch) else getattr(branch, "kind", "network")


def _assemble(
    branch: AbstractRegressor,
    encoded: EncodedData,
    step1: TrunkResult,
    basis: Basis,
    step2: Regression,
) -> Trained:
    """The operator of both steps, and what was measured."""
    if step1.limits is None:
        step1 = dc.replace(step1, limits=encoded.fields.limits(step1.trunk, step1.p))
    transform = None if basis.transform is None else to_device(basis.transform, encoded.dtype)
    return Trained(
        make_operator(encoded, step2.branch, step1.trunk, transform),
        worst_status(step1.status, step2.status),
        step1.history + step2.history,
        encoded.notes | _diagnostics(encoded, step1, basis, step2, _kind(branch)),
        step1,
    )


def _diagnostics(
    encoded: EncodedData, step1: TrunkResult, basis: Basis, step2: Regression, kind: str
) -> dict[str, Any]:
    return {
        "trunk": trunk_diagnostics(
            loss=step1.loss,
            seconds=step1.seconds,
            iterations=step1.iterations,
            rank=basis.targets.shape[1],
            condition=basis.condition,
            limits=step1.limits or {},
        ),
        "branch": {
            "kind": kind,
            "loss": step2.loss * basis.loss_unit,
            "relative_loss": step2.loss / float(np.mean(basis.targets**2)),
            "seconds": step2.seconds,
            "iterations": step2.iterations,
        },
        "parameters": {
            "trunk": count_parameters(step1.trunk),
            "coefficients": encoded.rows * step1.coefficients.shape[1],
            "branch": count_parameters(step2.branch),
        },
    }
