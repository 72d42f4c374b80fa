"""Other libraries' regressors as a branch: they predict, and say clearly what they cannot do."""

import dataclasses as dc

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from trunkfirst.encoders import Identity
from trunkfirst.errors import PredictOnlyError, SettingError, UsageError
from trunkfirst.networks.branches import PredictOnlyBranch
from trunkfirst.networks.layers import Trunk, make_perceptron
from trunkfirst.networks.operator import Operator, save
from trunkfirst.regressors.base import Sklearn


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@dc.dataclass(eq=False)
class Mean:
    """The least an estimator can be: it predicts the mean of what it saw."""

    mean: np.ndarray | None = None

    def fit(self, X, y):
        assert len(X) == len(y)
        self.mean = np.mean(y, axis=0)
        return self

    def predict(self, X):
        assert isinstance(X, np.ndarray)
        return np.repeat(np.asarray(self.mean)[None], len(X), axis=0)


class WeightedMean(Mean):
    def fit(self, X, y, sample_weight=None):
        self.mean = np.average(y, axis=0, weights=sample_weight)
        return self


def data(coefficients=2):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (50, 3))
    return jnp.asarray(x), jnp.asarray(x @ rng.normal(size=(3, coefficients)) + 1)


def operator(branch) -> Operator:
    return Operator(Identity(), branch, Trunk(make_perceptron((1, 4, 1), key=jr.key(0))))


@pytest.mark.parametrize("coefficients", [1, 2])
def test_any_estimator_predicts(coefficients):
    x, y = data(coefficients)
    estimator = Mean()
    steps = []
    result = Sklearn(estimator).fit(x, y, key=jr.key(0), loss_unit=2.0, on_step=steps.append)
    assert estimator.mean is None  # the one given stays as it was
    np.testing.assert_allclose(result.branch(x), np.repeat(np.mean(y, axis=0)[None], 50, axis=0), rtol=1e-12)
    assert result.loss == pytest.approx(float(np.mean(np.var(y, axis=0))), rel=1e-12)
    assert [step.loss for step in steps] == pytest.approx([2 * result.loss])
    assert result.history == tuple(steps)


def test_the_operator_predicts():
    x, y = data()
    whole = operator(Sklearn(Mean()).fit(x, y, key=jr.key(0)).branch)
    points = np.linspace(0, 1, 7)[:, None]
    expected = np.repeat(np.mean(y, axis=0)[None], 50, axis=0) @ np.asarray(whole.basis(points)).T
    np.testing.assert_allclose(whole.predict(np.asarray(x), points), expected, rtol=1e-12)
    np.testing.assert_allclose(whole(x, points), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "transform",
    [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())],
    ids=["jit", "vmap", "grad"],
)
def test_tracing_is_refused(transform):
    branch = PredictOnlyBranch(Mean(np.ones(2)))
    with pytest.raises(PredictOnlyError, match=r"a Mean, which predicts only.*call operator\.predict"):
        transform(branch.__call__)(jnp.ones((4, 4, 3)) if transform is jax.vmap else jnp.ones((4, 3)))


def test_saving_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(PredictOnlyError, match="cannot be saved") as caught:
        save(operator(PredictOnlyBranch(Mean(np.ones(2)))), tmp_path / "model")
    assert caught.value.exit_code == 14
    assert list(tmp_path.iterdir()) == []


def test_weights_are_passed_on_or_refused():
    x, y = data()
    weights = jnp.linspace(0, 1, 50)
    result = Sklearn(WeightedMean()).fit(x, y, weights, key=jr.key(0))
    expected = np.average(y, axis=0, weights=np.asarray(weights))
    np.testing.assert_allclose(result.branch(x[:1])[0], expected, rtol=1e-12)
    with pytest.raises(SettingError, match="Mean takes no sample weights"):
        Sklearn(Mean()).fit(x, y, weights, key=jr.key(0))


def test_what_is_no_estimator_is_refused():
    with pytest.raises((UsageError, TypeError), match=r"fit.*predict|Estimator"):
        Sklearn(object())


def test_an_open_random_state_comes_from_the_key():
    neighbours = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    x, y = data()
    method = Sklearn(neighbours.ExtraTreesRegressor(5))
    first, again, other = (method.fit(x, y, key=jr.key(seed)).branch(x[:5] / 2) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("coefficients", [1, 2])
def test_scikit_learn_fits_a_line(coefficients):
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    x, y = data(coefficients)
    result = Sklearn(linear.LinearRegression()).fit(x, y, jnp.ones(50), key=jr.key(0))
    assert result.loss < 1e-25
    points = np.linspace(0, 1, 7)[:, None]
    if coefficients == 2:
        assert operator(result.branch).predict(np.asarray(x), points).shape == (50, 7)
