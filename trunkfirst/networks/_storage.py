"""An operator on disk: `model.json` says what it is made of, `model.safetensors` holds the numbers.

Loading runs no code from the file: the parts that a file may name are listed in `_PARTS`.
"""

import dataclasses as dc
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from ..errors import CorruptFileError, OutputNotWritableError, PredictOnlyError
from ..files import atomic_write, read_json, sha256_of, write_json
from ._branch import StackedBranch
from ._encoders import (
    Chain,
    Coefficients,
    Coordinates,
    Elementwise,
    FourierFeatures,
    Identity,
    Parallel,
    Periodic,
    Standardise,
)
from ._features import ConvolutionFeatures, FeatureBranch, LayerFeatures, ProductFeatures, SkipFeatures
from ._kernel import KernelBranch
from ._operator import Operator
from ._outputs import Boundary, OutputMap
from ._perceptron import Perceptron
from ._predict_only import PredictOnlyBranch
from ._trunk import Trunk

FORMAT = 1
_PARTS: dict[str, type[eqx.Module]] = {
    part.__name__: part
    for part in (
        Operator,
        Trunk,
        Perceptron,
        StackedBranch,
        KernelBranch,
        Identity,
        Standardise,
        Elementwise,
        Coordinates,
        Coefficients,
        Chain,
        FeatureBranch,
        LayerFeatures,
        ProductFeatures,
        SkipFeatures,
        ConvolutionFeatures,
        Parallel,
        Periodic,
        FourierFeatures,
        OutputMap,
        Boundary,
    )
}


def save(operator: Operator, folder: Path | str) -> Path:
    """Write `model.safetensors` and `model.json` into `folder`, which is made if need be."""
    if isinstance(operator.branch, PredictOnlyBranch):
        raise PredictOnlyError(operator.branch.refusal("saved; predict in this program"))
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {folder}: {error.strerror}") from error
    arrays: dict[str, np.ndarray] = {}
    description = _describe(operator, "", arrays)
    with atomic_write(folder / "model.safetensors") as file:
        file.write(safetensors.numpy.save(arrays))
    digest = sha256_of(folder / "model.safetensors")
    write_json(folder / "model.json", {"format": FORMAT, "sha256": digest, "operator": description})
    return folder


def load(folder: Path | str) -> Operator:
    """Read an operator from a model folder or from a run folder that holds one in `model/`.

    Verifies the checksum and every shape; damage is a `CorruptFileError`.
    """
    folder = Path(folder)
    if not (folder / "model.json").exists() and (folder / "model").is_dir():
        folder = folder / "model"
    header = read_json(folder / "model.json")
    path = folder / "model.safetensors"
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CorruptFileError(f"{folder / 'model.json'} is not a model of format {FORMAT}")
    if not path.is_file() or sha256_of(path) != header.get("sha256"):
        raise CorruptFileError(f"{path} is missing or damaged: its SHA-256 is not the one in model.json")
    try:
        arrays = safetensors.numpy.load_file(path)
        with jax.enable_x64(True):
            operator = _restore(header["operator"], arrays)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFileError(f"{folder / 'model.json'} does not describe an operator: {error}") from error
    if not isinstance(operator, Operator):
        raise CorruptFileError(f"{folder / 'model.json'} describes no operator")
    return operator


def _describe(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """Plain description of a module; its arrays are put aside under their place, e.g. trunk.network.weights.0."""
    if eqx.is_array(value):
        arrays[place] = np.asarray(value, order="C")
        return {"array": place, "shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, eqx.Module):
        fields = {
            f.name: _describe(getattr(value, f.name), f"{place}.{f.name}".strip("."), arrays)
            for f in dc.fields(value)
        }
        return {"part": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return [_describe(item, f"{place}.{index}", arrays) for index, item in enumerate(value)]
    return value


def _restore(description: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(description, list):
        return tuple(_restore(item, arrays) for item in description)
    if not isinstance(description, dict):
        return description
    if "array" in description:
        array = arrays[description["array"]]
        if list(array.shape) != description["shape"] or str(array.dtype) != description["dtype"]:
            raise ValueError(f"{description['array']} has shape {array.shape} and type {array.dtype}")
        if np.isnan(array).any():
            raise ValueError(f"{description['array']} holds values that are not numbers")
        return jnp.asarray(array)
    if description["part"] not in _PARTS:
        raise ValueError(f"unknown part {description['part']!r}")
    fields = {name: _restore(item, arrays) for name, item in description["fields"].items()}
    return _PARTS[description["part"]](**fields)
