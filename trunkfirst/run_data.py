"""The data of a run, from a problem, a file or memory, and their split."""

import dataclasses as dc
import functools as ft
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from .data.operator_data import OperatorData
from .data.read_write import read_data
from .data.repeated_samples import copied_samples, parts_apart
from .data.scattered_data import AnyData, joined
from .data.sharded_data import ShardedData
from .distributed.processes import leader_first
from .errors import DataError, UsageError, ValueRangeError
from .memory import check_file, check_memory
from .problems.generate import any_problem, make_data
from .progress import Reporter, Silent
from .settings import Field, record
from .stream import samples_in_memory, stream_bytes, take_together


@record
class DataSettings:
    """Which samples, and how they are split."""

    file: str | None = Field(default=None, description="your own data, instead of a problem")
    earlier: "DataSettings | None" = Field(
        default=None,
        description="samples of an earlier fit, to which these are added; its test samples stay test samples",
    )
    suggested: bool = Field(
        default=False,
        description="the samples of the file were suggested: train on them, but measure no error on them",
    )
    keys: dict[str, str] = Field(
        default_factory=dict, description='names of the arrays in the file, e.g. {inputs = "a"}'
    )
    samples: int | None = Field(default=None, ge=4, description="number of samples; all if left out")
    points: str | None = Field(default=None, description='"random:M" or "grid:N" instead of the mesh of a problem')
    split_seed: int = Field(default=0, ge=0, lt=2**63, description="seed of the split")
    validation_share: float = Field(
        default=0.1, ge=0, lt=1, description="share of samples for validation, with hold_validation"
    )
    hold_validation: bool = Field(
        default=False,
        description="do not train on the validation samples, but evaluate the operator on them, as sweeps do",
    )
    test_share: float = Field(default=0.1, ge=0, lt=1, description="share of samples held back for the test")

    @property
    def held_back(self) -> tuple[float, float]:
        """The shares of samples for validation and for testing, which do not train."""
        return self.validation_share if self.hold_validation else 0.0, self.test_share


@dc.dataclass(frozen=True, eq=False)
class Split:
    """Indices of training, validation and test samples, without overlap.

    >>> import trunkfirst
    >>> split = trunkfirst.Split.random(100, validation_share=0.1, test_share=0.2, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (70, 10, 20)
    """

    train: Int[np.ndarray, " train"]
    validation: Int[np.ndarray, " validation"]
    test: Int[np.ndarray, " test"]

    @classmethod
    def random(cls, samples: int, *, validation_share: float, test_share: float, seed: int) -> "Split":
        """Draw a random split; the test samples do not depend on the validation share.

        Args:
            samples: number of samples.
            validation_share: share of the samples for validation.
            test_share: share of the samples for the test.
            seed: seed of the split.

        Returns:
            A `Split`.
        """
        for name, share in (("validation_share", validation_share), ("test_share", test_share)):
            if not 0 <= share < 1:
                raise ValueRangeError(f"{name} is {share}; expected a share from 0 to below 1")
        order = np.random.default_rng(seed).permutation(samples)
        tests = round(test_share * samples)
        validations = round(validation_share * samples)
        if tests + validations >= samples:
            raise DataError(
                f"{samples} samples leave none for training, with {validations} for validation and {tests} "
                "for the test; give more samples or smaller shares"
            )
        parts = np.split(order, [tests, tests + validations])
        test, validation, train = (np.sort(part) for part in parts)
        return cls(train=train, validation=validation, test=test)


@dc.dataclass(frozen=True, eq=False)
class RunData:
    """Data with their split, and the seconds it took to get them.

    Validation samples are held back from training, to evaluate the operator on them.
    """

    data: AnyData
    split: Split
    seconds: float = 0.0
    split_seed: int = 0
    whole: ShardedData | None = None
    """All samples that train, where they do not fit into memory: `data` and `split` then have some of them."""
    test_reference: Float[np.ndarray, "samples points *channels"] | None = None
    """The finer solution of the test samples, where `data` has none."""
    copies: int = 0
    """Samples that are in no part, because they have the inputs and outputs of others."""

    def without_references(self) -> "RunData":
        """The same with the finer solution of the test samples alone: training reads no other, and it is large."""
        if not isinstance(self.data, OperatorData) or self.data.reference_outputs is None:
            return self
        reference = self.data.reference_outputs[self.split.test]
        return dc.replace(self, data=dc.replace(self.data, reference_outputs=None), test_reference=reference)

    def in_order(self) -> "RunData":
        """The same with the samples of each part next to each other, so that the parts are views, not copies."""
        if not isinstance(self.data, OperatorData) or self.whole is not None:
            return self
        parts = (self.split.train, self.split.validation, self.split.test)
        order, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        train, validation, test = np.split(np.arange(ends[-1]), ends[:-1])
        return dc.replace(self, data=self.data.take(order), split=Split(train, validation, test))

    @property
    def counts(self) -> dict[str, int]:
        """Samples for training, validation and testing; those in shards that are not in memory train."""
        train, validation, test = map(len, (self.split.train, self.split.validation, self.split.test))
        return {
            "train": train if self.whole is None else self.whole.samples,
            "validation": validation,
            "test": test,
        }

    @property
    def remarks(self) -> list[str]:
        """A sentence on copies, if there are any."""
        words = "copies of others, with the same inputs and outputs, and not used"
        return [f"{self.copies} samples are {words}"] if self.copies else []

    def check_memory(self) -> None:
        """Raise `MemoryNeedError` where training on the data needs more memory than is free."""
        floats = (self.data.flat_inputs.size + self.data.outputs.size) // self.data.samples
        beside = 0 if self.whole is None else stream_bytes(self.whole)
        check_memory(self.data.samples, floats, is_loaded=True, beside=beside)

    @ft.cached_property
    def train(self) -> AnyData:
        """Samples that choose and train, without reference; where `whole` has them all, some of those."""
        plain = dc.replace(self.data, reference_outputs=None) if isinstance(self.data, OperatorData) else self.data
        return plain.take(_as_slice(self.split.train))

    @property
    def validation(self) -> AnyData | None:
        """Samples held back from training, if there are any."""
        return self.data.take(_as_slice(self.split.validation)) if len(self.split.validation) else None

    @property
    def test(self) -> AnyData | None:
        """Samples for testing, if there are any."""
        if not len(self.split.test):
            return None
        test = self.data.take(_as_slice(self.split.test))
        if self.test_reference is None or not isinstance(test, OperatorData):
            return test
        return dc.replace(test, reference_outputs=self.test_reference)


def _as_slice(rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"] | slice:
    """A slice where the rows follow each other."""
    follow = len(rows) > 0 and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows)))
    return slice(rows[0], rows[0] + len(rows)) if follow else rows


def load_run_data(
    settings: DataSettings,
    problem: str | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    reporter: Reporter | None = None,
) -> RunData:
    """Make or read the data that `settings` name, and split them.

    `workers` and `scheduler` say who solves samples of a problem that are not cached yet, as in `make_data`.
    """
    start = time.perf_counter()
    reporter = reporter or Silent()
    if settings.earlier is not None:
        before = load_run_data(settings.earlier, reporter=reporter)
        return _together(before, load_run_data(dc.replace(settings, earlier=None), reporter=reporter))
    if problem is None:
        assert settings.file is not None
        data = read_samples(Path(settings.file), settings.keys, settings.samples)
    else:
        known = any_problem(problem)
        check_memory(settings.samples or known.default_samples, known.output_numbers)
        make = ft.partial(
            make_data,
            problem,
            samples=settings.samples,
            points=settings.points,
            workers=workers,
            scheduler=scheduler,
            progress=reporter.on_samples,
        )
        data = leader_first(make)
    return split_data(data, settings, start=start, reporter=reporter)


def split_data(
    data: AnyData | ShardedData,
    settings: DataSettings,
    *,
    start: float | None = None,
    reporter: Reporter | None = None,
) -> RunData:
    """Split samples at random; of shards, some samples are read into memory for choosing and testing."""
    start = time.perf_counter() if start is None else start
    if isinstance(data, ShardedData) and data.samples > samples_in_memory(data):
        return _split_shards(data, settings, start, reporter or Silent())
    if isinstance(data, ShardedData):
        data = data.take(np.arange(data.samples))
    if settings.suggested:
        data = dc.replace(data, is_suggested=np.ones(data.samples, bool))
    is_copy = copied_samples(data)
    split, seconds = _split(data, settings, ~is_copy), time.perf_counter() - start
    return RunData(data, split, seconds, settings.split_seed, copies=int(is_copy.sum()))


def _split(data: AnyData, settings: DataSettings, is_used: Bool[np.ndarray, " samples"]) -> Split:
    """At random, those with the same inputs together; suggested samples are not like new ones, and train."""

    def held_back(rows: Int[np.ndarray, " rows"]) -> list[np.ndarray]:
        validation, test = settings.held_back
        split = Split.random(len(rows), validation_share=validation, test_share=test, seed=settings.split_seed)
        return [rows[split.validation], rows[split.test]]

    used, rows = np.flatnonzero(is_used), data.exchangeable
    rows = rows[is_used[rows]]
    if not len(rows):
        return Split(train=used, validation=rows, test=rows)
    validation, test = parts_apart(data, rows, held_back)
    return Split(np.setdiff1d(used, np.concatenate([validation, test])), validation, test)


def _together(old: RunData, new: RunData) -> RunData:
    """Each sample keeps its part, so that no test sample has trained the earlier trunk."""
    if old.whole is not None or new.whole is not None:
        raise UsageError("samples in shards cannot be added to those of an earlier fit; fit all of them again")
    data = joined(old.data, new.data)
    is_copy = copied_samples(data)  # a copy of a test sample must not train
    parts = {
        part: np.concatenate([getattr(old.split, part), old.data.samples + getattr(new.split, part)])
        for part in ("train", "validation", "test")
    }
    split = Split(**{name: part[~is_copy[part]] for name, part in parts.items()})
    return RunData(data, split, old.seconds + new.seconds, new.split_seed, copies=int(is_copy.sum()))


def _split_shards(data: ShardedData, settings: DataSettings, start: float, reporter: Reporter) -> RunData:
    """At most a quarter of the samples in memory are for validation, and as many for the test."""
    count = samples_in_memory(data)
    validations, tests = (min(round(share * data.samples), count // 4) for share in settings.held_back)
    order = np.random.default_rng(settings.split_seed).choice(data.samples, count, replace=False)
    test, validation, train = np.split(np.arange(count), [tests, tests + validations])
    reporter.say(
        f"{data.samples:,} samples in {len(data.counts):,} shards: {count:,} of them, at random, in memory for "
        f"choosing and testing ({validations:,} for validation, {tests:,} for test); all but these train"
    )
    part = take_together(data, order)
    split = Split(train=train, validation=validation, test=test)
    rest = data.without(order[: tests + validations])
    return RunData(part, split, time.perf_counter() - start, settings.split_seed, rest)


def read_samples(path: Path, keys: Mapping[str, str] | None, samples: int | None) -> AnyData | ShardedData:
    """The first `samples` of a file, or all of them; of shards without reading them."""
    check_file(path, is_all=samples is None)
    data = read_data(path, keys=keys)
    if samples is None or samples >= data.samples:
        return data
    if isinstance(data, ShardedData):
        return data.without(np.arange(samples, data.samples))
    return data.take(np.arange(samples))
