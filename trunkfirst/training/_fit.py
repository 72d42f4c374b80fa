"""`fit`: from data and a method to an operator."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import AnyData, ShardedData
from ..distributed.mesh import use_devices
from ..errors import DivergedError
from ..minimisers import OnStep
from ._methods import Method, Monolithic, TwoStep
from ._monolithic import fit_monolithic, fit_monolithic_projected
from ._prepared import prepare
from ._result import FitResult
from ._trunks import TrunkResult
from ._two_step import fit_two_step


def fit(
    data: AnyData | ShardedData,
    method: Method,
    *,
    key: PRNGKeyArray | int = 0,
    devices: int | Sequence[Any] | None = None,
    trunk_result: TrunkResult | None = None,
    on_step: OnStep | None = None,
    throw: bool = True,
) -> FitResult:
    """Train an operator on `data`, which holds training samples alone.

    `method` is a record: `TwoStep`, `Monolithic` or `MonolithicProjected`; `key` a seed or a JAX key;
    `devices` says over how many, or which, the rows are spread (`trunkfirst.devices.use_devices`);
    `trunk_result` a finished step 1 to build on; `on_step` is called with every line of the log. A loss that
    stops being finite raises `DivergedError`, or with `throw=False` comes back as the status "diverged" with
    the best finite parameters.

    `ShardedData` are never in memory at once: see docs/scale.md for what is exact then and what is sampled.

    Double precision is switched on inside and nowhere else.

    >>> import numpy as np
    >>> import trunkfirst as tf
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = tf.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> trunk = tf.ProjectedTrunk(tf.TrunkSettings((1, 20, 6), "tanh", "xavier"), iterations=50, starts=1)
    >>> result = tf.fit(data.take(slice(0, 30)), tf.TwoStep(trunk, tf.LinearRidge()), key=0)
    >>> result.status
    'finished'
    >>> fields = result.operator.predict(a[30:], x[:, None])
    >>> bool(abs(fields - data.outputs[30:]).max() < 1e-2)
    True
    """
    dtype = np.dtype(np.float64 if method.precision == "double" else np.float32)
    with use_devices(devices), jax.enable_x64(True):
        key = jr.key(int(key)) if isinstance(key, int | np.integer) else key
        # Handed over, not kept here: what is no longer needed of large data can then be given back.
        if isinstance(method, TwoStep):
            result = fit_two_step(
                prepare(data, method, dtype), method, key=key, trunk_result=trunk_result, on_step=on_step
            )
        elif isinstance(method, Monolithic):
            result = fit_monolithic(prepare(data, method, dtype), method, key=key, on_step=on_step)
        else:
            result = fit_monolithic_projected(prepare(data, method, dtype), method, key=key, on_step=on_step)
    if throw and result.status == "diverged":
        bad = next(step for step in result.history if not math.isfinite(step.loss))
        raise DivergedError(
            f"the {bad.stage} loss is no longer finite at iteration {bad.iteration} (rate {bad.rate:.1e}); "
            "try a smaller rate, or standardised inputs"
        )
    return result
