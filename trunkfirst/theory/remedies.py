"""What to improve: width, trunk training, points, samples, branch or data, and the error to expect after it.

Every part of the error budget is divided among the remedies that would reduce it. All numbers are squared relative
errors. An error counts as large as another if it is at least half of it.

- The trunk's part is assigned to the width as far as the best N functions of the training outputs leave it too;
  but to the samples where no number of such functions would help and the trunk is much better on training samples.
  The rest is assigned to the samples if the trunk does not leave it on training samples, else to the points if it
  does not leave it at the sensors, which are all that training sees, else to trunk training.
- The sensors' part is assigned to the points, or to the data where their own error is known to explain it.
- The branch's part is assigned to the branch as far as its error on training samples is as large, else to the
  samples.
"""

import dataclasses as dc
import math

import numpy as np
from jaxtyping import Float

from ..data.array_checks import evenly
from ..data.operator_data import OperatorData
from ..encode import make_fields
from ..error_budget import ErrorBudget, error_budget, trunk_projection
from ..networks.operator import Operator
from .rates import Decay, best_basis, n_term_decay

_MAX_SAMPLES = 2000
# Squared: an error of at least half the size of another is as large.
_AS_LARGE = 4.0
# Relative errors below this are rounding.
_ROUNDING = 1e-12

_ADVICE = {
    "width": "widen the trunk",
    "trunk training": "train the trunk longer, from more starts, or with another activation",
    "points": "give the outputs at more points",
    "samples": "give more training samples",
    "branch": "give the branch more neurons or iterations, or another encoder",
    "data": "solve for the training outputs on a finer mesh",
}


@dc.dataclass(frozen=True, eq=False)
class TrunkEvidence:
    """Squared errors that trunk and best functions leave of outputs of norm 1, before any output map."""

    best: Decay
    """Of test samples, by the functions that are best for the training outputs."""
    own_best: Decay
    """Of training samples, by the same functions."""
    left: float
    """Of test samples, by the trunk."""
    own_left: float
    """Of training samples, by the trunk."""

    def own_excess(self, width: int) -> float:
        """What the trunk leaves of training samples beyond the best functions, as many as it has."""
        return max(0.0, self.own_left - _square(self.own_best, width))


@dc.dataclass(frozen=True, eq=False)
class Evidence:
    """The measurements that a diagnosis is computed from."""

    budget: ErrorBudget
    """Of the test samples, at the evaluation points."""
    at_sensors: ErrorBudget
    """Of the test samples, at the points of training."""
    training: ErrorBudget
    """Of training samples, at the points of training."""
    width: int
    """N, the functions of the trunk besides the constant."""
    trunk: TrunkEvidence
    """At the evaluation points if training samples are known there; else at the sensors."""
    trunk_at_sensors: TrunkEvidence


@dc.dataclass(frozen=True, eq=False)
class Diagnosis:
    """What to improve first, and the error to expect after it."""

    improve: str | None
    """The remedy with the largest gain; None where the error is rounding."""
    error: float
    """Root mean square of the relative errors of the test samples."""
    expected: dict[str, float]
    """The same without the part that each remedy reduces."""
    width: int
    width_needed: int | None
    """How many functions the best basis needs to be well below the error expected of more width."""

    @property
    def gain(self) -> float:
        """The factor by which the error falls with the remedy."""
        left = self.error if self.improve is None else self.expected[self.improve]
        return self.error / left if left > 0 else math.inf

    @property
    def shares(self) -> dict[str, float]:
        """The share of the squared error that each remedy removes."""
        total = max(self.error**2, _ROUNDING**2)
        return {name: 1 - left**2 / total for name, left in self.expected.items()}

    @property
    def sentence(self) -> str:
        """The diagnosis in words."""
        if self.improve is None:
            return f"There is nothing to improve: the relative error of {self.error:.1e} is rounding."
        name, left = self.improve, self.expected[self.improve]
        hint = f" (about N = {self.width_needed})" if name == "width" and self.width_needed else ""
        return (
            f"Improve the {name}: {_ADVICE[name]}{hint}; {self.shares[name]:.0%} of the squared error is there, "
            f"and without it the relative test error would fall from {self.error:.1e} to about {left:.1e}."
        )

    def summary(self) -> dict[str, object]:
        """The part `improve` of `diagnosis.json`."""
        return {
            "what": self.improve,
            "error": self.error,
            "expected": None if self.improve is None else self.expected[self.improve],
            "gain": self.gain,
            "sentence": self.sentence,
            "shares": self.shares,
            "expected_errors": self.expected,
            "width": self.width,
            "width_needed": self.width_needed,
        }


def gather_evidence(
    operator: Operator,
    test: OperatorData,
    at_sensors: OperatorData,
    training: OperatorData,
    *,
    finer_training: OperatorData | None = None,
    nearest: tuple[OperatorData, OperatorData] | None = None,
) -> Evidence:
    """Measure the error budgets and what the trunk leaves.

    `test` is given at the evaluation points, `at_sensors` (the same samples) and `training` at the points of
    training, `finer_training` (some or all of the training samples) at the evaluation points. See `error_budget`
    for `nearest`.
    """
    some = training.take(evenly(training.samples, _MAX_SAMPLES))
    seen = _trunk_evidence(operator, at_sensors, some)
    return Evidence(
        budget=error_budget(operator, test, at_sensors, nearest=nearest),
        at_sensors=error_budget(operator, at_sensors, at_sensors),
        training=error_budget(operator, some, some),
        width=operator.trunk.effective_width,
        trunk=seen if finer_training is None else _trunk_evidence(operator, test, finer_training),
        trunk_at_sensors=seen,
    )


def _trunk_evidence(operator: Operator, test: OperatorData, training: OperatorData) -> TrunkEvidence:
    fields = [make_fields(data, operator.trunk.encoder, operator.output, None) for data in (test, training)]
    weights = fields[0].point_weights
    rows, own_rows = (_unit_rows(part.outputs, weights) for part in fields)
    basis = best_basis(own_rows, weights=weights)

    def left(data: OperatorData, values: Float[np.ndarray, "rows points"]) -> float:
        rest = values - trunk_projection(operator, data, values)
        return float(np.average(rest**2, axis=1, weights=weights).mean())

    best, own_best = (n_term_decay(values, basis, weights=weights) for values in (rows, own_rows))
    return TrunkEvidence(best, own_best, left(test, rows), left(training, own_rows))


def diagnose(evidence: Evidence) -> Diagnosis:
    """Divide the error among the remedies and name the one with the largest gain."""
    budget = evidence.budget
    error = math.sqrt(budget.relative(budget.total))
    trunk, branch = trunk_shares(evidence), branch_shares(evidence)
    blames_data = budget.data is not None and budget.relative(budget.data) > 0.5 * budget.relative(budget.sensors)
    sensors = {"data" if blames_data else "points": 1.0}
    names = [name for name in _ADVICE if name != "data" or blames_data]
    expected = {
        name: math.sqrt(_left(budget, *(shares.get(name, 0.0) for shares in (trunk, sensors, branch))))
        for name in names
    }
    improve = min(names, key=lambda name: expected[name]) if error > _ROUNDING else None
    wider = evidence.trunk.best.width_needed(0.5 * expected["width"])
    needed = wider if wider is not None and wider > evidence.width else None
    return Diagnosis(improve, error, expected, evidence.width, needed)


def trunk_shares(evidence: Evidence) -> dict[str, float]:
    """How the trunk's part is divided among the remedies; the shares sum to 1."""
    trunk, width = evidence.trunk, evidence.width
    left = max(trunk.left, np.finfo(float).tiny)
    limit = min(_AS_LARGE * _square(trunk.best, width), left)
    unseen = min(_square(trunk.best, -1), limit, max(0.0, left - _AS_LARGE * trunk.own_left))
    excess, own = left - limit, trunk.own_excess(width)
    is_own = min(1.0, _AS_LARGE * own / excess) if excess > 0 else 1.0
    is_seen = min(1.0, evidence.trunk_at_sensors.own_excess(width) / own) if own > 0 else 1.0
    return {
        "width": (limit - unseen) / left,
        "trunk training": is_own * is_seen * excess / left,
        "points": is_own * (1 - is_seen) * excess / left,
        "samples": (unseen + (1 - is_own) * excess) / left,
    }


def branch_shares(evidence: Evidence) -> dict[str, float]:
    """How the branch's part is divided between branch and samples; the shares sum to 1."""
    test, training = evidence.at_sensors, evidence.training
    unseen, seen = test.relative(test.branch), training.relative(training.branch)
    own = min(1.0, _AS_LARGE * seen / unseen) if unseen > 0 else 1.0
    return {"branch": own, "samples": 1 - own}


def _left(budget: ErrorBudget, trunk: float, sensors: float, branch: float) -> float:
    """The squared relative error without these shares of the parts; `sensors` is 0 or 1.

    The rest of the branch's vector keeps its direction. Its component along the sensors' vector, in each sample,
    disappears with that: a smooth branch does not follow the errors of the sensors.
    """
    parts = [budget.relative(part) for part in (budget.trunk, budget.sensors, budget.branch, budget.cross)]
    T, S, B, cross = parts
    kept_trunk, kept_branch = max(0.0, 1 - trunk), max(0.0, 1 - branch)
    if sensors:
        squares = np.where(budget.sensors > 0, budget.sensors, np.inf)
        # At most the square of the sensors' vector, which may itself be rounding.
        common = np.minimum(budget.cross**2 / (4 * squares), budget.sensors)
        coefficients = kept_branch * (B - budget.relative(common))
    else:
        coefficients = S + kept_branch * B + math.sqrt(kept_branch) * cross
    whole, remainder = sum(parts), budget.relative(budget.remainder)
    return max(0.0, (kept_trunk * T + coefficients) * (1 + remainder / whole)) if whole > 0 else 0.0


def _square(decay: Decay, width: int) -> float:
    """What `width` functions besides the constant leave, or all of them where there are fewer."""
    return float(decay.root_mean_square[min(width, len(decay.root_mean_square) - 1)] ** 2)


def _unit_rows(
    outputs: Float[np.ndarray, "rows points"], weights: Float[np.ndarray, " points"] | None
) -> Float[np.ndarray, "rows points"]:
    """Rows of norm 1, so that every error is relative."""
    sizes = np.sqrt(np.average(outputs**2, axis=1, weights=weights))
    mean = sizes.mean() if sizes.any() else 1.0
    return outputs / np.where(sizes > 0, sizes, mean)[:, None]
