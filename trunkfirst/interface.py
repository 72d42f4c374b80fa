"""`trunkfirst.fit`: arrays, data or a file in, an operator with its error out."""

import dataclasses as dc
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .candidates import Candidate
from .data.data_display import html_table
from .data.operator_data import OperatorData
from .data.read_write import read_data
from .data.repeated_samples import copied_samples, parts_apart
from .data.scattered_data import AnyData, ScatteredData
from .data.sharded_data import ShardedData
from .distributed.mesh import use_devices
from .errors import DataError, UsageError
from .fields import TrunkResult
from .files.integrity import update_manifest
from .files.text_files import write_json
from .fitting import FitResult, is_open, train
from .inputs import StandardisedInputs
from .method import AbstractMethod
from .outputs import Output
from .progress import Reporter, as_reporter
from .records import BASELINES
from .regressors.ridge import Kernel, Linear
from .run_data import DataSettings, RunData, Split, load_run_data, read_samples, split_data
from .runs.config import RunConfig, config_values
from .runs.directory import run_directory
from .runs.run import Outcome, run
from .trials import Folds
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

    Trunk, branch, encoder and weights that `method` does not give are chosen by the error of the whole operator on
    samples that are left out. Closed forms are tried first, then networks, if there is time and they can still
    reduce the error. The winner is fitted to all samples except the test samples.

    Args:
        inputs: input functions (samples, sensors) or, on a grid, (samples, n, m), a dictionary of several by
            name, or a pandas table of parameters; or `OperatorData`, `ScatteredData`, `ShardedData`, an xarray
            Dataset, a dictionary of arrays, or the path of a file.
        outputs: output functions (samples, points) or (samples, points, channels), if `inputs` is an array. An
            xarray DataArray needs no points.
        points: where the outputs are given, (points, coordinates), or (points,) for one coordinate, if `inputs` is
            an array; or the coordinates of a grid by name, {"x": x, "t": t}, for outputs with an axis for each.
        axes: the axes of outputs on a grid, ("x", "t") or ("samples", "x", "t", "channels"), if their lengths do
            not determine them.
        method: `TwoStep`, `Monolithic` or `MonolithicProjected`; chosen if left out.
        minutes: time limit for the whole fit; None for no limit.
        seed: seed of the networks; the same seed gives the same bits.
        test_share: share of the samples held back for the test in `FitResult.evaluation`.
        out: folder for operator, configuration and metrics, from which an interrupted run can be resumed.
        intervals: whether to compute prediction intervals; by default only if something is chosen.
        devices: number of devices that share the work, or the devices.
        trunk_result: step 1 of an earlier two-step fit, to be used again.
        progress: whether to report progress, or an object to report to; by default on a terminal and in notebooks.
        throw: whether to raise if the loss is not finite; otherwise the status is "diverged".

    Returns:
        A `FitResult` with the `operator`.

    Raises:
        DataError: an array has a wrong shape, type or value.
        SettingError: the method does not suit the data.
        DivergedError: the loss is not finite.

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
    if not isinstance(method, AbstractMethod | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"method: {method!r} is not a method; give one such as trunkfirst.TwoStep(branch=...)")
    method = method or TwoStep()
    chooses = is_open(method)
    file = str(inputs) if isinstance(inputs, str | Path) else None
    settings = DataSettings(file=file, test_share=test_share)
    options: dict[str, Any] = {"trunk_result": trunk_result, "throw": throw}
    checked = RunConfig(method=method, seed=seed, minutes=minutes)  # refuses what is out of range
    budget: dict[str, Any] = {
        "seed": checked.seed,
        "minutes": checked.minutes,
        "intervals": chooses if intervals is None else intervals,
    }
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
    if isinstance(inputs, str | Path | OperatorData | ScatteredData | ShardedData):
        raise UsageError(
            "inputs: a file or data have outputs and points of their own; call fit(data) without others"
        )
    if points is None and hasattr(inputs, "dims") and hasattr(outputs, "dims"):
        return _from_labelled(inputs, outputs)
    if outputs is None or points is None:
        missing = "outputs" if outputs is None else "points"
        raise UsageError(f"{missing}: not given; call fit(inputs, outputs, points), or fit(data) with all in one")
    if axes is None and not isinstance(points, Mapping) and not isinstance(outputs, Mapping):
        data = OperatorData(inputs=inputs, points=points, outputs=outputs)
    else:
        order = {} if axes is None else {"axes": axes}
        data = read_data({"inputs": inputs, "points": points, "outputs": outputs, **order})
    if axes is None and not isinstance(outputs, Mapping) and data.channels > _USUAL_CHANNELS:
        warnings.warn(
            f"outputs: the last axis of {np.shape(outputs)} is read as {data.channels} channels; for a grid "
            "give its coordinates by name, points={'x': x, 't': t}",
            UserWarning,
            stacklevel=3,
        )
    return data


def _from_labelled(inputs: Any, outputs: Any) -> AnyData | ShardedData:
    """The samples of two xarray DataArrays, which know their coordinates."""
    names = {"inputs": inputs.name or "inputs", "outputs": outputs.name or "outputs"}
    dataset = inputs.to_dataset(name=names["inputs"]).merge(outputs.to_dataset(name=names["outputs"]))
    return read_data(dataset, keys=names)


FILE = "cross_validation.json"
_FOLDS = 5
_BASELINES = {"pca-ridge": Linear(), "pca-kernel-ridge": Kernel()}


@dc.dataclass(frozen=True, eq=False)
class CrossValidation:
    """The result of `cross_validate`: errors of all samples, each predicted by an operator fitted without it.

    `errors` (samples,) are relative l2 errors, NaN for suggested samples and copies; `channel_errors` has them for
    each of several channels. `parts` has the indices of the samples that were left out together, and `methods` the
    method chosen without each part. `baseline` has the errors of PCA + ridge and PCA + kernel ridge on the same
    parts, if all samples have the same points.
    """

    errors: Float[np.ndarray, " samples"]
    parts: Sequence[Int[np.ndarray, " part"]]
    channel_errors: Mapping[str, Float[np.ndarray, " samples"]]
    baseline: Mapping[str, Float[np.ndarray, " samples"]]
    methods: Sequence[AbstractMethod]
    seconds: float

    def summary(self) -> dict[str, Any]:
        """The mean error and its spread, the standard deviation of the means of the parts; in plain values."""
        return {
            "folds": len(self.parts),
            **self._numbers(self.errors),
            "channels": {name: self._numbers(errors) for name, errors in self.channel_errors.items()} or None,
            "baseline": [{"kind": kind, **self._numbers(errors)} for kind, errors in self.baseline.items()],
            "seconds": self.seconds,
        }

    def _numbers(self, errors: np.ndarray) -> dict[str, float]:
        means = [float(errors[part].mean()) for part in self.parts]
        return {"mean_relative_l2": float(np.nanmean(errors)), "spread": float(np.std(means, ddof=1))}

    def rows(self) -> dict[str, str]:
        """Mean and spread of the operator, of every channel and of the baselines, in words."""
        named = {"error": self.errors, **self.channel_errors}
        named |= {BASELINES[kind]: errors for kind, errors in self.baseline.items()}
        numbers = {name: self._numbers(errors) for name, errors in named.items()}
        return {name: f"{each['mean_relative_l2']:.2e} ± {each['spread']:.1e}" for name, each in numbers.items()}

    def __repr__(self) -> str:
        rows = "; ".join(f"{name}: {value}" for name, value in self.rows().items())
        return f"CrossValidation({len(self.parts)} folds of {len(self.errors)} samples; {rows})"

    def _repr_html_(self) -> str:
        """The same as a table; notebooks ask for it."""
        rows = [f"{name}: {value}" for name, value in self.rows().items()]
        return html_table("CrossValidation", [f"{len(self.parts)} folds of {len(self.errors)} samples", *rows])


def cross_validate(
    inputs: Any,
    outputs: Any = None,
    points: Any = None,
    *,
    axes: Sequence[str] | None = None,
    method: AbstractMethod | None = None,
    folds: int = _FOLDS,
    minutes: float | None = 5.0,
    seed: int = 0,
    progress: bool | Reporter | None = None,
) -> CrossValidation:
    """Measure the error of `fit` by leaving out each part of the samples in turn.

    For each part, `fit` chooses and trains without it.

    Args:
        inputs: as for `fit`, (samples, sensors).
        outputs: as for `fit`, (samples, points) or (samples, points, channels).
        points: as for `fit`, (points, coordinates).
        axes: as for `fit`.
        method: as for `fit`; chosen without each part if left out.
        folds: number of parts.
        minutes: time limit for all parts together; None for no limit.
        seed: seed of folds and networks.
        progress: as for `fit`.

    Returns:
        A `CrossValidation` with the error of every sample.

    Raises:
        DataError: an array has a wrong shape, type or value.
        SettingError: the method does not suit the data.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> modes = trunkfirst.ModesTrunk(width=2)
    >>> method = trunkfirst.TwoStep(modes, trunkfirst.Linear(), inputs="raw", weights="none")
    >>> found = trunkfirst.cross_validate(a, a @ np.stack([np.sin(3 * x), x**2]), x[:, None], method=method)
    >>> len(found.parts), bool(found.errors.mean() < 1e-6)
    (5, True)
    """
    data, start = as_data(inputs, outputs, points, axes), time.perf_counter()
    parts = _parts(data, folds, seed)
    assert not isinstance(data, ShardedData)
    used = np.flatnonzero(~copied_samples(data))
    errors, by_channel = np.full(data.samples, np.nan), np.full((data.samples, data.channels), np.nan)
    methods: list[AbstractMethod] = []
    with as_reporter(progress) as reporter:
        for number, part in enumerate(parts):
            reporter.say(f"fold {number + 1} of {folds}: {len(part)} samples are left out")
            rest = np.setdiff1d(used, part)
            split = Split(train=rest, validation=np.empty(0, np.int64), test=part)
            share = None if minutes is None else minutes / folds
            result = train(method or TwoStep(), RunData(data, split), seed=seed, minutes=share, reporter=reporter)
            found = result.evaluation
            assert found is not None
            errors[part] = found.errors
            by_channel[part] = np.stack([*(found.channel_errors or {"": found.errors}).values()], axis=1)
            methods.append(result.method)
    channels = dict(zip(data.channel_names, by_channel.T, strict=True)) if data.is_multichannel else {}
    seconds = time.perf_counter() - start
    return CrossValidation(errors, parts, channels, _baseline(data, parts), methods, seconds)


def _parts(data: AnyData | ShardedData, folds: int, seed: int) -> list[Int[np.ndarray, " part"]]:
    """The samples that are left out together."""
    if isinstance(data, ShardedData):
        raise UsageError("cross-validation needs all samples in memory; take some with data.take(...)")
    rows = data.exchangeable
    order = np.random.default_rng(seed).permutation(rows[~copied_samples(data)[rows]])
    if not 2 <= folds <= len(order) // 2:
        raise DataError(f"folds: {folds} of {len(order)} samples; choose from 2 to half the samples")
    parts = parts_apart(data, order, lambda rows: np.array_split(rows, folds))
    if not all(map(len, parts)):
        raise DataError(f"folds: {folds}, but fewer samples have different inputs; choose fewer folds")
    return parts


def _baseline(data: AnyData, parts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    if not isinstance(data, OperatorData):
        return {}
    trials = Folds(data, Output(), parts)
    return {kind: trials.errors(Candidate(StandardisedInputs(), b, "none")) for kind, b in _BASELINES.items()}


def run_cross_validated(
    config: RunConfig, folder: Path, *, reporter: Reporter, resumes: bool = False
) -> tuple[Outcome, CrossValidation]:
    """Carry out a configuration as `run` does, then cross-validate its method: `cross_validation.json`."""
    request = {"command": "run", "config": config_values(config), "last": FILE}
    with (
        use_devices(config.devices),
        run_directory(folder, request, interval=config.checkpoint_seconds, resumes=resumes) as place,
    ):
        data = load_run_data(config.data, config.problem, reporter=reporter)
        whole = data.whole or data.data
        options: dict[str, Any] = {"method": config.method, "minutes": config.minutes, "seed": config.seed}
        _parts(whole, _FOLDS, config.seed)  # raises before anything is fitted
        outcome = run(config, place, data=data, reporter=reporter)
        found = cross_validate(whole, folds=_FOLDS, **options, progress=reporter)
        write_json(place / FILE, found.summary())
        update_manifest(place, FILE)
        return outcome, found
