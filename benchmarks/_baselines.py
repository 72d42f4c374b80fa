"""PCA of the outputs, and four regressions onto its coefficients with NumPy and scikit-learn.

All settings are chosen on a fifth of the training rows; then everything is fitted again to all of them.
"""

import abc
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg as sl

RIDGES = np.geomspace(100, 1e-14, 17)  # of a kernel with diagonal 1
LENGTHS = np.geomspace(0.1, 1000, 17)  # in median distances
LINEAR_RIDGES = np.geomspace(1e4, 1e-30, 35)  # in squares of the largest singular value
MOST_ROWS = 1_000  # for choosing lengths
MOST_DERIVATIVES = 2e6  # entries of the covariance's derivatives: the time of a Gaussian process
MOST_COLUMNS = 32  # inputs with more become their leading principal coordinates, for forest and Gaussian process
Array = np.ndarray
Ranks = tuple[int, ...]
Choice = tuple[float, Any, Ranks]  # error on the rows for choosing, setting, rank of every channel
Score = Callable[[Array], tuple[float, Ranks]]


def predict(regression: "AbstractRegression", inputs: Array, outputs: Array, unseen: Array) -> tuple[Array, str]:
    """Outputs of the `unseen` inputs, and in words what was chosen. Outputs are (samples, points, channels)."""
    order = np.random.default_rng(0).permutation(len(inputs))
    aside, rest = np.split(order, [max(1, len(order) // 5)])
    modes = Modes(outputs[rest])
    x, z = standardised(inputs[rest], inputs[aside])
    _, setting, ranks = regression.choose(x, modes.coefficients(outputs[rest]), z, modes.score(outputs[aside]))
    full = Modes(outputs[order])
    x, z = standardised(inputs[order], unseen)
    found = regression.coefficients(x, full.coefficients(outputs[order]), z, setting)
    # Where all modes were best, all are taken; there are more of them now.
    whole = [most if rank == few else rank for rank, few, most in zip(ranks, modes.ranks, full.ranks, strict=True)]
    return full.fields(found, whole), f"{regression.words(setting)}, rank {'/'.join(map(str, whole))}"


def standardised(rows: Array, others: Array) -> tuple[Array, Array]:
    """Both with the mean 0 and deviation 1 that `rows` then have in every column."""
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    deviation[deviation <= 1e-12 * np.abs(mean)] = 1.0
    return (rows - mean) / deviation, (others - mean) / deviation


class Modes:
    """Principal modes of every channel, as many as rounding allows."""

    def __init__(self, outputs: Array) -> None:
        """Outputs are (samples, points, channels)."""
        from sklearn.decomposition import PCA

        self._each: list[Any] = []
        self._scales = np.sqrt(np.mean(outputs**2, axis=(0, 1)))
        for channel in np.moveaxis(outputs / self._scales, 2, 0):
            pca = PCA(svd_solver="full").fit(channel)
            singular = pca.singular_values_
            rank = max(1, int(np.sum(singular > 1e-15 * singular[0])))
            pca.components_ = pca.components_[:rank]
            self._each.append(pca)
        self.ranks = [len(pca.components_) for pca in self._each]

    def _centred(self, outputs: Array) -> Iterator[tuple[Any, Array]]:
        channels = np.moveaxis(outputs / self._scales, 2, 0)
        return ((pca, channel - pca.mean_) for pca, channel in zip(self._each, channels, strict=True))

    def coefficients(self, outputs: Array) -> Array:
        """(samples, sum of ranks), channel after channel."""
        return np.hstack([u @ pca.components_.T for pca, u in self._centred(outputs)])

    def fields(self, coefficients: Array, ranks: Sequence[int]) -> Array:
        """Outputs (samples, points, channels) from the first coefficients of every channel."""
        blocks = zip(self._blocks(coefficients), self._each, ranks, strict=True)
        fields = [block[:, :rank] @ pca.components_[:rank] + pca.mean_ for block, pca, rank in blocks]
        return np.stack(fields, axis=2) * self._scales

    def _blocks(self, coefficients: Array) -> list[Array]:
        return np.split(coefficients, np.cumsum(self.ranks)[:-1], axis=1)

    def score(self, outputs: Array) -> Score:
        """Mean relative error on `outputs` of predicted coefficients, with the best rank of every channel."""
        channels = np.moveaxis(outputs / self._scales, 2, 0)
        known = []
        for (pca, u), channel in zip(self._centred(outputs), channels, strict=True):
            truth = u @ pca.components_.T
            outside = np.sum((u - truth @ pca.components_) ** 2, axis=1, keepdims=True)
            # what ranks 0, 1, ... leave out; summed from the end, where the small ones are
            left = np.cumsum(np.hstack([outside, truth[:, ::-1] ** 2]), axis=1)[:, ::-1]
            known.append((truth, left, np.linalg.norm(channel, axis=1)))

        def mean_error(coefficients: Array) -> tuple[float, Ranks]:
            by_rank = [
                _errors(*each, block) for each, block in zip(known, self._blocks(coefficients), strict=True)
            ]
            ranks = tuple(int(np.argmin(errors)) for errors in by_rank)
            return float(np.mean([errors[rank] for errors, rank in zip(by_rank, ranks, strict=True)])), ranks

        return mean_error


def _errors(truth: Array, left: Array, sizes: Array, found: Array) -> Array:
    """Mean relative error with 0, 1, ... modes."""
    with np.errstate(over="ignore"):
        inside = np.cumsum((found - truth) ** 2, axis=1)
    inside = np.hstack([np.zeros((len(truth), 1)), inside])
    return np.nan_to_num(np.mean(np.sqrt(inside + left) / sizes[:, None], axis=0), nan=np.inf)


def best(candidates: Iterable[tuple[Any, Array]], score: Score) -> Choice:
    """The setting whose coefficients have the smallest error."""
    choices = ((score(found), setting) for setting, found in candidates)
    return min(((error, setting, ranks) for (error, ranks), setting in choices), key=lambda choice: choice[0])


class AbstractRegression(abc.ABC):
    """From standardised inputs x to coefficients c; z are other inputs."""

    @abc.abstractmethod
    def choose(self, x: Array, c: Array, z: Array, score: Score) -> Choice:
        """The best setting for the rows z."""

    @abc.abstractmethod
    def coefficients(self, x: Array, c: Array, z: Array, setting: Any) -> Array:
        """Those of z."""

    @abc.abstractmethod
    def words(self, setting: Any) -> str:
        """The setting for people."""


class Ridge(AbstractRegression):
    """Linear in the inputs, through their singular values; those at rounding level are left out."""

    def choose(self, x: Array, c: Array, z: Array, score: Score) -> Choice:
        return best(self._candidates(x, c, z, LINEAR_RIDGES), score)

    def coefficients(self, x: Array, c: Array, z: Array, setting: Any) -> Array:
        return next(self._candidates(x, c, z, [setting]))[1]

    def words(self, setting: Any) -> str:
        return f"ridge {setting:.0e}"

    def _candidates(self, x: Array, c: Array, z: Array, ridges: Iterable[float]) -> Iterator[tuple[float, Array]]:
        u, s, vt = np.linalg.svd(x, full_matrices=False)
        keep = s > max(x.shape) * np.finfo(float).eps * s[0]
        s, targets, features = s[keep], u[:, keep].T @ c, z @ vt[keep].T
        for ridge in ridges:
            yield ridge, features @ (targets * (s / (s**2 + ridge * s[0] ** 2))[:, None])


class KernelRidge(AbstractRegression):
    """Matern 5/2 with one length; above `MOST_ROWS` rows the length from some, then its neighbours from all."""

    def choose(self, x: Array, c: Array, z: Array, score: Score) -> Choice:
        rows = slice(0, MOST_ROWS)  # they are in random order
        first = best(self._candidates(x[rows], c[rows], z, LENGTHS, RIDGES), score)
        if len(x) <= MOST_ROWS:
            return first
        place = int(np.argmin(np.abs(LENGTHS - first[1][0])))
        return best(self._candidates(x, c, z, LENGTHS[max(place - 1, 0) : place + 2], RIDGES), score)

    def coefficients(self, x: Array, c: Array, z: Array, setting: Any) -> Array:
        length, ridge = setting
        return next(self._candidates(x, c, z, [length], [ridge]))[1]

    def words(self, setting: Any) -> str:
        return f"length {setting[0]:.2g}, ridge {setting[1]:.0e}"

    def _candidates(
        self, x: Array, c: Array, z: Array, lengths: Iterable[float], ridges: Iterable[float]
    ) -> Iterator[tuple[tuple[float, float], Array]]:
        near, far = distances(x, x), distances(z, x)
        np.fill_diagonal(near, 0.0)
        unit = np.median(near[: MOST_ROWS // 2])
        for length in lengths:
            kernel, other = (matern(r / (unit * length)) for r in (near, far))
            for ridge in ridges:
                yield (length, ridge), other @ solve(kernel, c, ridge)


def distances(x: Array, z: Array) -> Array:
    """Euclidean; directly where there are few columns, because the difference of squares loses digits."""
    if x.shape[1] <= MOST_COLUMNS:
        from scipy.spatial.distance import cdist

        return cdist(x, z)
    squares = np.sum(x**2, axis=1)[:, None] + np.sum(z**2, axis=1) - 2 * x @ z.T
    return np.sqrt(np.maximum(squares, 0.0))


def matern(r: Array) -> Array:
    """Matern 5/2 at distances in units of the length."""
    s = np.sqrt(5.0) * r
    return (1 + s + s**2 / 3) * np.exp(-s)


def solve(kernel: Array, targets: Array, ridge: float) -> Array:
    """(K + ridge I)^-1 C; the ridge grows where that is not positive definite in floating point."""
    while True:
        try:
            matrix = kernel.copy()
            matrix.flat[:: len(kernel) + 1] += ridge
            factor = sl.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            ridge *= 10
        else:
            return sl.cho_solve(factor, targets, check_finite=False)


class Forest(AbstractRegression):
    """scikit-learn's random forest, 200 trees, on the leading coefficients."""

    def choose(self, x: Array, c: Array, z: Array, score: Score) -> Choice:
        settings = itertools.product((1.0, 1 / 3), (1, 3))
        return best(((setting, self.coefficients(x, c, z, setting)) for setting in settings), score)

    def coefficients(self, x: Array, c: Array, z: Array, setting: Any) -> Array:
        from sklearn.ensemble import RandomForestRegressor

        x, z = few_columns(x, z, MOST_COLUMNS)
        share, leaf = setting
        forest = RandomForestRegressor(200, max_features=share, min_samples_leaf=leaf, random_state=0)
        columns, found = leading(c, 32), np.zeros((len(z), c.shape[1]))
        found[:, columns] = forest.fit(x, c[:, columns].squeeze()).predict(z).reshape(len(z), -1)
        return found

    def words(self, setting: Any) -> str:
        return f"share of inputs {setting[0]:.2g}, leaf {setting[1]}"


class GaussianProcess(AbstractRegression):
    """scikit-learn's, Matern 5/2 with a length for every input, and noise.

    Its lengths have the largest likelihood of the leading coefficients, from three starts, on at most `MOST_ROWS`
    rows, fewer with many inputs; how many coefficients, is chosen. With these lengths all rows predict all
    coefficients.
    """

    def __init__(self, columns: int = 16, numbers: Sequence[int] = (1, 6)) -> None:
        """Input functions become `columns` principal coordinates; `numbers` of coefficients are tried."""
        self.columns, self.numbers = columns, numbers

    def choose(self, x: Array, c: Array, z: Array, score: Score) -> Choice:
        x, z = self._coordinates(x, z)
        numbers = sorted({min(number, c.shape[1]) for number in self.numbers})
        settings = ((number, self._kernel(x, c, number)) for number in numbers)
        return best(((setting, self._predict(x, c, z, setting[1])) for setting in settings), score)

    def coefficients(self, x: Array, c: Array, z: Array, setting: Any) -> Array:
        x, z = self._coordinates(x, z)
        number, kernel = setting
        return self._predict(x, c, z, self._kernel(x, c, min(number, c.shape[1]), start=kernel))

    def words(self, setting: Any) -> str:
        number, kernel = setting
        return f"lengths from {number} coefficients, noise {kernel.k2.noise_level:.0e}"

    def _coordinates(self, x: Array, z: Array) -> tuple[Array, Array]:
        return few_columns(x, z, self.columns) if x.shape[1] > MOST_COLUMNS else (x, z)

    def _kernel(self, x: Array, c: Array, number: int, *, start: Any = None) -> Any:
        """The kernel of largest likelihood for the leading coefficients: from `start`, else from three starts."""
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths = Matern(np.full(x.shape[1], np.sqrt(x.shape[1])), (1e-2, 1e4), nu=2.5)
        fresh = ConstantKernel(1.0, (1e-3, 1e6)) * lengths + WhiteKernel(1e-4, (1e-13, 1.0))
        search = {"optimizer": "fmin_l_bfgs_b", "n_restarts_optimizer": 2 if start is None else 0}
        rows = slice(0, min(MOST_ROWS, int(np.sqrt(MOST_DERIVATIVES / x.shape[1]))))  # they are in random order
        return self._fit(x[rows], c[rows][:, leading(c, number)], start or fresh, **search).kernel_

    def _predict(self, x: Array, c: Array, z: Array, kernel: Any) -> Array:
        return self._fit(x, c, kernel, optimizer=None).predict(z).reshape(len(z), -1)

    def _fit(self, x: Array, c: Array, kernel: Any, **search: Any) -> Any:
        from sklearn.gaussian_process import GaussianProcessRegressor

        options = {"normalize_y": True, "random_state": 0, **search}
        for jitter in (1e-13, 1e-11, 1e-9, 1e-7):
            try:
                with warnings.catch_warnings(action="ignore"):  # lengths at their bounds: an input without effect
                    return GaussianProcessRegressor(kernel, alpha=jitter, **options).fit(x, c)
            except np.linalg.LinAlgError:
                continue
        raise np.linalg.LinAlgError("the covariance is not positive definite, even with 1e-7 on its diagonal")


def few_columns(x: Array, z: Array, most: int) -> tuple[Array, Array]:
    """Leading principal coordinates of x, where it has many columns; the first has deviation 1."""
    if x.shape[1] <= most:
        return x, z
    from sklearn.decomposition import PCA

    pca = PCA(most, svd_solver="full").fit(x)
    unit = np.sqrt(pca.explained_variance_[0])
    return pca.transform(x) / unit, pca.transform(z) / unit


def leading(c: Array, count: int) -> Array:
    """The columns with the largest deviations, at most `count`."""
    return np.sort(np.argsort(-c.std(axis=0), kind="stable")[:count])
