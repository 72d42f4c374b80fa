"""The data of a configuration, from a problem or from a file, and their split."""

import dataclasses as dc
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..data import AnyData, ShardedData, Split, read_data
from ..problems import get_problem, make_data
from ..training import samples_in_memory
from ._config import DataSection, RunConfig
from ._needs import check_file, check_memory
from ._reporter import Reporter, Silent


@dc.dataclass(frozen=True, eq=False)
class Prepared:
    """Data with the split, and the seconds it took to get them."""

    data: AnyData
    split: Split
    seconds: float
    whole: ShardedData | None = None
    """All samples but those for judging, where they do not fit into memory: `data` and `split` have some then."""

    @property
    def counts(self) -> dict[str, int]:
        """How many samples train, choose and judge; those in shards that are not in memory train."""
        split = self.split
        train = len(split.train) if self.whole is None else self.whole.samples - len(split.validation)
        return {"train": train, "validation": len(split.validation), "test": len(split.test)}

    @property
    def for_training(self) -> AnyData | ShardedData:
        """Samples for training once nothing is to be chosen any more, in memory or not."""
        return self.whole or self.all_but_test

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
    def test(self) -> AnyData | None:
        """Samples for judging, if there are any."""
        return self.data.take(self.split.test) if len(self.split.test) else None


def prepare(
    config: RunConfig, *, data: AnyData | ShardedData | None = None, reporter: Reporter | None = None
) -> Prepared:
    """Make, find or read the data of a configuration, unless they are given, and split them."""
    start = time.perf_counter()
    section, reporter = config.data, reporter or Silent()
    if data is None:
        data = _get(config, reporter)
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
    return Prepared(data, split, time.perf_counter() - start)


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
    part = data.take(order)
    split = Split(train=train, validation=validation, test=test)
    return Prepared(part, split, time.perf_counter() - start, data.without(order[:tests]))


def _get(config: RunConfig, reporter: Reporter) -> AnyData | ShardedData:
    section = config.data
    if config.problem is not None:
        problem = get_problem(config.problem)
        check_memory(section.samples or problem.default_samples, len(problem.mesh.points))
        return make_data(
            config.problem, samples=section.samples, points=section.points, progress=reporter.on_samples
        )
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
