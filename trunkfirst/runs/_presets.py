"""Presets: the settings for the paper's three problems, in one table.

`paper` is the paper to the letter. Architectures, activations, initialisation and rates are its own (section 5);
it does not say how long it trained, so the iterations are ours, chosen to take a few minutes.

`fast` keeps problem, data and architecture and uses what this library adds: variable projection, L-BFGS, several
starts, relative weights, encoders chosen on validation; the same for every method.
"""

from typing import Any

from ..errors import UnknownNameError
from ._config import merge

NETWORKS: dict[str, dict[str, Any]] = {
    "nonlinear-conductivity": {
        "trunk": {"architecture": (2, 50, 50, 50, 50)},
        "branch": {"architecture": (1, 500, 51)},
    },
    "discontinuous-conductivity": {
        "trunk": {"architecture": (2, 25, 25, 25, 25, 25)},
        "branch": {"architecture": (4225, 100, 26)},
    },
    "multiple-inputs": {
        "trunk": {"architecture": (2, 100, 100, 100, 200), "activation": "tanh", "initialisation": "xavier"},
        "branch": {"architecture": (3, 100, 100, 100, 201), "activation": "tanh", "initialisation": "xavier"},
    },
    # Not in the paper's examples: a network of ours.
    "random-conductivity": {
        # One hidden layer: 150 functions on 289 points must not bend between them.
        "trunk": {"architecture": (2, 300, 150), "activation": "tanh", "initialisation": "xavier"},
        "branch": {"architecture": (256, 128, 151), "activation": "gelu", "initialisation": "xavier"},
    },
}

_ADAM: dict[str, Any] = {"minimiser": "adam", "projected": False, "rate": 1e-3, "iterations": 10_000}
_PAPER: dict[str, Any] = {
    "data": {"validation_share": 0.0},
    "trunk": _ADAM,
    "orthonormalise": {"unit_columns": True},
    "branch": {**_ADAM, "encoder": "none"},
    "loss": {"weights": "none"},
}
_PAPER_FOR: dict[str, dict[str, Any]] = {
    "discontinuous-conductivity": {"branch": {"kind": "active-neurons", "iterations": 100}},
    # A has a row for each of the 90,000 samples and moves by the rate an iteration: fewer do not get it there.
    "multiple-inputs": {"branch": {"halve_every": 100_000}},
}
_FAST_FOR: dict[str, dict[str, Any]] = {
    "nonlinear-conductivity": {"trunk": {"iterations": 14_000}, "branch": {"iterations": 50, "ridge": 1e-5}},
    "discontinuous-conductivity": {"trunk": {"iterations": 5_000}, "branch": {"iterations": 500, "ridge": 1e-5}},
    "multiple-inputs": {
        "trunk": {"iterations": 12_000, "starts": 2},
        "branch": {"iterations": 1_200, "ridge": 1e-4},
    },
    "random-conductivity": {
        "trunk": {"iterations": 1_000, "starts": 2},
        # As `fit` chooses them on validation samples.
        "branch": {"iterations": 400, "ridge": 1e-3, "skip": True, "decay": 1e-4, "encoder": "principal:64"},
    },
}
_PRESETS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "fast": ({}, _FAST_FOR),
    "paper": (_PAPER, _PAPER_FOR),
}
PRESETS = tuple(_PRESETS)


def preset_values(preset: str, problem: str) -> dict[str, Any]:
    """The settings of a preset for a problem, as nested values."""
    if preset not in _PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    everywhere, special = _PRESETS[preset]
    values = merge(merge(NETWORKS.get(problem, {}), everywhere), special.get(problem, {}))
    return {**values, "preset": preset, "problem": problem}
