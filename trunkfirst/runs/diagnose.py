"""The error budget of a run: its operator, its samples at finer points, and what to improve."""

import dataclasses as dc
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.spatial import KDTree

from ..data.operator_data import OperatorData
from ..data.read_write import read_data
from ..data.scattered_data import AnyData, ScatteredData
from ..data.sharded_data import ShardedData
from ..error_budget import nearest_samples
from ..errors import DataError, UsageError
from ..files.npz import write_npz
from ..files.text_files import write_json
from ..learning_curves import FEWEST, learning_curve
from ..networks.operator import Operator, load
from ..problems.finite_elements import grid_square
from ..problems.generate import any_problem, get_problem, make_data
from ..problems.problem import AbstractExactProblem
from ..progress import Reporter, Silent
from ..run_data import RunData, load_run_data
from ..stream import samples_in_memory
from ..theory.assumptions import check_assumptions
from ..theory.remedies import diagnose, gather_evidence
from ..training_summary import check_own_samples
from .config import RunConfig, load_config

# Floats of the test samples at the evaluation points, and training samples there.
_MAX_FLOATS, _MAX_TRAINING = 2**25, 1000
_MIN_CELLS = 16
# Inputs and points closer than this share of their size are the same.
_SAME = 1e-6

Rows = Int[np.ndarray, " rows"]


@dc.dataclass(frozen=True, eq=False)
class Case:
    """An operator with its test samples, at evaluation points and at sensors, and its training samples."""

    operator: Operator
    test: OperatorData
    at_sensors: OperatorData
    training: OperatorData
    finer_training: OperatorData | None
    nearest: tuple[OperatorData, OperatorData] | None
    where: str
    """What the evaluation points are, in words."""
    all_tests: int

    @property
    def is_finer(self) -> bool:
        """Whether the evaluation points differ from the sensors."""
        return not np.array_equal(self.test.points, self.at_sensors.points)


def diagnose_run(folder: Path, *, data: Path | None = None, reporter: Reporter | None = None) -> dict[str, Any]:
    """Find out where the error of a run comes from; return and write `diagnosis.json`, write `diagnosis.npz`.

    `data` is a file with the same inputs at finer points. Without one, problems of this library are evaluated on a
    finer grid, and other data at their own points.
    """
    case = gather_case(folder, data=data, reporter=reporter)
    evidence = gather_evidence(
        case.operator,
        case.test,
        case.at_sensors,
        case.training,
        finer_training=case.finer_training,
        nearest=case.nearest,
    )
    assumptions = check_assumptions(case.operator, case.test, case.at_sensors, case.training)
    numbers = {
        "budget": evidence.budget.summary(),
        "improve": diagnose(evidence).summary(),
        "assumptions": {each.name: {"value": each.value, "meaning": each.meaning} for each in assumptions},
        "points": {
            "evaluation": len(case.test.points),
            "sensors": len(case.at_sensors.points),
            "is_finer": case.is_finer,
            "where": case.where,
        },
        "learning_curve": _learning_curve(folder, case.training),
        "samples": {"test": case.test.samples, "of": case.all_tests, "training": case.training.samples},
    }
    write_npz(folder / "diagnosis.npz", {**evidence.budget.parts(), "size_squared": evidence.budget.size})
    write_json(folder / "diagnosis.json", numbers)
    return numbers


def _learning_curve(folder: Path, training: OperatorData) -> dict[str, Any] | None:
    """Of the training samples, with the method of the run; None where they are too few."""
    if len(training.exchangeable) < FEWEST:
        return None
    method = load_config(folder / "config.toml").method
    return learning_curve(training, method=method).summary()


def gather_case(folder: Path, *, data: Path | None = None, reporter: Reporter | None = None) -> Case:
    """The operator of a run, its test and training samples, and evaluation points."""
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} has no run; give the --out folder of `trunkfirst run` or `trunkfirst fit`")
    config, operator = load_config(folder / "config.toml"), load(folder)
    prepared = load_run_data(config.data, config.problem, reporter=reporter or Silent())
    run = _Run(operator, prepared, _aligned(prepared.data, "the run was trained on"))
    finer = None if data is None else _aligned(read_data(data, keys=config.data.keys), f"{data} holds")
    name = "" if data is None else data.name
    if finer is not None and not len(prepared.split.test):
        return _from_unseen(run, finer, name)
    if not len(prepared.split.test):
        raise UsageError(f"{folder} has no test samples, which an error budget needs; give some with --data FILE")
    check_own_samples(folder, sum(prepared.counts.values()))
    if finer is not None:
        return _from_file(run, finer, name)
    if config.problem is None or isinstance(any_problem(config.problem), AbstractExactProblem):
        return _at_sensors(run)
    return _from_problem(config, config.problem, run)


def _aligned(data: AnyData | ShardedData, what: str) -> OperatorData:
    if isinstance(data, ShardedData):
        return data.some(samples_in_memory(data))
    if isinstance(data, ScatteredData):
        raise UsageError(
            f"{what} scattered data; an error budget needs outputs at the same points for every sample"
        )
    return data


# -- evaluation points


class _Rows(NamedTuple):
    """Rows of a run's data: test samples, training samples, and of these the nearest to each test sample."""

    test: Rows
    training: Rows
    nearest: Rows


@dc.dataclass(frozen=True, eq=False)
class _Run:
    operator: Operator
    prepared: RunData
    data: OperatorData

    def rows(self, points: int) -> _Rows:
        """At most as many test samples, evenly chosen, as fit into memory at `points` evaluation points."""
        split = self.prepared.split
        max_samples = max(1, _MAX_FLOATS // (points * self.data.channels))
        test = split.test[:: math.ceil(len(split.test) / max_samples)]
        nearest = nearest_samples(self.data.take(test), self.data.take(split.train))
        return _Rows(test, split.train, split.train[nearest])

    def case(self, rows: _Rows, finer: OperatorData, places: Rows, finer_training: Rows, where: str) -> Case:
        """`places` holds the row in `finer` of every sample of the run, -1 for none."""
        has_nearest = (places[rows.nearest] >= 0).all()
        return Case(
            self.operator,
            finer.take(places[rows.test]),
            self.data.take(rows.test),
            self.data.take(rows.training),
            finer.take(places[finer_training]) if len(finer_training) else None,
            (finer.take(places[rows.nearest]), self.data.take(rows.nearest)) if has_nearest else None,
            where,
            len(self.prepared.split.test),
        )


def _at_sensors(run: _Run) -> Case:
    points = len(run.data.points)
    where = (
        f"the {points:,} training points themselves. Errors between these points do not show there, and the "
        "part of the sensors is zero by construction; give --data FILE with the same inputs at finer points"
    )
    places = np.arange(run.data.samples)
    return run.case(run.rows(points), run.data, places, places[:0], where)


def _from_problem(config: RunConfig, problem: str, run: _Run) -> Case:
    cells = max(_MIN_CELLS, 2 * (math.ceil(math.sqrt(len(run.data.points))) - 1))
    points = (cells + 1) ** 2
    rows = run.rows(points)
    some = _spread(rows.training)
    wanted = np.unique(np.concatenate([rows.test, rows.nearest, some]))
    made = make_data(problem, samples=config.data.samples, points=f"grid:{cells}", indices=wanted)
    weights = grid_square(cells + 1, get_problem(problem).interval).quadrature_weights
    places = np.full(run.data.samples, -1)
    places[wanted] = np.arange(len(wanted))
    where = f"the {points:,} nodes of {cells} x {cells} cells, with quadrature weights"
    return run.case(rows, dc.replace(made, point_weights=weights), places, some, where)


def _from_file(run: _Run, finer: OperatorData, name: str) -> Case:
    rows, places = run.rows(len(finer.points)), find_samples(finer, run.data)
    if (places[rows.test] < 0).any():
        lost = int(rows.test[places[rows.test] < 0][0])
        raise DataError(
            f"{name}: inputs: sample {lost} of the run, a test sample, is missing; the file must have the "
            "same inputs as the run's own data, at other points"
        )
    if finer.points.shape[1] != run.data.points.shape[1]:
        raise DataError(
            f"{name}: points: axis 'coordinates' has {finer.points.shape[1]} entries, expected "
            f"{run.data.points.shape[1]}, as in training"
        )
    some = _spread(rows.training[places[rows.training] >= 0])
    return run.case(rows, finer, places, some, f"the {len(finer.points):,} points of {name}")


def _from_unseen(run: _Run, given: OperatorData, name: str) -> Case:
    """A run that kept no test samples, and a file with other samples, at the points of training or at more."""
    everyone = run.data
    fresh = np.flatnonzero(find_samples(everyone, given) < 0)
    if not len(fresh):
        raise DataError(f"{name}: inputs: the run was trained on all of these samples; give unseen ones")
    distances, places = KDTree(given.points).query(everyone.points)
    if np.max(distances) > _SAME * np.abs(everyone.points).max():
        lost = int(np.argmax(distances))
        raise DataError(f"{name}: points: point {lost} of training is missing, and all of these are needed")
    test = given.take(fresh)
    at_sensors = dc.replace(
        test,
        points=everyone.points,
        outputs=test.outputs[:, places],
        point_weights=everyone.point_weights,
        reference_outputs=None,
        triangles=None,
    )
    where = f"the {len(given.points):,} points of {name}"
    if len(given.points) > len(everyone.points):
        return Case(run.operator, test, at_sensors, everyone, None, None, where, len(fresh))
    near = everyone.take(nearest_samples(test, everyone))
    where += ", the training points themselves; errors between them do not show"
    return Case(run.operator, at_sensors, at_sensors, everyone, None, (near, near), where, len(fresh))


def _spread(rows: Rows) -> Rows:
    """At most 1,000 of them, evenly chosen."""
    return rows[:: max(1, math.ceil(len(rows) / _MAX_TRAINING))]


def find_samples(known: OperatorData, asked: OperatorData) -> Rows:
    """For every sample of `asked` the row of `known` with the same inputs; -1 where there is none."""
    names = list(asked.inputs)
    if len(names) == 1 and len(known.inputs) == 1:
        given = known.flat_inputs
    elif set(known.inputs) == set(names):
        given = np.concatenate([known.inputs[name].values for name in names], axis=1)
    else:
        raise DataError(f"inputs: expected {', '.join(names)}, as in the run; got {', '.join(known.inputs)}")
    wanted = asked.flat_inputs
    if given.shape[1] != wanted.shape[1]:
        raise DataError(f"inputs: {given.shape[1]} numbers a sample, but the run has {wanted.shape[1]}")
    distances, rows = KDTree(given).query(wanted)
    sizes = np.linalg.norm(wanted, axis=1)
    return np.where(np.asarray(distances) <= _SAME * np.maximum(sizes, sizes.mean()), rows, -1)
