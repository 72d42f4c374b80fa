"""The paper's problems and their data: parameters, cache, repair, workers, random points, grids."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from trunkfirst.errors import SolveError, UnknownNameError, ValueRangeError
from trunkfirst.problems import generate
from trunkfirst.problems.conductivity import DiscontinuousConductivity
from trunkfirst.problems.generate import get_problem, make_data, problem_names
from trunkfirst.problems.nonlinear_darcy import MultipleInputs, NonlinearConductivity

CLASSES = {c.name: c for c in (NonlinearConductivity, DiscontinuousConductivity, MultipleInputs)}


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First sample of each block of `multiple-inputs` that is solved, in shards of 20 samples."""
    firsts: list[int] = []
    solve = MultipleInputs.solve

    def counted(self, parameters, *, first=0):
        firsts.append(first)
        return solve(self, parameters, first=first)

    monkeypatch.setattr(MultipleInputs, "solve", counted)
    monkeypatch.setattr(MultipleInputs, "shard_samples", 20)
    return firsts


def test_names():
    others = ("random-conductivity", "binary-darcy", "riemann", "riemann-strong", "burgers-front")
    assert problem_names() == (*CLASSES, *others)
    with pytest.raises(UnknownNameError, match="multiple-inputs"):
        get_problem("nonlinear")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nonlinear-conductivity", np.arange(1, 1001)),
        ("discontinuous-conductivity", np.arange(1, 1001) / 100),
    ],
)
def test_parameters_of_the_paper(name: str, expected):
    problem = get_problem(name)
    assert np.array_equal(problem.parameters(problem.default_samples, seed=0)[:, 0], expected)
    few = problem.parameters(10, seed=5)[:, 0]
    assert few[0] == expected[0]
    assert few[-1] == expected[-1]
    assert np.allclose(np.diff(few), np.diff(few)[0])


def test_draw_of_multiple_inputs():
    problem = get_problem("multiple-inputs")
    drawn = problem.parameters(100_000, seed=0)
    assert drawn.shape == (100_000, 3)
    assert len(np.unique(drawn, axis=0)) == 100_000
    assert np.array_equal(np.unique(drawn), np.arange(1, 101) / 10)
    assert np.array_equal(problem.parameters(500, seed=0), drawn[:500])
    assert not np.array_equal(problem.parameters(500, seed=1), drawn[:500])


@pytest.mark.parametrize(("name", "samples"), [(name, 0) for name in CLASSES] + [("multiple-inputs", 1_000_001)])
def test_number_of_samples_is_checked(name: str, samples: int, tmp_path: Path):
    with pytest.raises(ValueRangeError, match=f"samples is {samples}"):
        make_data(name, samples=samples, cache=tmp_path)


@pytest.mark.parametrize(
    "keywords",
    [
        {"seed": -1},
        {"workers": 0},
        {"points": "mesh:5"},
        {"points": "grid:0"},
        {"points": "random:0"},
        {"points": "random:x"},
    ],
)
def test_arguments_are_checked(keywords, tmp_path: Path):
    with pytest.raises(ValueRangeError, match="expected"):
        make_data("multiple-inputs", samples=2, cache=tmp_path, **keywords)


@pytest.mark.parametrize(
    ("name", "inputs", "grid", "labels"),
    [
        ("nonlinear-conductivity", {"conductivity": (4, 1)}, None, ["beta"]),
        ("discontinuous-conductivity", {"pressure": (4, 4225)}, (65, 65), ["beta"]),
        ("multiple-inputs", {"parameters": (4, 3)}, None, ["f", "kappa", "g"]),
    ],
)
def test_data(name: str, inputs, grid, labels, tmp_path: Path):
    data = make_data(name, samples=4, cache=tmp_path)
    mesh = get_problem(name).mesh
    assert {key: function.values.shape for key, function in data.inputs.items()} == inputs
    assert next(iter(data.inputs.values())).grid_shape == grid
    assert np.array_equal(data.points, mesh.points)
    assert data.triangles is not None
    assert np.array_equal(data.triangles, mesh.triangles)
    assert list(data.labels) == labels
    assert data.point_weights is None


@pytest.mark.parametrize(
    ("name", "samples", "low", "high"),
    [("nonlinear-conductivity", 10, 2e-5, 6e-5), ("multiple-inputs", 200, 5e-5, 3e-4)],
)
def test_data_carry_the_error_of_their_mesh(name: str, samples: int, low: float, high: float, tmp_path: Path):
    """P1 on 2049 nodes has a relative error of about 3e-5."""
    data = make_data(name, samples=samples, cache=tmp_path)
    assert data.reference_outputs is not None
    errors = np.linalg.norm(data.outputs - data.reference_outputs, axis=1)
    relative = errors / np.linalg.norm(data.reference_outputs, axis=1)
    assert low < relative.mean() < high
    is_edge = np.abs(data.points).max(axis=1) == 1
    assert np.allclose(data.outputs[:, is_edge], data.reference_outputs[:, is_edge], rtol=1e-14)


def test_conductivity_at_the_nodes(tmp_path: Path):
    data = make_data("discontinuous-conductivity", samples=3, cache=tmp_path)
    beta = data.labels["beta"]
    radius = np.hypot(*data.points.T)
    assert np.array_equal(data.outputs[:, radius <= 0.5], np.repeat(beta[:, None], (radius <= 0.5).sum(), axis=1))
    assert (data.outputs[:, radius > 0.5] == 1).all()
    assert (
        data.outputs[1, np.argmin(np.abs(data.points - [0.5, 0]).sum(axis=1))] == beta[1]
    )  # the edge belongs to it
    assert data.reference_outputs is None


# ---- failures


@pytest.mark.parametrize("name", CLASSES)
def test_solve_error_names_the_sample(name: str):
    problem = get_problem(name)
    parameters = problem.parameters(3, seed=0)
    parameters[1, problem.parameter_names.index("kappa") if name == "multiple-inputs" else 0] = -0.01
    with pytest.raises(SolveError, match=r"sample 41 \(.*= -0.01"):
        problem.solve(parameters, first=40)


def test_solve_error_arrives_from_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bad = np.where(np.arange(12)[:, None] == 9, -0.01, 5.0)
    monkeypatch.setattr(NonlinearConductivity, "shard_samples", 4)
    monkeypatch.setattr(NonlinearConductivity, "parameters", lambda self, samples, *, seed: bad)
    with pytest.raises(SolveError, match=r"sample 9 \(beta = -0.01\)"):
        make_data("nonlinear-conductivity", samples=12, workers=2, cache=tmp_path)


# ---- cache


def make(cache: Path, **keywords):
    return make_data("multiple-inputs", samples=50, cache=cache, **keywords)


def test_finished_data_are_reused(tmp_path: Path, solved: list[int]):
    progress: list[tuple[int, int]] = []
    first = make(tmp_path, progress=lambda *state: progress.append(state))
    assert progress == [(20, 50), (40, 50), (50, 50)]
    assert solved == [0, 20, 40]
    again = make(tmp_path)
    assert solved == [0, 20, 40]
    assert np.array_equal(first.outputs, again.outputs)


def test_other_draws_have_other_folders(tmp_path: Path, solved: list[int]):
    make(tmp_path)
    make(tmp_path, seed=1)
    assert solved == [0, 20, 40] * 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_only_the_damaged_shard_is_made_again(tmp_path: Path, solved: list[int], damage: str):
    from test_sharded_data import spoil

    first = make(tmp_path)
    path = next(tmp_path.glob("*/shard-00001.npz"))
    whole = path.read_bytes()
    spoil(path, damage)
    solved.clear()
    with pytest.warns(RuntimeWarning, match="shard-00001"):
        again = make(tmp_path)
    assert solved == [20]
    assert path.read_bytes() == whole
    assert np.array_equal(first.outputs, again.outputs)
    make(tmp_path)
    assert solved == [20]


def test_damaged_index_means_all_shards_are_solved_again(tmp_path: Path, solved: list[int]):
    make(tmp_path)
    next(tmp_path.glob("*/index.json")).write_text("{")
    solved.clear()
    with pytest.warns(RuntimeWarning, match="index"):
        make(tmp_path)
    assert solved == [0, 20, 40]


def test_interrupted_generation_continues(tmp_path: Path, solved: list[int]):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, progress=stop)
    solved.clear()
    progress: list[tuple[int, int]] = []
    make(tmp_path, progress=lambda *state: progress.append(state))
    assert solved == [20, 40]
    assert progress == [(40, 50), (50, 50)]


def test_two_processes_fill_one_cache(tmp_path: Path, solved: list[int]):
    with ThreadPoolExecutor(2) as makers:
        data = list(makers.map(lambda _: make(tmp_path), range(2)))
    solved.clear()
    again = make(tmp_path)
    assert solved == []
    assert np.array_equal(data[0].outputs, again.outputs)
    assert np.array_equal(data[1].outputs, again.outputs)


def test_one_and_two_workers_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NonlinearConductivity, "shard_samples", 20)
    for workers in (1, 2):
        make_data("nonlinear-conductivity", samples=30, workers=workers, cache=tmp_path / str(workers))
    files = [sorted((tmp_path / str(workers)).rglob("*.*")) for workers in (1, 2)]
    assert [path.name for path in files[0]] == ["index.json", "shard-00000.npz", "shard-00001.npz"]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


class DyingConductivity(NonlinearConductivity):
    """Ends every process that solves it but the one of the tests."""

    def solve_unchecked(self, parameters):
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().solve_unchecked(parameters)


def test_samples_of_a_dead_worker_are_solved_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DyingConductivity, "shard_samples", 20)
    monkeypatch.setitem(generate._PROBLEMS, "nonlinear-conductivity", DyingConductivity())
    with pytest.warns(RuntimeWarning, match="its process ended by itself, with exit code 3"):
        data = make_data("nonlinear-conductivity", samples=30, workers=2, cache=tmp_path / "dead")
    monkeypatch.undo()
    expected = make_data("nonlinear-conductivity", samples=30, workers=1, cache=tmp_path / "alive")
    assert np.array_equal(data.outputs, expected.outputs)


SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor
print("start of the script")
from trunkfirst.problems.generate import make_data
data = make_data("nonlinear-conductivity", samples=126, workers=2, cache=sys.argv[1])
make_data("random-conductivity", samples=1, cache=sys.argv[1])
assert __file__.endswith("script.py")
assert not [name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib", "equinox")]
print("end of the script", data.samples)
"""


def test_script_without_main_guard_and_no_jax(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, str(script), str(tmp_path / "cache")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert run.stdout.splitlines() == ["start of the script", "end of the script 126"], run.stderr
    assert run.stderr == ""


# ---- random points


@pytest.mark.parametrize("name", ["nonlinear-conductivity", "multiple-inputs"])
def test_random_points_carry_the_closed_form(name: str, tmp_path: Path):
    data = make_data(name, samples=30, points="random:400", cache=tmp_path)
    assert data.outputs.shape == (30, 400)
    assert data.triangles is None
    assert not list(tmp_path.iterdir())  # nothing had to be solved
    assert np.abs(data.points).max() < 1
    assert np.abs(data.points.mean(axis=0)).max() < 0.1
    nodal = make_data(name, samples=30, cache=tmp_path)
    nearest = np.argmin(((data.points[:, None] - nodal.points[None]) ** 2).sum(axis=2), axis=1)
    ratio = data.outputs / nodal.outputs[:, nearest]
    assert 0.9 < np.median(ratio) < 1.1


def test_random_points_follow_the_seed(tmp_path: Path):
    draws = [
        make_data("nonlinear-conductivity", samples=2, points="random:5", seed=s, cache=tmp_path).points
        for s in (0, 0, 1)
    ]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_random_points_of_the_inverse_problem(tmp_path: Path):
    data = make_data("discontinuous-conductivity", samples=2, points="random:300", cache=tmp_path)
    inside = np.hypot(*data.points.T) <= 0.5
    assert np.array_equal(data.outputs, np.where(inside, data.labels["beta"][:, None], 1.0))
    assert data.inputs["pressure"].values.shape == (2, 4225)


# ---- grids


@pytest.mark.parametrize("name", CLASSES)
def test_grids_are_nested(name: str, tmp_path: Path):
    coarse, fine = (make_data(name, samples=2, points=f"grid:{n}", cache=tmp_path) for n in (4, 8))
    assert fine.triangles is not None
    assert len(fine.triangles) == 2 * 8**2
    is_shared = (np.arange(81).reshape(9, 9)[::2, ::2]).ravel()
    assert np.array_equal(fine.points[is_shared], coarse.points)
    assert np.allclose(fine.outputs[:, is_shared], coarse.outputs, rtol=1e-12)
    assert np.abs(fine.points).max() == 1


def test_a_problem_can_be_given_as_an_instance(tmp_path: Path):
    fitted = DiscontinuousConductivity(is_fitted=True)
    made = [make_data(problem, samples=2, cache=tmp_path) for problem in (fitted, fitted.name, fitted)]
    assert np.array_equal(made[0].flat_inputs, made[2].flat_inputs)
    assert not np.array_equal(made[0].flat_inputs, made[1].flat_inputs)
    assert len(list(tmp_path.iterdir())) == 2  # two caches that do not mix
