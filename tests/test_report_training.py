"""What the report says about training: time, model selection, limits, baseline, active neurons, failures."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import metrics, rows, write_comparison, write_run

from trunkfirst.errors import CorruptFileError
from trunkfirst.files.integrity import verify_manifest
from trunkfirst.report.pages import write_report
from trunkfirst.report.run_files import read_run

pytestmark = pytest.mark.usefixtures("unrendered")

RATIO = "Trunk loss ÷ lowest loss"
LIMIT = "Lowest possible loss of a trunk of this width"
KERNEL = "no trunk, Matern kernel ridge"


def changed(content: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    """Metrics with other sections: mappings are merged, other values replaced."""
    merged = {
        name: (content.get(name) or {}) | value if isinstance(value, dict) else value
        for name, value in sections.items()
    }
    return content | merged


def change(folder: Path, **sections: Any) -> Path:
    """The folder of a run with other metrics."""
    content = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(changed(content, sections)))
    return folder


def bare_page(folder: Path, *runs: tuple[str, int, dict[str, Any]]) -> str:
    """The page of metrics alone, by method and seed: hardly anything to draw, so that it is made fast."""
    content = [changed(metrics(method, seed, "nonlinear-conductivity"), more) for method, seed, more in runs]
    (folder / "metrics.json").write_text(json.dumps(content))
    return write_report(folder).read_text()


def page_of_one(folder: Path, **sections: Any) -> str:
    return bare_page(folder, ("two-step", 0, sections))


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))


# -- time


def test_time_runs_through_all_steps(tmp_path: Path):
    clock = read_run(write_run(tmp_path / "run")).clock
    # The trunk took 1.5 s, of which 0.9 s are in the history: 0.6 s were spent on the starts before it.
    np.testing.assert_allclose(clock["trunk"].places[[0, -1]], [0.6, 1.5])
    # Then the branch took 1 s, of which 0.9 s are in the history.
    np.testing.assert_allclose(clock["branch"].places[[0, -1]], [1.6, 2.5])


def test_stages_of_a_trunk_are_one_curve(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    stages = {
        "start 1": (5, 0.3),
        "trunk": (10, 0.5),
        "trunk, ridge 1e-05": (20, 0.7),
    }  # iterations are counted through
    lines = [
        {"stage": stage, "iteration": i, "loss": 1 / (1 + i), "seconds": s * i / n}
        for stage, (n, s) in stages.items()
        for i in (n - 1, n)
    ]
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = read_run(change(folder, trunk={"seconds": 2.0}))
    np.testing.assert_array_equal(run.history["trunk"].places, [9, 10, 19, 20])
    np.testing.assert_allclose(run.clock["trunk"].places[[1, 3]], [1.3, 2.0])


_TWO_STAGES = (
    ("trunk", 1, 0.5),
    ("trunk", 2, 0.25),
    ("trunk, ridge 1e-05", 3, 0.4),
    ("trunk, ridge 1e-05", 4, 0.3),
)


def with_stages(folder: Path) -> Path:
    lines = [
        {"stage": stage, "iteration": i, "loss": loss, "best_loss": loss, "seconds": 1.0}
        for stage, i, loss in _TWO_STAGES
    ]
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_stages_of_a_trunk_have_their_own_smallest_losses(tmp_path: Path):
    parts = read_run(with_stages(write_run(tmp_path / "run"))).history["trunk"].parts()
    assert [part.places.tolist() for part in parts] == [[1, 2], [3, 4]]
    assert all((np.diff(part.best_losses) <= 0).all() for part in parts)


def test_the_caption_says_what_changes_where(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    assert "starts again" not in write_report(folder).read_text()
    page = text_of(write_report(with_stages(folder)).read_text())
    assert "so the thick line starts again in each (dotted lines): ridge 1e-05 from iteration 3." in page
    assert "kinks" not in page
    assert "starts, of which" not in page
    text = '[method]\nweights = "relative"\n[method.trunk]\nactivation = "relu"\nstarts = 8\np = 1.0\n'
    (folder / "config.toml").write_text(text)
    page = text_of(write_report(folder).read_text())
    for words in (
        "kinks of the ReLU trunk are rounded",
        "from 8 starts",
        "samples are weighted by relative error",
    ):
        assert words in page
    assert "Mean of |error| to the power 1" in (folder / "figures" / "trunk-loss.svg").read_text()


def test_a_line_over_seeds_may_rise(tmp_path: Path):
    compared = write_comparison(tmp_path)
    for folder in compared.glob("two-step-seed*"):
        with_stages(folder)
    assert "a line may rise where a new one begins" in text_of(write_report(compared).read_text())


def test_means_over_seeds_end_with_the_shortest(tmp_path: Path):
    page = write_report(write_comparison(tmp_path)).read_text()
    assert "averaged over seeds (2 of two-step, 2 of monolithic) up to the last iteration" in page


def test_drawn_against_time_where_seconds_are_recorded(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    page = write_report(folder).read_text()
    assert "two-step ends after 1.5 seconds." in page
    assert "two-step ends after 2.5 seconds." in page
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    (folder / "history.jsonl").write_text("\n".join(json.dumps(line | {"seconds": None}) for line in lines))
    assert "against training time" not in write_report(folder).read_text()
    assert not (folder / "figures" / "trunk-loss-time.svg").exists()


def test_error_against_time_has_a_mark_for_every_run(tmp_path: Path):
    kernel = {"test": {"kernel_mean_relative_l2": 1.23e-5}}
    page = bare_page(tmp_path, *[(m, s, kernel) for m in ("monolithic", "two-step") for s in (0, 1)])
    alt = re.search('aria-label="(Test error against training time.*?)"', page)
    assert alt is not None
    assert alt[1].count("two-step 7.89e-4 after 2.5 seconds") == 2
    assert alt[1].count("monolithic 4.56e-3 after 1.5 seconds") == 2
    assert f"1.23e-5 is a regression without networks ({KERNEL})" in text_of(page)


def test_one_run_alone_is_not_drawn_against_time(tmp_path: Path):
    page_of_one(tmp_path)
    assert not (tmp_path / "figures" / "error-time.svg").exists()


# -- model selection


def searched(errors: dict[str, Any], settings: dict[str, tuple[str, str, str]], name: str) -> dict[str, Any]:
    """The part `chosen` of the metrics; settings are branch, encoder and weights."""
    keys = ("branch", "encoder", "weights")
    candidates = {each: dict(zip(keys, values, strict=True)) for each, values in settings.items()}
    return {"candidate": name, "validation_errors": errors, "candidates": candidates}


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ("log", "“log” was chosen: its validation error of 2.00e-4 is the smallest of 4 candidates."),
        ("standardise", "its validation error of 2.20e-4 is nearly that of the best (“log”, 2.00e-4)"),
    ],
)
def test_the_choice_of_an_encoder_is_explained(tmp_path: Path, chosen: str, reason: str):
    errors = {"standardise": 2.2e-4, "log": 2e-4, "inverse": None, "principal:4": 1e-3}
    settings = {name: ("network", name, "relative") for name in errors}
    page = page_of_one(tmp_path, chosen=searched(errors, settings, chosen))
    assert reason in text_of(page)
    found = {row[0]: row[1:] for row in rows(page) if row and row[0] in errors}
    assert list(found) == ["log", "standardise", "principal:4", "inverse"]  # the best first
    assert [name for name, row in found.items() if row[-1] == "✓ chosen"] == [chosen]
    assert found["principal:4"][:2] == ["the first 4 principal components of the input", "1.00e-3"]
    assert found["inverse"][1] == "not finite"


@pytest.mark.parametrize("chosen", [None, {}, {"encoder": "log"}, {"encoder": "log", "validation_errors": {}}])
def test_there_is_no_section_without_a_search(tmp_path: Path, chosen: dict | None):
    assert "Model selection" not in page_of_one(tmp_path, chosen=chosen)


def test_the_choice_of_a_branch_is_explained(tmp_path: Path):
    errors = {"a": 1e-2, "b": 1e-4, "c": 2e-3, "d": 1e-3, "e": 1e-5}
    settings = {
        "a": ("linear", "none", "relative"),
        "b": ("kernel", "f=log,g=principal:2", "none"),
        **dict.fromkeys("cde", ("network", "standardise", "relative")),
    }
    chosen: dict[str, Any] = searched(errors, settings, "b") | {"best_network": "d"}
    chosen["candidates"]["d"]["decay"] = 1e-6
    chosen["candidates"]["e"]["is_trained"] = False  # only a first look at the encoder: not compared
    page = page_of_one(tmp_path, chosen=chosen)
    assert "“b” was chosen: its validation error of 1.00e-4 is the smallest of 4 candidates." in text_of(page)
    assert "The best network is “d” with 1.00e-3." in text_of(page)
    assert "used only to select encoders" in text_of(page)
    network = "network on values standardised to mean 0 and deviation 1, samples weighted by relative error"
    assert {row[0]: row[1] for row in rows(page) if row and row[0] in errors} == {
        "a": "linear regression on raw values, samples weighted by relative error",
        "b": (
            "kernel regression on f: logarithms of positive values, standardised; "
            "g: the first 2 principal components of the input, samples weighted equally"
        ),
        "c": network,
        "d": f"{network}, decay 1e-06",
        "e": f"{network}, hidden layers not trained",
    }


def test_searches_of_version_0_1_are_read(tmp_path: Path):
    errors = {"linear, none": 1e-2, "kernel, log": 1e-4}
    chosen = {"encoder": "log", "branch": "kernel", "candidate": "kernel, log", "validation_errors": errors}
    page = page_of_one(tmp_path, chosen=chosen)
    assert ["kernel, log", "1.00e-4", "✓ chosen"] in rows(page)
    page = page_of_one(tmp_path, chosen={"encoder": "log", "validation_errors": {"none": 0.1, "log": 0.2}})
    assert ["log", "2.00e-1", "✓ chosen"] in rows(page)


def test_runs_with_different_choices_have_their_own_tables(tmp_path: Path):
    best = {"two-step": "log", "monolithic": "none"}
    chosen = {
        m: {"encoder": e, "validation_errors": {"none": 0.1, "log": 0.2} | {e: 0.01}} for m, e in best.items()
    }
    text = text_of(bare_page(tmp_path, *[(m, s, {"chosen": chosen[m]}) for m in best for s in (0, 1)]))
    assert "two-step, seed 0; two-step, seed 1: “log” was chosen" in text
    assert "monolithic, seed 0; monolithic, seed 1: “none” was chosen" in text


# -- limit, kernel


@pytest.mark.parametrize(
    ("trunk", "ratio", "remark"),
    [
        (
            {"is_limited_by_network": True},
            "limited by the network",
            "the loss is limited by the network: the same number",
        ),
        ({"is_limited_by_network": False}, "2.50e5", "the loss is 2.50e5 times the lowest"),
        ({"is_limited_by_network": False, "limit_upper": 3e-3}, None, "lies between 1.00e-12 and 3.00e-3."),
        ({"is_limited_by_network": False, "limit": None}, None, None),
        ({}, None, None),  # written by an earlier version, which did not say
    ],
)
def test_loss_over_limit_only_where_there_is_a_limit(
    tmp_path: Path, trunk: dict, ratio: str | None, remark: str | None
):
    page = page_of_one(tmp_path, trunk=trunk)
    found = {row[0]: row[1] for row in rows(page) if len(row) == 2}
    assert found.get(RATIO) == ratio
    assert (LIMIT in found) == (trunk.get("limit", 0) is not None)
    assert ("two-step, seed 0: the lo" in text_of(page)) == (remark is not None)
    assert remark is None or remark in text_of(page)


def test_the_kernel_baseline_is_in_both_tables(tmp_path: Path):
    page = page_of_one(tmp_path, test={"kernel_mean_relative_l2": 1.23e-5})
    assert [f"Test error, mean, {KERNEL}", "1.23e-5"] in rows(page)
    assert ["Mean relative test error", KERNEL, "\u2013", "1.23e-5", "\u2013"] in rows(page)


BASELINE = [
    {"kind": "pca-ridge", "mean_relative_l2": 2e-3, "seconds": 0.1},
    {"kind": "pca-kernel-ridge", "mean_relative_l2": 3e-4, "seconds": 0.2},
]


def test_baselines_are_next_to_the_validation_error(tmp_path: Path):
    page = page_of_one(tmp_path, baseline=BASELINE, validation={"mean_relative_l2": 1e-4})
    assert ["Validation error, mean", "1.00e-4"] in rows(page)
    assert ["Validation error, mean, PCA + ridge", "2.00e-3"] in rows(page)
    assert ["Validation error, mean, PCA + kernel ridge", "3.00e-4"] in rows(page)
    sentence = "training the mean relative error is 1.00e-4 (PCA + ridge 2.00e-3, PCA + kernel ridge 3.00e-4)"
    assert sentence in text_of(page)


@pytest.mark.parametrize("baseline", [None, [], [{}], "none", [1]])
def test_a_run_without_baselines_has_no_such_rows(tmp_path: Path, baseline: object):
    assert "mean, PCA" not in page_of_one(tmp_path, baseline=baseline)


def test_the_report_says_how_candidates_were_compared(tmp_path: Path):
    errors = {"PCA + ridge": 1e-5, "kernel, log": 2e-4, "network, log": 1e-4}
    settings = {
        "PCA + ridge": ("linear", "standardise", "none"),
        "kernel, log": ("kernel", "log", "relative"),
        "network, log": ("network", "log", "relative"),
    }
    chosen = searched(errors, settings, "kernel, log")
    text = text_of(page_of_one(tmp_path, chosen=chosen, baseline=BASELINE))
    # The branch was given: then a baseline is no candidate. The network was measured on other samples.
    assert "but “network, log” (1.00e-4) is not clearly better on the samples that both have." in text
    assert "the trunk included, was fitted to the others" in text
    text = text_of(page_of_one(tmp_path, chosen=chosen))
    assert "on samples that it was not fitted to" in text
    assert "the trunk included" not in text


def test_modes_have_no_remark_on_the_size_of_step_1(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    content = json.loads((folder / "metrics.json").read_text())
    content["parameters"] = {"trunk": 10, "coefficients": 20, "branch": 30}
    content["trunk"] |= {"limit": content["trunk"]["loss"], "is_limited_by_network": False}
    (folder / "metrics.json").write_text(json.dumps(content))
    assert "step 1 has 20 free coefficients" in text_of(write_report(folder).read_text())
    (folder / "config.toml").write_text('[method.trunk]\nkind = "modes"\n')
    text = text_of(write_report(folder).read_text())
    assert "step 1 has" not in text
    assert "no trunk of this width has a lower loss, with these weights." in text


# -- active neurons


def with_anls(folder: Path, **arrays: np.ndarray) -> Path:
    found = {"iterations": np.array([2, 4]), "branch_losses": np.array([1e-2, 3e-5]), "test_errors": np.ones(2)}
    np.savez(folder / "anls.npz", **(found | arrays))
    return folder


@pytest.mark.parametrize(
    ("problem", "is_there"), [("discontinuous-conductivity", True), ("multiple-inputs", False)]
)
def test_active_neurons_and_the_paper(tmp_path: Path, problem: str, is_there: bool):
    folder = with_anls(write_run(tmp_path / "run", problem=problem), test_errors=np.array([2e-3, 4e-3]))
    page = write_report(folder).read_text()
    assert "branch loss of two-step ends at 3.00e-5; " in page
    assert "mean test error of two-step ends at 4.00e-3." in page  # not the best, the last
    drawn = (folder / "figures" / "anls.svg").read_text()
    assert "mean test error" in drawn
    assert ("paper, branch loss 1.02e-5" in drawn) == is_there
    assert ("paper, test error 4.14e-4" in drawn) == is_there
    assert ("branch loss of 1.02e-5 within 100 iterations" in text_of(page)) == is_there


def test_active_neurons_of_several_seeds(tmp_path: Path):
    compared = write_comparison(tmp_path)
    for folder in compared.glob("two-step-seed*"):
        with_anls(folder)
    write_report(compared)
    assert (compared / "figures" / "anls.svg").is_file()


@pytest.mark.parametrize("change_of", [{"test_errors": np.ones(3)}, {"iterations": np.ones((2, 2))}])
def test_contradicting_records_of_active_neurons_are_refused(tmp_path: Path, change_of: dict):
    folder = with_anls(write_run(tmp_path / "run"), **change_of)
    with pytest.raises(CorruptFileError, match="of one length"):
        write_report(folder)


# -- failures, and figures of an earlier report


def test_a_diverged_run_says_so_in_its_row(tmp_path: Path):
    runs = [(method, seed, {}) for method in ("two-step", "monolithic") for seed in (0, 1)]
    found = rows(bare_page(tmp_path, *runs[:-1], ("monolithic", 1, {"status": "diverged"})))
    assert ["Status", "finished", "1 of 2 diverged"] in found
    assert ["monolithic", "1", "diverged"] in [row[:3] for row in found]
    assert ["two-step", "1", "finished"] in [row[:3] for row in found]


def test_status_is_left_out_where_all_runs_finished(tmp_path: Path):
    assert "Status" not in bare_page(tmp_path, ("two-step", 0, {}), ("monolithic", 0, {"status": "finished"}))


def test_warnings_are_shown(tmp_path: Path):
    page = page_of_one(tmp_path, warnings=["the condition number is 3e6"])
    assert "two-step, seed 0: the condition number is 3e6." in page


def test_figures_of_an_earlier_report_are_removed(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    (folder / "figures").mkdir()
    stale, own = ("errors-mean", "anls-loss", "map-error-old-method"), ("mine", "map", "errors-mine")
    for name in (*stale, *own, "errors"):
        (folder / "figures" / f"{name}.svg").write_text("old")
    write_report(folder)
    left = {path.stem for path in (folder / "figures").iterdir() if path.read_text() == "old"}
    assert left == set(own)
    verify_manifest(folder)


def test_seconds_and_counts_are_written_out(tmp_path: Path):
    trunks = [{"rank": 39 + seed, "seconds": 100.0 + seed} for seed in (0, 1)]
    page = bare_page(tmp_path, *[("two-step", seed, {"trunk": trunk}) for seed, trunk in enumerate(trunks)])
    found = {row[0]: row[1] for row in rows(page) if len(row) == 2}
    assert found["Rank of the trunk"] == "39.5 ± 0.7"
    assert found["Seconds for the trunk"] == "100.5 ± 0.7"
    assert found["Trunk iterations"] == "1,000"


def test_fixture_is_what_the_tests_above_count_on():
    content = metrics("two-step", 0, "nonlinear-conductivity")
    assert math.isclose(content["trunk"]["loss"] / content["trunk"]["limit"], 2.5e5)
