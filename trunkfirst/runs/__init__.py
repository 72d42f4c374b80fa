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
from ._environment import environment
from ._method import build_method
from ._presets import NETWORKS, PRESETS, preset_values
from ._reporter import Reporter, Silent
from ._run import Outcome, Prepared, prepare, run

__all__ = [
    "NETWORKS",
    "PRESETS",
    "Claim",
    "Comparison",
    "MethodName",
    "Outcome",
    "Prepared",
    "Reporter",
    "RunConfig",
    "Silent",
    "build_method",
    "check_claims",
    "check_used",
    "compare",
    "environment",
    "load_config",
    "make_config",
    "merge",
    "parse_setting",
    "prepare",
    "preset_values",
    "put",
    "run",
    "to_toml",
]
