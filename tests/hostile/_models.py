"""Models whose files are signed, and whose description or weights are not what they should be."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from helpers import make_operator

from trunkfirst.files.integrity import write_manifest
from trunkfirst.networks.operator import load, save

from ._cases import canary_of, case

Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], Any]


def good_model(folder: Path) -> Path:
    return save(make_operator(), folder)


def sign(folder: Path, header: dict[str, Any], weights: bytes) -> Path:
    """Write description and weights so that all checksums are right."""
    (folder / "model.safetensors").write_bytes(weights)
    header["sha256"] = hashlib.sha256(weights).hexdigest()
    (folder / "model.json").write_text(json.dumps(header))
    write_manifest(folder, ("model.json", "model.safetensors"))
    return folder


def model(words: str) -> Callable[[Edit], Edit]:
    """A case whose function changes the description of a good operator, or its arrays."""

    def register(edit: Edit) -> Edit:
        def make(folder: Path) -> Path:
            good_model(folder)
            header = json.loads((folder / "model.json").read_text())
            arrays = safetensors.numpy.load_file(folder / "model.safetensors")
            edit(header["operator"]["fields"], arrays)
            return sign(folder, header, safetensors.numpy.save(arrays))

        make.__name__ = edit.__name__
        case(load, words)(make)
        return edit

    return register


def weights(words: str) -> Callable[[Callable[[], bytes]], None]:
    """A case whose function gives the bytes of the weights."""

    def register(content: Callable[[], bytes]) -> None:
        def make(folder: Path) -> Path:
            good_model(folder)
            return sign(folder, json.loads((folder / "model.json").read_text()), content())

        make.__name__ = content.__name__
        case(load, words)(make)

    return register


def tensors(header: Any, content: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + content


# -- weights


@weights("at most 10,000 arrays")
def weights_of_a_hundred_thousand_entries() -> bytes:
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    return tensors({str(n): entry for n in range(20_000)})


@weights("claims a header")
def weights_with_a_long_header() -> bytes:
    return tensors(b" " * 2**22)


@weights("claims a header of 4,611,686,018,427,387,904 bytes")
def weights_with_a_header_of_2_to_the_62() -> bytes:
    return tensors({}, size=2**62)


@weights("cannot read")
def weights_whose_offsets_lie() -> bytes:
    return tensors({"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}})


@weights("cannot read")
def weights_that_overlap() -> bytes:
    entry = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    return tensors({"a": entry, "b": entry}, bytes(8))


@weights("is given twice")
def weights_of_one_name() -> bytes:
    entry = b'"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}'
    return tensors(b"{" + entry + b", " + entry + b"}", bytes(8))


@weights("nested")
def weights_with_a_deep_header() -> bytes:
    return tensors(b"[" * 10**5 + b"]" * 10**5)


@weights("cannot read")
def weights_of_a_type_numpy_has_not() -> bytes:
    return tensors({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, bytes(1))


@weights("a header")
def weights_that_are_a_pickle() -> bytes:
    return b"\x80\x04cposix\nsystem\n."


@model("not finite numbers")
def nan_weights(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["trunk.network.weights.0"] = np.full_like(arrays["trunk.network.weights.0"], np.nan)


@model("not finite numbers")
def infinite_weights(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["branch.biases.0"] = np.full_like(arrays["branch.biases.0"], np.inf)


@model("no place for 'more'")
def array_that_nobody_uses(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["more"] = np.ones(3)


@model("has no place there")
def weights_that_are_integers(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["branch.biases.0"] = np.ones(6, np.int64)
    fields["branch"]["fields"]["biases"][0]["dtype"] = "int64"


@model("does not describe an operator")
def layers_that_do_not_fit(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["branch.weights.1"] = np.ones((3, 7))
    fields["branch"]["fields"]["weights"][1]["shape"] = [3, 7]


@model("does not describe an operator")
def transform_of_another_rank(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["transform"] = np.ones((5, 4))
    fields["transform"]["shape"] = [5, 4]


@model("does not describe an operator")
def layers_of_no_width(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["trunk.network.weights.0"] = np.ones((6, 0))
    fields["trunk"]["fields"]["network"]["fields"]["weights"][0]["shape"] = [6, 0]


# -- descriptions


@model("has no place there")
def trunk_in_place_of_the_branch(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"] = fields["trunk"]


@model("has no place there")
def encoder_in_place_of_the_branch(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"] = {"part": "Identity", "fields": {}}


@model("unknown part 'os.system'")
def part_that_does_not_exist(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"]["part"] = "os.system"


@model("unhashable")
def part_whose_name_is_a_list(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"]["part"] = ["Perceptron"]


@model("step")
def activation_that_does_not_exist(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"]["fields"]["activation"] = "step"


@model("has no place there")
def word_in_place_of_an_array(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["transform"] = "abc"


@model("no place for")
def network_without_layers(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["branch"]["fields"] |= {"weights": [], "biases": []}


@model("does not describe an operator")
def encoder_of_another_width(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["encoder.matrix"] = np.ones((3, 9))
    place = {"array": "encoder.matrix", "shape": [3, 9], "dtype": "float64"}
    fields["encoder"] = {"part": "Coefficients", "fields": {"matrix": place}}


@model("nested")
def chain_of_a_thousand_chains(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for _ in range(300):
        fields["encoder"] = {"part": "Chain", "fields": {"parts": [fields["encoder"]]}}


@model("more than 2,000 fields")
def periods_of_ten_thousand_coordinates(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["encoder"] = {"part": "Periodic", "fields": {"periods": [1.0] * 10_000}}


@model("channels are none")
def negative_channels(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["channels"] = -1


@model("does not describe an operator")
def a_billion_channels(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["channels"] = 10**9


@model("has no place there")
def channels_that_are_true(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["channels"] = True


@model("has no place there")
def names_that_are_numbers(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["input_names"] = [1, 2]


@model("does not describe an operator")
def field_that_is_missing(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    del fields["trunk"]


@model("__class__")
def field_that_python_has_for_itself(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["__class__"] = {"part": "Identity", "fields": {}}


@model("is not finite")
def period_that_is_infinite(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    fields["encoder"] = {"part": "Periodic", "fields": {"periods": [float("inf"), 1.0, 1.0]}}


@model("does not describe an operator")
def boundary_of_a_coordinate_that_is_not_there(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    box = {"lower": [0.0, 0.0], "upper": [1.0, 1.0], "sides": [[99, True]], "value": 0.0}
    scale = {"array": "output.scale", "shape": [1], "dtype": "float64"}
    arrays["output.scale"] = np.ones(1)
    output = {"scale": scale, "boundary": {"part": "Boundary", "fields": box}, "is_positive": False}
    fields["output"] = {"part": "OutputMap", "fields": output}


@case(load, "lies outside the folder")
def weights_that_are_a_link(folder: Path) -> Path:
    good_model(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(canary_of(folder))
    return folder


@case(load, "cannot be read")
def model_without_a_manifest(folder: Path) -> Path:
    (good_model(folder) / "MANIFEST.sha256").unlink()
    return folder


@case(load, "does not belong to")
def weights_of_another_model(folder: Path) -> Path:
    good_model(folder)
    header = json.loads((folder / "model.json").read_text())
    sign(folder, header, (folder / "model.safetensors").read_bytes())
    header["sha256"] = "0" * 64
    (folder / "model.json").write_text(json.dumps(header))
    write_manifest(folder, ("model.json", "model.safetensors"))
    return folder


@case(load, "not a model of format")
def model_of_the_future(folder: Path) -> Path:
    good_model(folder)
    return sign(folder, {"format": 99}, (folder / "model.safetensors").read_bytes())


@case(load, "not a model of format")
def model_that_is_a_list(folder: Path) -> Path:
    (good_model(folder) / "model.json").write_text("[]")
    write_manifest(folder, ("model.json", "model.safetensors"))
    return folder
