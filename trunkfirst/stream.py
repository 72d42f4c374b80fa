"""Training data larger than memory: two passes over blocks of samples, and what is kept of each.

The first compresses the outputs: for p = 2 step 1 depends on them only through a factor with as many rows as their
rank. The second writes the coefficients of all samples in the orthonormal basis, with the encoded inputs, to files
that step 2 is fitted to.
"""

import contextlib
import dataclasses as dc
import hashlib
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import Float, Int

from .checkpoints import Snapshot, StepHandle, checkpointed_step, work_folder
from .data.array_checks import some_indices
from .data.operator_data import OperatorData
from .data.scattered_data import mean_squares, output_units, unscaled_weights
from .data.sharded_data import ShardedData
from .distributed.processes import assemble_rows, is_distributed, process_shard, sum_over_processes
from .encode import EncodedData, Encodings, encoded, input_layout, is_relative, make_fields, raw_rows
from .encoders import AbstractEncoder, in_precision
from .errors import CorruptFileError, SettingError
from .fields import Basis, Fields, mean_one
from .files.integrity import atomic_write, sha256_of
from .files.text_files import read_json, write_json
from .linear.blocked_qr import row_blocks
from .linear.low_rank import RowFactor, row_factor_bytes
from .linear.orthonormalise import Orthonormal
from .outputs import OutputMap, check_positive
from .regressors.base import AbstractRegressor, Regression, StoredRows

# Samples, and numbers of theirs (256 MiB), that encoders and output map are fitted to.
_MOST_SAMPLES, _MOST_NUMBERS, _FEWEST_SAMPLES = 20_000, 2**25, 32
# Larger states of the first pass are not written down on the way: that would take longer than the pass.
_LARGEST_SNAPSHOT = 2**28
# Copies of a shard while it is passed over: as read, raw, with weights, in units.
_SHARD_COPIES = 5

Rows = Float[np.ndarray, "rows points"]


def stream_bytes(data: ShardedData) -> int:
    """What passing over shards takes at most: two factors of the outputs, and a few copies of a shard."""
    return 2 * row_factor_bytes(len(data.points)) + 8 * _SHARD_COPIES * int(data.counts.max()) * data.numbers


def samples_in_memory(data: ShardedData) -> int:
    """How many samples what cannot be had in a stream is made from: 20,000, or fewer large ones."""
    return min(data.samples, _MOST_SAMPLES, max(_FEWEST_SAMPLES, _MOST_NUMBERS // data.numbers))


def take_together(data: ShardedData, indices: Int[np.ndarray, " chosen"]) -> OperatorData:
    """The samples at `indices`, in memory; of several processes each reads those of its own shards alone."""
    part, parts = process_shard()
    own = np.flatnonzero(data.block_numbers(indices) % parts == part)
    arrays = data.take_arrays(indices[own])
    return data.assemble({name: assemble_rows(array, own, len(indices)) for name, array in arrays.items()})


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class StreamedData(EncodedData):
    """Encoded data of which most samples are on disk.

    `fields` have few rows that stand for all samples; `inputs` are those of the samples in memory.
    """

    stream: "Stream"
    mean_weight: float
    """The mean of the weights in the stream, which are divided by it."""

    @property
    def rows(self) -> int:
        return self.stream.rows

    @property
    def notes(self) -> dict[str, Any]:
        return {"stream": self.stream.notes}

    def after_trunk(self) -> "StreamedData":
        """The same without the factor of the outputs, which may be large."""
        assert isinstance(self.fields, Fields)
        return dc.replace(self, fields=dc.replace(self.fields, factor=None))

    def fit_branch(
        self, branch: AbstractRegressor, basis: Basis, *, images: int | None = None, **options: Any
    ) -> Regression:
        """Step 2 on the coefficients of all samples, in files."""
        if images is not None:
            raise SettingError("images: not for data in shards; leave out method.images")
        assert basis.orthonormal is not None
        assert isinstance(self.fields, Fields)
        with self.stream.stored(basis.orthonormal, self.fields, self.mean_weight) as rows:
            return branch.fit_stored(rows, layout=self.layout_with(basis), loss_unit=basis.loss_unit, **options)


def encode_stream(data: ShardedData, method: Encodings, dtype: np.dtype) -> StreamedData:
    """Fit the encoders to some samples, and compress the outputs of all."""
    some = take_together(data, some_indices(data.samples, samples_in_memory(data), seed=0))
    output, coordinates = method.output.fit(some), method.coordinates.fit(some, dtype)
    encoder = in_precision(method.inputs.fit(some), dtype)
    unit = output_units(some)
    usual = mean_squares(some, unit) if is_relative(method, output) else None
    stream = Stream(data, encoder, coordinates, output, usual, dtype, unit)
    stream.notes["samples_in_memory"] = some.samples
    inputs, layout = encoded(encoder, some.flat_inputs, dtype), input_layout(some, encoder)
    del some  # before more memory is asked for
    fields, mean_weight = stream.compressed()
    return StreamedData(
        fields=fields,
        inputs=inputs,
        layout=layout,
        sample_weights=None,
        dtype=dtype,
        encoder=encoder,
        coordinates=coordinates,
        output=output,
        input_names=tuple(data.example.inputs),
        stream=stream,
        mean_weight=mean_weight,
    )


@dc.dataclass(frozen=True, eq=False)
class Stream:
    """Samples on disk as training sees them: raw fields, encoded inputs, weights."""

    data: ShardedData
    encoder: AbstractEncoder
    coordinates: AbstractEncoder
    output: OutputMap | None
    usual: Float[np.ndarray, "..."] | None
    """Mean squares of the outputs in units of `unit`, where weights are relative."""
    dtype: np.dtype
    unit: Float[np.ndarray, "..."] | float = 1.0
    notes: dict[str, Any] = dc.field(default_factory=lambda: {"seconds": {}})
    """How the passes went, for those who look at results."""

    @property
    def rows(self) -> int:
        """How many fields there are: samples times channels."""
        return self.data.samples * self.data.example.channels

    def blocks(
        self, first: int = 0
    ) -> Iterator[tuple[OperatorData, Rows, Float[np.ndarray, "samples channels"] | None]]:
        """From the `first` on, blocks of samples, raw fields, and weights that are not yet scaled to mean 1.

        They are those of this process: of several, each has its own.
        """
        part, parts = process_shard()
        for block in self.data.blocks(part + first * parts, parts):
            check_positive(block, self.output is not None and self.output.is_positive)
            yield (
                block,
                raw_rows(block, self.output)[0],
                unscaled_weights(block, self.usual, np.asarray(self.unit)),
            )

    def compressed(self) -> tuple[Fields, float]:
        """Fields of few rows that stand for all, with the same mean squares, losses and limits; the mean weight.

        Their `factor` has all weights in it. Where checkpoints are kept it is written down on the way.
        """
        begin = time.perf_counter()
        bare = make_fields(self.data.example, self.coordinates, self.output, None)
        place = checkpointed_step("compressed outputs")
        if place.saved is not None and place.is_done:
            found = place.saved.arrays
        else:
            found = self._factors(bare, place)
            if sum(array.nbytes for array in found.values()) <= _LARGEST_SNAPSHOT:
                place.finish(lambda: Snapshot(found))
        self.notes.update(rank=len(found["plain"]), discarded_share=float(found["discarded"]))
        self.notes["seconds"]["compression"] = time.perf_counter() - begin
        return dc.replace(bare, outputs=found["plain"], factor=found.get("weighted")), float(found["weight"])

    def _factors(self, bare: Fields, place: StepHandle) -> dict[str, np.ndarray]:
        """Of the outputs as they are, and with all weights; and the mean of those of samples.

        As many rows as there are directions have the mean squares of all.
        """
        roots = np.sqrt(mean_one(bare.point_weights, len(bare.points)))
        work = _Work.begin(len(bare.points), place)
        for _, rows, weights in self.blocks(work.blocks):
            work.plain.add(rows)
            if weights is not None:
                work.total += float(weights.sum())
                work.weighted.add(rows * roots * np.sqrt(weights).reshape(-1, 1))
            work.blocks += 1
            if row_factor_bytes(len(roots)) <= _LARGEST_SNAPSHOT and not is_distributed():
                place.save(work.snapshot)
        work.combine()
        plain = work.plain.finish()
        share = plain.discarded / max(float(np.vdot(plain.factor, plain.factor)), np.finfo(float).tiny)
        scale = np.sqrt(len(plain.factor) / self.rows)
        outputs = np.multiply(plain.factor, scale, out=plain.factor)
        found = {"plain": outputs, "discarded": np.asarray(share), "weight": np.asarray(1.0)}
        if work.total == 0:
            return found | {"weighted": outputs if bare.point_weights is None else outputs * roots}
        weight, factor = work.total / self.rows, work.weighted.finish().factor
        weighted = np.multiply(factor, scale / np.sqrt(weight), out=factor)
        return found | {"weight": np.asarray(weight), "weighted": weighted}

    @contextlib.contextmanager
    def stored(self, basis: Orthonormal, fields: Fields, weight: float) -> Generator[StoredRows]:
        """Encoded inputs, coefficients in the `basis` and weights of all samples, in files while this lasts.

        In a folder of checkpoints they stay, so that a resumed run finds them, and are removed with it.
        """
        begin = time.perf_counter()
        with work_folder() as folder:
            name = f"rows-{self._digest(basis)[:16]}"
            files = [folder / f"{name}.{part}.npy" for part in ("inputs", "targets", "weights")]
            part, parts = process_shard()
            places = np.flatnonzero(self.data.block_numbers(np.arange(self.data.samples)) % parts == part)
            rows = StoredRows(files[0], files[1], files[2], self.data.samples, places)
            if not _is_sound(folder / f"{name}.json"):
                self._write(rows, basis, fields, weight)
                write_json(folder / f"{name}.json", {path.name: sha256_of(path) for path in files})
            self.notes["seconds"]["coefficients"] = time.perf_counter() - begin
            yield rows

    def _write(self, rows: StoredRows, basis: Orthonormal, fields: Fields, weight: float) -> None:
        channels, first = self.data.example.channels, self._encoded(self.data.example)
        samples = len(rows.places)
        with (
            _table(rows.inputs, (samples, first.shape[1]), self.dtype) as inputs,
            _table(rows.targets, (samples, channels * basis.rank), self.dtype) as targets,
            _table(rows.weights, (samples,), self.dtype) as weights,
        ):
            for block, outputs, row_weights in self.blocks():
                coefficients = basis.coefficients(outputs, point_weights=fields.point_weights)
                w = np.ones(block.samples) if row_weights is None else row_weights.mean(axis=1) / weight
                for file, array in ((inputs, self._encoded(block)), (targets, coefficients), (weights, w)):
                    file.write(np.ascontiguousarray(array, self.dtype).data)

    def _encoded(self, block: OperatorData) -> np.ndarray:
        return np.asarray(encoded(self.encoder, block.flat_inputs, self.dtype))

    def _digest(self, basis: Orthonormal) -> str:
        """What decides the stored rows."""
        encoder = jax.tree.leaves(self.encoder)
        structure = jax.tree.structure(self.encoder)
        text = f"{self.data.digest} {process_shard()} {structure} {self.usual is None} {self.dtype}"
        digest = hashlib.sha256(text.encode())
        for array in (*encoder, *(basis.values[block] for block in row_blocks(len(basis.values)))):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dc.dataclass
class _Work:
    """The first pass on its way."""

    plain: RowFactor
    weighted: RowFactor
    total: float = 0.0
    blocks: int = 0

    @classmethod
    def begin(cls, points: int, place: StepHandle) -> "_Work":
        """From the beginning, or where it was interrupted; several processes start again."""
        work = cls(RowFactor(points), RowFactor(points))
        if place.saved is not None and not is_distributed():
            work.total, work.blocks = float(place.saved.note["total"]), int(place.saved.note["blocks"])
            for name in ("plain", "weighted"):
                state = {key: place.saved.arrays[f"{name}.{key}"] for key in ("rows", "numbers")}
                getattr(work, name).restore(state)
        return work

    def combine(self) -> None:
        """Take in what the other processes found in their blocks."""
        self.total = float(sum_over_processes(np.asarray(self.total)))
        self.plain.combine()
        self.weighted.combine()

    def snapshot(self) -> Snapshot:
        """All that is needed to continue."""
        factors = {"plain": self.plain, "weighted": self.weighted}
        states = {f"{name}.{key}": array for name, f in factors.items() for key, array in f.state().items()}
        return Snapshot(states, {"total": self.total, "blocks": self.blocks})


@contextlib.contextmanager
def _table(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> Generator[BinaryIO]:
    """A .npy file that is written row by row: a mapped one would be in memory as long as it is written to."""
    with atomic_write(path) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield file


def _is_sound(index: Path) -> bool:
    """Whether the files that `index` names are there and as they were written."""
    if not index.is_file():
        return False
    try:
        return all(sha256_of(index.parent / name) == digest for name, digest in read_json(index).items())
    except CorruptFileError:
        return False
