"""Good files of every kind that is read, in pieces that can be damaged and put together again, signed."""

import collections
import dataclasses as dc
import hashlib
import importlib.util
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.io

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import read_data, write_data
from trunkfirst.data.sharded_data import ShardFolder
from trunkfirst.errors import TrunkfirstError
from trunkfirst.files.hdf5 import write_hdf5
from trunkfirst.files.integrity import verify_manifest, write_manifest
from trunkfirst.files.text_files import read_json, write_text
from trunkfirst.inputs import fit_standardise
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.report.run_files import read_experiment
from trunkfirst.runs.config import load_config, make_config
from trunkfirst.settings import to_toml
from trunkfirst.training_summary import read_summary, sample_count

Pieces = dict[str, bytes]


@dc.dataclass(frozen=True)
class Kind:
    """What is changed, how a file is put together from it, and how that is read."""

    pieces: Pieces
    assemble: Callable[[Path, Pieces], Path]
    read: Callable[[Path], object]
    share: float = 1.0


def waves() -> OperatorData:
    """Twelve samples on six points."""
    rng = np.random.default_rng(0)
    inputs, points = rng.uniform(1, 2, (12, 3)), rng.uniform(-1, 1, (6, 2))
    return OperatorData(inputs, points, np.sin(inputs[:, :2] @ points.T), coordinate_names=("x", "y"))


def arrays() -> dict[str, np.ndarray]:
    """The same by name."""
    data = waves()
    return {"inputs": data.flat_inputs, "points": data.points, "outputs": data.outputs}


def small_operator() -> Operator:
    """A trunk and a branch that are not trained."""
    rng = np.random.default_rng(0)

    def network(*widths: int) -> Perceptron:
        pairs = list(zip(widths[1:], widths[:-1], strict=True))
        weights = tuple(jnp.asarray(rng.normal(size=pair)) for pair in pairs)
        return Perceptron(weights, tuple(jnp.zeros(n) for n, _ in pairs), "tanh")

    with jax.enable_x64(True):
        encoder = fit_standardise(waves().flat_inputs)
        return Operator(encoder, network(3, 5, 4), Trunk(network(2, 5, 3)), jnp.eye(4), ("f",))


def npy(array: np.ndarray) -> bytes:
    """One array as NumPy writes it."""
    memory = io.BytesIO()
    np.save(memory, array)
    return memory.getvalue()


def whole(folder: Path, suffix: str) -> Pieces:
    """The bytes of the good data in a format."""
    write_data(waves(), folder / f"good{suffix}")
    return {f"data{suffix}": (folder / f"good{suffix}").read_bytes()}


def as_files(folder: Path, pieces: Pieces) -> Path:
    """Every piece a file; the folder, or the only file."""
    for name, content in pieces.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / next(iter(pieces)) if len(pieces) == 1 else folder


def as_signed_files(folder: Path, pieces: Pieces) -> Path:
    """A folder with a manifest that vouches for its files."""
    as_files(folder, pieces)
    write_manifest(folder, pieces)
    return folder


def as_zip(folder: Path, pieces: Pieces) -> Path:
    """An npz file with right checksums, every other time compressed."""
    method = zipfile.ZIP_DEFLATED if len(pieces["inputs.npy"]) % 2 else zipfile.ZIP_STORED
    with zipfile.ZipFile(folder / "data.npz", "w", method) as archive:
        for name, content in pieces.items():
            archive.writestr(name, content)
    return folder / "data.npz"


def as_compressed_mat(folder: Path, pieces: Pieces) -> Path:
    """A mat file whose compressed matrices have right checksums."""
    head = b"MATLAB 5.0".ljust(124) + struct.pack("<H2s", 0x100, b"IM")
    packed = [zlib.compress(content) for content in pieces.values()]
    content = b"".join(struct.pack("<II", 15, len(each)) + each for each in packed)
    (folder / "data.mat").write_bytes(head + content)
    return folder / "data.mat"


def mat_matrices(folder: Path) -> Pieces:
    """The elements of an uncompressed mat file."""
    scipy.io.savemat(
        folder / "good.mat", arrays() | {"coordinate_names": np.array(["x", "y"]), "labels": {"b": np.ones(12)}}
    )
    content = (folder / "good.mat").read_bytes()
    pieces: Pieces = {}
    at = 128
    while at < len(content):
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        pieces[str(at)] = content[at : at + 8 + size]
        at += 8 + size
    return pieces


def csv_tables(folder: Path) -> Pieces:
    """A folder of tables."""
    write_data(waves(), folder / "tables")
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def model_files(folder: Path) -> Pieces:
    """Description and weights."""
    save(small_operator(), folder / "model")
    return {name: (folder / "model" / name).read_bytes() for name in ("model.json", "model.safetensors")}


def as_model(folder: Path, pieces: Pieces) -> Path:
    """The description names the SHA-256 of the weights, whatever became of both."""
    good = hashlib.sha256(pieces["model.safetensors"]).hexdigest().encode()
    start = pieces["model.json"].find(b'"sha256": "')
    if start >= 0:
        start += len(b'"sha256": "')
        pieces = pieces | {"model.json": pieces["model.json"][:start] + good + pieces["model.json"][start + 64 :]}
    return as_signed_files(folder, pieces)


def as_manifest(folder: Path, pieces: Pieces) -> Path:
    """The lines below the first, which is right."""
    lines = pieces["lines"]
    digest = hashlib.sha256(lines).hexdigest()
    (folder / "a.txt").write_text("a")
    (folder / "MANIFEST.sha256").write_bytes(f"# {digest}  of the lines below\n".encode() + lines)
    return folder


def as_shards(folder: Path, pieces: Pieces) -> Path:
    """An index that names the SHA-256 of the shard, put together from npy files."""
    shard = as_zip(folder, {name: content for name, content in pieces.items() if name.endswith(".npy")})
    shard.rename(folder / "shard-00000.npz")
    digest = hashlib.sha256((folder / "shard-00000.npz").read_bytes()).hexdigest()
    (folder / "index.json").write_bytes(pieces["index.json"].replace(b"DIGEST", digest.encode()))
    return folder


def read_shards(folder: Path) -> None:
    """All that the index names."""
    shards = ShardFolder(folder)
    for number, digest in shards.read_index().items():
        shards.read(number, digest, shapes={"inputs": (12, 3)})


def run_files() -> Pieces:
    """What the commands read of a run folder, beside the model."""
    rng = np.random.default_rng(0)
    places = {"points": rng.random((6, 2)), "sensors.f": rng.random((3, 1))}
    known = {
        "centre": rng.random(3),
        "spread": np.ones(3),
        "matrix": rng.random((3, 2)),
        "seen": rng.random((5, 2)),
    }
    known |= {"location": np.zeros(5), "scale": np.ones(5), "limit": np.array(1.0)}
    bounds = {
        "levels": np.array([0.9]),
        "field": np.ones(1),
        "points": places["points"],
        "pointwise": np.ones((1, 6)),
    }
    memory = places | {f"familiarity.{name}": array for name, array in known.items()}
    memory |= {f"intervals.{name}": array for name, array in bounds.items()}
    found = {"errors": rng.random(4), "optimal_errors": rng.random(4), "points": places["points"]}
    found |= {"triangles": np.array([[0, 1, 2]]), "example_index": np.array(1), "example_target": rng.random(6)}
    found |= {"example_prediction": rng.random(6), "labels.beta": rng.random(4)}
    step = {"stage": "trunk", "iteration": 10, "loss": 0.5, "best_loss": 0.5, "seconds": 1.0}
    metrics = {"problem": "x", "method": "two-step", "seed": 0, "samples": {"train": 9, "test": 3}, "trunk": step}
    texts = {
        "metrics.json": json.dumps(metrics, indent=1),
        "history.jsonl": "".join(json.dumps(step) + "\n" for _ in range(3)),
        "config.toml": to_toml(make_config({"problem": "nonlinear-conductivity"})),
        "environment.json": json.dumps({"python": "3.11"}),
    }
    pieces = {name: text.encode() for name, text in texts.items()}
    pieces |= {f"training/{name}.npy": npy(array) for name, array in memory.items()}
    return pieces | {f"evaluation/{name}.npy": npy(array) for name, array in found.items()}


def as_run(folder: Path, pieces: Pieces) -> Path:
    """A signed run folder; the arrays of a folder go into one npz file."""
    packed: dict[str, io.BytesIO] = collections.defaultdict(io.BytesIO)
    for name, content in pieces.items():
        if "/" in name:
            with zipfile.ZipFile(packed[name.partition("/")[0]], "a") as archive:
                archive.writestr(name.partition("/")[2], content)
    files = {name: content for name, content in pieces.items() if "/" not in name}
    return as_signed_files(folder, files | {f"{name}.npz": memory.getvalue() for name, memory in packed.items()})


def read_run(folder: Path) -> None:
    """As evaluate, predict and report do, each on its own: the first refusal must not hide the others."""
    verify_manifest(folder)
    refusals: list[TrunkfirstError] = []
    for read in (read_experiment, read_summary, sample_count, lambda f: load_config(f / "config.toml")):
        try:
            read(folder)
        except TrunkfirstError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def make_kinds(folder: Path) -> dict[str, Kind]:
    """All kinds of files that are read."""
    write_text(folder / "config.toml", to_toml(make_config({"problem": "nonlinear-conductivity"})))
    kinds: dict[str, Kind] = {}
    if importlib.util.find_spec("h5py") is not None:
        write_hdf5(folder / "plain.h5", arrays())
        pieces = {"data.h5": (folder / "plain.h5").read_bytes()}
        kinds["HDF5"] = Kind(pieces, as_files, read_data, share=0.03)
    npys = {f"{name}.npy": npy(array) for name, array in arrays().items()}
    digest = hashlib.sha256(b"a").hexdigest().encode()
    index = {"index.json": b'{"about": {"samples": 12}, "sha256": {"shard-00000.npz": "DIGEST"}}'}
    return kinds | {
        "npz, zip records": Kind(whole(folder, ".npz"), as_files, read_data),
        "npz, arrays": Kind(npys, as_zip, read_data),
        "mat": Kind(whole(folder, ".mat"), as_files, read_data),
        "mat, inside compression": Kind(mat_matrices(folder), as_compressed_mat, read_data),
        "CSV": Kind(csv_tables(folder), as_files, read_data),
        "JSON": Kind({"a.json": run_files()["metrics.json"]}, as_files, read_json),
        "TOML configuration": Kind({"c.toml": (folder / "config.toml").read_bytes()}, as_files, load_config),
        "model": Kind(model_files(folder), as_model, load, share=0.7),
        "manifest": Kind({"lines": digest + b"  a.txt\n"}, as_manifest, verify_manifest),
        "shards": Kind(npys | index, as_shards, read_shards),
        "run folder": Kind(run_files(), as_run, read_run),
    }
