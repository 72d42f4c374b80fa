"""The data of a configuration, from a problem or from a file, and their split."""

import dataclasses as dc
import functools as ft
import time
from pathlib import Path

import numpy as np

from ..data import AnyData, Split, read_data
from ..devices import first_alone
from ..problems import get_problem, make_data
from ._config import RunConfig
from ._needs import check_memory
from ._reporter import Reporter, Silent


@dc.dataclass(frozen=True, eq=False)
class Prepared:
    """Data with the split, and the seconds it took to get them."""

    data: AnyData
    split: Split
    seconds: float
    holds_validation: bool = False
    """Whether the operator is judged on the samples for choosing, and must not see them."""

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
        """Samples that the operator is trained on."""
        return self.train if self.holds_validation else self.all_but_test

    @property
    def test(self) -> AnyData | None:
        """Samples for judging, if there are any."""
        return self.data.take(self.split.test) if len(self.split.test) else None


def prepare(
    config: RunConfig,
    *,
    data: AnyData | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    reporter: Reporter | None = None,
) -> Prepared:
    """Make, find or read the data of a configuration, unless they are given, and split them.

    `workers` and `scheduler` say who solves what is not made yet, as in `make_data`.
    """
    start = time.perf_counter()
    section = config.data
    if data is None:
        data = _get(config, workers, scheduler, reporter or Silent())
    split = Split.random(
        data.samples,
        validation_share=section.validation_share,
        test_share=section.test_share,
        seed=section.split_seed,
    )
    return Prepared(data, split, time.perf_counter() - start, section.hold_validation)


def _get(config: RunConfig, workers: int | None, scheduler: str | None, reporter: Reporter) -> AnyData:
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
        return first_alone(make)
    assert section.file is not None
    data = read_data(Path(section.file), keys=section.keys)
    return data if section.samples is None else data.take(np.arange(min(section.samples, data.samples)))
