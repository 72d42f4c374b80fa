"""Run directories for tests of the report, and helpers to change and read them."""

import json
import re
from pathlib import Path

import numpy as np

SIDE = 6


def grid() -> tuple[np.ndarray, np.ndarray]:
    """A square of SIDE x SIDE nodes and its triangles."""
    x, y = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE))
    corners = [
        (SIDE * j + i, SIDE * j + i + 1, SIDE * (j + 1) + i) for j in range(SIDE - 1) for i in range(SIDE - 1)
    ]
    others = [(b, c, c + 1) for _, b, c in corners]
    return np.column_stack([x.ravel(), y.ravel()]), np.array(corners + others)


def metrics(method: str, seed: int, problem: str) -> dict:
    is_monolithic = method == "monolithic"
    branch = {"kind": "network", "loss": 3.21e-9, "seconds": 1, "iterations": 1000}
    return {
        "problem": problem, "method": method, "preset": "paper", "seed": seed, "split_seed": 0, "chosen": {},
        "samples": {"train": 90, "validation": 0, "test": 5},
        "trunk": {"loss": (1.5e-5 if is_monolithic else 2.5e-7) * (1 + seed), "limit": 1e-12, "rank": 39,
                  "condition": 1.234e5, "seconds": 1.5, "iterations": 1000},
        "branch": None if is_monolithic else branch,
        "validation": None,
        "test": {"mean_relative_l2": 4.56e-3 if is_monolithic else 7.89e-4, "median_relative_l2": 1e-4,
                 "max_relative_l2": 2e-2, "optimal_mean_relative_l2": 6.54e-4,
                 "kernel_mean_relative_l2": None, "reference_mean_relative_l2": None},
        "data": {"own_error": None}, "seconds": {"data": 1.0, "total": 4.0},
    }  # fmt: skip


def evaluation(seed: int, *, field_input: bool) -> dict[str, np.ndarray]:
    points, triangles = grid()
    target = np.cos(points[:, 0])
    rng = np.random.default_rng(seed)
    errors = 1e-3 * (1 + rng.random(5))
    return {
        "errors": errors, "optimal_errors": errors / 2, "labels.beta": np.array([40.0, 5, 700, 90, 9.98]),
        "points": points, "triangles": triangles, "example_index": np.array(1), "example_target": target,
        "example_prediction": target + 1e-3 * rng.random(len(points)),
        "example_input": points[:, 1] if field_input else np.array([5.0]),
    }  # fmt: skip


def history(method: str, seed: int) -> list[dict]:
    stages = ("monolithic",) if method == "monolithic" else ("trunk", "branch")
    return [
        {
            "stage": stage,
            "iteration": i,
            "loss": (1 + seed) / (1 + i),
            "best_loss": (1 + seed) / (1 + i),
            "seconds": i / 100,
        }
        for stage in stages
        for i in range(0, 100, 10)
    ]


def write_run(
    folder: Path, method: str = "two-step", seed: int = 0, problem: str = "nonlinear-conductivity"
) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics(method, seed, problem)))
    (folder / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in history(method, seed)))
    np.savez(folder / "evaluation.npz", **evaluation(seed, field_input=problem.startswith("discontinuous")))
    (folder / "config.toml").write_text(f'method = "{method}"\n[loss]\np = 2.0\n')
    (folder / "environment.json").write_text(json.dumps({"python": "3.11", "packages": {"numpy": "2"}}))
    return folder


def write_comparison(tmp_path: Path) -> Path:
    """Two methods with two seeds each."""
    for method in ("monolithic", "two-step"):
        for seed in (0, 1):
            write_run(tmp_path / "compared" / f"{method}-seed{seed}", method, seed)
    claims = [
        {"claim": "QR helps", "paper": "1e-9", "ours": "3.21e-9", "holds": holds} for holds in (True, False, None)
    ]
    (tmp_path / "compared" / "claims.json").write_text(json.dumps(claims))
    return tmp_path / "compared"


def rows(page: str) -> list[list[str]]:
    cells = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    ]
    return [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in cells]


def spoil(folder: Path, **changes: object) -> None:
    """Change arrays of an evaluation; None removes one."""
    with np.load(folder / "evaluation.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays.update(changes)
    np.savez(folder / "evaluation.npz", **{name: array for name, array in arrays.items() if array is not None})
