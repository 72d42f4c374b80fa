"""Making the data of a problem: solved in parallel, kept in checksummed shards, reused while sound."""

import dataclasses as dc
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from ..data import OperatorData, ShardFolder
from ..errors import CorruptFileError, ValueRangeError
from ._abstract import AbstractProblem
from ._meshes import grid_square
from ._parallel import ShardTask, solve_all, solve_on_cluster
from ._registry import get_problem

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (samples done, samples in all)."""

# Part of the name of every data folder: raise it when meshes, solvers or the files change.
FORMAT = 1
# Below this much work, in seconds, starting other processes (about a second each) does not pay.
_WORTH_PROCESSES = 4.0


def make_data(
    name: str,
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
    """Operator data of the problem called `name`, from the cache or freshly solved.

    - `samples`: how many; None means as many as in the paper.
    - `points`: None for the problem's own nodes; "random:M" for M independent uniform points on the square;
      "grid:N" for the (N + 1)^2 nodes of N x N cells. Their values are those of the fine closed form (5.1, 5.3),
      exact (5.2), or of the finite-element solution (random-conductivity). The inputs are the same.
    - `indices`: only these of the samples; what has no closed form is solved for, or read, for all of them.
    - `seed` draws the samples (5.3, random-conductivity) and the random points.
    - `workers`: processes to solve in; None takes all cores where that pays, 1 stays in this process. The
      data are the same to the bit.
    - `scheduler`: the address of a Dask scheduler, whose workers solve instead; needs the extra `dask`. Trust it:
      Dask runs whatever its scheduler and its clients send.
    - `cache`: folder of the shards, see `cache_folder`.
    - `progress(done, total)` is called with numbers of samples after each block.

    A shard that is missing or damaged is solved again, and a `RuntimeWarning` names it. A solve that does not
    converge is a `SolveError` that names the sample. Scripts need no `if __name__ == "__main__"` guard.

    >>> data = make_data("multiple-inputs", samples=4, points="grid:8", cache="made")
    >>> data.flat_inputs.shape, data.outputs.shape
    ((4, 3), (4, 81))
    """
    problem = get_problem(name)
    count = problem.default_samples if samples is None else samples
    if seed < 0 or (workers is not None and workers < 1):
        raise ValueRangeError(f"seed is {seed}, workers is {workers}; expected seed >= 0 and workers >= 1")
    if workers is not None and scheduler is not None:
        raise ValueRangeError("give workers or a scheduler, and not both: a scheduler has workers of its own")
    parameters = problem.parameters(count, seed=seed)
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


@dc.dataclass(frozen=True, eq=False)
class Places:
    """Points on the square, and the triangles between them if they are the nodes of a mesh."""

    points: Float[np.ndarray, "points 2"]
    triangles: Int[np.ndarray, "triangles 3"] | None = None


def output_points(points: str, *, interval: tuple[float, float] = (-1.0, 1.0), seed: int = 0) -> Places:
    """M independent uniform points for the text "random:M", the nodes of N x N cells for "grid:N"."""
    kind, _, number = points.partition(":")
    if kind not in ("random", "grid") or not number.isdecimal() or int(number) < 1:
        raise ValueRangeError(
            f"points is {points!r}; expected 'random:M' or 'grid:N' with a positive number, or None"
        )
    if kind == "grid":
        mesh = grid_square(int(number) + 1, interval)
        return Places(mesh.points, mesh.triangles)
    return Places(np.random.default_rng((seed, 1)).uniform(*interval, (int(number), 2)))


def cache_folder(cache: Path | str | None = None) -> Path:
    """Where data are kept: `cache`, else $TRUNKFIRST_CACHE, else trunkfirst in the user's cache folder."""
    chosen = cache or os.environ.get("TRUNKFIRST_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "trunkfirst"


def _folder_name(problem: AbstractProblem, parameters: Float[np.ndarray, "samples parameters"]) -> str:
    """Problem, samples, and a digest of everything the solutions depend on.

    The digest covers parameters (so the seed, where it matters), mesh and format: data of another draw or
    another mesh can never be mistaken for these.
    """
    mesh = problem.mesh
    digest = hashlib.sha256(f"format {FORMAT}".encode())
    for array in (parameters, mesh.points, mesh.triangles):
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"{problem.name}-{len(parameters)}-{digest.hexdigest()[:16]}"


def _solved(
    problem: AbstractProblem,
    parameters: Float[np.ndarray, "samples parameters"],
    folder: ShardFolder,
    workers: int | None,
    scheduler: str | None,
    progress: Progress | None,
) -> Float[np.ndarray, "samples nodes"]:
    """Fields of all samples: read what is sound, solve and write the rest."""
    total = len(parameters)
    fields = np.empty((total, len(problem.mesh.points)))
    blocks = [slice(i, min(i + problem.shard_samples, total)) for i in range(0, total, problem.shard_samples)]
    known = _read_index(folder)
    sound = {
        n: known[n] for n, block in enumerate(blocks) if n in known and _read(folder, n, known[n], fields[block])
    }
    tasks = [
        ShardTask(problem, parameters[block], block.start, folder, number)
        for number, block in enumerate(blocks)
        if number not in sound
    ]
    done = total - sum(task.samples for task in tasks)
    for task, digest in _run(tasks, workers, scheduler):
        task_fields = folder.read(task.number, digest)["fields"]
        fields[task.first : task.first + task.samples] = task_fields
        sound[task.number] = digest
        # All that this maker knows is written each time, so that another maker's index is never mixed in.
        folder.write_index(sound, about={"problem": problem.name, "samples": total, "format": FORMAT})
        done += task.samples
        if progress:
            progress(done, total)
    return fields


def _run(tasks: list[ShardTask], workers: int | None, scheduler: str | None) -> Iterator[tuple[ShardTask, str]]:
    """Solve the tasks on a cluster if there is one, else here or in processes, whichever is quicker."""
    if scheduler is not None and tasks:
        return solve_on_cluster(tasks, address=scheduler)
    seconds = sum(task.samples * task.problem.seconds_per_sample for task in tasks)
    if workers is None:
        workers = (os.cpu_count() or 1) if seconds > _WORTH_PROCESSES else 1
    return solve_all(tasks, workers=min(workers, len(tasks)))


def _read_index(folder: ShardFolder) -> dict[int, str]:
    try:
        return folder.read_index()
    except CorruptFileError as error:
        warnings.warn(f"{error}; all its data are made again", RuntimeWarning, stacklevel=4)
        return {}


def _read(folder: ShardFolder, number: int, digest: str, target: Float[np.ndarray, "samples nodes"]) -> bool:
    """Copy the fields of a shard into `target`; False, with a warning, if the shard is not sound."""
    try:
        target[:] = folder.read(number, digest, shapes={"fields": target.shape})["fields"]
    except CorruptFileError as error:
        warnings.warn(f"{error}; this part of the data is made again", RuntimeWarning, stacklevel=4)
        return False
    return True
