"""Trunk and branch trained at once: by a minimiser, or with the matrix between them solved for."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .distributed.mesh import to_local
from .encode import EncodedData, encode
from .errors import UsageError
from .fields import Fields, TrunkResult, hidden_layers, plain_loss, with_identity_output
from .losses import Batches, BilinearProblem, BranchCoefficients, CompressedLoss, HiddenPair, make_loss
from .method import AbstractMethod, Trained, make_operator, named_key, trunk_diagnostics
from .minimisers import Minimiser
from .minimisers.adam import Adam
from .minimisers.lbfgs import LBFGS
from .minimisers.loop import Minimised, OnStep, Stopping, minimise
from .networks.branches import Branch
from .networks.layers import Perceptron, Trunk, count_parameters
from .regressors.network import BranchNetwork
from .settings import Field, kind_field, record
from .trunks import TrunkNetwork


@record
class AbstractMonolithic(AbstractMethod):
    """Trunk and branch networks that are trained at the same time."""

    trunk: TrunkNetwork = TrunkNetwork()
    branch: BranchNetwork = BranchNetwork()

    kind: str = Field(default="", kw_only=True, repr=False)

    @property
    def name(self) -> str:
        return self.kind

    def _start(
        self, data: AnyData | ShardedData, key: PRNGKeyArray, trunk_result: TrunkResult | None
    ) -> tuple[EncodedData, Fields, Trunk, Branch]:
        """Encoded data and new networks."""
        if trunk_result is not None:
            raise UsageError(f"{self.name} trains trunk and branch at once; it cannot use a finished step 1")
        if isinstance(data, ShardedData):
            raise UsageError(
                "data in shards are trained by the two-step method; take as many samples as fit into memory: "
                "data.take(indices), or data.samples"
            )
        encoded = encode(data, self, self.dtype)
        fields = encoded.fields
        if not isinstance(fields, Fields) or fields.channels is not None:
            raise UsageError(
                "monolithic methods need one output channel and the same points for all samples; use two-step"
            )
        trunk = self.trunk.make(fields, dtype=self.dtype, key=named_key(key, "trunk"))
        branch = self.branch.make(
            encoded.inputs.shape[1],
            trunk.width + 1,
            encoded.layout,
            stacked=self.branch.stacked,
            dtype=self.dtype,
            key=named_key(key, "branch"),
        )
        return encoded, fields, trunk, branch


@record
class Monolithic(AbstractMonolithic):
    """Trunk and branch trained at once on the error of the outputs, as is usual for DeepONets.

    With `train_transform`, a square matrix T between them is trained too (the paper's reparameterisation).

    >>> import trunkfirst
    >>> method = Monolithic(trunkfirst.TrunkNetwork(width=20), trunkfirst.BranchNetwork(), iterations=5000)
    >>> method.name
    'monolithic'
    """

    minimiser: Minimiser = Adam()
    iterations: int = Field(default=10_000, ge=1, description="largest number of iterations")
    p: float = Field(default=2.0, ge=1, allow_inf_nan=False, description="power of the entrywise norm of the loss")
    batches: Batches = Batches()
    train_transform: bool = Field(default=False, description="also train a matrix T between trunk and branch")
    kind: Literal["monolithic"] = kind_field("monolithic")

    def fit(
        self,
        data: AnyData | ShardedData,
        *,
        key: PRNGKeyArray,
        on_step: OnStep | None = None,
        trunk_result: TrunkResult | None = None,
    ) -> Trained:
        encoded, fields, trunk, branch = self._start(data, key, trunk_result)
        transform = jnp.eye(trunk.width + 1, dtype=self.dtype) if self.train_transform else None
        result = minimise(
            make_loss(fields, encoded.inputs, p=self.p, batches=self.batches, dtype=self.dtype),
            BranchCoefficients(trunk, branch, transform),
            self.minimiser,
            iterations=self.iterations,
            key=named_key(key, "monolithic"),
            stage="monolithic",
            on_step=on_step,
        )
        return _trained(encoded, fields, result.parameters, result, p=self.p)


@record
class MonolithicProjected(AbstractMonolithic):
    """Trunk and branch trained at once, with the matrix between them (their output layers) solved for.

    >>> import trunkfirst
    >>> MonolithicProjected(trunkfirst.TrunkNetwork(width=20), trunkfirst.BranchNetwork()).name
    'monolithic-projected'
    """

    minimiser: Minimiser = LBFGS()
    iterations: int = Field(default=6000, ge=1, description="largest number of iterations")
    ridge: float = Field(default=1e-3, ge=0, description="ridge of the matrix between trunk and branch")
    kind: Literal["monolithic-projected"] = kind_field("monolithic-projected")

    def fit(
        self,
        data: AnyData | ShardedData,
        *,
        key: PRNGKeyArray,
        on_step: OnStep | None = None,
        trunk_result: TrunkResult | None = None,
    ) -> Trained:
        encoded, fields, trunk, branch = self._start(data, key, trunk_result)
        if not isinstance(branch, Perceptron) or trunk.effective_width == trunk.width != _hidden_width(trunk):
            raise UsageError(
                "monolithic-projected needs an unstacked branch and N not below the last hidden width"
            )
        loss = make_loss(fields, encoded.inputs, p=2.0, dtype=self.dtype)
        assert isinstance(loss, CompressedLoss)
        problem = BilinearProblem(loss, self.ridge)
        result = minimise(
            problem,
            HiddenPair(hidden_layers(trunk.network), hidden_layers(branch)),
            self.minimiser,
            iterations=self.iterations,
            key=named_key(key, "monolithic"),
            stage="monolithic",
            stopping=Stopping(stuck=100),
            on_step=on_step,
        )
        best: HiddenPair = result.parameters
        M = to_local(problem.matrix(best))  # (branch features, trunk features)
        padding = jnp.zeros((len(M), trunk.width + 1 - M.shape[1]), M.dtype)
        last = jnp.concatenate([M, padding], axis=1)
        weights, biases = (*best.branch.weights, last[1:].T), (*best.branch.biases, last[0])
        networks = BranchCoefficients(
            with_identity_output(best.trunk, trunk), Perceptron(weights, biases, branch.activation)
        )
        return _trained(encoded, fields, networks, result, p=2.0)


def _hidden_width(trunk: Trunk) -> int:
    return trunk.network.architecture[-2]


def _trained(
    encoded: EncodedData, fields: Fields, best: BranchCoefficients, result: Minimised, *, p: float
) -> Trained:
    Phi = np.asarray(best.trunk(jnp.asarray(fields.points, encoded.dtype)))
    coefficients = np.asarray(best.coefficients(jnp.asarray(encoded.inputs)))
    diagnostics = {
        "trunk": trunk_diagnostics(
            loss=plain_loss(coefficients, Phi, fields.outputs, p=p),
            seconds=result.seconds,
            iterations=result.iterations,
            rank=best.trunk.width + 1,
            limits=fields.limits(best.trunk, p),
        ),
        "branch": None,
        "parameters": {
            "trunk": count_parameters(best.trunk),
            "coefficients": None,
            "branch": count_parameters(best.branch),
        },
    }
    operator = make_operator(encoded, best.branch, best.trunk, best.transform)
    return Trained(operator, result.status, result.history, diagnostics)
