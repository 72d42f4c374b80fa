"""Training on your own data: settings from the arrays, choices on validation, an earlier trunk if it serves."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..data import AnyData, ScatteredData, ShardedData
from ..distributed.mesh import use_devices
from ..errors import DataError, SettingError, UsageError
from ..evaluation import evaluate
from ..files import read_json
from ..networks import Operator, load
from ..training import TrunkResult, reuse_trunk
from ..training import prepare as make_ready
from ._choose import settle
from ._config import RunConfig, config_values, load_config, make_config, merge, put
from ._method import build_method
from ._minutes import within_minutes
from ._own_data import with_own_values
from ._prepare import Prepared, prepare, read_samples
from ._reporter import Reporter, Silent
from ._run import Outcome, run
from .directory import run_directory

# A trunk made for other samples is kept if it represents the new ones within this factor as well.
_STILL_GOOD = 1.5


def own_config(given: dict[str, Any], data: AnyData, *, minutes: float) -> RunConfig:
    """The configuration for `data`: what is `given` by hand, the rest from the arrays and the time allowed."""
    config = make_config(with_own_values(given, data))
    has_count = "iterations" in given.get("trunk", {})
    if has_count:
        return config
    return make_config(merge(within_minutes(config, data, minutes).model_dump(), given))


def fit_own(
    given: dict[str, Any],
    folder: Path | str,
    *,
    minutes: float = 5.0,
    earlier: Path | None = None,
    reporter: Reporter | None = None,
) -> Outcome:
    """Train on the file that `given` names, together with the data of an `earlier` fit if there is one."""
    reporter = reporter or Silent()
    with use_devices(_check(given).devices):
        data = _read(given)
        if earlier is not None:
            return _fit_more(given, _in_memory(data), Path(folder), earlier, minutes, reporter)
        prepared = prepare(make_config(given), data=data, reporter=reporter)
        config = own_config(given, prepared.data, minutes=minutes)
        return run(config, folder, prepared=prepared, reporter=reporter)


def _check(given: dict[str, Any]) -> RunConfig:
    """What is set by hand must be right before anything is read, or derived from it."""
    section = given.get("data", {})
    if isinstance(section, dict) and section.get("file") is None:
        raise SettingError("no data: give --data FILE, or data.file in the configuration")
    return make_config(given)


def _read(given: dict[str, Any]) -> AnyData | ShardedData:
    section = given["data"]
    return read_samples(Path(section["file"]), section.get("keys"), section.get("samples"))


def _in_memory(data: AnyData | ShardedData) -> AnyData:
    if isinstance(data, ShardedData):
        raise UsageError("samples cannot be added to those of an earlier fit from shards; fit all of them anew")
    return data


def _fit_more(
    given: dict[str, Any], new: AnyData, folder: Path, earlier: Path, minutes: float, reporter: Reporter
) -> Outcome:
    old_config, operator = load_config(earlier / "config.toml"), load(earlier)
    old = _in_memory(_read({"data": old_config.data.model_dump()}))
    data = _joined(old, new)
    if not _is_still_good(operator, old, new, earlier, reporter):
        config = own_config(given, data, minutes=minutes)
        return add_samples(config, folder, earlier, keeps_trunk=False, reporter=reporter)
    values = old_config.model_dump(exclude={"seed"})
    for section in ("data", "branch", "loss"):
        for key, value in given.get(section, {}).items():
            put(values, [section, key], value)
    config = make_config({**values, "seed": given.get("seed", old_config.seed)})
    return add_samples(config, folder, earlier, keeps_trunk=True, reporter=reporter)


def add_samples(
    config: RunConfig,
    folder: Path | str,
    earlier: Path,
    *,
    keeps_trunk: bool,
    reporter: Reporter | None = None,
    resumes: bool = False,
) -> Outcome:
    """Train on the data of `config` together with those of an `earlier` fit, whose trunk may be kept."""
    reporter = reporter or Silent()
    request = {
        "command": "fit",
        "config": config_values(config),
        "earlier": str(earlier.resolve()),
        "keeps_trunk": keeps_trunk,
    }
    with (
        use_devices(config.devices),
        run_directory(folder, request, interval=config.checkpoint_seconds, resumes=resumes) as place,
    ):
        sections = [c.data.model_dump() for c in (load_config(earlier / "config.toml"), config)]
        old, new = (_in_memory(_read({"data": section})) for section in sections)
        prepared = prepare(config, data=_joined(old, new))
        if not keeps_trunk:
            return run(config, place, prepared=prepared, reporter=reporter)
        chosen = settle(config, prepared, reporter=reporter)
        return run(
            chosen.config,
            place,
            prepared=prepared,
            chosen=chosen,
            trunk_result=_kept_trunk(chosen.config, load(earlier), prepared),
            reporter=reporter,
        )


def _kept_trunk(config: RunConfig, operator: Operator, prepared: Prepared) -> TrunkResult:
    train = prepared.for_training
    with jax.enable_x64(True):
        fields = make_ready(train, build_method(config, train), np.dtype(np.float64)).fields
        return reuse_trunk(operator.trunk, fields)


def _is_still_good(operator: Operator, old: AnyData, new: AnyData, earlier: Path, reporter: Reporter) -> bool:
    """Whether the earlier trunk represents the new outputs about as well as it did its own."""
    match read_json(earlier / "metrics.json"):
        case {"test": {"optimal_mean_relative_l2": float(before)}}:
            pass
        case _:  # without test samples, those it was trained on must do
            before = float(evaluate(operator, old).optimal_errors.mean())
    now = float(evaluate(operator, new).optimal_errors.mean())
    is_good = now <= _STILL_GOOD * before
    verdict = "kept; only the branch is trained" if is_good else "trained anew"
    reporter.say(
        f"the earlier trunk represents the new samples with error {now:.1e} (before {before:.1e}): it is {verdict}"
    )
    return is_good


def _joined(old: AnyData, new: AnyData) -> AnyData:
    """Old and new samples together; they must have the same inputs and the same points."""
    if type(old) is not type(new) or set(old.inputs) != set(new.inputs):
        raise DataError("the new data have other inputs, or another kind of points, than those of the earlier fit")
    if old.points.shape[-1] != new.points.shape[-1] or (
        old.points.ndim == 2 and not np.array_equal(old.points, new.points)
    ):
        raise DataError("points: the new samples are given at other points than those of the earlier fit")
    inputs = {
        name: dc.replace(f, values=_stacked(f"inputs[{name!r}]", f.values, new.inputs[name].values))
        for name, f in old.inputs.items()
    }
    fields: dict[str, Any] = {"inputs": inputs, "outputs": _stacked("outputs", *_even(old.outputs, new.outputs))}
    if isinstance(old, ScatteredData):
        fields["points"] = _stacked("points", *_even(old.points, new.points))
        fields["point_weights"] = _joined_weights("point_weights", old, new)
    else:
        fields["reference_outputs"] = None
    return dc.replace(old, **fields, sample_weights=_joined_weights("sample_weights", old, new), labels={})


def _joined_weights(name: str, old: AnyData, new: AnyData) -> np.ndarray | None:
    first, second = getattr(old, name), getattr(new, name)
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise DataError(f"{name}: given for one of the earlier and the new samples alone; give both or none")
    return _stacked(name, *_even(first, second))


def _even(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples with fewer points than others are filled up with NaN."""
    if first.ndim == 1:
        return first, second
    most = max(first.shape[1], second.shape[1])

    def filled(array: np.ndarray) -> np.ndarray:
        width = [(0, 0)] * array.ndim
        width[1] = (0, most - array.shape[1])
        return np.pad(array, width, constant_values=np.nan)

    return filled(first), filled(second)


def _stacked(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if first.shape[1:] != second.shape[1:]:
        raise DataError(f"{name}: the new samples have the shape {second.shape}, the earlier ones {first.shape}")
    return np.concatenate([first, second])
