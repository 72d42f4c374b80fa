"""`trunkfirst.fit`: arrays, data or a file in, an operator with its error out."""

import dataclasses as dc
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .auto import is_open
from .data.operator_data import OperatorData
from .data.read_write import read_data
from .data.scattered_data import AnyData, ScatteredData
from .data.sharded_data import ShardedData
from .distributed.mesh import use_devices
from .errors import UsageError
from .fields import TrunkResult
from .fitting import FitResult, train
from .method import AbstractMethod
from .progress import Reporter, as_reporter
from .run_data import DataSettings, read_samples, split_data
from .runs.config import RunConfig
from .runs.run import run
from .two_step import TwoStep

_USUAL_CHANNELS = 8


def fit(
    inputs: Any,
    outputs: Any = None,
    points: Any = None,
    *,
    axes: Sequence[str] | None = None,
    method: AbstractMethod | None = None,
    minutes: float | None = 5.0,
    seed: int = 0,
    test_share: float = 0.0,
    out: Path | str | None = None,
    intervals: bool | None = None,
    devices: int | Sequence[Any] | None = None,
    trunk_result: TrunkResult | None = None,
    progress: bool | Reporter | None = None,
    throw: bool = True,
) -> FitResult:
    """Learn the operator that maps input functions to output functions.

    What the method leaves open is chosen: trunk, branch, encoder and weights by the error of the whole operator on
    samples that are left out, iterations from the time. Closed forms come first; networks follow as long as they
    can pay. Then the operator is trained on all samples but the test samples.

    Args:
        inputs: input functions (samples, sensors), a dictionary of several by name, or a pandas table of
            parameters; or `OperatorData`, `ScatteredData`, `ShardedData`, an xarray Dataset, a dictionary of
            arrays, or the path of a file.
        outputs: output functions (samples, points) or (samples, points, channels), where `inputs` is an array. An
            xarray DataArray needs no points.
        points: where the outputs are given (points, coordinates), or (points) of one coordinate, where `inputs`
            is an array; or the coordinates of a grid by name, {"x": x, "t": t}, for outputs with an axis for each.
        axes: what the axes of such outputs are, ("x", "t") or ("samples", "x", "t", "channels"), where their
            lengths do not tell.
        method: `TwoStep`, `Monolithic` or `MonolithicProjected`; everything is chosen if left out.
        minutes: time allowed; less is used where more cannot pay, any if None.
        seed: of the networks; the same seed gives the same bits.
        test_share: share of the samples that are held back and evaluated at the end.
        out: a folder for the run: operator, configuration, metrics; it can be resumed.
        intervals: whether to calibrate prediction intervals; by default where something was chosen.
        devices: how many devices, or which, share the work.
        trunk_result: a finished step 1 of an earlier two-step fit to build on.
        progress: whether to report progress, or an object to report to; by default on a terminal.
        throw: whether a loss that is no longer finite raises; else the status is "diverged".

    Returns:
        A `FitResult` with the `operator`.

    Raises:
        DataError: arrays of the wrong shape, type or value.
        SettingError: a method that does not fit the data.
        DivergedError: a loss that is no longer finite.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> u = a @ np.stack([np.sin(3 * x), x**2])
    >>> trunk = trunkfirst.NetworkTrunk(hidden=(20,), width=6, iterations=50, starts=1)
    >>> inputs = trunkfirst.StandardisedInputs()
    >>> method = trunkfirst.TwoStep(trunk, trunkfirst.Linear(), inputs=inputs, weights="none")
    >>> result = trunkfirst.fit(a[:30], u[:30], x[:, None], method=method)
    >>> result.status
    'finished'
    >>> fields = result.operator.predict(a[30:])
    >>> bool(abs(fields - u[30:]).max() < 1e-2)
    True
    """
    start = time.perf_counter()
    data = as_data(inputs, outputs, points, axes)
    if method is not None and not isinstance(method, AbstractMethod):
        raise UsageError(f"method: {method!r} is no method; give one such as trunkfirst.TwoStep(branch=...)")
    method = method or TwoStep()
    chooses = is_open(method)
    file = str(inputs) if isinstance(inputs, str | Path) else None
    settings = DataSettings(file=file, test_share=test_share)
    options: dict[str, Any] = {"trunk_result": trunk_result, "throw": throw}
    budget: dict[str, Any] = {
        "seed": seed,
        "minutes": minutes,
        "intervals": chooses if intervals is None else intervals,
    }
    RunConfig(method=method, seed=seed, minutes=minutes)  # refuses what is out of range
    with as_reporter(progress) as reporter:
        options["reporter"] = reporter
        parts = split_data(data, settings, start=start, reporter=reporter)
        if out is None:
            with use_devices(devices):
                return train(method, parts, **budget, **options)
        if devices is not None and not isinstance(devices, int):
            raise UsageError("devices: with a folder give their number; a configuration cannot name devices")
        is_file = settings.file is not None
        stored = settings if is_file else dc.replace(settings, file=str(Path(out) / "data.npz"))
        config = RunConfig(method=method, data=stored, devices=devices, preset="own-data", **budget)
        saved = None if is_file or isinstance(data, ShardedData) else data
        outcome = run(config, out, data=parts, save_data=saved, **options)
    return dc.replace(outcome.result, folder=outcome.folder)


def as_data(
    inputs: Any, outputs: Any = None, points: Any = None, axes: Sequence[str] | None = None
) -> AnyData | ShardedData:
    """The samples of arrays, of data in any form, or of a file."""
    if outputs is None and points is None:
        if isinstance(inputs, OperatorData | ScatteredData | ShardedData):
            return inputs
        return read_samples(Path(inputs), None, None) if isinstance(inputs, str | Path) else read_data(inputs)
    if points is None and hasattr(inputs, "dims") and hasattr(outputs, "dims"):
        return _from_labelled(inputs, outputs)
    if outputs is None or points is None:
        missing = "outputs" if outputs is None else "points"
        raise UsageError(f"{missing}: not given; call fit(inputs, outputs, points), or fit(data) with all in one")
    if axes is None and not isinstance(points, Mapping) and not isinstance(outputs, Mapping):
        data = OperatorData(inputs=inputs, points=points, outputs=outputs)
        if data.channels > _USUAL_CHANNELS:
            warnings.warn(
                f"outputs: the last axis of {data.outputs.shape} is read as {data.channels} channels; for a grid "
                "give its coordinates by name, points={'x': x, 't': t}",
                UserWarning,
                stacklevel=3,
            )
        return data
    order = {} if axes is None else {"axes": axes}
    return read_data({"inputs": inputs, "points": points, "outputs": outputs, **order})


def _from_labelled(inputs: Any, outputs: Any) -> AnyData:
    """The samples of two xarray DataArrays, which know their coordinates."""
    names = {"inputs": inputs.name or "inputs", "outputs": outputs.name or "outputs"}
    dataset = inputs.to_dataset(name=names["inputs"]).merge(outputs.to_dataset(name=names["outputs"]))
    return read_data(dataset, keys=names)
