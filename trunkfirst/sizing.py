"""Sizes from the data and iterations from the time allowed, where a method leaves them open."""

import contextlib
import dataclasses as dc
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .candidates import FOLDS, MAX_SAMPLES
from .checkpoints import remember
from .data.array_checks import evenly
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData, ScatteredData
from .distributed.processes import broadcast_value
from .encode import encode
from .inputs import AutoInputs, RawInputs, StandardisedInputs
from .linear.blocked_qr import one_blas_thread
from .linear.low_rank import trunk_limit
from .method import AbstractMethod
from .minimisers.loop import minimise, raise_if_interrupted
from .moving_trunk import USUAL_ITERATIONS, MovingTrunk, moving_inputs
from .network_trunk import NetworkTrunk, SeparateTrunks
from .records import LogEntry
from .regressors.fourier import FourierBranch
from .regressors.network import AutoBranch
from .trunks import ModesTrunk
from .two_step import TwoStep

# Functions beyond this relative error of the best basis are left out.
_WANTED_ERROR = 1e-5
_MAX_FUNCTIONS = 150
_MAX_ROWS = 4000
_MIN_HIDDEN, _SCATTERED_WIDTH = 40, 40
# Shares of the time; the rest is for what has no iterations: closed forms, compiling, the report.
TRUNK_SHARE, _TRIALS_SHARE, _BRANCH_SHARE = 0.4, 0.15, 0.15
# Starts and their halving cost about half as much again as the iterations asked for.
_WITH_STARTS = 1.5
MIN_ITERATIONS, _MAX_ITERATIONS = 200, 6000
_WARM_UP, _TIMED = 5, 20
# Trials of networks while choosing, of `trial_iterations` each, and fits of the branch, with those for intervals.
_TRIALS, _BRANCH_FITS = 10, 6
_MIN_TRIAL, _MIN_BRANCH = 20, 50
# Fourier layers: passes through the samples, iterations, and modes while an iteration is timed.
_MOST_EPOCHS, _FEWEST_FOURIER, _FEW_MODES = 300, 200, 8
# The log of that many iterations has a line for every fifth of them; as many lines are timed.
_LOGGED_RARELY, _MARKS = 100, 4


# A kernel costs this many factorisations: the matrix, its solutions and predictions; that of this size is timed.
_FEWEST_SAMPLES = 1000
_KERNEL_COST, _FACTORISED = 2, 500


def with_sizes(method: AbstractMethod, data: AnyData) -> AbstractMethod:
    """The method with the sizes of its trunk network filled in from the rank of the outputs."""
    trunk: Any = getattr(method, "trunk", None)
    if isinstance(trunk, SeparateTrunks):
        return dc.replace(method, trunk=dc.replace(trunk, each=_sized(trunk.each, data)))
    return dc.replace(method, trunk=_sized(trunk, data)) if hasattr(trunk, "hidden") else method


def _sized(trunk: Any, data: AnyData) -> Any:
    if trunk.hidden is not None and trunk.width is not None:
        return trunk
    width = trunk.width or max(suitable_width(data), _min_functions(data))
    return dc.replace(trunk, hidden=trunk.hidden or _hidden_layers(data, width), width=width)


def _hidden_layers(data: AnyData, width: int) -> tuple[int, ...]:
    """Three layers; one where there are many functions on few points of a plane or a space: more overfit."""
    hidden = max(_MIN_HIDDEN, min(width, _MAX_FUNCTIONS))
    is_dense = isinstance(data, OperatorData) and 3 * width > len(data.points) and data.points.shape[1] > 1
    return (2 * hidden,) if is_dense else (hidden, hidden, hidden)


def _min_functions(data: AnyData) -> int:
    """However low the rank: a network finds functions that span the modes sooner than the modes themselves."""
    points = int(np.median(data.counts)) if isinstance(data, ScatteredData) else len(data.points)
    return max(1, min(_MIN_HIDDEN, points // 3))


def suitable_width(data: AnyData) -> int:
    """The fewest functions whose best possible error is small enough, by the rank of the outputs."""
    if isinstance(data, ScatteredData):
        # Three values for each coefficient of a usual sample: more functions fit the noise.
        return min(_SCATTERED_WIDTH, int(np.median(data.counts)) // 3)
    outputs = data.outputs
    if outputs.ndim == 3:
        scaled = outputs / np.sqrt(np.mean(outputs**2, axis=(0, 1)))
        outputs = scaled.swapaxes(1, 2).reshape(-1, outputs.shape[1])
    outputs = outputs[evenly(len(outputs), _MAX_ROWS)]
    most = min(_MAX_FUNCTIONS, outputs.shape[1] - 1, max(len(outputs) - 1, 1))
    if most < 1:
        return 1
    wanted = _WANTED_ERROR**2 * float(np.mean(outputs**2))
    for width in sorted({1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, most}):
        if width <= most and trunk_limit(outputs, width) <= wanted:
            return width
    return most


def within_minutes(method: AbstractMethod, data: AnyData, minutes: float) -> AbstractMethod:
    """The method with the iterations that fit into the time, measured on a few of them."""
    if not isinstance(method, TwoStep):
        return method
    trunk = method.trunk.each if isinstance(method.trunk, SeparateTrunks) else method.trunk
    if isinstance(trunk, MovingTrunk) and trunk.iterations is None:
        seconds = _journalled("moving trunk", lambda: _seconds_of_moving(method, trunk, data))
        count = int(TRUNK_SHARE * 60 * minutes / seconds)
        members = max(1, min(trunk.members, count // USUAL_ITERATIONS))
        iterations = max(MIN_ITERATIONS, min(_MAX_ITERATIONS, _two_digits(count // members)))
        return dc.replace(method, trunk=dc.replace(trunk, iterations=iterations, members=members))
    if not isinstance(trunk, NetworkTrunk) or trunk.iterations is not None:
        return method
    times = data.channels if isinstance(method.trunk, SeparateTrunks) else 1
    seconds = _journalled("trunk", lambda: _seconds_per_iteration(method, trunk, data))
    count = int(TRUNK_SHARE * 60 * minutes / seconds / _WITH_STARTS / times)
    timed = dc.replace(trunk, iterations=max(MIN_ITERATIONS, min(_MAX_ITERATIONS, _two_digits(count))))
    whole = dc.replace(method.trunk, each=timed) if isinstance(method.trunk, SeparateTrunks) else timed
    branch = method.branch
    if isinstance(branch, AutoBranch):
        branch = _branch_within(branch, timed, data, minutes)
    return dc.replace(method, trunk=whole, branch=branch)


def _journalled(step: str, measure: Callable[[], float]) -> float:
    """Seconds an iteration, measured once: a resumed run and all processes use the same number."""
    found = remember(f"seconds of a {step} iteration", lambda: {"seconds": np.array([broadcast_value(measure())])})
    return float(found["seconds"][0])


def seconds_of_branch(branch: AutoBranch, data: AnyData) -> float:
    """Seconds of an iteration of the network of an open branch, for about as many coefficients as samples."""
    coefficients = min(data.samples, _MAX_FUNCTIONS) * data.channels
    return _journalled("branch", lambda: _seconds_of_branch(branch, coefficients, data))


def seconds_of_kernel(samples: int) -> float:
    """About the seconds of a kernel fitted to all but a fifth of the samples, for each of five folds."""
    matrix = 2 * np.eye(_FACTORISED)
    begin = time.perf_counter()
    with one_blas_thread():
        np.linalg.cholesky(matrix)
    each = _KERNEL_COST * (time.perf_counter() - begin)
    return FOLDS * each * ((1 - 1 / FOLDS) * samples / _FACTORISED) ** 3


def samples_within(seconds: float) -> int:
    """How many samples a kernel can be compared on in this time, of those that are enough and at most all."""
    most = _journalled("kernel, all samples", lambda: seconds_of_kernel(MAX_SAMPLES))
    return int(np.clip(_two_digits(int(MAX_SAMPLES * np.cbrt(seconds / most))), _FEWEST_SAMPLES, MAX_SAMPLES))


def fourier_within(branch: FourierBranch, data: AnyData, seconds: float) -> FourierBranch | None:
    """The branch with as many iterations as fit into the time; None if they are too few to learn anything.

    For the fewest that do it may take half as long again.
    """
    each = _journalled("Fourier", lambda: seconds_of_fourier(branch, data))
    if 1.5 * seconds < _FEWEST_FOURIER * each:
        return None
    most = max(_MOST_EPOCHS * data.samples // branch.batch, _FEWEST_FOURIER)
    return dc.replace(branch, iterations=max(min(_two_digits(int(seconds / each)), most), _FEWEST_FOURIER))


class _Timed(Exception):  # noqa: N818
    """Enough iterations were timed."""


def seconds_of_fourier(
    branch: FourierBranch, data: AnyData, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Of an iteration, for some samples and a few modes.

    The log, which costs as much as an iteration, is written about as rarely as in a long training.
    """
    some = data.take(slice(0, 2 * branch.batch))
    long = dc.replace(branch, iterations=_LOGGED_RARELY, symmetries=False)
    marks: list[tuple[int, float]] = []

    def on_step(step: LogEntry) -> None:
        if step.stage == "branch":
            marks.append((step.iteration, clock()))
        if len(marks) == _MARKS:
            raise _Timed

    with jax.enable_x64(True), contextlib.suppress(_Timed):
        method = TwoStep(ModesTrunk(width=_FEW_MODES), long, inputs=RawInputs(), weights="none")
        raise_if_interrupted(method.fit(some, key=jr.key(0), on_step=on_step).status)
    (_, _), (first, begin), *_, (last, end) = marks
    return (end - begin) / (last - first)


def _branch_within(branch: AutoBranch, trunk: NetworkTrunk, data: AnyData, minutes: float) -> AutoBranch:
    """Fewer iterations of trials and of the network where time is short."""
    assert trunk.width is not None
    coefficients = (trunk.width + 1) * data.channels
    seconds = _journalled("branch", lambda: _seconds_of_branch(branch, coefficients, data))
    trial = int(_TRIALS_SHARE * 60 * minutes / seconds / _TRIALS)
    whole = int(_BRANCH_SHARE * 60 * minutes / seconds / _BRANCH_FITS)
    iterations = min(branch.network.iterations, max(_MIN_BRANCH, _two_digits(whole)))
    return dc.replace(
        branch,
        network=dc.replace(branch.network, iterations=iterations),
        trial_iterations=min(branch.trial_iterations, max(_MIN_TRIAL, _two_digits(trial))),
    )


def _seconds_of_branch(branch: AutoBranch, coefficients: int, data: AnyData) -> float:
    """Of an iteration of the network on standardised inputs, for random targets."""
    rows = min(data.samples, _MAX_ROWS)
    network = dc.replace(branch.network, iterations=_WARM_UP + _TIMED)
    targets = np.random.default_rng(0).normal(size=(rows, coefficients))
    with jax.enable_x64(True):
        inputs = StandardisedInputs().fit(data)(jnp.asarray(data.flat_inputs[:rows], jnp.float64))
        fitted = network.fit(inputs, jnp.asarray(targets), key=jr.key(0))
    raise_if_interrupted(fitted.status)
    first, last = fitted.history[min(_WARM_UP, len(fitted.history) - 2)], fitted.history[-1]
    return (last.seconds - first.seconds) / max(last.iteration - first.iteration, 1)


def _seconds_of_moving(method: TwoStep, trunk: MovingTrunk, data: AnyData) -> float:
    weights = "relative" if method.weights == "auto" else method.weights
    inputs = moving_inputs(data) if isinstance(method.inputs, AutoInputs) else method.inputs
    plain = dc.replace(method, inputs=inputs, weights=weights)
    with jax.enable_x64(True):
        fields = encode(data, plain, plain.dtype).fields
        short = dc.replace(trunk, iterations=_WARM_UP + _TIMED, members=1)
        steps = short.fit(fields, dtype=plain.dtype, key=jr.key(0)).history
    first, last = next(step for step in steps if step.iteration >= _WARM_UP), steps[-1]
    return (last.seconds - first.seconds) / max(last.iteration - first.iteration, 1)


def _seconds_per_iteration(method: TwoStep, trunk: NetworkTrunk, data: AnyData) -> float:
    dtype, some = np.dtype(np.float64), evenly(data.samples, _MAX_ROWS)  # an iteration costs the same for all
    weights = "relative" if method.weights == "auto" else method.weights
    plain = dc.replace(method, inputs=RawInputs(), weights=weights, precision="double")
    with jax.enable_x64(True):
        fields = encode(data.take(some), plain, dtype).fields
        start = trunk.start(fields, dtype=dtype, key=jr.key(0))
        widths = (fields.points.shape[1], *(trunk.hidden or ()), trunk.width or 0)
        problem = fields.problem(dtype, floats_per_point=sum(widths))(trunk.ridge)
        warm = minimise(problem, start, trunk.minimiser, iterations=_WARM_UP, key=jr.key(0))
        raise_if_interrupted(warm.status)
        begin = time.perf_counter()
        minimise(
            problem,
            warm.parameters,
            trunk.minimiser,
            iterations=_WARM_UP + _TIMED,
            state=warm.state,
            key=jr.key(0),
        )
    return (time.perf_counter() - begin) / _TIMED


def _two_digits(count: int) -> int:
    """Rounded down to two digits, so that small differences of speed do not show."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return count // unit * unit
