"""Training on new samples together with those of an earlier fit, whose trunk is kept if it still serves."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..auto import choose
from ..clock import Clock
from ..data.scattered_data import AnyData, ScatteredData
from ..data.sharded_data import ShardedData
from ..distributed.mesh import use_devices
from ..errors import DataError, UsageError
from ..evaluation import evaluate
from ..fields import TrunkResult
from ..files.text_files import read_json
from ..networks.operator import Operator, load
from ..progress import Reporter, Silent
from ..run_data import DataSettings, RunData, Split, read_samples, split_data
from ..settings import merge
from ..trunks import reuse_trunk
from ..two_step import TwoStep
from .config import RunConfig, config_values, load_config, make_config
from .directory import run_directory
from .run import Outcome, run

# A trunk made for other samples is kept if it represents the new ones within this factor as well.
_STILL_GOOD = 1.5
# Errors below this are rounding.
_EXACT = 1e-12


def fit_more(
    given: dict[str, Any], folder: Path | str, earlier: Path, *, reporter: Reporter | None = None
) -> Outcome:
    """Train on the file that `given` names together with the data of an `earlier` fit.

    `given` are nested values of a configuration. Where the earlier trunk is kept, they change earlier settings.
    """
    reporter = reporter or Silent()
    config = make_config(given)
    old_config, operator = load_config(earlier / "config.toml"), load(earlier)
    old, new = _read(old_config.data), _read(config.data)
    joined(old, new)  # raises where they do not belong together
    keeps_trunk = is_still_good(operator, old, new, earlier, reporter)
    if keeps_trunk:
        values = config_values(old_config)
        method = {
            key: value for key, value in given.get("method", {}).items() if key in ("branch", "inputs", "weights")
        }
        config = make_config(merge(values, given | {"method": method}))
    return add_samples(config, folder, earlier, keeps_trunk=keeps_trunk, reporter=reporter)


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
        old_settings = load_config(earlier / "config.toml").data
        data = _split_joined(_read(old_settings), _read(config.data), old_settings, config.data)
        if not keeps_trunk:
            return run(config, place, data=data, reporter=reporter)
        chosen = choose(config.method, data, seed=config.seed, clock=Clock(config.minutes), reporter=reporter)
        trunk = _kept_trunk(chosen.method, load(earlier), data)
        return run(config, place, data=data, chosen=chosen, trunk_result=trunk, reporter=reporter)


def _split_joined(old: AnyData, new: AnyData, before: DataSettings, now: DataSettings) -> RunData:
    """Old and new samples together; each keeps its part, so that no test sample has trained the earlier trunk."""
    first, second = split_data(old, before), split_data(new, now)
    parts = {
        part: np.concatenate([getattr(first.split, part), old.samples + getattr(second.split, part)])
        for part in ("train", "validation", "test")
    }
    seconds = first.seconds + second.seconds
    return RunData(joined(old, new), Split(**parts), seconds, now.split_seed)


def _read(settings: DataSettings) -> AnyData:
    assert settings.file is not None
    data = read_samples(Path(settings.file), settings.keys, settings.samples)
    if isinstance(data, ShardedData):
        raise UsageError("samples cannot be added to those of an earlier fit from shards; fit all of them anew")
    return data


def _kept_trunk(method: Any, operator: Operator, data: RunData) -> TrunkResult:
    if not isinstance(method, TwoStep):
        raise UsageError(f"{method.name} has no trunk of its own to keep; use the two-step method")
    if operator.trunk.depends_on_input:
        raise UsageError("a trunk that moves belongs to the encoder it was trained with; fit all samples anew")
    with jax.enable_x64(True):
        return reuse_trunk(operator.trunk, method.encode(data.train).fields)


def is_still_good(operator: Operator, old: AnyData, new: AnyData, earlier: Path, reporter: Reporter) -> bool:
    """Whether the earlier trunk represents the new outputs about as well as it did its own."""
    match read_json(earlier / "metrics.json"):
        case {"test": {"optimal_mean_relative_l2": float(before)}}:
            pass
        case _:  # without test samples, those it was trained on must do
            before = float(evaluate(operator, old).optimal_errors.mean())
    now = float(evaluate(operator, new).optimal_errors.mean())
    is_good = now <= max(_STILL_GOOD * before, _EXACT)
    verdict = "kept; only the branch is trained" if is_good else "trained anew"
    reporter.say(
        f"the earlier trunk represents the new samples with error {now:.1e} (before {before:.1e}): it is {verdict}"
    )
    return is_good


def joined(old: AnyData, new: AnyData) -> AnyData:
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
