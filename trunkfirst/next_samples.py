"""`trunkfirst.suggest`: where to simulate next, so that the expected error over the whole range falls most.

Each output is a Gaussian process with one kernel, which has a length for every input. The covariance C of the
candidates, given the training inputs, does not depend on outputs that are still unknown: after a simulation at
candidate j it is C - C_j C_j^T / (C_jj + nugget). So one candidate after the other is taken, each time the one
that lowers the mean variance of all candidates, relative to the squares of their outputs, the most.
"""

import dataclasses as dc
import functools as ft
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .data.array_checks import some_indices
from .data.read_write import read_inputs
from .errors import UnknownNameError, UsageError, ValueRangeError
from .files.npz import write_npz
from .files.text_files import write_csv
from .fitting import FitResult
from .intervals import MOST_NUMBERS, is_logarithmic
from .linear.blocked_qr import one_blas_thread
from .linear.kernels import find_kernel, kernel_matrix
from .networks.inversion import sobol_points
from .networks.operator import Operator, load
from .networks.training_domain import TrainingDomain, number_names

Ranges: TypeAlias = Mapping[str, tuple[Any, ...]]
"""(low, high), or ("log", low, high), by the name of the number."""

# Candidates; training inputs that the kernel is found with, and that are given.
_CANDIDATES, _FOR_LENGTHS, _MOST_KNOWN = 2048, 300, 1000
_SMOOTHNESS, _MIN_NUGGET = "5/2", 1e-10
# Outputs below this share of the largest square do not count for more.
_SMALLEST = 1e-4


@dc.dataclass(frozen=True, eq=False)
class Suggestion:
    """The result of `suggest`: inputs to simulate, the most useful first.

    `inputs` are (count, sensors) by name; `rows` (count,) their indices in the pool, if there was one;
    `deviations` (count,) the expected relative error at each input after those before it have been simulated.
    """

    inputs: Mapping[str, Float[np.ndarray, "count sensors"]]
    rows: Int[np.ndarray, " count"] | None
    deviations: Float[np.ndarray, " count"]
    names: tuple[str, ...]
    """The names of all columns."""

    def __len__(self) -> int:
        return len(self.deviations)

    def __repr__(self) -> str:
        return f"Suggestion({self.in_words()})"

    def in_words(self) -> str:
        """Number, names and expected errors."""
        low, high = self.deviations.min(), self.deviations.max()
        return f"{len(self)} samples of {', '.join(self.names)}, with expected errors of {low:.1e} to {high:.1e}"

    def write(self, path: Path | str) -> None:
        """Write a table with a header (.csv), or arrays that can start a data file (.npz)."""
        path = Path(path)
        if path.suffix.lower() == ".csv":
            write_csv(path, [self.names, *np.concatenate([*self.inputs.values()], axis=1).tolist()])
        elif path.suffix.lower() == ".npz":
            arrays = {f"inputs.{name}": values for name, values in self.inputs.items()}
            arrays |= {"is_suggested": np.ones(len(self), bool), "labels.expected_error": self.deviations}
            write_npz(path, arrays if self.rows is None else {**arrays, "labels.row": self.rows})
        else:
            raise UnknownNameError("file format", path.suffix, (".npz", ".csv"))


def suggest(
    source: FitResult | Operator | Path | str,
    count: int,
    *,
    ranges: Ranges | str | None = None,
    pool: Any = None,
    seed: int = 0,
) -> Suggestion:
    """Choose the inputs to simulate next: those that reduce the expected relative error most.

    Add the new samples with `fit --from`, or with `OperatorData(..., is_suggested=...)`. They are not a random
    sample of inputs, so errors and intervals are measured without them.

    Args:
        source: the result of `fit`, an operator, or the folder of either.
        count: number of inputs; ask for all that you can simulate at once, because they are spread out.
        ranges: ranges of the inputs by name, {"a": (1, 10), "b": ("log", 1e-3, 1)} or "a=1:10,b=log:1e-3:1"; by
            default those of training.
        pool: inputs to choose from instead of ranges: what `predict` takes, or a file with them. Needed if the
            inputs are functions.
        seed: seed of the candidates; the same seed gives the same inputs.

    Returns:
        A `Suggestion` with the `inputs`, which `write` saves.

    Raises:
        UsageError: inputs are functions, and there is no pool.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).uniform(1, 2, size=(12, 1))
    >>> method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="raw", weights="none")
    >>> result = trunkfirst.fit({"a": a}, np.sin(a * x), x[:, None], method=method)
    >>> found = trunkfirst.suggest(result, 2, ranges={"a": (1, 4)})
    >>> bool((found.inputs["a"] > 2).all())  # where nothing is known yet
    True
    """
    operator = _operator(source)
    if count < 1:
        raise ValueRangeError(f"count is {count}; suggest 1 or more")
    if pool is not None and ranges is not None:
        raise UsageError("give ranges or a pool to choose from, not both")
    domain = operator.domain
    known = _known_inputs(domain)
    if pool is None:
        candidates = _drawn(_limits(operator, known, ranges), max(_CANDIDATES, 2 * count), seed)
    else:
        candidates = _of_pool(operator, pool)
    if count > len(candidates):
        raise ValueRangeError(f"count is {count}, but there are only {len(candidates)} to choose from")
    rows, deviations = _chosen(operator, known, candidates, count)
    sizes = domain.input_sizes or (candidates.shape[1],)
    parts = np.split(candidates[rows], np.cumsum(sizes)[:-1], axis=1)
    inputs = dict(zip(operator.input_names, parts, strict=True))
    names = number_names(operator.input_names, sizes)
    return Suggestion(inputs, None if pool is None else rows, deviations, names)


def _operator(source: FitResult | Operator | Path | str) -> Operator:
    if isinstance(source, FitResult):
        return source.operator
    return source if isinstance(source, Operator) else load(source)


def _known_inputs(domain: TrainingDomain) -> Float[np.ndarray, "rows sensors"]:
    if (known := domain.training_inputs) is None:
        raise UsageError("this operator has not stored its training inputs; fit it again")
    return known


# -- candidates


def _limits(operator: Operator, known: np.ndarray, ranges: Ranges | str | None) -> list[tuple[Any, ...]]:
    """("log" or "", low, high) of every number."""
    domain = operator.domain
    names = number_names(operator.input_names, domain.input_sizes)
    if len(names) != known.shape[1] or known.shape[1] > MOST_NUMBERS:
        raise UsageError(
            f"the inputs are functions with {known.shape[1]} values, which ranges cannot describe; give a pool of "
            "inputs to choose from (--pool FILE)"
        )
    given = parse_ranges(ranges) if isinstance(ranges, str) else dict(ranges or {})
    for name in given:
        if name not in names:
            raise UnknownNameError("input", name, names)
    usual = [
        ("log" if is_logarithmic(column) else "", column.min(), column.max()) for column in np.asarray(known).T
    ]
    return [
        _checked_range(name, given[name]) if name in given else own for name, own in zip(names, usual, strict=True)
    ]


def parse_ranges(text: str) -> dict[str, tuple[Any, ...]]:
    """The option `--ranges`.

    >>> parse_ranges("a=1:10,b=log:1e-3:1")
    {'a': (1.0, 10.0), 'b': ('log', 0.001, 1.0)}
    """
    found: dict[str, tuple[Any, ...]] = {}
    for part in text.split(","):
        name, separator, limits = part.partition("=")
        kind = ("log",) if limits.startswith("log:") else ()
        try:
            low, high = map(float, limits.removeprefix("log:").split(":"))
        except ValueError:
            low = high = None
        if high is None or not separator or not name.strip():
            raise UsageError(f"--ranges: {part!r} is not NAME=LOW:HIGH or NAME=log:LOW:HIGH")
        found[name.strip()] = (*kind, low, high)
    return found


def _checked_range(name: str, limits: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = limits[0] if len(limits) == 3 else ""
    if len(limits) not in (2, 3) or kind not in ("", "log"):
        raise ValueRangeError(f"ranges[{name!r}] is {limits}; give (low, high) or ('log', low, high)")
    low, high = (float(end) for end in limits[-2:])
    if not low < high or (kind == "log" and low <= 0) or not np.isfinite([low, high]).all():
        positive = " and above 0" if kind == "log" else ""
        raise ValueRangeError(f"ranges[{name!r}]: from {low:g} to {high:g}; the first must be smaller{positive}")
    return kind, low, high


def _drawn(limits: list[tuple[Any, ...]], count: int, seed: int) -> Float[np.ndarray, "candidates sensors"]:
    """Sobol points, scrambled by the seed."""
    unit = sobol_points(len(limits), count, seed)
    columns = [
        np.exp(np.log(low) + u * np.log(high / low)) if kind == "log" else low + u * (high - low)
        for u, (kind, low, high) in zip(unit.T, limits, strict=True)
    ]
    return np.stack(columns, axis=1)


def _of_pool(operator: Operator, pool: Any) -> Float[np.ndarray, "pool sensors"]:
    if isinstance(pool, str | Path):
        functions = read_inputs(pool, names=operator.input_names).functions
        values = {name: function.values for name, function in functions.items()}
        pool = next(iter(values.values())) if len(values) == 1 else values
    return operator.checked_inputs(pool)


# -- choice


def _chosen(
    operator: Operator, known: np.ndarray, candidates: np.ndarray, count: int
) -> tuple[Int[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    """The rows of the candidates, and the relative deviation of each given those before it."""
    known = known[some_indices(len(known), _MOST_KNOWN, seed=0)]
    bare = on_host(operator)
    with jax.enable_x64(operator.dtype == np.float64):
        X, Z = (_features(bare, rows) for rows in (known, candidates))
        Y, predicted = (np.asarray(bare.branch(bare.encoder(rows)), float) for rows in (known, candidates))
    squares = np.sum(predicted**2, axis=1)
    squares = np.maximum(squares, _SMALLEST * squares.max())
    with one_blas_thread():
        some = some_indices(len(X), _FOR_LENGTHS, seed=0)
        kernel = find_kernel(_SMOOTHNESS, X[some], Y[some], np.ones(len(some)))
        covariance = ft.partial(kernel_matrix, _SMOOTHNESS, length=kernel.lengths)
        K, nugget = covariance(X, X), max(kernel.nugget, _MIN_NUGGET)
        factor = scipy.linalg.cholesky(K + nugget * np.eye(len(K)), lower=True)
        V, W = (
            scipy.linalg.solve_triangular(factor, right, lower=True)
            for right in (covariance(X, Z), Y - Y.mean(axis=0))
        )
        rows, variances = _most_useful(covariance(Z, Z) - V.T @ V, 1 / squares, nugget, count)
    return rows, np.sqrt(variances * np.sum(W**2) / len(X) / squares[rows])


def _features(operator: Operator, inputs: np.ndarray) -> np.ndarray:
    """What the operator sees of the inputs, if that is all of them; of functions, their principal coordinates."""
    if inputs.shape[1] > MOST_NUMBERS:
        novelty = operator.domain.novelty
        assert novelty is not None
        return (inputs - novelty.centre) @ novelty.matrix[:, : novelty.seen.shape[1]]
    features = np.asarray(operator.encoder(inputs), float)
    return features if features.shape[1] == inputs.shape[1] else inputs


def on_host(operator: Operator) -> Operator:
    """With NumPy arrays, so that closed forms compile nothing."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, operator)


def _most_useful(
    C: Float[np.ndarray, "candidates candidates"],
    weights: Float[np.ndarray, " candidates"],
    nugget: float,
    count: int,
) -> tuple[Int[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    """One candidate after the other, each the one that lowers the weighted mean variance most; C is changed."""
    rows, variances = np.empty(count, np.int64), np.empty(count)
    is_free = np.ones(len(C), bool)
    for place in range(count):
        left = np.maximum(np.diag(C), 0) + nugget
        gains = np.where(is_free, weights @ C**2 / left, -np.inf)
        best = rows[place] = int(np.argmax(gains))
        variances[place], is_free[best] = left[best], False
        C -= np.outer(C[best], C[best] / left[best])
    return rows, variances
