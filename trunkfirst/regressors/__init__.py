"""Regressors: what can stand as a branch."""

from ._abstract import AbstractRegressor, Regression, Task
from ._active_neurons import ActiveNeurons, OnBranch
from ._adapter import SklearnRegressor
from ._network import BranchSettings, NetworkRegressor, RegressionLoss
from ._numbers import mean_square
from ._projected import ProjectedNetwork
from ._ridge import KernelRidge, LinearRidge
from ._stored_rows import StoredRows

__all__ = [
    "AbstractRegressor",
    "ActiveNeurons",
    "BranchSettings",
    "KernelRidge",
    "LinearRidge",
    "NetworkRegressor",
    "OnBranch",
    "ProjectedNetwork",
    "Regression",
    "RegressionLoss",
    "SklearnRegressor",
    "StoredRows",
    "Task",
    "mean_square",
]
