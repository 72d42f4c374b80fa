"""The paper's theory, built and measured: networks of its proofs, sensors, and what its bound assumes."""

from ._assumptions import Assumption, check_assumptions
from ._bound import Constants, Observed, RateLadder, Rates, Terms, bound_terms, excess_ladder
from ._christoffel import (
    Christoffel,
    SensorCondition,
    christoffel,
    gram,
    gram_deviation,
    sensor_condition,
    theoretical_sensors,
)
from ._decay import Decay, best_basis, n_term_decay
from ._diagnosis import ADVICE, Diagnosis, Evidence, diagnose, gather_evidence
from ._estimates import (
    FillDistances,
    GeneralisationErrors,
    Lipschitz,
    SensorGaps,
    coefficient_lipschitz,
    fill_distances,
    generalisation_errors,
    operator_lipschitz,
    sensor_gaps,
)
from ._input_spaces import AbstractInputSpace, DiskFields, SlopeBall, SobolevBall
from ._interpolating_branch import branch_lipschitz, interpolating_branch
from ._interpolating_trunk import interpolating_trunk, shallow_interpolating_trunk
from ._known_ladders import known_rates_ladders, known_rates_together
from ._known_rates import KnownRates
from ._least_squares import SensorLadder, least_squares_errors, least_squares_ratio
from ._sensors import Sensors, christoffel_sensors, exchange_sensors, input_modes, pivoted_sensors, uniform_sensors
from ._slope import Slope, fit_slope
from ._truncation import truncate
from ._zero_loss import zero_loss_operator

__all__ = [
    "ADVICE",
    "AbstractInputSpace",
    "Assumption",
    "Christoffel",
    "Constants",
    "Decay",
    "Diagnosis",
    "DiskFields",
    "Evidence",
    "FillDistances",
    "GeneralisationErrors",
    "KnownRates",
    "Lipschitz",
    "Observed",
    "RateLadder",
    "Rates",
    "SensorCondition",
    "SensorGaps",
    "SensorLadder",
    "Sensors",
    "Slope",
    "SlopeBall",
    "SobolevBall",
    "Terms",
    "best_basis",
    "bound_terms",
    "branch_lipschitz",
    "check_assumptions",
    "christoffel",
    "christoffel_sensors",
    "coefficient_lipschitz",
    "diagnose",
    "excess_ladder",
    "exchange_sensors",
    "fill_distances",
    "fit_slope",
    "gather_evidence",
    "generalisation_errors",
    "gram",
    "gram_deviation",
    "input_modes",
    "interpolating_branch",
    "interpolating_trunk",
    "known_rates_ladders",
    "known_rates_together",
    "least_squares_errors",
    "least_squares_ratio",
    "n_term_decay",
    "operator_lipschitz",
    "pivoted_sensors",
    "sensor_condition",
    "sensor_gaps",
    "shallow_interpolating_trunk",
    "theoretical_sensors",
    "truncate",
    "uniform_sensors",
    "zero_loss_operator",
]
