"""Presets: the paper's settings for its three problems, in one table.

Architectures, activations, initialisation and rates are the paper's (section 5). It does not say how long it
trained; the iterations here are ours, chosen so that a comparison of the three methods takes a few minutes.
"""

from typing import Any

from ..errors import UnknownNameError

PRESETS = ("paper",)

PAPER: dict[str, dict[str, Any]] = {
    "nonlinear-conductivity": {
        "trunk": {"architecture": (2, 50, 50, 50, 50), "iterations": 10_000},
        "branch": {"architecture": (1, 500, 51), "iterations": 10_000},
    },
    "discontinuous-conductivity": {
        "trunk": {"architecture": (2, 25, 25, 25, 25, 25), "iterations": 10_000},
        "branch": {"architecture": (4225, 100, 26), "iterations": 10_000},
    },
    "multiple-inputs": {
        "trunk": {
            "architecture": (2, 100, 100, 100, 200),
            "activation": "tanh",
            "initialisation": "xavier",
            "iterations": 2_000,
        },
        "branch": {
            "architecture": (3, 100, 100, 100, 201),
            "activation": "tanh",
            "initialisation": "xavier",
            "halve_every": 100_000,
            "iterations": 2_000,
        },
    },
}


def preset_values(preset: str, problem: str) -> dict[str, Any]:
    """The settings of a preset for a problem, as nested values."""
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    values = PAPER.get(problem, {})
    return {"preset": preset, "problem": problem, **values, "orthonormalise": {"unit_columns": True}}
