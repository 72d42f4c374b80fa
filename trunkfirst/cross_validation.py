"""`trunkfirst.cross_validate`: the error of the whole procedure, choices included, on samples left out."""

import dataclasses as dc
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .candidates import Candidate
from .data.data_display import html_table
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .distributed.mesh import use_devices
from .errors import DataError, UsageError
from .files.integrity import update_manifest
from .files.text_files import write_json
from .fitting import train
from .inputs import StandardisedInputs
from .interface import as_data
from .method import AbstractMethod
from .outputs import Output
from .progress import Reporter, as_reporter
from .records import BASELINES
from .regressors.ridge import Kernel, Linear
from .run_data import RunData, Split, load_run_data
from .runs.config import RunConfig, config_values
from .runs.directory import run_directory
from .runs.run import Outcome, run
from .trials import Folds
from .two_step import TwoStep

FILE = "cross_validation.json"
_FOLDS = 5
_BASELINES = {"pca-ridge": Linear(), "pca-kernel-ridge": Kernel()}


@dc.dataclass(frozen=True, eq=False)
class CrossValidation:
    """Relative l2 errors of all samples, each predicted by an operator that was chosen and fitted without it.

    `errors` (samples,), NaN for those that were suggested; `parts` are the samples that were left out together;
    `channel_errors` by channel, where there are several; `baseline` the errors of PCA + ridge and PCA + kernel
    ridge on the same parts, where all samples have the same points; `methods` what was chosen without each part.
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
    """Leave out one part of the samples after the other, fit the rest as `fit` does, and measure the error there.

    Everything that `fit` chooses is chosen anew without the part. `inputs`, `outputs`, `points`, `axes` and
    `method` are those of `fit`; `minutes` is the time for all folds together.

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
    errors, by_channel = np.full(data.samples, np.nan), np.full((data.samples, data.channels), np.nan)
    methods: list[AbstractMethod] = []
    with as_reporter(progress) as reporter:
        for number, part in enumerate(parts):
            reporter.say(f"fold {number + 1} of {folds}: {len(part)} samples are left out")
            rest = np.setdiff1d(np.arange(data.samples), part)
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
    order = np.random.default_rng(seed).permutation(data.exchangeable)
    if not 2 <= folds <= len(order) // 2:
        raise DataError(f"folds: {folds} of {len(order)} samples; choose from 2 to half the samples")
    return [np.sort(part) for part in np.array_split(order, folds)]


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
