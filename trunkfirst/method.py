"""What all training methods have in common."""

import abc
import zlib

import jax.random as jr
from jaxtyping import PRNGKeyArray

from .data.named_arrays import AnyData
from .data.sharded_data import ShardedData
from .encode import Encodings
from .fields import TrunkResult
from .minimisers.loop import OnStep
from .settings import record
from .trained import Trained


@record
class AbstractMethod(Encodings, abc.ABC):
    """A training method: a record with how data are encoded, whose `fit` trains an operator."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the method in reports."""

    @abc.abstractmethod
    def fit(
        self,
        data: AnyData | ShardedData,
        *,
        key: PRNGKeyArray,
        on_step: OnStep | None = None,
        trunk_result: TrunkResult | None = None,
    ) -> Trained:
        """Train an operator on `data`, in double precision of JAX, with nothing left to choose."""


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key for one purpose, by name, so that a new purpose does not change the others."""
    return jr.fold_in(key, zlib.crc32(name.encode()))
