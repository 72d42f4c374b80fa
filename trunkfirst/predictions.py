"""Predictions in files: arrays, or fields with named axes and units."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .data.read_write import NewInputs
from .errors import UnknownNameError
from .files.npz import write_npz
from .files.xarray_files import write_dataset
from .networks.operator import Operator
from .networks.training_domain import TrainingDomain

_LABELLED = (".nc", ".zarr")
_ENDINGS = (".npz", *_LABELLED)


def check_target(path: Path) -> None:
    """Refuse a file of an unknown format before anything is computed."""
    if path.suffix.lower() not in _ENDINGS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)


def write_predictions(
    path: Path, operator: Operator, arrays: Mapping[str, np.ndarray], is_outlier: np.ndarray, given: NewInputs
) -> None:
    """Write points, outputs, bounds and marks in the format that the ending of `path` names."""
    if path.suffix.lower() in _LABELLED:
        names = {"outputs": "", "lower": "_lower", "upper": "_upper"}
        fields = {ending: arrays[name] for name, ending in names.items() if name in arrays}
        found = (operator.domain or TrainingDomain()).dataset(fields, arrays["points"], given)
        write_dataset(path, found.assign(is_outlier=(given.sample_axis, is_outlier)))
    else:
        # the second is the name before 0.2
        write_npz(path, {**arrays, "is_outlier": is_outlier, "is_strange": is_outlier})
