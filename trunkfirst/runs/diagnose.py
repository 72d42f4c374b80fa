"""The error budget of a run: its operator, its samples at finer points, and what to improve."""

import dataclasses as dc
import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy.spatial import KDTree

from ..data import AnyData, OperatorData, ScatteredData, ShardedData, read_data
from ..error_budget import nearest_samples
from ..errors import DataError, UsageError
from ..files import write_json, write_npz
from ..networks import Operator, load
from ..problems import get_problem, grid_square, make_data
from ..progress import Reporter, Silent
from ..run_data import RunData, load_run_data
from ..stream import samples_in_memory
from ..theory import Assumption, Diagnosis, Evidence, check_assumptions, diagnose as name_remedy, gather_evidence
from ..training_summary import sample_count
from .config import RunConfig, load_config

# Numbers of the test samples at the evaluation points, and training samples there.
_MOST_NUMBERS, _MOST_TRAINING = 2**25, 1000
_FEWEST_CELLS = 16
# Inputs this near, as a share of their size, are the same.
_SAME = 1e-6

Rows = Int[np.ndarray, " rows"]


@dc.dataclass(frozen=True, eq=False)
class Case:
    """An operator with its samples: test samples at evaluation points and at sensors, and training samples."""

    operator: Operator
    test: OperatorData
    at_sensors: OperatorData
    training: OperatorData
    finer_training: OperatorData | None
    nearest: tuple[OperatorData, OperatorData] | None
    where: str
    """What the evaluation points are, in a sentence."""
    all_tests: int

    @property
    def is_finer(self) -> bool:
        """Whether the evaluation points are others than the sensors."""
        return not np.array_equal(self.test.points, self.at_sensors.points)


@dc.dataclass(frozen=True, eq=False)
class Diagnosed:
    """What was found about a run; `numbers` is what stands in `diagnosis.json`."""

    case: Case
    evidence: Evidence
    diagnosis: Diagnosis
    assumptions: list[Assumption]
    numbers: dict[str, Any]


def diagnose_run(folder: Path, *, data: Path | None = None, reporter: Reporter | None = None) -> Diagnosed:
    """Find out where the error of a run comes from; writes `diagnosis.json` and `diagnosis.npz` into its folder.

    `data` is a file with the same inputs at finer points. Without one, the problems of this library are evaluated
    on a finer grid, and your own data where they were given.
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
    diagnosis = name_remedy(evidence)
    assumptions = check_assumptions(case.operator, case.test, case.at_sensors, case.training)
    numbers = _numbers(case, evidence, diagnosis, assumptions)
    write_npz(folder / "diagnosis.npz", {**evidence.budget.parts(), "size_squared": evidence.budget.size})
    write_json(folder / "diagnosis.json", numbers)
    return Diagnosed(case, evidence, diagnosis, assumptions, numbers)


def _numbers(
    case: Case, evidence: Evidence, diagnosis: Diagnosis, assumptions: list[Assumption]
) -> dict[str, Any]:
    return {
        "budget": evidence.budget.summary(),
        "improve": diagnosis.summary(),
        "assumptions": {each.name: {"value": each.value, "meaning": each.meaning} for each in assumptions},
        "points": {
            "evaluation": len(case.test.points),
            "sensors": len(case.at_sensors.points),
            "is_finer": case.is_finer,
            "where": case.where,
        },
        "samples": {"test": case.test.samples, "of": case.all_tests, "training": case.training.samples},
    }


# -- the samples of a run


def gather_case(folder: Path, *, data: Path | None = None, reporter: Reporter | None = None) -> Case:
    """The operator of a run, its test and training samples, and evaluation points."""
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} holds no run; give the --out folder of `trunkfirst run` or `trunkfirst fit`")
    config, operator = load_config(folder / "config.toml"), load(folder)
    prepared = load_run_data(config.data, config.problem, reporter=reporter or Silent())
    everyone = _aligned(prepared.data, "the run was trained on")
    finer = None if data is None else _aligned(read_data(data, keys=config.data.keys), f"{data} holds")
    name = "" if data is None else data.name
    if finer is not None and not len(prepared.split.test):
        return _from_unseen(operator, everyone, finer, name)
    _check(folder, prepared)
    if finer is not None:
        return _from_file(operator, prepared, everyone, finer, name)
    if config.problem is not None:
        return _from_problem(config, config.problem, operator, prepared, everyone)
    return _at_sensors(operator, prepared, everyone)


def _check(folder: Path, prepared: RunData) -> None:
    if not len(prepared.split.test):
        raise UsageError(
            f"{folder} kept no test samples, and a budget is one of unseen samples; give some with --data FILE"
        )
    if sum(prepared.counts.values()) != sample_count(folder):
        raise UsageError(
            f"{folder} was not trained on the samples of its data.file alone (--from adds earlier ones), "
            "so that its own test samples are not known"
        )


def _aligned(data: AnyData | ShardedData, what: str) -> OperatorData:
    if isinstance(data, ShardedData):
        return data.some(samples_in_memory(data))
    if isinstance(data, ScatteredData):
        raise UsageError(
            f"{what} scattered data; an error budget needs outputs at the same points for every sample, "
            "because only then do sensors and evaluation points have a meaning"
        )
    return data


def _at_sensors(operator: Operator, prepared: RunData, everyone: OperatorData) -> Case:
    where = (
        f"the {len(everyone.points):,} points of training themselves, where what the sensors do not see cannot be "
        "seen: their part is zero by construction; give --data FILE with the same inputs at finer points"
    )
    test, training = _chosen(prepared, len(everyone.points) * everyone.channels)
    tests, trains = everyone.take(test), everyone.take(training)
    near = trains.take(nearest_samples(tests, trains))
    return Case(operator, tests, tests, trains, None, (near, near), where, len(prepared.split.test))


def _from_problem(
    config: RunConfig, problem: str, operator: Operator, prepared: RunData, everyone: OperatorData
) -> Case:
    cells = max(_FEWEST_CELLS, 2 * (math.ceil(math.sqrt(len(everyone.points))) - 1))
    weights = grid_square(cells + 1, get_problem(problem).interval).quadrature_weights
    test, training = _chosen(prepared, (cells + 1) ** 2 * everyone.channels)
    tests, trains = everyone.take(test), everyone.take(training)
    near = training[nearest_samples(tests, trains)]
    some = _spread(training)
    rows, places = np.unique(np.concatenate([test, near, some]), return_inverse=True)
    made = make_data(problem, samples=config.data.samples, points=f"grid:{cells}", indices=rows)
    finer = dc.replace(made, point_weights=weights)
    at_test, at_near, at_some = np.split(places, [len(test), len(test) + len(near)])
    return Case(
        operator,
        finer.take(at_test),
        tests,
        trains,
        finer.take(at_some),
        (finer.take(at_near), everyone.take(near)),
        f"the {(cells + 1) ** 2:,} nodes of {cells} x {cells} cells, with quadrature weights",
        len(prepared.split.test),
    )


def _from_file(
    operator: Operator, prepared: RunData, everyone: OperatorData, finer: OperatorData, name: str
) -> Case:
    test, training = _chosen(prepared, len(finer.points) * finer.channels)
    places = _places(finer, everyone)
    if (places[test] < 0).any():
        lost = int(test[places[test] < 0][0])
        raise DataError(
            f"{name}: inputs: sample {lost} of the run, a test sample, is not among them; the file must have the "
            "same inputs as the run's own data, at other points"
        )
    if finer.points.shape[1] != everyone.points.shape[1]:
        raise DataError(
            f"{name}: points: axis 'coordinates' has {finer.points.shape[1]} entries, expected "
            f"{everyone.points.shape[1]}, as in training"
        )
    tests, trains = everyone.take(test), everyone.take(training)
    near = training[nearest_samples(tests, trains)]
    nearest = (finer.take(places[near]), everyone.take(near)) if (places[near] >= 0).all() else None
    known = places[training][places[training] >= 0]
    some = finer.take(_spread(known)) if len(known) else None
    where = f"the {len(finer.points):,} points of {name}"
    return Case(operator, finer.take(places[test]), tests, trains, some, nearest, where, len(prepared.split.test))


def _from_unseen(operator: Operator, everyone: OperatorData, given: OperatorData, name: str) -> Case:
    """A run that kept no test samples, and a file with other samples, at the points of training or at more."""
    fresh = np.flatnonzero(_places(everyone, given) < 0)
    if not len(fresh):
        raise DataError(f"{name}: inputs: the run was trained on all of these samples; give unseen ones")
    distances, places = KDTree(given.points).query(everyone.points)
    if np.max(distances) > _SAME * np.abs(everyone.points).max():
        lost = int(np.argmax(distances))
        raise DataError(f"{name}: points: point {lost} of training is not among them, and the sensors must be")
    test = given.take(fresh)
    at_sensors = dc.replace(
        test,
        points=everyone.points,
        outputs=test.outputs[:, places],
        point_weights=everyone.point_weights,
        reference_outputs=None,
        triangles=None,
    )
    near = everyone.take(nearest_samples(test, everyone))
    is_finer = len(given.points) > len(everyone.points)
    where = f"the {len(given.points):,} points of {name}"
    if not is_finer:
        where += ", those of training: what the sensors do not see cannot be seen there"
        test = at_sensors
    return Case(operator, test, at_sensors, everyone, None, None if is_finer else (near, near), where, len(fresh))


def _chosen(prepared: RunData, numbers: int) -> tuple[Rows, Rows]:
    """Test samples, evenly chosen where there are very many, and training samples."""
    split = prepared.split
    most = max(1, _MOST_NUMBERS // numbers)
    test = split.test[:: math.ceil(len(split.test) / most)]
    return test, split.train if prepared.holds_validation else np.union1d(split.train, split.validation)


def _spread(rows: Rows) -> Rows:
    """Some of them."""
    return rows[:: math.ceil(len(rows) / _MOST_TRAINING)]


def _places(finer: OperatorData, everyone: OperatorData) -> Rows:
    """For every sample of the run its row in the file, by its inputs; -1 where it is not there."""
    names = list(everyone.inputs)
    if len(names) == 1 and len(finer.inputs) == 1:
        given = finer.flat_inputs
    elif set(finer.inputs) == set(names):
        given = np.concatenate([finer.inputs[name].values for name in names], axis=1)
    else:
        raise DataError(f"inputs: expected {', '.join(names)}, as in the run; got {', '.join(finer.inputs)}")
    asked = everyone.flat_inputs
    if given.shape[1] != asked.shape[1]:
        raise DataError(f"inputs: {given.shape[1]} numbers a sample, but the run has {asked.shape[1]}")
    distances, rows = KDTree(given).query(asked)
    sizes = np.linalg.norm(asked, axis=1)
    return np.where(np.asarray(distances) <= _SAME * np.maximum(sizes, sizes.mean()), rows, -1)
