"""Inputs that training has not seen are noticed, and those that it has seen are not."""

import numpy as np
import pytest

from trunkfirst.evaluation import Familiarity, familiarity_from, learn_familiarity

X = np.linspace(0, 1, 30)


def fields(samples: int, *, seed: int, size: float = 1.0) -> np.ndarray:
    """Smooth random functions at 30 sensors."""
    k = np.arange(1, 5)
    return size * np.random.default_rng(seed).normal(size=(samples, 4)) / k @ np.cos(np.pi * k[:, None] * X)


def numbers(samples: int, *, seed: int, size: float = 1.0) -> np.ndarray:
    """Three numbers, in units that differ by a million."""
    return size * np.random.default_rng(seed).uniform(-1, 1, (samples, 3)) * [1.0, 1e-3, 1e3] + [1.0, 0.0, 50.0]


@pytest.mark.parametrize("samples", [100, 400])
@pytest.mark.parametrize("make", [fields, numbers])
def test_training_inputs_and_their_like_are_familiar(make, samples: int):
    train = make(samples, seed=0)
    known = learn_familiarity(train)
    assert not known.is_strange(train).any()
    assert known.is_strange(make(500, seed=1)).mean() < 0.05


STRANGE: dict[str, np.ndarray] = {
    "far too large": fields(20, seed=1, size=50.0),
    "of another shape": np.sin(40 * np.pi * X)[None] * np.ones((3, 1)),
    "shifted": fields(20, seed=1) + 3.0,
    "one sensor is broken": fields(20, seed=1) + 5.0 * np.eye(30)[7],
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_functions_are_noticed(name: str):
    assert learn_familiarity(fields(200, seed=0)).is_strange(STRANGE[name]).all()


@pytest.mark.parametrize("number", range(3))
def test_a_number_outside_its_range_is_noticed_in_any_unit(number: int):
    train = numbers(200, seed=0)
    known = learn_familiarity(train)
    moved = train[:10].copy()
    moved[:, number] = train[:, number].max() + np.ptp(train[:, number])
    assert known.is_strange(moved).all()


def test_a_hole_in_the_training_inputs_is_noticed():
    """Inside the range, but far from everything seen."""
    angle = np.linspace(0, 2 * np.pi, 100)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    known = learn_familiarity(ring)
    assert not known.is_strange(ring * 1.01).any()
    assert known.is_strange(np.zeros((1, 2))).all()


@pytest.mark.parametrize("inputs", [np.ones((1, 3)), np.ones((20, 3)), np.zeros((2, 1))], ids=str)
def test_inputs_that_never_change(inputs: np.ndarray):
    known = learn_familiarity(inputs)
    assert not known.is_strange(inputs).any()
    assert known.is_strange(inputs + 1).all()


def test_many_samples_are_remembered_by_some():
    known = learn_familiarity(fields(5000, seed=0))
    assert len(known.seen) == 2000
    assert known.seen.shape[1] <= 8


def test_arrays_and_back():
    known = learn_familiarity(fields(50, seed=0))
    back = familiarity_from({"points": X, **known.arrays()})
    assert isinstance(back, Familiarity)
    new = np.concatenate([fields(50, seed=1), STRANGE["shifted"]])
    assert np.array_equal(back.is_strange(new), known.is_strange(new))
    assert familiarity_from({"points": X}) is None
