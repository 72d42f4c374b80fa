"""Shocks that move, solved exactly: the Riemann problem of the Euler equations, and a front in a Burgers flow."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data.operator_data import InputFunction, OperatorData
from .problem import AbstractExactProblem, check_samples

GAMMA = 1.4
_POINTS = 200
_RIEMANN_STEPS = 30

PerSample = Float[np.ndarray, " samples"]


@dc.dataclass(frozen=True, kw_only=True)
class Riemann(AbstractExactProblem):
    """Gas at rest in (0, 1), of density 1 on both sides of a diaphragm that is removed at time 0.

    The pressure is 1 on the right and p on the left, the input, drawn uniformly on a logarithmic scale from
    `pressures`. The outputs are velocity, density and pressure at 200 points when the shock has come, by p, to
    between 0.68 and 0.92 of the tube (`LOW_RATIO`) or 0.71 and 0.95 (`HIGH_RATIO`): the exact solution (Toro,
    Riemann solvers and numerical methods for fluid dynamics, chapter 4). The rarefaction runs to the left; for a
    low ratio it leaves the tube.
    """

    pressures: tuple[float, float]
    diaphragm: float
    time: float
    default_samples: int = 500
    output_numbers: int = 3 * _POINTS

    def make(self, samples: int, *, seed: int) -> OperatorData:
        check_samples(samples)
        low, high = np.log(self.pressures)
        p = np.exp(np.random.default_rng(seed).uniform(low, high, samples))
        x = np.linspace(0.0, 1.0, _POINTS)
        star = star_region(p)
        return OperatorData(
            inputs={"pressure": p[:, None]},
            points=x[:, None],
            outputs=solution(p, (x - self.diaphragm) / self.time),
            labels={"shock": self.diaphragm + self.time * star.shock_speed},
            coordinate_names=("x",),
            channel_names=("velocity", "density", "pressure"),
        )


LOW_RATIO = Riemann(
    name="riemann",
    title="Shock tube, pressure ratio 1.2 to 5",
    pressures=(1.2, 5.0),
    diaphragm=0.25,
    time=0.35,
)
HIGH_RATIO = Riemann(
    name="riemann-strong",
    title="Shock tube, pressure ratio 1e3 to 1e4",
    pressures=(1e3, 1e4),
    diaphragm=0.6,
    time=0.0047,
)


@dc.dataclass(frozen=True, eq=False)
class StarRegion:
    """The gas between rarefaction and shock: one pressure and velocity, two densities, and the shock's speed."""

    pressure: PerSample
    velocity: PerSample
    density_left: PerSample
    density_right: PerSample
    shock_speed: PerSample


def star_region(p: PerSample) -> StarRegion:
    """Solve for the region behind the shock by Newton's method in the logarithm of its pressure.

    The velocity behind a shock that runs into gas of pressure 1 is (q - 1) sqrt(2 / ((g + 1) q + g - 1)), that
    behind the rarefaction 2 c / (g - 1) (1 - (q / p)^((g - 1) / 2g)); q makes them equal.
    """
    power, sound = (GAMMA - 1) / (2 * GAMMA), np.sqrt(GAMMA * p)
    log_q = 0.5 * np.log(p)
    for _ in range(_RIEMANN_STEPS):
        q = np.exp(log_q)
        root = np.sqrt(2 / ((GAMMA + 1) * q + GAMMA - 1))
        expansion = (q / p) ** power
        difference = (q - 1) * root - 2 * sound / (GAMMA - 1) * (1 - expansion)
        slope = q * root * (1 - (q - 1) * (GAMMA + 1) * root**2 / 4) + sound / GAMMA * expansion
        log_q = log_q - difference / slope
    q = np.exp(log_q)
    velocity = (q - 1) * np.sqrt(2 / ((GAMMA + 1) * q + GAMMA - 1))
    ratio = (GAMMA - 1) / (GAMMA + 1)
    shock = np.sqrt(((GAMMA + 1) * q + GAMMA - 1) / 2)
    return StarRegion(q, velocity, (q / p) ** (1 / GAMMA), (q + ratio) / (ratio * q + 1), shock)


def solution(p: PerSample, speeds: Float[np.ndarray, " points"]) -> Float[np.ndarray, "samples points 3"]:
    """Velocity, density and pressure along the rays x / t = `speeds` from the diaphragm."""
    star, sound, s = star_region(p), np.sqrt(GAMMA * p)[:, None], speeds[None]
    left, middle, right = (
        np.stack([u, density, pressure], axis=-1)[:, None]
        for u, density, pressure in (
            (0 * p, np.ones_like(p), p),
            (star.velocity, star.density_left, star.pressure),
            (0 * p, np.ones_like(p), np.ones_like(p)),
        )
    )
    behind = np.stack([star.velocity, star.density_right, star.pressure], axis=-1)[:, None]
    # Inside the fan u - c is the speed of the ray and u + 2 c / (g - 1) is constant.
    velocity = 2 / (GAMMA + 1) * (sound + s)
    relative = np.maximum(1 - (GAMMA - 1) / 2 * velocity / sound, 0.0)  # c over that of the gas at rest
    fan = np.stack(
        [velocity, relative ** (2 / (GAMMA - 1)), p[:, None] * relative ** (2 * GAMMA / (GAMMA - 1))], -1
    )
    tail = star.velocity[:, None] - np.sqrt(GAMMA * star.pressure / star.density_left)[:, None]
    edges = (s < -sound, s < tail, s < star.velocity[:, None], s < star.shock_speed[:, None])
    return np.select([edge[..., None] for edge in edges], [left, fan, middle, behind], right)


_SENSORS, _TIMES = 128, 64
_WAVE = 2 * np.pi
_LARGEST_AMPLITUDE = 0.12
_BURGERS_STEPS = 10


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
    for _ in range(_BURGERS_STEPS):
        slope = 1 + t * start.amplitude * _WAVE * np.cos(_WAVE * y + start.phase)
        y = y - (y + t * (level + start.sine(y)) - x) / slope
    return y


def _integral(start: Start, y: np.ndarray) -> np.ndarray:
    """The integral of the sine from the jump to y."""
    ends = [np.cos(_WAVE * end + start.phase) for end in (np.asarray(start.jump), y)]
    return start.amplitude / _WAVE * (ends[0] - ends[1])
