"""Regressors: records that fit the branch."""

from .active_neurons import ActiveNeurons, OnBranch
from .base import AbstractRegressor, InputLayout, Regression, StoredRows, Task, mean_square
from .network import AutoBranch, BranchNetwork, JointBranch, NetworkBranch, RegressionLoss
from .ridge import Kernel, Linear
from .sklearn import Sklearn

__all__ = [
    "AbstractRegressor",
    "ActiveNeurons",
    "AutoBranch",
    "BranchNetwork",
    "InputLayout",
    "JointBranch",
    "Kernel",
    "Linear",
    "NetworkBranch",
    "OnBranch",
    "Regression",
    "RegressionLoss",
    "Sklearn",
    "StoredRows",
    "Task",
    "mean_square",
]
