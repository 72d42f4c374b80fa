"""Regressors: what can stand as a branch."""

from ._abstract import AbstractRegressor, Regression, mean_square
from ._network import BranchSettings, NetworkRegressor, RegressionLoss

__all__ = [
    "AbstractRegressor",
    "BranchSettings",
    "NetworkRegressor",
    "Regression",
    "RegressionLoss",
    "mean_square",
]
