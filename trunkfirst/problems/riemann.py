"""The Riemann problem of the Euler equations: a shock tube, solved exactly."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data.operator_data import OperatorData
from .problem import AbstractExactProblem, check_samples

GAMMA = 1.4
_POINTS = 200
_NEWTON_STEPS = 30

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
    for _ in range(_NEWTON_STEPS):
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
