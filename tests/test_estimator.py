"""The scikit-learn estimator: scikit-learn's own checks, then ours.

Every check runs. Not among them, or run in another way:

| check | why |
| --- | --- |
| `check_supervised_y_2d` | y is a field and has two axes (tag `single_output=False`); one axis is refused |
| `check_sample_weight*` | `fit` takes no sample weights |
| `check_estimators_pickle` | run with JAX in double precision; else reading a pickle rounds to single |
"""

import dataclasses as dc
import pickle
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import trunkfirst
from trunkfirst.errors import DataError, PrecisionError, UnknownNameError, ValueRangeError, WidthError

# What a branch can do wrong by itself.
OF_BRANCHES = {
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_regressor_multioutput",
    "check_regressors_train",
}
IN_DOUBLE_PRECISION = {"check_estimators_pickle"}
POINTS = np.linspace(0, 2, 12)


def smallest(**parameters):
    """An estimator that is fitted in no time."""
    settings = {"branch": "linear", "encoder": "standardise", "weights": "none"}
    return trunkfirst.TwoStepDeepONet(**{**settings, **parameters})


NETWORK = trunkfirst.NetworkTrunk(hidden=(2,), width=1, iterations=2, starts=1)


def all_checks():
    network = trunkfirst.NetworkBranch(hidden=(2,), iterations=2)
    for kind, branch in {"linear": "linear", "kernel": "kernel", "network": network}.items():
        checks: Any = estimator_checks_generator(smallest(branch=branch))
        for estimator, check in checks:
            name = check.func.__name__
            if kind == "linear" or name in OF_BRANCHES:
                is_slow = kind == "network"
                settings = "-".join(map(str, check.keywords.values()))
                title = "-".join(filter(None, (kind, name, settings)))
                yield pytest.param(estimator, check, id=title, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("estimator", "check"), list(all_checks()))
def test_passes_the_checks_of_scikit_learn(estimator, check):
    with jax.enable_x64(check.func.__name__ in IN_DOUBLE_PRECISION):
        check(estimator)


def cubics(samples=30, *, seed=0):
    """Coefficients, and the polynomials without constant term that belong to them, at POINTS."""
    a = np.random.default_rng(seed).normal(size=(samples, 3))
    return a, cubic_at(a, POINTS)


def cubic_at(a, x):
    return a @ np.stack([x, x**2, x**3])


@pytest.fixture(scope="module")
def fitted():
    return smallest(points=POINTS).fit(*cubics())


def relative(fields, exact):
    return np.linalg.norm(fields - exact) / np.linalg.norm(exact)


def test_predicts_fields_at_the_points_of_training_and_elsewhere(fitted):
    a, exact = cubics(seed=1)
    assert relative(fitted.predict(a), exact) < 1e-9
    elsewhere = np.linspace(0.1, 1.9, 7)
    assert relative(fitted.predict_at(a, elsewhere), cubic_at(a, elsewhere)) < 1e-3  # splines between the points
    np.testing.assert_array_equal(fitted.predict_at(a, POINTS[:, None]), fitted.predict(a))


def test_keeps_what_it_was_made_of(fitted):
    assert fitted.result_.operator is fitted.operator_
    assert fitted.n_features_in_ == 3
    np.testing.assert_array_equal(fitted.points_, POINTS[:, None])
    assert fitted.operator_.trunk.count == 3


def test_a_column_that_never_changes_cannot_spoil_the_score(fitted):
    a, exact = cubics(seed=1)
    assert np.ptp(exact[:, 0]) == 0  # its R^2 would be 0, or worse
    assert fitted.score(a, exact) > 0.999


def test_same_seed_same_bits_another_seed_other_ones():
    X, y = cubics()
    one, same, other = (smallest(trunk=NETWORK, random_state=seed).fit(X, y).predict(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_parameters_are_those_of_the_method():
    estimator: Any = trunkfirst.TwoStepDeepONet(trunk="modes", branch="kernel", encoder="log", weights="relative")
    parts = (trunkfirst.ModesTrunk(), trunkfirst.Kernel())
    assert estimator._method() == trunkfirst.TwoStep(
        *parts, inputs=trunkfirst.StandardisedInputs("log"), weights="relative"
    )
    estimator = trunkfirst.TwoStepDeepONet(trunk=NETWORK, encoder=trunkfirst.PrincipalInputs(2))
    assert estimator._method() == trunkfirst.TwoStep(NETWORK, inputs=trunkfirst.PrincipalInputs(2))


def test_the_default_chooses_what_is_exact_here():
    X, y = cubics(60)
    model: Any = trunkfirst.TwoStepDeepONet(POINTS).fit(X, y)
    a, exact = cubics(seed=1)
    assert model.result_.method.trunk.kind == "modes"
    assert relative(model.predict(a), exact) < 1e-9


def test_works_in_a_pipeline_and_a_grid_search():
    X, y = cubics()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), smallest(points=POINTS)),
        {"twostepdeeponet__encoder": [trunkfirst.PrincipalInputs(1), "standardise"]},
        cv=KFold(2),
    )
    search.fit(X, y)
    assert search.best_params_ == {"twostepdeeponet__encoder": "standardise"}
    assert search.predict(X).shape == y.shape


def test_a_clone_has_the_parameters_and_nothing_else(fitted):
    twin: Any = clone(fitted)
    assert str(twin.get_params()) == str(fitted.get_params())
    with pytest.raises(NotFittedError):
        twin.predict(cubics()[0])


def test_a_field_at_one_point_is_a_number_a_sample():
    X, y = cubics()
    assert relative(smallest(points=[[0.5, 0.5]]).fit(X, y[:, -1:]).predict(X), y[:, -1:]) < 1e-6


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"points": POINTS[:5]}, DataError, "y has 12 columns, one for each point, but points has shape"),
        ({"points": [[[0.0]]]}, DataError, "points has shape"),
        ({"branch": "magic"}, UnknownNameError, "no branch of kind 'magic'; choose one of: auto, network"),
        ({"weights": "magic"}, ValueRangeError, "weights is 'magic'"),
        ({"encoder": "magic"}, UnknownNameError, "no inputs of kind 'magic'"),
        ({"trunk": "magic"}, UnknownNameError, "no trunk of kind 'magic'"),
        ({"trunk": dc.replace(NETWORK, width=12)}, WidthError, "width N = 12 needs more than N output points"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(parameters, error, message):
    with pytest.raises(error, match=message):
        smallest(**parameters).fit(*cubics())


def test_targets_without_an_axis_of_points_are_refused():
    X, y = cubics()
    with pytest.raises(DataError, match=r"expected fields \(samples, points\)"):
        smallest().fit(X, y[:, 0])


def test_a_pickle_is_right_or_refused(fitted):
    X, _ = cubics(seed=1)
    stored = pickle.dumps(fitted)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(pickle.loads(stored).predict(X), fitted.predict(X))
    with pytest.raises(PrecisionError, match="jax_enable_x64"):
        pickle.loads(stored).predict(X)


def test_without_scikit_learn_the_class_can_be_named_but_not_made():
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import trunkfirst\n"
        "from trunkfirst import TwoStepDeepONet\n"
        "try: TwoStepDeepONet()\n"
        "except trunkfirst.errors.MissingExtraError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == (
        "TwoStepDeepONet needs scikit-learn; install it with: pip install 'trunkfirst[sklearn]'"
    )
