"""`trunkfirst.learning_curve`: the error against the number of samples, and how many a smaller error needs."""

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .data.operator_data import OperatorData
from .data.read_write import read_data
from .data.repeated_samples import different
from .data.scattered_data import ScatteredData
from .data.sharded_data import ShardedData
from .errors import DataError, UsageError, ValueRangeError
from .inputs import AutoInputs, StandardisedInputs
from .method import AbstractMethod
from .regressors.ridge import Kernel, Linear
from .theory.rates import fit_slope
from .trials import Candidate, Folds
from .trunks import ModesTrunk
from .two_step import TwoStep

# Sizes of the subsets: the largest is this many times the smallest; samples that are looked at, at most.
_SIZES, _RATIO, FEWEST, _MOST = 6, 8, 10, 1000
# Resampled curves, the fewest sizes that each is fitted to, and the share of them in a printed range.
_DRAWS, _FEWEST_SIZES, _LEVEL = 400, 3, 0.8
# The law is drawn up to this many times the samples there are.
_AHEAD = 4
# Where the error falls more slowly than this power, more samples do not pay.
_FLAT = 0.1
# Relative errors below this are rounding; they do not fall with more samples.
_ROUNDING = 1e-13


@dc.dataclass(frozen=True, eq=False)
class LearningCurve:
    """The result of `learning_curve`: mean relative errors on samples left out, by the number of training samples.

    `counts` and `errors` (sizes,) are the curve, `samples` is the number of all samples, and `method` the method
    in words. `rates` and `constants` (draws,) are those of the power law constant * count^-rate, fitted to curves
    of resampled folds; their spread is the uncertainty of the extrapolation.
    """

    counts: Int[np.ndarray, " sizes"]
    errors: Float[np.ndarray, " sizes"]
    samples: int
    method: str
    rates: Float[np.ndarray, " draws"]
    constants: Float[np.ndarray, " draws"]

    @property
    def rate(self) -> float:
        """The exponent r of the fitted law: the error falls like count^-r."""
        return float(np.median(self.rates))

    def error_at(self, count: int) -> float:
        """Expected error with this many samples."""
        return float(np.median(self.constants * count**-self.rates))

    def samples_for(self, error: float) -> tuple[float, float, float]:
        """Number of samples needed for this error: the median, and the ends of a range of 80 %."""
        if not error > 0:
            raise ValueRangeError(f"error is {error}; expected a number above 0")
        with np.errstate(over="ignore", divide="ignore"):
            needed = np.where(self.rates > 0, (self.constants / error) ** (1 / self.rates), np.inf)
        low, middle, high = np.quantile(needed, [(1 - _LEVEL) / 2, 0.5, (1 + _LEVEL) / 2], method="nearest")
        return float(middle), float(low), float(high)

    def summary(self) -> dict[str, Any]:
        """Everything in plain values, as in `diagnosis.json`; None for values that are not finite."""
        middle, low, high = (
            None if not np.isfinite(n) else round(n) for n in self.samples_for(self.error_at(self.samples) / 2)
        )
        return {
            "counts": self.counts.tolist(),
            "errors": self.errors.tolist(),
            "samples": self.samples,
            "method": self.method,
            "rate": self.rate,
            "rate_range": self._range(self.rates),
            "to_halve": {"samples": middle, "from": low, "to": high},
            "law": self._law(),
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """A sentence with the rate and the number of samples that halve the error."""
        if self.errors.min() < _ROUNDING:
            return f"With {self.method} the error is at rounding with {self.samples:,} samples and with fewer."
        low, high = self._range(self.rates)
        fall = f"With {self.method} the error falls like samples^-{self.rate:.2f} ({low:.2f} to {high:.2f})"
        if self.rate < _FLAT:
            return f"{fall}: more samples alone hardly help."
        middle, fewest, most = self.samples_for(self.error_at(self.samples) / 2)
        end = f"{most:,.0f}" if most < 1e3 * self.samples else "far more"
        needed = f"to halve it you need about {middle:,.0f} samples instead of {self.samples:,}"
        return f"{fall}: {needed} ({fewest:,.0f} to {end})."

    def _law(self) -> dict[str, list[float]]:
        """The fitted law from the smallest size to some times the samples: median, and a range of 80 %."""
        counts = np.geomspace(self.counts[0], _AHEAD * self.samples, 30)
        errors = self.constants[:, None] * counts ** -self.rates[:, None]
        low, middle, high = np.quantile(errors, [(1 - _LEVEL) / 2, 0.5, (1 + _LEVEL) / 2], axis=0)
        return {"counts": counts.tolist(), "errors": middle.tolist(), "from": low.tolist(), "to": high.tolist()}

    def _range(self, values: np.ndarray) -> list[float]:
        return [float(q) for q in np.quantile(values, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])]

    def __repr__(self) -> str:
        pairs = ", ".join(f"{n}: {e:.1e}" for n, e in zip(self.counts, self.errors, strict=True))
        return f"LearningCurve({pairs}; {self.sentence()})"


def learning_curve(
    data: Any,
    *,
    method: AbstractMethod | None = None,
    folds: int = 5,
    seed: int = 0,
) -> LearningCurve:
    """Measure how the error falls with the number of samples, and extrapolate it.

    Each fold of the samples is left out in turn. A method in closed form is fitted to growing random subsets of
    the others, and its error is measured on the fold. Suggested samples are not used.

    Args:
        data: `OperatorData`, or what `read_data` reads.
        method: a two-step method with modes as trunk and a kernel or linear branch, such as `FitResult.method`.
            Any other method, and None, is replaced by PCA + kernel ridge.
        folds: number of parts.
        seed: seed of folds and subsets.

    Returns:
        A `LearningCurve` with the errors and the fitted power law.

    Raises:
        DataError: the data are wrong, as in `read_data`.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).uniform(1, 3, size=(60, 2))
    >>> data = trunkfirst.OperatorData(a, x[:, None], np.sin(a[:, :1] * x) * a[:, 1:])
    >>> found = trunkfirst.learning_curve(data)
    >>> bool(found.errors[0] > found.errors[-1]), bool(found.samples_for(found.errors[-1] / 2)[0] > 48)
    (True, True)
    """
    given = data if isinstance(data, OperatorData | ScatteredData | ShardedData) else read_data(data)
    if not isinstance(given, OperatorData):
        raise UsageError("a learning curve needs outputs at the same points for every sample, in memory")
    rows = different(given, np.random.default_rng(seed).permutation(given.exchangeable))[:_MOST]
    if len(rows) < FEWEST or not 2 <= folds <= len(rows) // 2:
        raise DataError(f"samples: {len(rows)} in {folds} folds; a learning curve needs {FEWEST} samples or more")
    parts, candidate = np.array_split(rows, folds), _candidate(method)
    largest = len(rows) - max(map(len, parts))
    counts = np.unique(np.geomspace(max(largest / _RATIO, 3), largest, _SIZES).round().astype(int))
    output = method.output if isinstance(method, TwoStep) else TwoStep().output
    errors = [
        [_errors(given, output, candidate, rows[~np.isin(rows, part)][:count], part) for part in parts]
        for count in counts
    ]
    words = "PCA + kernel ridge" if candidate == _candidate(None) else "the branch and encoder of this operator"
    means = np.array([np.mean(np.concatenate(each)) for each in errors])
    return LearningCurve(counts, means, len(given.exchangeable), words, *_resampled(counts, errors, seed))


def _candidate(method: AbstractMethod | None) -> Candidate:
    """The method, if it is a closed form with nothing left open; else PCA + kernel ridge."""
    if (
        isinstance(method, TwoStep)
        and isinstance(method.trunk, ModesTrunk)
        and isinstance(method.branch, Kernel | Linear)
        and not isinstance(method.inputs, AutoInputs)
        and method.weights != "auto"
    ):
        return Candidate(method.inputs, method.branch, method.weights)
    return Candidate(StandardisedInputs(), Kernel(), "none")


def _errors(
    data: OperatorData, output: Any, candidate: Candidate, rest: np.ndarray, part: np.ndarray
) -> Float[np.ndarray, " part"]:
    """The errors of the samples of a part, predicted from the rest."""
    held = np.arange(len(rest), len(rest) + len(part))
    return Folds(data.take(np.concatenate([rest, part])), output, [held]).errors(candidate)[held]


def _resampled(
    counts: np.ndarray, errors: Sequence[Sequence[np.ndarray]], seed: int
) -> tuple[Float[np.ndarray, " draws"], Float[np.ndarray, " draws"]]:
    """Rates and constants of power laws, fitted to the last sizes of curves from folds drawn with replacement."""
    rng, folds = np.random.default_rng(seed), len(errors[0])
    means = np.array([[np.mean(part) for part in each] for each in errors])
    laws = []
    for _ in range(_DRAWS):
        curve = np.maximum(means[:, rng.integers(0, folds, folds)].mean(axis=1), np.finfo(float).tiny)
        first = int(rng.integers(0, max(len(counts) - _FEWEST_SIZES, 0) + 1))
        laws.append(fit_slope(counts[first:], curve[first:]))
    return np.array([-law.value for law in laws]), np.array([law.constant for law in laws])
