"""What all training methods have in common."""

import abc
import zlib
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .coordinates import Coordinates
from .data import AnyData, ShardedData
from .encoders import AutoInputs, Inputs
from .fields import TrunkResult
from .minimisers import OnStep
from .output_map import Output
from .settings import Field, record
from .trained import Trained


@record
class AbstractMethod(abc.ABC):
    """A training method: a record with how data are encoded, whose `fit` trains an operator."""

    inputs: Inputs = Field(default=AutoInputs(), kw_only=True, description="how inputs are encoded for the branch")
    coordinates: Coordinates = Field(default=Coordinates(), kw_only=True)
    output: Output = Field(default=Output(), kw_only=True)
    weights: Literal["relative", "none", "auto"] = Field(
        default="auto",
        kw_only=True,
        description="relative: every sample counts by its relative error; auto: chosen on validation samples",
    )
    precision: Literal["double", "single"] = Field(default="double", kw_only=True, description="double or single")

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the method in reports."""

    @property
    def dtype(self) -> np.dtype:
        """The precision of the networks."""
        return np.dtype(np.float64 if self.precision == "double" else np.float32)

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
