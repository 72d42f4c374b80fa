"""Runs: configurations carried out in folders, alone, compared with each other, or in sweeps."""

from .claims import check_claims
from .compare import Comparison, compare
from .config import RunConfig, load_config, make_config, nested, parse_settings, problem_configs
from .diagnose import Case, diagnose_run, gather_case
from .directory import environment
from .more_samples import fit_more
from .place_sensors import Placement, place_sensors
from .resume import resume
from .run import Outcome, run
from .study import KNOWN_RATES, Study, study
from .sweeps import Grid, Progress, Row, Sweep, make_grid, sweep

__all__ = [
    "KNOWN_RATES",
    "Case",
    "Comparison",
    "Grid",
    "Outcome",
    "Placement",
    "Progress",
    "Row",
    "RunConfig",
    "Study",
    "Sweep",
    "check_claims",
    "compare",
    "diagnose_run",
    "environment",
    "fit_more",
    "gather_case",
    "load_config",
    "make_config",
    "make_grid",
    "nested",
    "parse_settings",
    "place_sensors",
    "problem_configs",
    "resume",
    "run",
    "study",
    "sweep",
]
