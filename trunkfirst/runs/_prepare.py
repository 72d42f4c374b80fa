"""The data of a configuration, from a problem or from a file, and their split."""

import dataclasses as dc
import functools as ft
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..data import AnyData, ShardedData, Split, read_data
from ..distributed.processes import leader_first
from ..problems import get_problem, make_data
from ..training import samples_in_memory, take_together
from ._config import DataSection, RunConfig
from ._needs import check_file, check_memory
from ._reporter import Reporter, Silent


@dc.dataclass(frozen=True, eq=False)
class Prepared:
    """Data with the split, and the seconds it took to get them."""

    data: AnyData
    split: Split
    seconds: float
    holds_validation: bool = False
    """Whether the operator is judged on the samples for choosing, and must not see them."""
    whole: ShardedData | None = None
    """All samples that train, where they do not fit into memory: `data` and `split` have some then."""

    @property
    def counts(self) -> dict[str, int]:
        """How many samples train, choose and judge; those in shards that are not in memory train."""
        train, validation, test = (
            len(part) for part in (self.split.train, self.split.validation, self.split.test)
        )
        if self.whole is not None:
            train = self.whole.samples - (0 if self.holds_validation else validation)
        return {"train": train, "validation": validation, "test": test}

    @property
    def train(self) -> AnyData:
        """Samples for training while something is still to be chosen."""
        return self.data.take(self.split.train)

    @property
    def validation(self) -> AnyData:
        """Samples for choosing."""
        return self.data.take(self.split.validation)

    @property
    def all_but_test(self) -> AnyData:
        """Samples for training once nothing is to be chosen any more."""
        return self.data.take(np.union1d(self.split.train, self.split.validation))

    @property
    def for_training(self) -> AnyData:
        """Samples that the operator is trained on; where `whole` has them all, some of those."""
        return self.train if self.holds_validation else self.all_but_test

    @property
    def test(self) -> AnyData | None:
        """Samples for judging, if there are any."""
        return self.data.take(self.split.test) if len(self.split.test) else None


def prepare(
    config: RunConfig,
    *,
    data: AnyData | ShardedData | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    reporter: Reporter | None = None,
) -> Prepared:
    """Make, find or read the data of a configuration, unless they are given, and split them.

    `workers` and `scheduler` say who solves what is not made yet, as in `make_data`.
    """
    start = time.perf_counter()
    section, reporter = config.data, reporter or Silent()
    if data is None:
        data = _get(config, workers, scheduler, reporter)
    if isinstance(data, ShardedData) and data.samples > samples_in_memory(data):
        return _prepare_shards(data, section, start, reporter)
    if isinstance(data, ShardedData):
        data = data.take(np.arange(data.samples))
    split = Split.random(
        data.samples,
        validation_share=section.validation_share,
        test_share=section.test_share,
        seed=section.split_seed,
    )
    return Prepared(data, split, time.perf_counter() - start, section.hold_validation)


def _prepare_shards(data: ShardedData, section: DataSection, start: float, reporter: Reporter) -> Prepared:
    """Some samples in memory, for choosing and judging; at most a quarter of them each for validation and test."""
    count = samples_in_memory(data)
    shares = (section.test_share, section.validation_share)
    tests, validations = (min(round(share * data.samples), count // 4) for share in shares)
    order = np.random.default_rng(section.split_seed).choice(data.samples, count, replace=False)
    test, validation, train = np.split(np.arange(count), [tests, tests + validations])
    reporter.say(
        f"{data.samples:,} samples in {len(data.counts):,} shards: {count:,} of them, at random, in memory for "
        f"choosing and judging ({validations:,} for validation, {tests:,} for test); all but the latter train"
    )
    part = take_together(data, order)
    split = Split(train=train, validation=validation, test=test)
    aside = order[: tests + validations] if section.hold_validation else order[:tests]
    return Prepared(part, split, time.perf_counter() - start, section.hold_validation, data.without(aside))


def _get(
    config: RunConfig, workers: int | None, scheduler: str | None, reporter: Reporter
) -> AnyData | ShardedData:
    section = config.data
    if config.problem is not None:
        problem = get_problem(config.problem)
        check_memory(section.samples or problem.default_samples, len(problem.mesh.points))
        make = ft.partial(
            make_data,
            config.problem,
            samples=section.samples,
            points=section.points,
            workers=workers,
            scheduler=scheduler,
            progress=reporter.on_samples,
        )
        return leader_first(make)
    assert section.file is not None
    return read_samples(Path(section.file), section.keys, section.samples)


def read_samples(path: Path, keys: Mapping[str, str] | None, samples: int | None) -> AnyData | ShardedData:
    """The first `samples` of a file, or all of them; of shards without reading them."""
    check_file(path, is_all=samples is None)
    data = read_data(path, keys=keys)
    if samples is None or samples >= data.samples:
        return data
    if isinstance(data, ShardedData):
        return data.without(np.arange(samples, data.samples))
    return data.take(np.arange(samples))
