"""The problems whose solutions are known exactly, against laws and schemes that do not use these solutions."""

import numpy as np
import pytest

from trunkfirst.errors import UsageError, ValueRangeError
from trunkfirst.problems import conservation_laws
from trunkfirst.problems.generate import get_problem, make_data

GAMMA = conservation_laws.GAMMA
STRENGTHS = {"riemann": conservation_laws.LOW_RATIO, "riemann-strong": conservation_laws.HIGH_RATIO}


def fluxes(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Conserved quantities and their fluxes, from velocity, density and pressure."""
    u, rho, p = state
    energy = p / (GAMMA - 1) + rho * u**2 / 2
    return np.array([rho, rho * u, energy]), np.array([rho * u, rho * u**2 + p, u * (energy + p)])


@pytest.mark.parametrize("name", STRENGTHS)
def test_jumps_of_the_shock_tube_conserve(name: str):
    p = np.asarray(STRENGTHS[name].pressures)
    star = conservation_laws.star_region(p)
    for place, speeds in enumerate((star.shock_speed, star.velocity)):  # the shock, the contact
        for sample, speed in enumerate(speeds):
            before, behind = conservation_laws.solution(p, speed * np.array([1 - 1e-9, 1 + 1e-9]))[sample]
            (q, f), (r, g) = fluxes(before), fluxes(behind)
            assert np.allclose(f - g, speed * (q - r), rtol=1e-6, atol=1e-6 * np.abs(f).max()), place
            assert before[1] != pytest.approx(behind[1], rel=0.01)


@pytest.mark.parametrize("name", STRENGTHS)
def test_entropy_falls_nowhere(name: str):
    """Constant through the rarefaction, larger behind the shock; the fan carries its Riemann invariant."""
    p = np.asarray(STRENGTHS[name].pressures)
    star = conservation_laws.star_region(p)
    for sample in range(2):
        tail = star.velocity[sample] - np.sqrt(GAMMA * star.pressure[sample] / star.density_left[sample])
        rays = np.linspace(-np.sqrt(GAMMA * p[sample]), tail, 50)
        u, rho, pressure = conservation_laws.solution(p, rays)[sample].T
        assert np.allclose(pressure / rho**GAMMA, p[sample], rtol=1e-10)
        sound = np.sqrt(GAMMA * pressure / rho)
        assert np.allclose(u - sound, rays, rtol=1e-10, atol=1e-10 * sound.max())
        assert np.allclose(u + 2 * sound / (GAMMA - 1), 2 * np.sqrt(GAMMA * p[sample]) / (GAMMA - 1), rtol=1e-10)
    assert (star.pressure / star.density_right**GAMMA > 1).all()


def rusanov(p: float, problem: conservation_laws.Riemann, cells: int) -> np.ndarray:
    """Velocities in cells, by a scheme of first order on a tube that is long enough."""
    x = (np.arange(4 * cells) + 0.5) / cells - 1.5
    density, h = np.ones_like(x), 1 / cells
    q, _ = fluxes(np.stack([0 * x, density, np.where(x < problem.diaphragm, p, 1.0)]))
    time = 0.0
    while time < problem.time:
        rho, u = q[0], q[1] / q[0]
        pressure = (GAMMA - 1) * (q[2] - rho * u**2 / 2)
        _, f = fluxes(np.stack([u, rho, pressure]))
        speed = np.abs(u) + np.sqrt(GAMMA * pressure / rho)
        step = min(0.9 * h / speed.max(), problem.time - time)
        fastest = np.maximum(speed[1:], speed[:-1])
        between = (f[:, 1:] + f[:, :-1] - fastest * (q[:, 1:] - q[:, :-1])) / 2
        q[:, 1:-1] -= step / h * (between[:, 1:] - between[:, :-1])
        time += step
    return (q[1] / q[0])[(x > 0) & (x < 1)]


@pytest.mark.parametrize("name", STRENGTHS)
def test_a_scheme_converges_to_the_shock_tube(name: str):
    problem = STRENGTHS[name]
    p, errors = problem.pressures[1], []
    for cells in (100, 400):
        x = (np.arange(cells) + 0.5) / cells
        exact = conservation_laws.solution(np.array([p]), (x - problem.diaphragm) / problem.time)[0, :, 0]
        errors.append(np.abs(rusanov(p, problem, cells) - exact).mean() / exact.mean())
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.05


def godunov(u: np.ndarray, h: float, time: float) -> np.ndarray:
    """Cell averages of Burgers' equation, by Godunov's scheme."""
    done = 0.0
    while done < time:
        step = min(0.9 * h / np.abs(u).max(), time - done)
        flux = np.maximum(np.maximum(u[:-1], 0) ** 2, np.minimum(u[1:], 0) ** 2) / 2
        u = np.concatenate([u[:1], u[1:-1] - step / h * np.diff(flux), u[-1:]])
        done += step
    return u


def test_a_scheme_converges_to_the_front():
    start, errors = conservation_laws.Start(1.0, 0.1, 0.2, 0.1, 1.0), []
    for cells in (200, 800):
        x = (np.arange(4 * cells) + 0.5) / cells - 2.0
        exact = conservation_laws.entropy_solution(start, x, np.ones_like(x))
        inside = (x > 0) & (x < 1)
        errors.append(np.abs(godunov(start(x), 1 / cells, 1.0) - exact)[inside].mean())
    assert errors[1] < 0.4 * errors[0]
    assert errors[1] < 2e-3


def test_the_front_satisfies_its_jump_relation():
    """Its speed is the mean of the values at both sides, and the larger one is on the left."""
    start, places, sides = conservation_laws.Start(1.1, 0.05, 0.15, 0.12, 4.0), [], []
    for time in (0.5, 0.501):
        low, high = 0.0, 1.5
        for _ in range(50):
            middle = (low + high) / 2
            u = conservation_laws.entropy_solution(start, np.array([middle]), np.array([time]))
            low, high = (middle, high) if u[0] > 0.6 else (low, middle)
        places.append(low)
        sides.append(conservation_laws.entropy_solution(start, np.array([low, high]), np.full(2, time)))
    assert sides[0][0] > sides[0][1] + 0.5
    assert (places[1] - places[0]) / 1e-3 == pytest.approx(np.mean(sides), rel=1e-3)


@pytest.mark.parametrize(("name", "shape"), [("riemann", (200, 3)), ("burgers-front", (8192,))])
def test_data(name: str, shape: tuple[int, ...]):
    data = make_data(name, samples=20, seed=1)
    assert data.outputs.shape == (20, *shape)
    assert np.array_equal(make_data(name, samples=20, seed=1).outputs, data.outputs)
    assert np.array_equal(make_data(name, samples=20, seed=1, indices=np.array([3])).outputs, data.outputs[[3]])
    with pytest.raises(ValueRangeError, match="points of its own"):
        make_data(name, points="grid:4")
    with pytest.raises(UsageError, match="on a mesh"):
        get_problem(name)


def test_fronts_move_far():
    for name in STRENGTHS:
        shock = make_data(name, samples=400).labels["shock"]
        assert np.ptp(shock) > 0.2
        assert shock.max() < 1
    data = make_data("burgers-front", samples=20)
    fields = data.outputs.reshape(20, 64, 128)
    assert np.array_equal(fields[:, 0], data.flat_inputs)
    last = data.points[np.argmin(np.diff(fields[:, -1], axis=1), axis=1), 0]
    assert (last - data.labels["jump"]).min() > 0.3
