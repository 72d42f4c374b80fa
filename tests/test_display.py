"""How a result shows itself: in a line, as a table, as a figure."""

import dataclasses as dc

import matplotlib as mpl
import numpy as np
import pytest
from helpers import METHODS, fitted, two_step, waves

import trunkfirst
from trunkfirst.fitting import fit_method
from trunkfirst.regressors.ridge import Linear
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep


@pytest.fixture
def _headless():
    """Draw without a window, and close what was drawn."""
    import matplotlib.pyplot as plt

    with mpl.rc_context():
        plt.switch_backend("Agg")
        yield
        plt.close("all")


@pytest.mark.parametrize("name", METHODS)
def test_a_line_says_what_matters_most(name):
    result = fitted(name)
    line = repr(result)
    assert len(line) < 200
    assert line.startswith("Trained(status: finished, trunk loss: ")
    assert f"{result.diagnostics['trunk']['loss']:.2e}" in line
    assert ("trained with the trunk" in line) == (name == "monolithic")


def test_a_notebook_shows_the_same_as_a_table():
    result = fitted("two-step")
    table = result._repr_html_()
    assert table.count("<tr>") == 5
    for name in ("status", "trunk loss", "rank", "branch", "seconds"):
        assert f">{name}</th>" in table
    assert f">{result.diagnostics['trunk']['rank']}</td>" in table
    assert f">network, loss {result.diagnostics['branch']['loss']:.2e}</td>" in table


def test_a_table_escapes_what_it_is_given():
    result = fitted("two-step")
    branch = {**result.diagnostics["branch"], "kind": "<b>"}
    odd = dc.replace(result, diagnostics={**result.diagnostics, "branch": branch})
    assert ">&lt;b&gt;, loss" in odd._repr_html_()


@pytest.mark.usefixtures("_headless")
@pytest.mark.parametrize(
    ("name", "titles"),
    [("two-step", ["Step 1: trunk", "Step 2: branch"]), ("monolithic", ["Trunk and branch at once"])],
)
def test_a_figure_has_a_panel_for_each_step(name, titles):
    result = fitted(name)
    panels = result.plot()
    assert [axes.get_title() for axes in panels] == titles
    losses = [list(axes.lines[0].get_ydata()) for axes in panels]
    assert [loss for panel in losses for loss in panel] == [step.loss for step in result.history]
    assert all(axes.get_yscale() == "log" for axes in panels)


@pytest.mark.usefixtures("_headless")
def test_a_branch_in_closed_form_is_a_dot(tmp_path):
    _, step2 = fit_method(waves(), two_step(branch=Linear()), key=0).plot()
    assert step2.lines[1].get_marker() == "o"
    figure = step2.get_figure(root=True)
    assert figure is not None
    figure.savefig(tmp_path / "losses.png")
    assert (tmp_path / "losses.png").stat().st_size > 1000


@pytest.mark.usefixtures("_headless")
def test_a_result_in_closed_form_shows_what_was_compared():
    data = waves()
    result = trunkfirst.fit(data, method=TwoStep(ModesTrunk(), Linear(), weights="none"))
    (panel,) = result.plot()
    names = [text.get_text() for text in panel.get_yticklabels()]
    assert result.chosen.choice is not None
    assert names[0] == min(result.chosen.choice.smallest().items(), key=lambda each: each[1])[0]
    assert {"PCA + ridge", "PCA + kernel ridge", result.chosen.choice.name} <= set(names)
    assert "PCA + ridge" in result.summary()


@pytest.mark.usefixtures("_headless")
def test_single_numbers_are_written_next_to_maps():
    points = np.random.default_rng(0).uniform(size=(12, 2))
    data = trunkfirst.OperatorData({"a": [[2.0], [3.0]]}, points, np.ones((2, 12)) * points[:, 0])
    axes = data.plot()
    assert axes.shape == (2, 1)
    assert axes[1, 0].get_ylabel() == "sample 1\na = 3"


def test_a_prediction_is_a_line():
    """Not all its numbers: in a notebook they are pages."""
    data = waves()
    method = TwoStep(ModesTrunk(), Linear(), inputs="standardise", weights="none")
    operator = trunkfirst.fit(data, method=method, intervals=True).operator
    line = repr(operator.predict(data.flat_inputs[:4], interval=0.9))
    assert line.startswith(f"Prediction(4 samples at {len(data.points)} points, values from ")
    assert line.endswith("; 0 outliers, 0 points extrapolated)")
    assert len(line) < 160
