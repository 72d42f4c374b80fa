"""Whole small fits before and after a change of the code, on one machine: every number to 1e-10.

    python benchmarks/golden_fits.py --write before.npz
    python benchmarks/golden_fits.py --compare before.npz

Every method and branch, on aligned, scattered and sharded samples, and the command `fit` on a small file.
The cases are in tests/golden_cases.py. A stored file is only valid on the machine that wrote it, because training
magnifies rounding errors.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import golden_cases as cases

MARGIN = 1e-10
AUTOMATIC = "the command fit"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the numbers, or compare with those written before; exit code 1 if some differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE", help="store the numbers of this code")
    action.add_argument("--compare", type=Path, metavar="FILE", help="compare this code with the numbers stored")
    parser.add_argument("--only", metavar="TEXT", default="", help="only cases whose name contains this")
    parser.add_argument("--iterations", type=int, default=60, help="iterations of each step (default: 60)")
    options = parser.parse_args(argv)
    names = [name for name in (*cases.FITS, AUTOMATIC) if options.only in name]
    if options.write:
        write(options.write, names, options.iterations)
        return
    with np.load(options.compare) as stored:
        failed = [name for name in names if not agrees(name, dict(stored), options.iterations)]
    print(f"{len(names) - len(failed)} of {len(names)} agree")
    sys.exit(bool(failed))


def write(path: Path, names: Sequence[str], iterations: int) -> None:
    """Store the numbers of these fits; after each, so that a run can be cut short."""
    arrays: cases.Numbers = {}
    for name in names:
        arrays |= {f"{name}|{key}": value for key, value in numbers_of(name, iterations)}
        np.savez_compressed(path, **arrays)


def numbers_of(name: str, iterations: int) -> Iterator[tuple[str, np.ndarray]]:
    """The numbers of one fit."""
    with tempfile.TemporaryDirectory() as folder:
        if name == AUTOMATIC:
            yield from automatic(Path(folder)).items()
        else:
            yield from cases.fit_numbers(name, Path(folder), iterations)[1].items()
    print(f"{name}: done", file=sys.stderr)


def automatic(folder: Path) -> cases.Numbers:
    """What the command `fit` chooses and finds, with given numbers of iterations, so that no clock decides."""
    data = cases.write_stored_data(folder / "stored.npz")
    run = folder / "run"
    options = ["--data", data, "--out", run, "--quiet", *cases.FEW_ITERATIONS]
    subprocess.run([sys.executable, "-m", "trunkfirst", "fit", *map(str, options)], check=True)
    metrics = json.loads((run / "metrics.json").read_text())
    return {
        "trunk loss": np.asarray(metrics["trunk"]["loss"]),
        "branch loss": np.asarray(metrics["branch"]["loss"]),
        "test error": np.asarray(metrics["test"]["mean_relative_l2"]),
        "parameters": np.asarray([metrics["parameters"][part] for part in ("trunk", "branch")]),
    }


def agrees(name: str, stored: cases.Numbers, iterations: int) -> bool:
    """Whether a fit finds the stored numbers; says by how much it misses them."""
    expected = {key.split("|")[1]: value for key, value in stored.items() if key.split("|")[0] == name}
    found = dict(numbers_of(name, iterations))
    differences = {key: difference(found.get(key), value) for key, value in expected.items()}
    same_bits = all(np.array_equal(found.get(key, np.nan), value) for key, value in expected.items())
    key = max(differences, key=lambda key: differences[key], default="nothing stored")
    worst = differences.get(key, np.inf)
    print(f"{name}: {'same bits' if same_bits and expected else f'{worst:.1e} ({key})'}")
    return worst <= MARGIN


def difference(found: np.ndarray | None, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    if found is None or found.shape != expected.shape:
        return np.inf
    size = np.abs(expected).max(initial=0.0)
    return float(np.abs(found - expected).max(initial=0.0) / (size or 1.0))


if __name__ == "__main__":
    main()
