"""Which samples train, which choose, which judge."""

import dataclasses as dc
from typing import TypeAlias

import numpy as np
from jaxtyping import Int

from ..errors import DataError, ValueRangeError

Indices: TypeAlias = Int[np.ndarray, " chosen"]


@dc.dataclass(frozen=True, eq=False)
class Split:
    """Train, validation and test samples by index, without overlap.

    Every choice is made on validation; test is touched by evaluation alone.

    >>> split = Split.random(100, validation_share=0.1, test_share=0.2, seed=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (70, 10, 20)
    """

    train: Indices
    validation: Indices
    test: Indices

    @classmethod
    def random(cls, samples: int, *, validation_share: float, test_share: float, seed: int) -> "Split":
        """A random split with its own seed, so that it stays while the seed of the networks varies.

        The test samples depend on `samples`, `test_share` and `seed` alone: another validation share
        does not move them.
        """
        for name, share in (("validation_share", validation_share), ("test_share", test_share)):
            if not 0 <= share < 1:
                raise ValueRangeError(f"{name} is {share}; expected a share from 0 to below 1")
        order = np.random.default_rng(seed).permutation(samples)
        tests = round(test_share * samples)
        validations = round(validation_share * samples)
        if tests + validations >= samples:
            raise DataError(
                f"{samples} samples leave none for training with {validations} for validation and {tests} "
                "for test; give more samples or smaller shares"
            )
        parts = np.split(order, [tests, tests + validations])
        test, validation, train = (np.sort(part) for part in parts)
        return cls(train=train, validation=validation, test=test)
