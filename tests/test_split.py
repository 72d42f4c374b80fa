"""The split: disjoint, complete, its own seed."""

import numpy as np
import pytest

from trunkfirst.data import Split
from trunkfirst.errors import DataError, TrunkfirstError, ValueRangeError


@pytest.mark.parametrize("samples", [4, 20, 1001])
@pytest.mark.parametrize(("validation_share", "test_share"), [(0.0, 0.1), (0.25, 0.25), (0.1, 0.0)])
def test_disjoint_and_complete(samples: int, validation_share: float, test_share: float):
    split = Split.random(samples, validation_share=validation_share, test_share=test_share, seed=1)
    parts = [split.train, split.validation, split.test]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))
    assert [len(part) for part in parts[1:]] == [round(validation_share * samples), round(test_share * samples)]
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


def test_reproducible_by_its_seed():
    first, again, other = (Split.random(100, validation_share=0.1, test_share=0.1, seed=s) for s in (5, 5, 6))
    assert np.array_equal(first.test, again.test)
    assert np.array_equal(first.validation, again.validation)
    assert not np.array_equal(first.test, other.test)


def test_test_part_does_not_depend_on_the_validation_share():
    tests = [Split.random(50, validation_share=s, test_share=0.2, seed=0).test for s in (0.0, 0.1, 0.5)]
    assert np.array_equal(tests[0], tests[1])
    assert np.array_equal(tests[0], tests[2])


@pytest.mark.parametrize(
    ("samples", "validation_share", "test_share", "error", "words"),
    [
        (10, -0.1, 0.1, ValueRangeError, "validation_share is -0.1"),
        (10, 0.1, 1.0, ValueRangeError, "test_share is 1.0"),
        (10, 0.1, float("nan"), ValueRangeError, "test_share is nan"),
        (10, 0.5, 0.5, DataError, "leave none for training"),
        (1, 0.0, 0.9, DataError, "1 samples leave none"),
    ],
)
def test_refusals(
    samples: int, validation_share: float, test_share: float, error: type[TrunkfirstError], words: str
):
    with pytest.raises(error, match=words):
        Split.random(samples, validation_share=validation_share, test_share=test_share, seed=0)
