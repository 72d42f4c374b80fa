"""`trunkfirst evaluate` and `trunkfirst predict`."""

from pathlib import Path
from typing import Any

import numpy as np

from ..data import AnyData, read_data, read_inputs, read_points
from ..errors import UsageError
from ..evaluation import evaluate
from ..files import verify_run, write_npz
from ..networks import Operator, load
from ..runs import Memory, load_config, prepare, read_memory, sample_count
from ._console import number, print_json, print_table, say
from .data_commands import in_memory


def evaluate_command(folder: Path, *, data: Path | None, keys: dict[str, str], json: bool, quiet: bool) -> int:
    """Errors of a fitted operator on a file, or on the test samples of its own data."""
    verify_run(folder)
    operator, memory = load(folder), read_memory(folder)
    samples = in_memory(read_data(data, keys=keys)) if data is not None else _own_test(folder)
    if samples is None:
        raise UsageError(f"{folder} kept no test samples; give --data FILE")
    inputs = _at_sensors(operator, memory, dict(samples.inputs))
    found = evaluate(operator, samples.with_inputs(inputs))
    test = found.summary()
    if memory.intervals is not None and np.array_equal(samples.points, memory.intervals.points):
        test["coverage"] = memory.intervals.coverage(found.predictions, samples.outputs)
    if memory.familiarity is not None:
        outliers = int(memory.familiarity.is_outlier(inputs).sum())
        test |= {"outlier_inputs": outliers, "strange_inputs": outliers}  # the second until 0.3
    if json:
        print_json({"test": test})
        return 0
    rows = [[name, number(value)] for name, value in test.items() if isinstance(value, float)]
    print_table(f"{samples.samples} samples", ["relative l2 error", ""], rows, quiet=quiet)
    _warn(test.get("outlier_inputs", 0), samples.samples, quiet)
    return 0


def predict_command(
    folder: Path, *, inputs: Path, points: Path | None, out: Path, level: float, json: bool, quiet: bool
) -> int:
    """Write predictions, and intervals where the run has them, into a .npz file."""
    verify_run(folder)
    operator, memory = load(folder), read_memory(folder)
    values = _at_sensors(operator, memory, read_inputs(inputs))
    at = memory.points if points is None else read_points(points)
    outputs = operator.predict(values, at)
    arrays: dict[str, np.ndarray] = {"points": at, "outputs": outputs}
    if memory.intervals is not None:
        half = memory.intervals.half_width(at, level)
        arrays |= {"lower": outputs - half, "upper": outputs + half}
    is_outlier = (
        np.zeros(len(values), bool) if memory.familiarity is None else memory.familiarity.is_outlier(values)
    )
    arrays |= {"is_outlier": is_outlier, "is_strange": is_outlier}  # the second until 0.3
    write_npz(out, arrays)
    summary: dict[str, Any] = {
        "samples": len(values),
        "points": len(at),
        "outlier_inputs": int(is_outlier.sum()),
        "strange_inputs": int(is_outlier.sum()),
        "level": level if memory.intervals is not None else None,
        "out": str(out),
    }
    if json:
        print_json(summary)
    else:
        say(f"{len(values)} samples at {len(at)} points: {out}", quiet=quiet)
        _warn(int(is_outlier.sum()), len(values), quiet)
    return 0


def _warn(outliers: int, samples: int, quiet: bool) -> None:
    if outliers:
        say(
            f"warning: {outliers} of {samples} inputs lie outside the training inputs; "
            "predictions there are guesses (is_outlier in the file)",
            quiet=quiet,
        )


def _own_test(folder: Path) -> AnyData | None:
    prepared = prepare(load_config(folder / "config.toml"))
    if sum(prepared.counts.values()) != sample_count(folder):
        raise UsageError(
            f"{folder} was not trained on the samples of its data.file alone (--from adds earlier ones), "
            "so that its own test samples are not known; give --data FILE"
        )
    return prepared.test


def _at_sensors(operator: Operator, memory: Memory, inputs: dict[str, Any]) -> np.ndarray:
    names = operator.input_names
    if len(inputs) == 1 and len(names) == 1:
        inputs = {names[0]: next(iter(inputs.values()))}
    operator.check_names(inputs)
    counts = {name: len(memory.sensors[name]) if name in memory.sensors else None for name in names}
    if len(names) == 1:
        counts[names[0]] = operator.sensors
    return np.concatenate([memory.at_sensors(name, inputs[name], counts[name]) for name in names], axis=1)
