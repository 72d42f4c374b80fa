"""Generating the data of a problem: solved in parallel, cached in checksummed shards."""

import dataclasses as dc
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import threadpoolctl
from jaxtyping import Int

from ..cache import cache_folder
from ..data.operator_data import OperatorData
from ..data.sharded_data import ShardFolder
from ..distributed.pools import Lost, on_cluster, on_processes
from ..errors import ClusterError, CorruptFileError, UnknownNameError, UsageError, ValueRangeError
from .conductivity import BinaryDarcy, DiscontinuousConductivity, RandomConductivity
from .conservation_laws import HIGH_RATIO, LOW_RATIO, BurgersFront
from .finite_elements import Points, grid_square
from .nonlinear_darcy import MultipleInputs, NonlinearConductivity
from .problem import AbstractExactProblem, AbstractProblem, Fields, Parameters

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (samples done, samples in total)."""

# Part of the name of every cache folder. Increase it when meshes, solvers or the files change.
FORMAT = 1
# Below this many seconds of work, starting processes (about a second each) does not pay.
_SECONDS_FOR_PROCESSES = 4.0

_PROBLEMS: dict[str, AbstractProblem] = {
    problem.name: problem
    for problem in (
        NonlinearConductivity(),
        DiscontinuousConductivity(),
        MultipleInputs(),
        RandomConductivity(),
        BinaryDarcy(),
    )
}
_EXACT: dict[str, AbstractExactProblem] = {
    problem.name: problem for problem in (LOW_RATIO, HIGH_RATIO, BurgersFront())
}


def problem_names() -> tuple[str, ...]:
    """Return the names of all problems: the paper's in its order, then the others."""
    return (*_PROBLEMS, *_EXACT)


def check_problem(name: str) -> None:
    """Raise an error unless there is such a problem; it knows the numbers of the paper's sections."""
    if (meant := next((p.name for p in _PROBLEMS.values() if p.section == name), None)) is not None:
        raise UsageError(f"problem {name} of the paper is called {meant!r} here")
    if name not in problem_names():
        raise UnknownNameError("problem", name, problem_names())


def any_problem(name: str) -> AbstractProblem | AbstractExactProblem:
    """Return the problem called `name`, solved or exact."""
    check_problem(name)
    return _PROBLEMS[name] if name in _PROBLEMS else _EXACT[name]


def get_problem(name: str) -> AbstractProblem:
    """Return the problem called `name`, which is solved on a mesh."""
    problem = any_problem(name)
    if isinstance(problem, AbstractExactProblem):
        raise UsageError(f"{name} is known exactly at points of its own; expected a problem on a mesh")
    return problem


def make_data(
    problem: str | AbstractProblem | AbstractExactProblem,
    *,
    samples: int | None = None,
    points: str | None = None,
    indices: Int[np.ndarray, " chosen"] | None = None,
    seed: int = 0,
    workers: int | None = None,
    scheduler: str | None = None,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> OperatorData:
    """Make the data of a problem, or read them from the cache.

    A missing or damaged shard is solved again, with a `RuntimeWarning` that names it. Scripts need no `if __name__
    == "__main__"` guard.

    Args:
        problem: a name, or an instance.
        samples: number of samples; by default that of the paper.
        points: None for the nodes of the problem's mesh, the only choice for riemann and burgers-front; "random:M"
            for M independent uniform points on the square; "grid:N" for the (N + 1)^2 nodes of N x N cells. For
            these two, outputs are those of the fine closed form (nonlinear-conductivity, multiple-inputs), exact
            (discontinuous-conductivity), or those of the finite-element solution (random-conductivity,
            binary-darcy).
        indices: return only these samples.
        seed: seed of the samples (multiple-inputs, random-conductivity, binary-darcy, riemann, burgers-front) and
            of random points.
        workers: number of processes; None for all cores, if that is faster. The data are the same to the bit.
        scheduler: address of a Dask scheduler whose workers solve instead; needs the extra `dask`. It can run any
            code here, so use only one that you trust.
        cache: the folder of the shards.
        progress: called with the numbers of finished and of all samples after each shard.

    Returns:
        `OperatorData`.

    Raises:
        SolveError: a solve did not converge; names the sample.
        UnknownNameError: no problem has this name.

    >>> data = make_data("multiple-inputs", samples=4, points="grid:8", cache="made")
    >>> data.flat_inputs.shape, data.outputs.shape
    ((4, 3), (4, 81))
    """
    problem = any_problem(problem) if isinstance(problem, str) else problem
    if seed < 0 or (workers is not None and workers < 1):
        raise ValueRangeError(f"seed is {seed}, workers is {workers}; expected seed >= 0 and workers >= 1")
    if workers is not None and scheduler is not None:
        raise ValueRangeError("give workers or a scheduler, not both: a scheduler has its own workers")
    if isinstance(problem, AbstractExactProblem):
        return _exact(problem, problem.default_samples if samples is None else samples, points, indices, seed)
    parameters = problem.parameters(problem.default_samples if samples is None else samples, seed=seed)
    places = None if points is None else output_points(points, interval=problem.interval, seed=seed)
    fields = None
    if places is None or problem.needs_fields:
        folder = ShardFolder(cache_folder(cache) / _folder_name(problem, parameters))
        fields = _solved(problem, parameters, folder, workers, scheduler, progress)
    if indices is not None:
        parameters, fields = parameters[indices], None if fields is None else fields[indices]
    if places is None:
        return problem.assemble(parameters, fields)
    return dc.replace(problem.assemble(parameters, fields, places.points), triangles=places.triangles)


def _exact(
    problem: AbstractExactProblem,
    samples: int,
    points: str | None,
    indices: Int[np.ndarray, " chosen"] | None,
    seed: int,
) -> OperatorData:
    if points is not None:
        raise ValueRangeError(f"points is {points!r}; {problem.name} has points of its own: leave it out")
    data = problem.make(samples, seed=seed)
    return data if indices is None else data.take(indices)


@dc.dataclass(frozen=True, eq=False)
class OutputPoints:
    """Points on the square, and the triangles between them if they are the nodes of a mesh."""

    points: Points
    triangles: Int[np.ndarray, "triangles 3"] | None = None


def output_points(points: str, *, interval: tuple[float, float] = (-1.0, 1.0), seed: int = 0) -> OutputPoints:
    """Return M independent uniform points for "random:M", the nodes of N x N cells for "grid:N"."""
    kind, _, number = points.partition(":")
    if kind not in ("random", "grid") or not number.isdecimal() or int(number) < 1:
        raise ValueRangeError(
            f"points is {points!r}; expected 'random:M' or 'grid:N' with a positive number, or None"
        )
    if kind == "grid":
        mesh = grid_square(int(number) + 1, interval)
        return OutputPoints(mesh.points, mesh.triangles)
    return OutputPoints(np.random.default_rng((seed, 1)).uniform(*interval, (int(number), 2)))


def _folder_name(problem: AbstractProblem, parameters: Parameters) -> str:
    """Problem, samples, and a digest of parameters, mesh and format: everything the solutions depend on."""
    mesh = problem.mesh
    digest = hashlib.sha256(f"format {FORMAT}".encode())
    for array in (parameters, mesh.points, mesh.triangles):
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"{problem.name}-{len(parameters)}-{digest.hexdigest()[:16]}"


# ---- shards


@dc.dataclass(frozen=True, eq=False)
class ShardTask:
    """A block of samples and the shard that stores its fields."""

    problem: AbstractProblem
    parameters: Parameters
    first: int
    folder: ShardFolder
    number: int

    @property
    def rows(self) -> slice:
        """The samples of the block."""
        return slice(self.first, self.first + len(self.parameters))


def _solved(
    problem: AbstractProblem,
    parameters: Parameters,
    folder: ShardFolder,
    workers: int | None,
    scheduler: str | None,
    progress: Progress | None,
) -> Fields:
    """Fields of all samples: intact shards are read, the others are solved and written."""
    total, size = len(parameters), problem.shard_samples
    fields = np.empty((total, len(problem.mesh.points)))
    known, intact, tasks = _read_index(folder), dict[int, str](), list[ShardTask]()
    for number, first in enumerate(range(0, total, size)):
        task = ShardTask(problem, parameters[first : first + size], first, folder, number)
        if number in known and _read(task, known[number], fields):
            intact[number] = known[number]
        else:
            tasks.append(task)
    done = total - sum(len(task.parameters) for task in tasks)
    for task, digest in _solve_all(tasks, workers, scheduler):
        fields[task.rows] = folder.read(task.number, digest)["fields"]
        intact[task.number] = digest
        # The whole index is written each time: two processes that fill the same folder never mix theirs.
        folder.write_index(intact, about={"problem": problem.name, "samples": total, "format": FORMAT})
        done += len(task.parameters)
        if progress:
            progress(done, total)
    return fields


def _read_index(folder: ShardFolder) -> dict[int, str]:
    try:
        return folder.read_index()
    except CorruptFileError as error:
        warnings.warn(f"{error}; all its data are solved again", RuntimeWarning, stacklevel=4)
        return {}


def _read(task: ShardTask, digest: str, fields: Fields) -> bool:
    """Read the shard into its rows of `fields`; False, with a warning, if it is damaged."""
    target = fields[task.rows]
    try:
        target[:] = task.folder.read(task.number, digest, shapes={"fields": target.shape})["fields"]
    except CorruptFileError as error:
        warnings.warn(f"{error}; this part of the data is solved again", RuntimeWarning, stacklevel=4)
        return False
    return True


# ---- solving, in this process, in others or on a cluster


def _solve_all(
    tasks: list[ShardTask], workers: int | None, scheduler: str | None
) -> Iterator[tuple[ShardTask, str]]:
    """Yield each task with the SHA-256 of its shard as it is done, in any order."""
    if scheduler is not None and tasks:
        yield from _solve_on_cluster(tasks, scheduler)
        return
    if workers is None:
        seconds = sum(len(task.parameters) * task.problem.seconds_per_sample for task in tasks)
        workers = (os.cpu_count() or 1) if seconds > _SECONDS_FOR_PROCESSES else 1
    if min(workers, len(tasks)) <= 1:
        yield from ((task, solve_shard(task)) for task in tasks)
        return
    for task, digest in on_processes(solve_shard, tasks, workers=workers):
        if isinstance(digest, Lost):
            message = f"samples from {task.first} on are solved without a worker: {digest.reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        yield task, solve_shard(task) if isinstance(digest, Lost) else digest


def _solve_on_cluster(tasks: list[ShardTask], address: str) -> Iterator[tuple[ShardTask, str]]:
    """Solve on the workers of a Dask scheduler. They return the fields and need no access to the cache."""
    for task, fields in on_cluster(_solve_remotely, tasks, address=address):
        if isinstance(fields, Lost):
            raise ClusterError(f"samples from {task.first} on could not be solved on {address}: {fields.reason}")
        yield task, _write(task, fields)


def solve_shard(task: ShardTask) -> str:
    """Solve a block, write its shard and return the SHA-256."""
    # with one BLAS thread the bits do not depend on the number of workers
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        fields = task.problem.solve(task.parameters, first=task.first)
    return _write(task, fields)


def _solve_remotely(task: ShardTask) -> Fields:
    # the limit stays: another block may be solved at the same time
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")
    return task.problem.solve(task.parameters, first=task.first)


def _write(task: ShardTask, fields: Fields) -> str:
    return task.folder.write(task.number, {"parameters": task.parameters, "fields": fields})
