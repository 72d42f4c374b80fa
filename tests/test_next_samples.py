"""Where to simulate next: suggested inputs are useful, spread out, reproducible, and written with their names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trunkfirst
from trunkfirst.errors import DataError, TrunkfirstError, UnknownNameError, UsageError, ValueRangeError

Call = Callable[..., tuple[int, str, str]]
X = np.linspace(0, 1, 20)
BRANCH = trunkfirst.Kernel(lengths="each")
METHOD = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), BRANCH, inputs="raw", weights="none")


def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """b has no effect to speak of."""
    return np.sin(3 * a[:, None] * X) + 2 + 1e-6 * b[:, None]


def make(samples: int = 25, **more: Any) -> trunkfirst.OperatorData:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, samples), np.exp(rng.uniform(np.log(1e-3), 0, samples))
    return trunkfirst.OperatorData({"a": a[:, None], "b": b[:, None]}, X[:, None], solve(a, b), **more)


@pytest.fixture(scope="module")
def result() -> trunkfirst.FitResult:
    return trunkfirst.fit(make(), method=METHOD)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "mine"
    trunkfirst.fit(make(), method=METHOD, out=place)
    return place


def test_result_operator_and_folder_agree_and_repeat(result: trunkfirst.FitResult, folder: Path):
    found = [trunkfirst.suggest(source, 4) for source in (result, result.operator, folder, str(folder))]
    for name in ("a", "b"):
        for other in found[1:]:
            np.testing.assert_allclose(other.inputs[name], found[0].inputs[name], rtol=1e-9)
    assert (trunkfirst.suggest(result, 4, seed=1).inputs["a"] != found[0].inputs["a"]).any()


def test_inputs_lie_in_the_ranges_and_are_spread_out(result: trunkfirst.FitResult):
    found = trunkfirst.suggest(result, 8, ranges="a=1:4,b=log:1e-6:1")
    a, b = found.inputs["a"][:, 0], found.inputs["b"][:, 0]
    assert (len(found), found.names) == (8, ("a", "b"))
    assert 2 < a.min() < 2.5 < 3.5 < a.max() <= 4  # where there was no sample yet
    assert ((b >= 1e-6) & (b <= 1)).all()
    assert np.diff(np.sort(a)).min() > 0.05  # b does not matter: only a spreads them out
    assert found.deviations[0] > 10 * found.deviations[-1] > 0


def test_the_default_ranges_are_those_of_training(result: trunkfirst.FitResult):
    found = trunkfirst.suggest(result, 16)
    for name, function in make().inputs.items():
        assert (
            function.values.min() <= found.inputs[name].min() < found.inputs[name].max() <= function.values.max()
        )
    assert (found.inputs["b"] < 0.01).sum() >= 2  # a third was, on a logarithmic scale, which is found out


def test_suggested_samples_are_better_than_random_ones(result: trunkfirst.FitResult):
    rng = np.random.default_rng(1)
    new = rng.uniform(1, 4, 8), rng.uniform(0, 1, 8)
    chosen = trunkfirst.suggest(result, 8, ranges={"a": (1, 4), "b": (0, 1)})
    test, data = (rng.uniform(1, 4, 200), rng.uniform(0, 1, 200)), make()

    def error(a: np.ndarray, b: np.ndarray) -> float:
        inputs = {
            "a": np.append(data.inputs["a"].values[:, 0], a),
            "b": np.append(data.inputs["b"].values[:, 0], b),
        }
        u = solve(inputs["a"], inputs["b"])
        operator = trunkfirst.fit(
            {n: v[:, None] for n, v in inputs.items()}, u, X[:, None], method=METHOD
        ).operator
        return float(np.abs(operator.predict(np.stack(test, axis=1)) - solve(*test)).mean())

    assert error(*(chosen.inputs[name][:, 0] for name in ("a", "b"))) < 0.5 * error(*new)


def test_a_pool_has_rows(result: trunkfirst.FitResult, tmp_path: Path):
    a = np.concatenate([make().flat_inputs[:10], [[3.5, 0.5]], make().flat_inputs[10:], [[2.8, 0.1]]])
    found = trunkfirst.suggest(result, 2, pool=a)
    assert found.rows is not None
    assert set(found.rows.tolist()) == {10, 26}
    np.testing.assert_array_equal(found.inputs["a"][:, 0], a[found.rows, 0])
    np.savez(tmp_path / "pool.npz", **{"inputs.a": a[:, :1], "inputs.b": a[:, 1:]})
    (tmp_path / "pool.csv").write_text("b,a\n" + "\n".join(f"{float(b)!r},{float(x)!r}" for x, b in a))
    for file in ("pool.npz", "pool.csv"):
        np.testing.assert_array_equal(trunkfirst.suggest(result, 2, pool=tmp_path / file).rows, found.rows)


def test_functions_are_chosen_from_a_pool():
    rng = np.random.default_rng(2)
    modes = np.stack([np.sin(k * np.pi * np.linspace(0, 1, 50)) for k in (1, 2, 3)])
    c = rng.normal(size=(30, 3))
    operator = trunkfirst.fit(
        c @ modes, np.tanh(c) @ modes, np.linspace(0, 1, 50)[:, None], method=METHOD
    ).operator
    pool = np.concatenate([c[:5], [[4.0, 0, 0]], c[5:10], [[0, -4.0, 0]]]) @ modes
    rows = trunkfirst.suggest(operator, 2, pool=pool).rows
    assert rows is not None
    assert set(rows.tolist()) == {5, 11}
    with pytest.raises(UsageError, match=r"functions with 50 values.*give a pool"):
        trunkfirst.suggest(operator, 2)


def test_files_and_the_way_back(folder: Path, call: Call, tmp_path: Path, no_report: None):
    """suggest, simulate, fit --from; and once more."""
    code, out, _ = call("suggest", folder, "--count", "6", "--ranges", "a=1:4", "--out", tmp_path / "next.csv")
    assert code == 0
    assert "6 samples of a, b" in out
    assert f"--from {folder} --suggested" in out
    table = np.genfromtxt(tmp_path / "next.csv", delimiter=",", names=True)
    assert table.dtype.names == ("a", "b")
    arguments = ("suggest", folder, "--count", "6", "--ranges", "a=1:4", "--out", tmp_path / "next.npz", "--json")
    code, out, _ = call(*arguments)
    assert code == 0
    assert len(json.loads(out)["expected_errors"]) == 6
    with np.load(tmp_path / "next.npz") as arrays:
        known = dict(arrays)
    np.testing.assert_array_equal(known["inputs.a"][:, 0], table["a"])
    np.savez(tmp_path / "new.npz", **known, points=X[:, None], outputs=solve(table["a"], table["b"]))
    code, _, err = call("fit", "--data", tmp_path / "new.npz", "--from", folder, "--out", tmp_path / "second")
    assert code == 0, err
    code, out, _ = call("suggest", tmp_path / "second", "--count", "3", "--out", tmp_path / "b.csv", "--json")
    assert code == 0
    assert max(json.loads(out)["expected_errors"]) < 0.1


WRONG: dict[str, tuple[dict[str, Any], type[TrunkfirstError], str]] = {
    "no such input": ({"ranges": {"c": (0, 1)}}, UnknownNameError, "'c'"),
    "not a range": ({"ranges": "a=1"}, UsageError, "'a=1' is not NAME=LOW:HIGH"),
    "reversed": ({"ranges": {"a": (2, 1)}}, ValueRangeError, "from 2 to 1"),
    "log of zero": ({"ranges": "a=log:0:1"}, ValueRangeError, "above 0"),
    "other scale": ({"ranges": {"a": ("square", 1, 2)}}, ValueRangeError, "give"),
    "both": ({"ranges": "a=1:2", "pool": np.ones((3, 2))}, UsageError, "not both"),
    "small pool": ({"pool": np.ones((2, 2))}, ValueRangeError, "only 2"),
    "other pool": ({"pool": np.ones((9, 3))}, DataError, "expected 2 sensors"),
    "none": ({"count": 0}, ValueRangeError, "count is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_suggested(name: str, result: trunkfirst.FitResult):
    arguments, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        trunkfirst.suggest(result, **{"count": 3, **arguments})


def test_other_endings_are_refused(result: trunkfirst.FitResult, tmp_path: Path):
    with pytest.raises(UnknownNameError, match=r"\.xlsx"):
        trunkfirst.suggest(result, 2).write(tmp_path / "next.xlsx")
