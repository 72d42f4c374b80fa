"""DeepXDE's DeepONet on a Cartesian product (PyTorch) with the networks of a method."""

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from trunkfirst.data.operator_data import OperatorData

os.environ["DDE_BACKEND"] = "pytorch"
try:
    import deepxde as dde
    import torch
except ImportError as error:
    sys.exit(f"this script needs DeepXDE and PyTorch ({error}); install them with: pip install trunkfirst[bench]")

torch.set_num_threads(len(os.sched_getaffinity(0)))
Watch = Callable[[Any], None]  # called with the model at every iteration


def make_model(method: Any, inputs: np.ndarray, data: OperatorData, dtype: str) -> Any:
    """A DeepONetCartesianProd of the sizes in `method` on encoded `inputs` (samples, features).

    It has N + 1 trunk outputs behind an activation and one bias; trunkfirst has N linear ones and a constant.
    """
    dde.config.set_default_float(dtype)  # and says so on standard output
    dde.config.set_random_seed(0)
    start = {"he": "He normal", "xavier": "Glorot normal"}[method.trunk.initialisation]
    functions = method.trunk.width + 1
    trunk = [data.points.shape[1], *method.trunk.hidden, functions]
    branch = [inputs.shape[1], *method.branch.hidden, functions]
    net = dde.nn.DeepONetCartesianProd(branch, trunk, method.trunk.activation, start)
    X, y = (inputs.astype(dtype), data.points.astype(dtype)), data.outputs.astype(dtype)
    return dde.Model(dde.data.TripleCartesianProd(X, y, (X[0][:1], X[1]), y[:1]), net)


def train(model: Any, watch: Watch, iterations: int | None = None, **options: Any) -> None:
    """Train without output; `watch` may set `model.stop_training`."""
    model.train(iterations, display_every=10**9, callbacks=[_Before(watch)], verbose=0, **options)


class _Before(dde.callbacks.Callback):
    """Calls a function with the model before every iteration of DeepXDE (every part of its L-BFGS)."""

    def __init__(self, function: Watch) -> None:
        super().__init__()
        self.on_batch_begin = lambda: function(self.model)


def compile_adam(model: Any, *, is_relative: bool = False) -> None:
    """Adam at 1e-3, on mean squares or on those relative to the size of each sample."""
    model.compile("adam", lr=1e-3, loss=_loss(is_relative), verbose=0)


def compile_lbfgs(model: Any, *, is_relative: bool = False) -> None:
    """L-BFGS in parts of 20 iterations, so that the time can be checked between them."""
    dde.optimizers.config.LBFGS_options.update(iter_per_step=20, fun_per_step=25)
    model.compile("L-BFGS", loss=_loss(is_relative), verbose=0)


def _loss(is_relative: bool) -> Any:
    return _relative_square if is_relative else "MSE"


def _relative_square(truth: Any, fields: Any) -> Any:
    return torch.mean(torch.mean((fields - truth) ** 2, dim=1) / torch.mean(truth**2, dim=1))
