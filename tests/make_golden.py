"""Write the golden results anew: `python tests/make_golden.py`.

Do so only when a number is meant to change, and say why in the commit. Model folders and configuration files are
those of version 0.1: they test that these can still be read, so they are written only where they are missing.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_cases as cases
import numpy as np

import trunkfirst

# Relative size of the perturbations by which condition numbers are measured, and how many of them.
NOISE, DRAWS = 1e-8, 3
Make = Callable[..., cases.Numbers]
TABLES: dict[str, tuple[Make, list[str]]] = {
    "objectives": (cases.objective_numbers, list(cases.OBJECTIVES)),
    "closed_forms": (cases.closed_form_numbers, list(cases.CLOSED_FORMS)),
    "models": (cases.model_numbers, list(cases.MODELS)),
}


def numbers_of(make: Make, name: str, noise: float = 0.0, seed: int = 0) -> cases.Numbers:
    """The numbers of one case, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return make(name, Path(folder), noise, seed)


def with_conditions(make: Make, name: str) -> dict[str, Any]:
    """The numbers of one case, and for each array its largest relative change over that of the data."""
    numbers = numbers_of(make, name)
    changed = [numbers_of(make, name, NOISE, seed) for seed in range(1, DRAWS + 1)]
    least = cases.INNER_CONDITION.get(name, 1.0)
    found: dict[str, Any] = {}
    for key, value in numbers.items():
        change = max(np.abs(other[key] - value).max() for other in changed)
        condition = max(change / (NOISE * np.abs(value).max()), least)
        found[key] = {"condition": float(f"{condition:.2g}"), "values": value.tolist()}
    return found


def main(names: list[str]) -> None:
    """Write arrays, models and the tables asked for, by default all."""
    cases.FOLDER.mkdir(exist_ok=True)
    if not (cases.FOLDER / "arrays.npz").exists():
        np.savez_compressed(cases.FOLDER / "arrays.npz", **cases.make_arrays())
    for folder, name in cases.MODELS.items():
        if not (cases.FOLDER / "models" / folder).exists():
            with tempfile.TemporaryDirectory() as place:
                operator, _ = cases.fit_numbers(name, Path(place), 30)
            trunkfirst.save(operator, cases.FOLDER / "models" / folder)
    for table, (make, of) in TABLES.items():
        if not names or table in names:
            lines = [f"{json.dumps(name)}: {json.dumps(with_conditions(make, name))}" for name in of]
            (cases.FOLDER / f"{table}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
