"""Data sets for comparisons.

    python benchmarks/strangers.py --out FOLDER

writes NAME_train.npz and NAME_test.npz for `trunkfirst fit` and `trunkfirst predict`. The three made here were
fixed, with their seeds, before any method was tried on them. Of the others, test errors of backstep and
discontinuous-conductivity were looked at while the kernels were changed:

linear_periodic   a random periodic function at 128 sensors -> its advection and diffusion, 64 x 32 points (x, t)
many_parameters   ten parameters of a tubular reactor -> concentration of the product along it, 100 points
shock             two states -> inviscid Burgers' equation, a shock that moves, 80 x 20 points (x, t)

The public sets (antiderivative, burgers, backstep, diffusion) are read from --shared, $TRUNKFIRST_SHARED_DATA or
../shared/data beside the repository. Of our problems, nine tenths of the samples train, as in a run; of
multiple-inputs 4,000, and 1,000 test.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trunkfirst.data.named_arrays import arrays_from_data
from trunkfirst.problems.generate import make_data
from trunkfirst.run_data import Split

SHARED = ("antiderivative", "burgers", "backstep", "diffusion")
PROBLEMS = ("nonlinear-conductivity", "discontinuous-conductivity", "multiple-inputs", "random-conductivity")
Arrays = dict[str, np.ndarray]
DataSet = dict[str, Arrays]  # "train" and "test", each with the arrays of a file: inputs, points, outputs, ...


def main(argv: Sequence[str] | None = None) -> None:
    """Write the sets as files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    add_sets(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        for part, arrays in load_set(name, options.shared).items():
            np.savez(options.out / f"{name}_{part}.npz", **arrays)
            shapes = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
            print(f"{name}_{part}.npz: {shapes}")


def add_sets(parser: argparse.ArgumentParser) -> None:
    """The options that choose the sets."""
    names = [*OWN, *SHARED, *PROBLEMS]
    beside = os.environ.get("TRUNKFIRST_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--shared", type=Path, default=Path(beside), help="folder of the public sets")


def load_set(name: str, shared: Path) -> DataSet:
    """The set called `name`; a `FileNotFoundError` where a public one is not in the folder `shared`."""
    if name in OWN:
        return OWN[name]()
    return _read(name, shared) if name in SHARED else _solve(name)


# -- public sets and our problems


def _read(name: str, shared: Path) -> DataSet:
    """Files called train and test; the last 200 samples of `burgers` are the test."""
    if name != "burgers":
        return {part: _arrays(shared / f"{name}_{part}.npz") for part in ("train", "test")}
    arrays = _arrays(shared / "burgers.npz")
    return _split(arrays["inputs"], arrays["points"], arrays["outputs"], len(arrays["outputs"]) - 200)


def _arrays(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _solve(name: str) -> DataSet:
    """The split of a run; what trains and what chooses there trains here."""
    many = name == "multiple-inputs"
    data = make_data(name, samples=5_000 if many else None)
    split = Split.random(data.samples, validation_share=0.1, test_share=0.2 if many else 0.1, seed=0)
    parts = {"train": np.union1d(split.train, split.validation), "test": split.test}
    return {part: _without_comparisons(arrays_from_data(data.take(rows))) for part, rows in parts.items()}


def _without_comparisons(arrays: Arrays) -> Arrays:
    """What people have who bring a file: no finer solution, no labels."""
    return {key: a for key, a in arrays.items() if key != "reference_outputs" and not key.startswith("labels")}


# -- linear and periodic


def linear_periodic(train: int = 320, test: int = 80, *, seed: int = 1901) -> DataSet:
    """u_t + u_x = 0.001 u_xx with period 1, from u(x, 0) with 20 random frequencies; exact."""
    frequencies = np.arange(21)
    deviations = 1 / (1 + (frequencies / 3) ** 2)
    a, b = np.random.default_rng(seed).normal(size=(2, train + test, 21)) * deviations
    amplitudes = a - 1j * b  # u = Re sum amplitudes exp(2 pi i k x)
    points = grid(np.arange(64) / 64, np.linspace(0, 1, 32))
    inputs = _travelling(amplitudes, frequencies, grid(np.arange(128) / 128, np.zeros(1)))
    return _split(inputs, points, _travelling(amplitudes, frequencies, points), train)


def _travelling(amplitudes: np.ndarray, frequencies: np.ndarray, points: np.ndarray) -> np.ndarray:
    x, t = points.T
    k = 2 * np.pi * frequencies[:, None]
    waves = np.exp(1j * k * (x - t) - 1e-3 * k**2 * t)  # (frequencies, points)
    return (amplitudes @ waves).real


# -- many parameters of unequal importance

# Lowest and highest value, and whether drawn evenly in the logarithm.
REACTOR: dict[str, tuple[float, float, bool]] = {
    "gain": (0.5, 1.5, False),  # of the detector: a factor of the output
    "substrate": (1.0, 100.0, True),  # in the feed, mM
    "product": (0.01, 0.3, True),  # in the feed, mM: matters little
    "enzyme": (0.05, 1.0, True),  # g/l
    "turnover": (20.0, 60.0, False),  # mmol/(g min) at 300 K
    "affinity": (0.5, 50.0, True),  # Michaelis constant, mM
    "inhibition": (1.0, 100.0, True),  # by the product, mM
    "flow": (0.2, 2.0, False),  # volumes of the reactor a minute
    "temperature": (290.0, 310.0, False),  # K; Arrhenius with 45 kJ/mol
    "decay": (1e-4, 1e-2, True),  # of the product, 1/min: matters little
}


def many_parameters(train: int = 450, test: int = 200, *, seed: int = 1902) -> DataSet:
    """Substrate to product in a tubular reactor: Michaelis and Menten, with inhibition by the product."""
    random = np.random.default_rng(seed).random((train + test, len(REACTOR)))
    columns = [
        np.exp(np.log(low) + z * np.log(high / low)) if is_log else low + z * (high - low)
        for z, (low, high, is_log) in zip(random.T, REACTOR.values(), strict=True)
    ]
    inputs = np.stack(columns, axis=1)
    x = np.arange(1, 101) / 100
    return _split(inputs, x[:, None], reactor(inputs), train)


def reactor(inputs: np.ndarray, *, steps: int = 20) -> np.ndarray:
    """What the detector shows at 100 places along the reactor, by `steps` steps of Runge and Kutta in between."""
    gain, s, p, enzyme, turnover, affinity, inhibition, flow, temperature, decay = inputs.T
    fastest = enzyme * turnover * np.exp(-45e3 / 8.314 * (1 / temperature - 1 / 300))  # mM/min

    def rates(state: np.ndarray) -> np.ndarray:
        s, p = state
        v = fastest * s / (affinity * (1 + p / inhibition) + s)
        return np.stack([-v, v - decay * p]) / flow  # with the length of the reactor as unit

    state, shown, h = np.stack([s, p]), [], 1 / (100 * steps)
    for _ in range(100):
        for _ in range(steps):
            state = _runge_kutta(rates, state, h)
        shown.append(gain * state[1])
    return np.stack(shown, axis=1)


def _runge_kutta(rates: Callable[[np.ndarray], np.ndarray], state: np.ndarray, h: float) -> np.ndarray:
    a = rates(state)
    b = rates(state + h / 2 * a)
    c = rates(state + h / 2 * b)
    d = rates(state + h * c)
    return state + h / 6 * (a + 2 * b + 2 * c + d)


# -- a shock


def shock(train: int = 400, test: int = 100, *, seed: int = 1903) -> DataSet:
    """u_t + (u^2/2)_x = 0 with u = left for x < 1/4, else right < left: the jump moves at (left + right) / 2."""
    random = np.random.default_rng(seed).random((train + test, 2))
    left, right = 0.8 + 0.7 * random[:, :1], 0.6 * random[:, 1:]
    points = grid((np.arange(80) + 0.5) / 80, np.linspace(0, 0.6, 20))
    x, t = points.T
    outputs = np.where(x < 0.25 + (left + right) / 2 * t, left, right)
    return _split(np.hstack([left, right]), points, outputs, train)


def grid(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """All pairs (x, t), x slowest."""
    return np.stack(np.meshgrid(x, t, indexing="ij"), axis=-1).reshape(-1, 2)


def _split(inputs: np.ndarray, points: np.ndarray, outputs: np.ndarray, train: int) -> DataSet:
    """The first `train` samples train; the samples are independent, so any others would do."""
    rows = {"train": slice(0, train), "test": slice(train, None)}
    return {part: {"inputs": inputs[r], "points": points, "outputs": outputs[r]} for part, r in rows.items()}


OWN: dict[str, Callable[..., DataSet]] = {
    "linear_periodic": linear_periodic,
    "many_parameters": many_parameters,
    "shock": shock,
}

if __name__ == "__main__":
    main()
