"""Runs: configuration, presets, one run, several side by side."""

from ._claims import Claim, check_claims
from ._compare import Comparison, compare
from ._config import (
    MethodName,
    RunConfig,
    check_used,
    load_config,
    make_config,
    merge,
    parse_setting,
    put,
    to_toml,
)
from ._diagnose import Case, Diagnosed, diagnose_run, gather_case
from ._environment import environment
from ._fit_own import fit_own, own_config
from ._memory import Memory, read_memory, sample_count
from ._method import build_method
from ._needs import check_memory
from ._own_data import own_values
from ._prepare import Prepared, prepare
from ._presets import NETWORKS, PRESETS, preset_values
from ._reporter import Reporter, Silent
from ._resume import resume
from ._run import Outcome, run
from ._sensors import Placement, place_sensors
from ._study import KNOWN_RATES, Study, known_rates_study, study
from .sweep_grid import Grid, make_grid, setting_text
from .sweeps import Progress, Row, Sweep, sweep

__all__ = [
    "KNOWN_RATES",
    "NETWORKS",
    "PRESETS",
    "Case",
    "Claim",
    "Comparison",
    "Diagnosed",
    "Grid",
    "Memory",
    "MethodName",
    "Outcome",
    "Placement",
    "Prepared",
    "Progress",
    "Reporter",
    "Row",
    "RunConfig",
    "Silent",
    "Study",
    "Sweep",
    "build_method",
    "check_claims",
    "check_memory",
    "check_used",
    "compare",
    "diagnose_run",
    "environment",
    "fit_own",
    "gather_case",
    "known_rates_study",
    "load_config",
    "make_config",
    "make_grid",
    "merge",
    "own_config",
    "own_values",
    "parse_setting",
    "place_sensors",
    "prepare",
    "preset_values",
    "put",
    "read_memory",
    "resume",
    "run",
    "sample_count",
    "setting_text",
    "study",
    "sweep",
    "to_toml",
]
