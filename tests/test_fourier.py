"""Fourier layers as a branch: transforms, grids found in data, projection, training, other resolutions."""

import dataclasses as dc
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import trunkfirst
from trunkfirst.checkpoints import keep_checkpoints
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.sharded_data import write_shards
from trunkfirst.errors import DataError
from trunkfirst.inputs import PrincipalInputs, RawInputs
from trunkfirst.networks.fourier_layers import SpectralLayer, make_fourier_network
from trunkfirst.networks.operator import Operator
from trunkfirst.regressors.fourier import FourierBranch
from trunkfirst.regressors.input_grid import OutputBasis, find_grid, patched, projection, resample
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.sizing import fourier_within, seconds_of_fourier
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

RNG = np.random.default_rng(0)
DOUBLE = np.dtype(float)
SMALL = FourierBranch(channels=12, layers=2, modes=6, iterations=150, rate=1e-2)


def square(n: int, m: int) -> np.ndarray:
    return np.stack(np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, m), indexing="ij"), -1).reshape(-1, 2)


# -- layers


@pytest.mark.parametrize("shape", [(9,), (7, 8), (5, 6, 7)], ids=["line", "plane", "space"])
def test_a_layer_is_a_convolution_in_the_spectrum(shape: tuple[int, ...]):
    """Against NumPy's FFT: the coefficients of every wave that is kept times its matrix, the others dropped."""
    modes, axes = tuple((n - 1) // 2 for n in shape), tuple(range(2, 2 + len(shape)))
    with jax.enable_x64(True):
        options = {"channels": 2, "layers": 1, "modes": 99, "is_periodic": [True] * len(shape), "padding": 0.0}
        network = make_fourier_network(shape, 2, 1, **options, dtype=DOUBLE, key=jr.key(0))
        layer: SpectralLayer = network.layers[0]
        v = RNG.normal(size=(3, 2, *shape))
        found = np.asarray(layer(jnp.asarray(v), network.waves(shape)) - layer.pointwise(jnp.asarray(v)))
    spectrum, (real, imaginary) = np.fft.fftn(v, axes=axes), np.asarray(layer.spectrum)
    matrices = real + 1j * imaginary
    out = np.zeros_like(spectrum)
    waves = np.ndindex(*(2 * m + 1 for m in modes[:-1]), modes[-1] + 1)
    for number, wave in enumerate(waves):
        k = [j - m for j, m in zip(wave[:-1], modes[:-1], strict=True)] + [wave[-1]]
        out[(..., *k)] = np.einsum("si,io->so", spectrum[(..., *k)], matrices[number])
        if k[-1]:
            minus = (..., *(-j for j in k))
            out[minus] = out[(..., *k)].conj()
    assert np.allclose(found, np.fft.ifftn(out, axes=axes).real, atol=1e-13)


# -- grids


def data_on(sensors: np.ndarray | None, points: np.ndarray, count: int, shape: tuple[int, ...] | None = None):
    function = InputFunction(RNG.normal(size=(3, count)), sensors, grid_shape=shape)
    return OperatorData({"f": function}, points, RNG.normal(size=(3, len(points))))


def test_grids_are_found():
    points = square(4, 5)
    shuffled = RNG.permutation(20)
    given = find_grid(data_on(points[shuffled], square(3, 3), 20))
    assert given is not None
    assert given.shape == (4, 5)
    assert given.columns == (0, 1)
    assert np.array_equal(points[shuffled][given.places[0]], points)
    same = find_grid(data_on(None, points[shuffled], 20))  # as many sensors as points
    assert same is not None
    assert np.array_equal(same.places, given.places)
    line = find_grid(data_on(None, square(9, 12), 12))  # as many as along one axis
    assert line is not None
    assert line.columns == (1,)
    apart = find_grid(data_on(points + 7, points, 20))  # other domains
    assert apart is not None
    assert apart.columns is None
    assert find_grid(data_on(None, points, 14)) is None
    assert find_grid(data_on(RNG.normal(size=(20, 2)), points, 20)) is None
    small = find_grid(OperatorData(np.zeros((3, 2, 3)), points, np.zeros((3, 20))))  # images of few pixels
    assert small is not None
    assert small.shape == (2, 3)
    assert find_grid(OperatorData(np.zeros((3, 6)), points, np.zeros((3, 20)))) is None  # six numbers


def test_several_functions_share_a_grid():
    functions = {"f": np.zeros((3, 20)), "speed": np.zeros((3, 1)), "g": np.zeros((3, 20))}
    grid = find_grid(OperatorData(functions, square(4, 5), np.zeros((3, 20))))
    assert grid is not None
    assert np.array_equal(grid.places, [np.arange(20), np.full(20, 20), 21 + np.arange(20)])
    functions["g"] = np.zeros((3, 12))
    assert find_grid(OperatorData(functions, square(4, 5), np.zeros((3, 20)))) is None


def test_the_projection_of_a_field_are_its_coefficients():
    """A cubic polynomial is interpolated exactly; a coordinate that the grid lacks has fields of its own."""
    x = np.linspace(0, 1, 8)
    points = square(3, 11)  # (t, x)
    dual = RNG.normal(size=(33, 4))
    grid = find_grid(data_on(x[:, None], points, 8))
    assert grid is not None
    assert grid.columns is None  # either coordinate has this range: it is not known which
    grid = dc.replace(grid, columns=(1,))
    M = projection(grid, OutputBasis(points, dual, dual))
    assert M is not None
    fields = np.stack([x**3 + t for t in (0.0, 1.0, 2.0)])
    values = points[:, 1] ** 3 + 2 * points[:, 0]
    assert np.allclose(fields.ravel() @ M, values @ dual, atol=1e-13)
    assert projection(dc.replace(grid, columns=None), OutputBasis(points, dual, dual)) is None


def test_patches_hold_the_same_values():
    grid = find_grid(data_on(None, square(4, 8), 32))
    assert grid is not None
    M = RNG.normal(size=(32, 3))
    coarse, rows = patched(grid, M, 2)
    assert rows is not None
    assert coarse.shape == (2, 4)
    assert set(coarse.places[:, 1]) == {2, 3, 10, 11}
    values = RNG.normal(size=32)
    assert np.allclose(values[coarse.places].ravel() @ rows, values @ M)
    with pytest.raises(DataError, match=r"branch\.patch is 3, which does not divide the grid of 4 x 8"):
        patched(grid, M, 3)


# -- training


def waves(samples: int, seed: int, n: int = 24) -> OperatorData:
    """(1 + x) sin(2 f(x)) for random f of eight waves: local, and far from linear."""
    rng, x = np.random.default_rng(seed), np.linspace(0, 1, n)
    f = 0.5 * rng.normal(size=(samples, 8)) @ np.cos(np.pi * np.outer(np.arange(8), x))
    return OperatorData({"f": InputFunction(f, x[:, None])}, x[:, None], (1 + x) * np.sin(2 * f))


def fit(data: Any, branch: FourierBranch | Kernel = SMALL) -> Operator:
    method = TwoStep(ModesTrunk(), branch, inputs=RawInputs(), weights="relative")
    with jax.enable_x64(True):
        return method.fit(data, key=jr.key(0)).operator


def error(operator: Operator, data: OperatorData) -> float:
    missed = operator.predict(data.flat_inputs, data.points) - data.outputs
    return float(np.mean(np.linalg.norm(missed, axis=1) / np.linalg.norm(data.outputs, axis=1)))


@pytest.fixture(scope="module")
def trained() -> Operator:
    return fit(waves(200, 0))


def test_it_learns_what_a_kernel_does_not(trained: Operator):
    test = waves(60, 1)
    assert error(trained, test) < 0.5 * error(fit(waves(200, 0), Kernel()), test)


def test_a_saved_operator_predicts_the_same(trained: Operator, tmp_path: Path):
    test = waves(5, 2)
    again = trunkfirst.load(trained.save(tmp_path))
    assert np.array_equal(*(each.predict(test.flat_inputs, test.points) for each in (trained, again)))


def test_many_samples_are_computed_in_batches(trained: Operator):
    inputs = np.tile(waves(5, 2).flat_inputs, (250, 1))
    with jax.enable_x64(True):
        many, few = np.asarray(trained.coefficients(inputs)), np.asarray(trained.coefficients(inputs[:5]))
    assert np.abs(many - np.tile(few, (250, 1))).max() < 1e-5 * np.abs(few).max()


def test_inputs_on_another_grid_are_resampled(trained: Operator):
    """A finer grid of the same domain, of which every other sensor is one of training."""
    fine, coarse = waves(40, 3, n=47), waves(40, 3, n=24)
    sensors = {n: np.linspace(0, 1, n)[:, None] for n in (24, 47)}
    inputs = resample(fine.flat_inputs, sensors[47], sensors[24])
    assert np.array_equal(inputs, fine.flat_inputs[:, ::2])
    assert np.allclose(resample(sensors[24].T ** 1, sensors[24], sensors[47]), sensors[47].T)
    assert error(trained, dc.replace(coarse, inputs={"f": InputFunction(inputs)})) < 1.5 * error(trained, coarse)
    with pytest.raises(DataError, match="sensors: 3 of them do not form a grid"):
        resample(np.zeros((1, 3)), np.eye(3), np.zeros((1, 3)))


def test_an_interrupted_training_resumes_to_the_bit(tmp_path: Path):
    data, short = waves(40, 4), dc.replace(SMALL, iterations=40, channels=4)
    whole = fit(data, short)

    def stop(entry) -> None:
        if entry.stage == "branch" and entry.iteration >= 20:
            raise KeyboardInterrupt

    method = TwoStep(ModesTrunk(), short, inputs=RawInputs(), weights="relative")
    with jax.enable_x64(True):
        with keep_checkpoints(tmp_path, interval=0), pytest.raises(KeyboardInterrupt):
            method.fit(data, key=jr.key(0), on_step=stop)
        with keep_checkpoints(tmp_path, interval=0):
            again = method.fit(data, key=jr.key(0)).operator
    for a, b in zip(jax.tree.leaves(whole.branch), jax.tree.leaves(again.branch), strict=True):
        assert np.array_equal(a, b)


def test_data_in_shards(tmp_path: Path):
    data, short = waves(40, 4), dc.replace(SMALL, iterations=20, channels=4)
    shards = write_shards([data.take(slice(k, k + 10)) for k in range(0, 40, 10)], tmp_path / "shards")
    each = [fit(samples, short).predict(data.flat_inputs[:3], data.points) for samples in (data, shards)]
    assert np.allclose(*each, atol=1e-3 * np.abs(data.outputs).max())


def test_channels_and_a_time_that_the_input_lacks():
    """u_c(t, x) = (1 + c) exp(-t) sin(2 f(x))^2: a field for every time and channel."""
    rng, x, t = np.random.default_rng(5), np.linspace(0, 1, 16, endpoint=False), np.linspace(0, 1, 3)
    f = 0.5 * rng.normal(size=(150, 3)) @ np.sin(2 * np.pi * np.outer(np.arange(1, 4), x))
    points = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    u = np.einsum("t,sx->stx", np.exp(-t), np.sin(2 * f) ** 2).reshape(150, -1)
    data = OperatorData(f, points, np.stack([u, 2 * u], axis=2))
    operator = fit(data.take(slice(0, 120)))
    held = data.take(slice(120, None))
    missed = operator.predict(held.flat_inputs, points) - held.outputs
    assert np.linalg.norm(missed) < 0.3 * np.linalg.norm(held.outputs)


def test_where_domains_differ_the_last_layer_is_trained():
    data = waves(100, 6)
    moved = dc.replace(data, points=data.points + 5)
    operator = fit(moved)
    assert operator.branch.network.layers  # type: ignore[union-attr]
    missed = operator.predict(moved.flat_inputs, moved.points) - moved.outputs
    assert np.linalg.norm(missed) < 0.5 * np.linalg.norm(moved.outputs - moved.outputs.mean(axis=0))


def test_errors_say_what_to_do():
    x = np.linspace(0, 1, 10)
    plain = OperatorData(RNG.normal(size=(20, 4)), x[:, None], RNG.normal(size=(20, 10)))
    with pytest.raises(DataError, match="fourier needs all input functions on one grid"):
        fit(plain)
    method = TwoStep(ModesTrunk(), SMALL, inputs=PrincipalInputs(3), weights="none")
    message = r"needs the values at all 24 sensors, but .* gives 3 features"
    with jax.enable_x64(True), pytest.raises(DataError, match=message):
        method.fit(waves(20, 0), key=jr.key(0))


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "is_fourier"), [(200, True), (60, False)], ids=["many", "few"])
def test_fit_chooses_it_where_it_pays(samples: int, is_fourier: bool):
    result = trunkfirst.fit(waves(samples, 0), minutes=4)
    assert isinstance(result.method, TwoStep)
    assert isinstance(result.method.branch, FourierBranch) == is_fourier
    held = waves(50, 1)
    found = result.operator.predict(held.flat_inputs, held.points, interval=0.9)
    assert 0.7 < np.mean((found.lower <= held.outputs) & (held.outputs <= found.upper)) < 1


def test_inputs_with_an_axis_for_each_direction_are_those_in_one_row():
    """In `fit` and in `predict`, as in files; the grid is then known."""
    points, fields = square(5, 8), RNG.normal(size=(12, 5, 8))
    outputs = fields.reshape(12, -1) ** 2
    method = TwoStep(ModesTrunk(), Kernel(), inputs=RawInputs())
    result = trunkfirst.fit(fields, outputs, points, method=method)
    flat = trunkfirst.fit(fields.reshape(12, -1), outputs, points, method=method)
    assert np.array_equal(result.operator.predict(fields), flat.operator.predict(fields.reshape(12, -1)))
    grid = find_grid(OperatorData(fields, 10 + points, outputs))
    assert grid is not None
    assert grid.shape == (5, 8)
    with pytest.raises(DataError, match="expected 40 sensors on axis 1, as in training, got 30"):
        result.operator.predict(fields[:, :, :6])


def test_iterations_are_timed_with_the_log_of_a_long_training():
    """A clock that ticks at every line of the log: one for five iterations, not for each."""
    ticks = itertools.count()
    assert seconds_of_fourier(SMALL, waves(40, 0), lambda: float(next(ticks))) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("seconds", "iterations"),
    [(0.13, None), (0.15, 200), (0.61, 610), (9.0, 900)],
    ids=["few", "fewest", "some", "most"],
)
def test_iterations_that_fit_into_the_time(
    seconds: float, iterations: int | None, monkeypatch: pytest.MonkeyPatch
):
    """For a millisecond each: at least 200, at most 300 passes through the samples."""
    monkeypatch.setattr("trunkfirst.sizing.seconds_of_fourier", lambda *_: 1e-3)
    found = fourier_within(SMALL, waves(96, 0), seconds)
    assert (found and found.iterations) == iterations
