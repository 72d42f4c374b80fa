"""An operator on disk: `model.json` describes its parts, `model.safetensors` holds the arrays, `README.md` is the
model card, and `MANIFEST.sha256` has the checksums.
"""

import dataclasses as dc
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from .. import __version__
from ..encoders import (
    Chain,
    Elementwise,
    FourierFeatures,
    Identity,
    LinearProjection,
    Parallel,
    Periodic,
    Powers,
    Standardise,
)
from ..errors import CorruptFileError, OutputExistsError, UsageError
from ..files.integrity import (
    CARD,
    atomic_write,
    inside,
    make_folder,
    open_file,
    read_bytes,
    reading,
    verify_manifest,
    write_manifest,
)
from ..files.text_files import fill_template, parse_json, read_json, write_json, write_text
from ..outputs import Boundary, OutputMap
from .branches import (
    ConvolutionFeatures,
    FeatureBranch,
    KernelBranch,
    LayerFeatures,
    ProductFeatures,
    SkipFeatures,
    StackedBranch,
)
from .fourier_layers import FourierNetwork, GridBranch, GridSymmetries, Pointwise, SpectralLayer
from .interpolants import FlatInterpolation, GridSpline, RadialInterpolation, SimplexInterpolation
from .layers import Latent, Modes, MovingFunctions, Perceptron, Trunk
from .training_domain import UNKNOWN, TrainingDomain

_LONGEST_LIST = 20


def model_card(operator: Any, measured: Mapping[str, float | int]) -> str:
    """Markdown about an operator: what it maps, its ranges, its errors, how to load it.

    `measured` has numbers by what they are, such as the error on test samples.
    """
    domain: TrainingDomain = operator.domain
    outputs = domain.channel_names or ("output",)
    rows = [
        *(("input", line) for line in _inputs(operator.input_names, domain)),
        *(("output", _named(name, domain)) for name in outputs[:_LONGEST_LIST]),
        ("training points", "not known" if domain.points is None else f"{len(domain.points):,}"),
        ("domain", escape(domain.in_words(), 800)),
    ]
    return fill_template(
        "networks/card.md.jinja",
        title=f"{_listed(operator.input_names)} to {_listed(outputs)}",
        version=__version__,
        precision="double" if str(operator.dtype) == "float64" else "single",
        rows=rows,
        errors=_errors(domain, measured),
    )


def escape(text: str, longest: int = 80) -> str:
    """A name from data as plain text in Markdown: one line, no markup, of bounded length."""
    line = " ".join(text.split())
    short = line if len(line) <= longest else f"{line[:longest]}..."
    return re.sub(r"([\\`*_{}\[\]<>#|&~$:@!])", r"\\\1", short)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _LONGEST_LIST
    return ", ".join(map(escape, names[:_LONGEST_LIST])) + (f" and {more} more" if more > 0 else "")


def _named(name: str, domain: TrainingDomain) -> str:
    unit = domain.units.get(name)
    return f"{escape(name)} ({escape(unit)})" if unit else escape(name)


def _inputs(names: tuple[str, ...], domain: TrainingDomain) -> list[str]:
    """Name, number of sensors and range of each input."""
    if domain.input_ranges is None or len(domain.input_sizes) != len(names):
        return [_named(name, domain) for name in names[:_LONGEST_LIST]]
    parts = np.split(domain.input_ranges, np.cumsum(domain.input_sizes)[:-1], axis=1)
    return [
        f"{_named(name, domain)}: {part.shape[1]:,} value{'s' * (part.shape[1] != 1)}, in training from "
        f"{part[0].min():.6g} to {part[1].max():.6g}"
        for name, part in zip(names[:_LONGEST_LIST], parts, strict=False)
    ]


def _errors(domain: TrainingDomain, measured: Mapping[str, float | int]) -> list[str]:
    lines = [
        f"{escape(name)}: {number:,}" if isinstance(number, int) else f"{escape(name)}: {number:.3g}"
        for name, number in measured.items()
    ]
    if intervals := domain.intervals:
        lines += [
            f"relative l2 error of a field, at most, with probability {level:g}: {bound:.3g}"
            for level, bound in zip(intervals.levels, intervals.field, strict=True)
            if np.isfinite(bound)
        ]
        lines += ["prediction intervals at each point: `operator.predict(inputs, interval=0.9)`"]
    return lines


T = TypeVar("T")

FORMAT = 1
_DESCRIPTION, _WEIGHTS = "model.json", "model.safetensors"
_CARD_BEGIN = len("---\nlibrary_name: trunkfirst\n")
_LARGEST_CARD = 2**24
_MOST_ARRAYS = 10_000
_LONGEST_HEADER = 2**21
# Fields of parts and entries of lists; a network of a hundred layers has about 500.
_MOST_ITEMS = 2_000
# Fields whose arrays may hold infinity: the deviation of a constant sensor, the bound of an interval.
_MAY_BE_INFINITE = ("deviation", "extras")
# The classes that a model file may name; "Coordinates" and "Coefficients" were their names in version 0.1.
_NETWORKS = (Trunk, Modes, MovingFunctions, Latent, Perceptron, StackedBranch, KernelBranch, FeatureBranch)
_ON_GRIDS = (GridBranch, GridSymmetries, FourierNetwork, SpectralLayer, Pointwise)
_FEATURES = (LayerFeatures, ProductFeatures, SkipFeatures, ConvolutionFeatures)
_ENCODERS = (Identity, Standardise, Elementwise, Powers, LinearProjection, Chain, Parallel)
_INTERPOLATIONS = (GridSpline, SimplexInterpolation, FlatInterpolation, RadialInterpolation)
_OTHERS = (TrainingDomain, OutputMap, Boundary, Periodic, FourierFeatures, *_INTERPOLATIONS)
_ALL = (*_NETWORKS, *_ON_GRIDS, *_FEATURES, *_ENCODERS, *_OTHERS)
# Endings of files that `export` writes.
_EXPORTS = (".onnx", ".stablehlo", ".py", ".html")
PARTS: dict[str, type] = {part.__name__: part for part in _ALL}
PARTS |= dict.fromkeys(("Coordinates", "Coefficients", "QuadratureProjection"), LinearProjection)


def write_operator(operator: Any, folder: Path | str, card: str) -> Path:
    """Write `model.safetensors`, `model.json`, the card and a manifest into `folder`, made if necessary.

    Returns the folder. Raises an `OutputNotWritableError` if the folder cannot be created, and an
    `OutputExistsError` if it is a file or the folder of a run; a `UsageError` for the ending of an export.
    """
    folder = Path(folder)
    if folder.suffix.lower() in _EXPORTS:
        raise UsageError(f"{folder}: save writes a folder; for such a file call trunkfirst.export(operator, path)")
    if folder.is_file():
        raise OutputExistsError(f"{folder} is a file; choose a folder for the operator")
    if (folder / "metrics.json").exists():
        raise OutputExistsError(
            f"{folder} is the folder of a run, whose manifest would be lost; choose another folder"
        )
    make_folder(folder)
    arrays: dict[str, np.ndarray] = {}
    description = _describe(operator, "", arrays)
    content = safetensors.numpy.save(arrays)
    with atomic_write(folder / _WEIGHTS) as file:
        file.write(content)
    digest = hashlib.sha256(content).hexdigest()
    write_json(folder / _DESCRIPTION, {"format": FORMAT, "sha256": digest, "operator": description})
    has_card = _write_card(folder / CARD, card)
    write_manifest(folder, (_DESCRIPTION, _WEIGHTS, *((CARD,) if has_card else ())))
    return folder


def _write_card(path: Path, card: str) -> bool:
    """Write the card, unless this is the README of something else, which begins differently."""
    begin = card.encode()[:_CARD_BEGIN]
    if path.exists() and read_bytes(path, most=_LARGEST_CARD)[:_CARD_BEGIN] != begin:
        return False
    write_text(path, card)
    return True


def read_operator(folder: Path | str, operator_type: type[T]) -> T:
    """Read an operator from a model folder or from a run folder that holds one in `model/`.

    It may name `operator_type` and the classes in `PARTS`.
    """
    folder = Path(folder)
    if not (folder / _DESCRIPTION).exists() and (folder / "model").is_dir():
        folder = folder / "model"
    verify_manifest(folder, but=(CARD,))
    path = inside(folder, _DESCRIPTION)
    header = read_json(path)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CorruptFileError(f"{path} is not a model of format {FORMAT}")
    arrays = _read_weights(inside(folder, _WEIGHTS), header.get("sha256"))
    try:
        with jax.enable_x64(True):
            restorer = _Restorer(arrays, {**PARTS, operator_type.__name__: operator_type})
            operator = restorer.restore(header["operator"], operator_type)
            restorer.check_complete()
            _check_predictions(operator)
    except Exception as error:  # a crafted file can make any part fail in any way
        raise CorruptFileError(f"{path} does not describe an operator: {error}") from error
    return operator


def _read_weights(path: Path, digest: object) -> dict[str, np.ndarray]:
    """The arrays, if the header is small: the reader itself would spend long on millions of entries."""
    with open_file(path) as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != digest:
        raise CorruptFileError(f"{path} does not belong to {_DESCRIPTION}, which has another SHA-256")
    length = int.from_bytes(content[:8], "little")
    if length > min(_LONGEST_HEADER, len(content) - 8):
        raise CorruptFileError(f"{path} claims a header of {length:,} bytes; refused")
    entries = parse_json(content[8 : 8 + length], path)
    if not isinstance(entries, dict) or len(entries) > _MOST_ARRAYS:
        raise CorruptFileError(f"{path}: expected a list of at most {_MOST_ARRAYS:,} arrays; refused")
    errors = (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
    with reading(path, "safetensors", *errors):
        return safetensors.numpy.load(content)


def _describe(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """A module as JSON; its arrays are stored in `arrays` by place, e.g. trunk.network.weights.0."""
    if eqx.is_array(value) or isinstance(value, np.ndarray):
        arrays[place] = np.asarray(value, order="C")
        return {"array": place, "shape": list(value.shape), "dtype": str(value.dtype)}
    if dc.is_dataclass(value):
        fields = {
            f.name: _describe(getattr(value, f.name), f"{place}.{f.name}".strip("."), arrays)
            for f in dc.fields(value)
            if f.name != "domain" or getattr(value, f.name) != UNKNOWN  # version 0.1 has none
        }
        return {"part": type(value).__name__, "fields": fields}
    if isinstance(value, Mapping):
        return {"mapping": {name: _describe(item, f"{place}.{name}", arrays) for name, item in value.items()}}
    if isinstance(value, tuple):
        return [_describe(item, f"{place}.{index}", arrays) for index, item in enumerate(value)]
    return value


class _Restorer:
    """Builds parts from their descriptions; every value must have the type of its field."""

    def __init__(self, arrays: dict[str, np.ndarray], parts: Mapping[str, type]) -> None:
        self._arrays = arrays
        self._parts = parts
        self._used: set[str] = set()
        self._count = 0

    def restore(self, description: Any, expected: Any, name: str = "operator") -> Any:
        self._count += 1
        if self._count > _MOST_ITEMS:
            raise ValueError(f"more than {_MOST_ITEMS:,} fields and entries")
        value = self._value(description, expected, name)
        if not _fits(value, expected):
            raise ValueError(f"{name} is {str(value)[:80]!r}, which has no place there")
        return value

    def check_complete(self) -> None:
        """Every array must have been used."""
        if unused := set(self._arrays) - self._used:
            raise ValueError(f"it has no place for {min(unused)!r}")

    def _value(self, description: Any, expected: Any, name: str) -> Any:
        if isinstance(description, list):
            hints = _item_hints(expected, len(description))
            if len(hints) != len(description):
                raise ValueError(f"{name} has {len(description)} entries where {len(hints)} are expected")
            return tuple(self.restore(item, hint, name) for item, hint in zip(description, hints, strict=True))
        if isinstance(description, float) and not np.isfinite(description):
            raise ValueError(f"{name} is not finite")
        if not isinstance(description, dict):
            return description
        if "array" in description:
            return self._array(description, expected, name)
        if "mapping" in description:
            hint = [*get_args(expected), Any, Any][1]
            return {str(key): self.restore(item, hint, name) for key, item in description["mapping"].items()}
        return self._part(description)

    def _part(self, description: dict[str, Any]) -> Any:
        if description["part"] not in self._parts:
            raise ValueError(f"unknown part {description['part']!r}")
        part = self._parts[description["part"]]
        hints = get_type_hints(part)
        fields = {name: self.restore(item, hints[name], name) for name, item in description["fields"].items()}
        return part(**fields)

    def _array(self, description: dict[str, Any], expected: Any, name: str) -> Any:
        place = description["array"]
        array = self._arrays[place]
        self._used.add(place)
        if list(array.shape) != description["shape"] or str(array.dtype) != description["dtype"]:
            raise ValueError(f"{place} has shape {array.shape} and type {array.dtype}")
        if array.size == 0:
            raise ValueError(f"{place} is empty")
        is_sound = ~np.isnan(array) if name in _MAY_BE_INFINITE else np.isfinite(array)
        if not is_sound.all():
            raise ValueError(f"{place} holds {np.sum(~is_sound):,} values that are not finite numbers")
        return array if np.ndarray in (expected, *get_args(expected)) else jnp.asarray(array)


def _item_hints(hint: Any, count: int) -> tuple[Any, ...]:
    """The types of the items of a tuple of `count` items that is annotated with `hint`."""
    options = get_args(hint) if get_origin(hint) is tuple else (Any, ...)
    return options[:1] * count if options[-1] is Ellipsis else options


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type: a class, an array, or tuples, mappings and unions of these."""
    if hint is Any:
        return True
    options, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in options)
    if origin is tuple:
        hints = _item_hints(hint, len(value)) if isinstance(value, tuple) else ()
        return isinstance(value, tuple) and len(value) == len(hints) and all(map(_fits, value, hints))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(item, options[1]) for item in value.values())
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)


def _check_predictions(operator: Any) -> None:
    """Check that the parts predict together; only shapes are computed."""
    if not operator.input_names or (operator.channels is not None and operator.channels < 1):
        raise ValueError("input_names or channels are none")
    assert operator.sensors is not None
    inputs = jax.ShapeDtypeStruct((2, operator.sensors), operator.dtype)
    points = jax.ShapeDtypeStruct((3, operator.trunk.coordinates), operator.dtype)
    found = eqx.filter_eval_shape(operator, inputs, points)
    expected = (2, 3) if operator.channels is None else (2, 3, operator.channels)
    if found.shape != expected or operator.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"2 samples at 3 points give outputs {found.shape} of {operator.dtype}")
