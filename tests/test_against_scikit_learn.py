"""The data sets of the comparison are what they promise, and its baselines know what they should know."""

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SIZES = {"linear_periodic": (128, 2048), "many_parameters": (10, 100), "shock": (2, 1600)}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script as it sees the world when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


# -- the sets


@pytest.mark.parametrize("name", list(SIZES))
def test_own_sets_have_their_sizes_and_are_always_the_same(name: str, load: Any):
    make = load("strangers").OWN[name]
    first, second = make(30, 8), make(30, 8)
    sensors, points = SIZES[name]
    for part, samples in (("train", 30), ("test", 8)):
        arrays = first[part]
        assert arrays["inputs"].shape == (samples, sensors)
        assert arrays["points"].shape[0] == points
        assert arrays["outputs"].shape == (samples, points)
        assert all(np.array_equal(arrays[key], second[part][key]) for key in arrays)
    assert not np.isin(first["test"]["inputs"], first["train"]["inputs"]).any()


@pytest.mark.parametrize(
    ("name", "samples"), [("linear_periodic", (320, 80)), ("many_parameters", (450, 200)), ("shock", (400, 100))]
)
def test_default_numbers_of_samples(name: str, samples: tuple[int, int], load: Any):
    made = load("strangers").load_set(name, Path())
    assert (len(made["train"]["outputs"]), len(made["test"]["outputs"])) == samples


def test_linear_set_is_linear_periodic_and_solves_its_equation(load: Any):
    data = load("strangers").linear_periodic(60, 10)
    train, test = data["train"], data["test"]
    weights = np.linalg.lstsq(train["inputs"].T, test["inputs"].T, rcond=1e-10)[0]
    assert np.allclose(weights.T @ train["outputs"], test["outputs"], atol=1e-9)
    u = test["outputs"].reshape(10, 64, 32)
    assert np.allclose(u[:, :, 0], test["inputs"][:, ::2], atol=1e-12)
    # After one period of time the wave is back, each frequency smaller by its own factor.
    frequencies = np.arange(21)
    factors = np.exp(-1e-3 * (2 * np.pi * frequencies) ** 2)
    spectra = np.fft.rfft(u, axis=1)[:, :21]
    assert np.allclose(spectra[..., -1], factors * spectra[..., 0], atol=1e-10)


def test_reactor_agrees_with_scipy_and_its_parameters_differ_in_importance(load: Any):
    from scipy.integrate import solve_ivp

    strangers = load("strangers")
    inputs = strangers.many_parameters(20, 1)["train"]["inputs"]
    found = strangers.reactor(inputs)
    gain, s, p, enzyme, turnover, affinity, inhibition, flow, temperature, decay = inputs[0]
    fastest = enzyme * turnover * np.exp(-45e3 / 8.314 * (1 / temperature - 1 / 300))

    def rates(_: float, y: np.ndarray) -> list[float]:
        v = fastest * y[0] / (affinity * (1 + y[1] / inhibition) + y[0])
        return [-v / flow, (v - decay * y[1]) / flow]

    places = np.arange(1, 101) / 100
    exact = solve_ivp(rates, (0, 1), [s, p], t_eval=places, rtol=1e-10, atol=1e-12).y[1]
    assert np.allclose(found[0], gain * exact, rtol=1e-7)
    changes = [_change(strangers.reactor, inputs, column) for column in range(10)]
    assert max(changes) > 100 * min(changes)


def _change(model: Any, inputs: np.ndarray, column: int) -> float:
    """How much the outputs change, relatively, when the samples exchange one parameter."""
    other = inputs.copy()
    other[:, column] = np.roll(other[:, column], 1)
    u, v = model(inputs, steps=2), model(other, steps=2)
    return float(np.mean(np.linalg.norm(v - u, axis=1) / np.linalg.norm(u, axis=1)))


def test_shock_moves_with_the_mean_of_both_states(load: Any):
    data = load("strangers").shock(50, 5)["train"]
    x, t = data["points"].reshape(80, 20, 2)[:, 0, 0], np.linspace(0, 0.6, 20)
    left, right = data["inputs"].T
    u = data["outputs"].reshape(50, 80, 20)
    is_left = u == left[:, None, None]
    assert np.array_equal(u, np.where(is_left, left[:, None, None], right[:, None, None]))
    places = np.sum(is_left, axis=1) / 80  # cells in front of the jump
    assert np.all(np.abs(places - (0.25 + np.outer((left + right) / 2, t))) <= 0.5 / 80 + 1e-9)
    assert x[1] - x[0] == pytest.approx(1 / 80)
    assert np.all(places[:, -1] - places[:, 0] > 0.2)


def test_absent_public_set_is_skipped_with_a_reason(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = argparse.Namespace(quick=False, shared=tmp_path)
    assert load("against_scikit_learn").compare("backstep", options) == {}
    assert "backstep: skipped" in capsys.readouterr().out


# -- the baselines


@pytest.mark.parametrize("name", ["ridge", "kernel-ridge", "forest", "gaussian-process"])
def test_baseline_learns_a_smooth_operator(name: str, load: Any):
    script, baselines = load("against_scikit_learn"), load("_baselines")
    limits = {"ridge": 0.2, "kernel-ridge": 5e-3, "forest": 0.2, "gaussian-process": 5e-3}
    random, x = np.random.default_rng(0), np.linspace(0, 1, 20)
    a = random.uniform(1, 2, (70, 2))
    outputs = np.stack([a[:, :1] * np.exp(-a[:, 1:] * x), 100 * np.cos(a[:, :1] * x)], axis=2)
    found, words = baselines.predict(script.REGRESSIONS[name](), a[:60], outputs[:60], a[60:])
    assert script.relative_errors(found, outputs[60:]).mean() < limits[name]
    assert "rank" in words


def test_ridge_is_exact_where_the_operator_is_linear(load: Any):
    script, baselines = load("against_scikit_learn"), load("_baselines")
    data = load("strangers").linear_periodic(80, 10)
    train, test = data["train"], data["test"]
    found, _ = baselines.predict(baselines.Ridge(), train["inputs"], train["outputs"][..., None], test["inputs"])
    assert script.relative_errors(found, test["outputs"][..., None]).max() < 1e-11


def test_errors_on_the_rows_for_choosing_are_those_of_the_fields(load: Any):
    script, baselines = load("against_scikit_learn"), load("_baselines")
    random = np.random.default_rng(1)
    outputs, unseen = random.normal(size=(2, 12, 9, 2))
    modes = baselines.Modes(outputs)
    guess = modes.coefficients(unseen) * random.normal(1, 0.3, (12, sum(modes.ranks)))
    error, ranks = modes.score(unseen)(guess)
    assert error == pytest.approx(script.relative_errors(modes.fields(guess, ranks), unseen).mean(), rel=1e-10)
    for other in ((2, 3), (0, 9), tuple(modes.ranks)):
        assert script.relative_errors(modes.fields(guess, other), unseen).mean() >= error * (1 - 1e-12)


# -- the verdict


def _outcome(script: Any, errors: list[float]) -> Any:
    return script.Outcome(np.array(errors), 1.0, "")


def test_verdict_is_paired_and_knows_what_is_equal(load: Any):
    script = load("against_scikit_learn")
    base = np.linspace(1, 2, 50)

    def verdict(ours: np.ndarray, scale: float = 1.0) -> str:
        outcomes = {"ridge": base * scale, "forest": 9 * base * scale, "trunkfirst": ours * scale}
        return script.ratio({name: _outcome(script, e.tolist()) for name, e in outcomes.items()})[2]

    assert verdict(1.04 * base) == "ok"
    assert verdict(1.06 * base) == "LOSES"  # all samples are a little worse: no doubt about it
    assert verdict(base + np.where(np.arange(50) % 2, 0.9, -0.7)) == "ok"  # worse by less than the doubt
    assert verdict(3 * base, 1e-10) == "equal"
    assert script.ratio({"ridge": _outcome(script, [1.0])}) is None


def test_weak_baseline_on_a_public_set_voids_the_table(load: Any):
    script = load("against_scikit_learn")
    for error, is_met in ((5.5e-8, True), (1e-7, False)):
        outcomes = {"ridge": _outcome(script, [0.5]), "kernel-ridge": _outcome(script, [error])}
        assert (script.unmet("backstep", outcomes) is None) == is_met
    assert script.unmet("shock", {"ridge": _outcome(script, [1.0])}) is None


def test_script_prints_and_writes_its_tables(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = load("against_scikit_learn")
    words = ["--quick", "--sets", "linear_periodic", "shock", "--contenders", "ridge", "kernel-ridge"]
    script.main([*words, "--out", str(tmp_path), "--shared", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "# shock: 40 train, 10 test" in shown
    text = (tmp_path / "against-scikit-learn.md").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert (tmp_path / "against-scikit-learn.json").is_file()
