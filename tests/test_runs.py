"""Runs and comparisons: what they write, and what they must not look at."""

import dataclasses as dc
import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from helpers import has_same_bits, waves

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import DivergedError, OutputExistsError, WidthError
from trunkfirst.files.integrity import sha256_of, verify_manifest
from trunkfirst.files.npz import read_npz
from trunkfirst.files.text_files import read_json
from trunkfirst.networks.operator import load
from trunkfirst.presets import preset_method
from trunkfirst.progress import Silent
from trunkfirst.records import Claim
from trunkfirst.run_data import RunData, Split
from trunkfirst.runs.compare import check_claims, compare
from trunkfirst.runs.config import RunConfig, load_config, make_config, nested
from trunkfirst.runs.run import Outcome, run
from trunkfirst.settings import merge, to_values

SAMPLES = 16
DATA = waves(
    SAMPLES,
    labels={"beta": np.linspace(5, 1, SAMPLES)},
    reference_outputs=1.001 * waves(SAMPLES).outputs,
    triangles=np.array([[0, 1, 2], [3, 4, 5]]),
)
SPLIT = Split.random(SAMPLES, validation_share=0.0, test_share=0.25, seed=0)  # trains on 12, as other tests do
NETWORK = {"hidden": (6,), "activation": "tanh", "initialisation": "xavier"}
STEPS = {"iterations": 5, "minimiser": {"first_rate": 1e-2}}


def config_of(method: str = "two-step", **more: Any) -> RunConfig:
    """The paper's settings with small networks and few iterations; `more` as in a file."""
    base = to_values(preset_method("paper", "nonlinear-conductivity", method))
    trunk, branch = {**NETWORK, "width": 4}, NETWORK
    small: dict[str, Any] = {"trunk": trunk, "branch": branch, **STEPS}
    if method.startswith("two-step"):
        small = {"trunk": trunk | STEPS, "branch": branch | STEPS}
    outer = {"problem": "nonlinear-conductivity", "preset": "paper", "data": {"validation_share": 0.0}}
    return make_config(merge(outer | {"method": merge(base, small)}, nested(more)))


def prepared(data: OperatorData = DATA, split: Split = SPLIT) -> RunData:
    return RunData(data, split, 0.5)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(config_of(), tmp_path_factory.mktemp("run") / "a", data=prepared())


def test_validation_samples_that_are_held_are_not_seen(tmp_path: Path):
    split = Split.random(
        SAMPLES, validation_share=0.125, test_share=0.125, seed=0
    )  # trains on 12, as other tests do
    config = config_of(data={"validation_share": 0.125, "hold_validation": True})
    held = RunData(DATA, split, 0.5)
    found = run(config, tmp_path / "held", data=held)
    spoilt = dc.replace(DATA, outputs=DATA.outputs.copy(), reference_outputs=None)
    spoilt.outputs[split.validation] *= 3
    other = run(config, tmp_path / "spoilt", data=dc.replace(held, data=spoilt))
    assert has_same_bits(found.result.operator, other.result.operator)
    targets = DATA.take(split.validation)
    with jax.enable_x64(True):
        predicted = np.asarray(found.result.operator(targets.flat_inputs, DATA.points))
    errors = np.linalg.norm(predicted - targets.outputs, axis=1) / np.linalg.norm(targets.outputs, axis=1)
    assert found.metrics["validation"]["mean_relative_l2"] == pytest.approx(errors.mean(), rel=1e-12)


# -- what is written


def test_files(outcome: Outcome):
    names = {path.relative_to(outcome.folder).as_posix() for path in outcome.folder.rglob("*") if path.is_file()}
    assert names == {
        "MANIFEST.sha256",
        "config.toml",
        "environment.json",
        "evaluation.npz",
        "history.jsonl",
        "metrics.json",
        "model/MANIFEST.sha256",
        "model/README.md",
        "model/model.json",
        "model/model.safetensors",
        "training.npz",
    }
    verify_manifest(outcome.folder)
    assert load_config(outcome.folder / "config.toml") == outcome.config
    assert {"python", "packages", "devices", "cores"} <= set(read_json(outcome.folder / "environment.json"))


METRICS = {
    "problem": None,
    "method": None,
    "preset": None,
    "seed": None,
    "split_seed": None,
    "chosen": None,
    "samples": {"train", "validation", "test"},
    "trunk": {"loss", "limit", "rank", "condition", "seconds", "iterations"},
    "branch": {"kind", "loss", "seconds", "iterations"},
    "validation": {"mean_relative_l2"},
    "test": {
        "mean_relative_l2",
        "median_relative_l2",
        "max_relative_l2",
        "optimal_mean_relative_l2",
        "kernel_mean_relative_l2",
        "reference_mean_relative_l2",
    },
    "data": {"own_error"},
    "seconds": {"data", "total"},
}


def test_metrics_have_the_keys_that_are_never_renamed(outcome: Outcome):
    metrics = read_json(outcome.folder / "metrics.json")
    assert set(METRICS) <= set(metrics)
    for section, names in METRICS.items():
        assert names is None or names <= set(metrics[section]), section
    assert metrics["samples"] == {"train": 12, "validation": 0, "test": 4}
    assert (metrics["method"], metrics["seed"], metrics["split_seed"], metrics["status"]) == (
        "two-step",
        0,
        0,
        "finished",
    )
    assert metrics["data"]["own_error"] == pytest.approx(0.001 / 1.001, rel=1e-9)


def test_errors_in_metrics_are_those_of_the_test_samples(outcome: Outcome):
    test = DATA.take(SPLIT.test)
    fields = load(outcome.folder).predict(test.flat_inputs, test.points)
    errors = np.linalg.norm(fields - test.outputs, axis=1) / np.linalg.norm(test.outputs, axis=1)
    found = outcome.metrics["test"]
    assert found["mean_relative_l2"] == pytest.approx(errors.mean(), rel=1e-12)
    assert found["max_relative_l2"] == pytest.approx(errors.max(), rel=1e-12)
    assert found["optimal_mean_relative_l2"] <= found["mean_relative_l2"]
    arrays = read_npz(outcome.folder / "evaluation.npz")
    assert np.allclose(arrays["errors"], errors, rtol=1e-12)
    assert np.all(arrays["optimal_errors"] <= arrays["errors"])


def test_history(outcome: Outcome):
    lines = [json.loads(line) for line in (outcome.folder / "history.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["trunk"] * 5 + ["branch"] * 5
    assert {"stage", "iteration", "loss", "best_loss", "rate", "seconds"} <= set(lines[0])
    assert lines[4]["best_loss"] == pytest.approx(outcome.metrics["trunk"]["loss"], rel=1e-12)
    assert lines[-1]["best_loss"] == pytest.approx(outcome.metrics["branch"]["loss"], rel=1e-12)


def test_evaluation_arrays(outcome: Outcome):
    arrays = read_npz(outcome.folder / "evaluation.npz")
    test = DATA.take(SPLIT.test)
    example = int(arrays["example_index"])
    assert np.array_equal(arrays["points"], DATA.points)
    assert np.array_equal(arrays["triangles"], DATA.triangles if DATA.triangles is not None else [])
    assert np.array_equal(arrays["labels.beta"], test.labels["beta"])
    assert test.labels["beta"][example] == test.labels["beta"].min()  # 5.1 shows the smallest
    assert np.array_equal(arrays["example_target"], test.outputs[example])
    assert np.array_equal(arrays["example_input"], test.flat_inputs[example])
    assert np.allclose(
        arrays["example_prediction"], load(outcome.folder).predict(test.flat_inputs, test.points)[example]
    )
    assert arrays["reference_errors"].shape == (4,)
    worst = arrays["worst_indices"]
    assert arrays["errors"][worst].tolist() == sorted(arrays["errors"], reverse=True)[:3]
    assert np.array_equal(arrays["worst_targets"], test.outputs[worst])
    predicted = load(outcome.folder).predict(test.flat_inputs, test.points)
    assert np.allclose(arrays["worst_predictions"], predicted[worst])


def test_a_run_without_test_samples(tmp_path: Path):
    split = dc.replace(SPLIT, test=SPLIT.test[:0])
    found = run(config_of(), tmp_path / "a", data=prepared(split=split))
    assert found.metrics["test"] is None
    assert found.metrics["data"]["own_error"] is None
    assert not (tmp_path / "a" / "evaluation.npz").exists()
    verify_manifest(tmp_path / "a")


# -- what a run must not look at


def changed(indices: np.ndarray) -> OperatorData:
    """The data with other inputs and outputs for some samples."""
    assert DATA.reference_outputs is not None
    inputs, outputs, reference = DATA.flat_inputs.copy(), DATA.outputs.copy(), DATA.reference_outputs.copy()
    inputs[indices] *= -3
    outputs[indices] += 100
    reference[indices] -= 50
    return dc.replace(DATA, inputs={"input": inputs}, outputs=outputs, reference_outputs=reference)


@pytest.mark.parametrize("encoder", ["raw", "standardise"])
@pytest.mark.parametrize(("part", "is_same"), [("test", True), ("train", False)])
def test_the_model_knows_nothing_of_test_samples(tmp_path: Path, encoder: str, part: str, is_same: bool):
    config = config_of(inputs=encoder)
    indices = getattr(SPLIT, part)[:1]
    for name, data in (("a", DATA), ("b", changed(indices))):
        run(config, tmp_path / name, data=prepared(data))
    for file in ("model/model.safetensors", "history.jsonl"):
        if file.endswith("jsonl"):
            lines = [(tmp_path / name / file).read_text().splitlines() for name in "ab"]
            digests = [[json.loads(line)["loss"] for line in part_lines] for part_lines in lines]
        else:
            digests = [sha256_of(tmp_path / name / file) for name in "ab"]
        assert (digests[0] == digests[1]) == is_same


# -- refusals


def test_a_folder_with_something_in_it_is_refused(outcome: Outcome):
    before = sha256_of(outcome.folder / "metrics.json")
    with pytest.raises(OutputExistsError, match="not empty"):
        run(config_of(), outcome.folder, data=prepared())
    assert sha256_of(outcome.folder / "metrics.json") == before


def test_settings_that_do_not_fit_leave_the_folder_free(tmp_path: Path):
    """So that the corrected command can be given again."""
    with pytest.raises(WidthError):
        run(config_of(trunk={"width": 30}), tmp_path / "a", data=prepared())
    assert not any((tmp_path / "a").glob("*"))


class Listening(Silent):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


# -- comparisons

METHODS = ("two-step", "two-step-without-qr", "monolithic")


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def go(configs: list[RunConfig], **more: Any):
        module = importlib.import_module("trunkfirst.runs.compare")
        monkeypatch.setattr(module, "load_run_data", lambda *_, **__: prepared())
        return compare(configs, tmp_path / "all", **more)

    return go


def test_compare(compared: Any, tmp_path: Path):
    found = compared([config_of(method) for method in METHODS], seeds=2)
    names = [f"{method}-seed{seed}" for method in METHODS for seed in (0, 1)]
    assert [outcome.folder.name for outcome in found.outcomes] == names
    for name in names:
        verify_manifest(tmp_path / "all" / name)
    verify_manifest(tmp_path / "all")
    metrics = read_json(tmp_path / "all" / "metrics.json")
    assert [(m["method"], m["seed"]) for m in metrics] == [(method, seed) for method in METHODS for seed in (0, 1)]
    claims = read_json(tmp_path / "all" / "claims.json")
    assert claims
    assert all(set(claim) == {"claim", "paper", "ours", "holds"} for claim in claims)
    # Step 1 is done once a seed and shared; a run on its own gives the same bits.
    first, second, plain = (found.outcomes[i].result for i in (0, 1, 2))
    assert first.trunk_result is plain.trunk_result
    assert not has_same_bits(first.operator, second.operator)
    alone = run(config_of("two-step-without-qr"), tmp_path / "alone", data=prepared())
    assert has_same_bits(alone.result.operator, plain.operator)


def test_another_step_1_is_not_shared(compared: Any):
    other = config_of("two-step-without-qr", trunk={"iterations": 6})
    found = compared([config_of(), other])
    assert found.outcomes[0].result.trunk_result is not found.outcomes[1].result.trunk_result


def test_a_method_that_diverges_does_not_end_the_comparison(compared: Any, tmp_path: Path):
    wild = config_of("two-step-without-qr", trunk={"minimiser": {"first_rate": 1e200}})
    listener = Listening()
    found = compared([wild, config_of(), config_of("monolithic")], reporter=listener)
    assert [outcome.result.status for outcome in found.outcomes] == ["diverged", "finished", "finished"]
    assert [m["status"] for m in read_json(tmp_path / "all" / "metrics.json")] == [
        "diverged",
        "finished",
        "finished",
    ]
    assert any(text.startswith("two-step-without-qr-seed0: diverged") for text in listener.said)
    verify_manifest(tmp_path / "all")
    # It has no say about claims; those about the others are judged.
    claims = {claim.claim: claim.holds for claim in found.claims}
    assert claims["without QR the errors are much higher and unstable"] is None
    assert claims["trunk loss two orders below the monolithic loss"] is not None


def test_a_run_alone_raises_where_it_diverges(tmp_path: Path):
    with pytest.raises(DivergedError):
        run(config_of(trunk={"minimiser": {"first_rate": 1e200}}), tmp_path / "a", data=prepared())


def test_a_monolithic_method_shares_no_step_1(compared: Any):
    listener = Listening()
    trunk = {"hidden": (4,)}
    compared([config_of(m, trunk=trunk) for m in ("two-step", "monolithic-projected")], reporter=listener)
    assert not any("reused" in text for text in listener.said)


def fake(method: str, **sections: dict[str, float]) -> Any:
    metrics = {"trunk": {"loss": 1.0}, "branch": None, "test": None, **sections}
    config = SimpleNamespace(method=SimpleNamespace(name=method))
    result = SimpleNamespace(evaluation=None)
    return SimpleNamespace(config=config, metrics=metrics, result=result, test_data=None, folder=Path("nowhere"))


@pytest.mark.parametrize("problem", ["nonlinear-conductivity", "discontinuous-conductivity", "multiple-inputs"])
def test_claims_about_methods_that_were_not_run_are_open(problem: str):
    claims = check_claims(problem, [fake("two-step")])
    assert len(claims) >= 2
    assert {claim.holds for claim in claims} == {None}
    assert {claim.ours for claim in claims} == {"not run"}


@pytest.mark.parametrize(("loss", "holds"), [(1e-5, True), (2e-7, False)])
def test_claims_are_judged(loss: float, holds: bool):
    outcomes = [fake("two-step", trunk={"loss": 1e-7}), fake("monolithic", trunk={"loss": loss})]
    claims = check_claims("nonlinear-conductivity", outcomes)
    assert [claim.holds for claim in claims if "two orders" in claim.claim] == [holds]


def test_claims_take_the_mean_over_seeds():
    outcomes = [fake("two-step", trunk={"loss": v}) for v in (1e-7, 3e-7)]
    (claim,) = (
        claim
        for claim in check_claims("nonlinear-conductivity", [*outcomes, fake("monolithic", trunk={"loss": 1e-5})])
        if "two orders" in claim.claim
    )
    assert "2.00e-07 against 1.00e-05" in claim.ours
    assert claim.holds


@pytest.mark.parametrize(
    ("with_qr", "without", "holds"), [(1e-9, 1e-6, True), (3.6e-10, 3.0e-11, False), (1e-6, 1e-3, False)]
)
def test_branch_losses_are_compared_as_printed(with_qr: float, without: float, holds: bool):
    """Relative to the targets the first is below the second in all cases; the claim is about the losses."""
    outcomes = [
        fake("two-step", branch={"loss": with_qr, "relative_loss": 1e-12}),
        fake("two-step-without-qr", branch={"loss": without, "relative_loss": 1e-9}),
    ]
    assert judged(check_claims("nonlinear-conductivity", outcomes), "branch loss reaches") == holds


def judged(claims: list[Claim], words: str) -> bool | None:
    (found,) = (claim.holds for claim in claims if words in claim.claim)
    return found


@pytest.mark.parametrize(
    ("problem", "words", "error", "holds"),
    [
        ("nonlinear-conductivity", "close to its own conditional optimum", 1.5e-3, True),
        ("nonlinear-conductivity", "close to its own conditional optimum", 5e-3, False),
        ("discontinuous-conductivity", "far from its own optimum", 1e-1, True),
        ("discontinuous-conductivity", "far from its own optimum", 1.5e-3, False),
    ],
)
def test_monolithic_is_compared_with_its_own_optimum(problem: str, words: str, error: float, holds: bool):
    numbers = {"mean_relative_l2": error, "optimal_mean_relative_l2": 1e-3}
    assert judged(check_claims(problem, [fake("monolithic", test=numbers)]), words) == holds


@pytest.mark.parametrize(("factor", "holds"), [(20.0, True), (5.0, False)])
def test_absolute_errors_are_compared_at_the_smallest_beta(factor: float, holds: bool):
    targets = np.zeros((2, 3))
    test = SimpleNamespace(labels={"beta": np.array([9.0, 5.0])}, outputs=targets)

    def with_error(method: str, error: float) -> Any:
        outcome = fake(method)
        predictions = targets + np.array([[1.0], [error]])  # the first sample has a larger beta
        outcome.result.evaluation = SimpleNamespace(predictions=predictions)
        outcome.test_data = test
        return outcome

    outcomes = [with_error("two-step", 1e-3), with_error("monolithic", -factor * 1e-3)]
    assert judged(check_claims("nonlinear-conductivity", outcomes), "smallest test beta") == holds


@pytest.mark.parametrize(("early", "holds"), [(1.2e-4, True), (9e-4, False)])
def test_active_neurons_saturate(tmp_path: Path, early: float, holds: bool):
    outcome = fake("two-step")
    outcome.folder = tmp_path
    errors = {"iterations": [10, 20, 100], "branch_losses": [1, 1, 1], "test_errors": [5e-2, early, 1e-4]}
    np.savez(tmp_path / "anls.npz", **{name: np.array(values) for name, values in errors.items()})
    claims = check_claims("discontinuous-conductivity", [outcome])
    assert judged(claims, "active neurons") == holds
    assert any("after 20, 1.00e-04 after 100" in claim.ours for claim in claims)


def test_no_claims_for_other_problems():
    assert check_claims("mine", []) == []


def test_references_of_training_samples_are_left_out_and_change_nothing(outcome: Outcome, tmp_path: Path):
    lean = prepared().without_references()
    assert isinstance(lean.data, OperatorData)
    assert lean.data.reference_outputs is None
    found = run(config_of(), tmp_path / "lean", data=lean)
    assert has_same_bits(found.result.operator, outcome.result.operator)
    assert found.result.evaluation is not None
    assert found.result.evaluation.own_errors == pytest.approx(0.001 / 1.001)


def test_parts_in_order_are_views_of_one_array():
    """No second copy of the training samples; the parts and their order stay."""
    plain = prepared()
    ordered = plain.without_references().in_order()
    for part in ("train", "validation", "test"):
        before, after = getattr(plain, part), getattr(ordered, part)
        assert (before is None) == (after is None)
        if before is not None:
            assert np.array_equal(before.outputs, after.outputs)
            assert np.array_equal(before.flat_inputs, after.flat_inputs)
            assert np.shares_memory(after.outputs, ordered.data.outputs)
