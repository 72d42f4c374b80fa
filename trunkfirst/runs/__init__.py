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
from ._fit_own import fit_own, own_config
from ._memory import Memory, read_memory
from ._method import build_method
from ._own_data import own_values
from ._prepare import Prepared, prepare
from ._presets import NETWORKS, PRESETS, preset_values
from ._reporter import Reporter, Silent
from ._run import Outcome, run

__all__ = [
    "NETWORKS",
    "PRESETS",
    "Claim",
    "Comparison",
    "Memory",
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
    "fit_own",
    "load_config",
    "make_config",
    "merge",
    "own_config",
    "own_values",
    "parse_setting",
    "prepare",
    "preset_values",
    "put",
    "read_memory",
    "run",
    "to_toml",
]
