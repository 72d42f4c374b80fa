"""A front that moves through a smooth flow: the entropy solution of the inviscid Burgers equation."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data.operator_data import InputFunction, OperatorData
from .problem import AbstractExactProblem, check_samples

_SENSORS, _TIMES = 128, 64
_WAVE = 2 * np.pi
_LARGEST_AMPLITUDE = 0.12
_NEWTON_STEPS = 10


@dc.dataclass(frozen=True)
class BurgersFront(AbstractExactProblem):
    """u_t + (u^2 / 2)_x = 0 for x and t in (0, 1), from a step with a smooth part; operator u(., 0) -> u.

    u(x, 0) = a sin(2 pi x + theta) + (left for x < s, right for x > s), for all real x, with left in (0.9, 1.2),
    right in (0, 0.2), s in (0.05, 0.25), a in (0, 0.12) and theta drawn uniformly. Since 2 pi a t < 1,
    characteristics meet at the jump alone, which travels at least 0.3.
    """

    name: str = "burgers-front"
    title: str = "Burgers equation, a moving front"
    default_samples: int = 500
    output_numbers: int = _SENSORS * _TIMES

    def make(self, samples: int, *, seed: int) -> OperatorData:
        check_samples(samples)
        starts = [Start.draw(rng) for rng in np.random.default_rng(seed).spawn(samples)]
        x, t = np.linspace(0.0, 1.0, _SENSORS), np.linspace(0.0, 1.0, _TIMES)
        places = np.stack(np.meshgrid(x, t), axis=-1).reshape(-1, 2)  # x runs faster
        return OperatorData(
            inputs={"u at time 0": InputFunction(np.stack([start(x) for start in starts]), x[:, None])},
            points=places,
            outputs=np.stack([entropy_solution(start, *places.T) for start in starts]),
            labels={"jump": np.array([start.jump for start in starts])},
            output_name="u",
            coordinate_names=("x", "t"),
        )


@dc.dataclass(frozen=True)
class Start:
    """u at time 0: a step down at `jump` plus a sine."""

    left: float
    right: float
    jump: float
    amplitude: float
    phase: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Start":
        """Draw the numbers of one sample."""
        low, high = (0.9, 0.0, 0.05, 0.0, 0.0), (1.2, 0.2, 0.25, _LARGEST_AMPLITUDE, 2 * np.pi)
        return cls(*(float(number) for number in rng.uniform(low, high)))

    def __call__(self, x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        return np.where(x < self.jump, self.left, self.right) + self.sine(x)

    def sine(self, x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """The smooth part."""
        return self.amplitude * np.sin(_WAVE * x + self.phase)


def entropy_solution(
    start: Start, x: Float[np.ndarray, " points"], t: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """The entropy solution at the points (x, t).

    By Lax and Oleinik the characteristic that arrives at (x, t) begins where the integral of u(., 0) from the jump
    to y, plus (x - y)^2 / (2t), is smallest. On each side of the jump one y satisfies y + t u(y, 0) = x.
    """
    feet = [_foot(start, level, x, t) for level in (start.left, start.right)]
    y, z = feet
    # t times the difference of the two: which side has arrived
    action = [
        t * (level * (foot - start.jump) + _integral(start, foot)) + (x - foot) ** 2 / 2
        for level, foot in zip((start.left, start.right), feet, strict=True)
    ]
    is_left = (y < start.jump) & ((z < start.jump) | (action[0] < action[1]))
    return np.where(is_left, start.left + start.sine(y), start.right + start.sine(z))


def _foot(start: Start, level: float, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """y with y + t (level + sine(y)) = x, by Newton's method; the left side increases with y."""
    y = x - t * level
    for _ in range(_NEWTON_STEPS):
        slope = 1 + t * start.amplitude * _WAVE * np.cos(_WAVE * y + start.phase)
        y = y - (y + t * (level + start.sine(y)) - x) / slope
    return y


def _integral(start: Start, y: np.ndarray) -> np.ndarray:
    """The integral of the sine from the jump to y."""
    ends = [np.cos(_WAVE * end + start.phase) for end in (np.asarray(start.jump), y)]
    return start.amplitude / _WAVE * (ends[0] - ends[1])
