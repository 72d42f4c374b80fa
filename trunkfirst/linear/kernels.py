"""Matern kernels, their products over input functions, a linear factor, and their hyperparameters.

Lengths, linear factor and nugget are those of the greatest marginal likelihood. The outputs are those of
independent Gaussian processes with one variance and one covariance,

    K = prod_g k(|x - z|_g) (p_0 + sum_j p_j x_j z_j / mean(x_j^2)) + nugget diag(1/w),   sum p = 1,

with lengths inside k, and an unknown constant mean. With the best variance the negative logarithm of the
likelihood of an output is n/2 log(S / (n m)) + sum log diag L, where K = L L^T and S is the sum of
|L^-1 (y - mean)|^2 over m outputs. Its derivative is <G, dK> / 2 with G = K^-1 - (n / S) a a^T, K a = y - mean
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 5.4.1).
"""

import dataclasses as dc
import functools as ft
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.spatial.distance
from jaxtyping import Bool, Float

from ..errors import SolveError

# Of NumPy or JAX arrays; the exponential is passed as an argument.
Profile: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]
# Of NumPy or JAX arrays; numpy or jax.numpy is passed as an argument.
Slope: TypeAlias = Callable[[Any, Any], Any]

# Distances of this many features take longer one by one. Pairs whose squared distance is this share of the squares
# that it is the difference of are near; at most this many for each sample.
_FEW_FEATURES, _NEAR, _MOST_NEAR = 32, 1e-4, 4

_ROOT3, _ROOT5 = math.sqrt(3), math.sqrt(5)

# Matern kernels k(r) of unit length by their smoothness; "inf" is the Gaussian.
MATERN: dict[str, Profile] = {
    "1/2": lambda r, exp: exp(-r),
    "3/2": lambda r, exp: (1 + _ROOT3 * r) * exp(-_ROOT3 * r),
    "5/2": lambda r, exp: (1 + _ROOT5 * r + 5 / 3 * r**2) * exp(-_ROOT5 * r),
    "inf": lambda r, exp: exp(-0.5 * r**2),
}

# dk / d(r^2): finite at r = 0, except for "1/2", which has a kink there.
SLOPES: dict[str, Slope] = {
    "1/2": lambda r, xp: xp.where(r > 0, -xp.exp(-r) / (2 * xp.where(r > 0, r, 1.0)), 0.0),
    "3/2": lambda r, xp: -1.5 * xp.exp(-_ROOT3 * r),
    "5/2": lambda r, xp: -5 / 6 * (1 + _ROOT5 * r) * xp.exp(-_ROOT5 * r),
    "inf": lambda r, xp: -0.5 * xp.exp(-0.5 * r**2),
}


def kernel_matrix(
    smoothness: str,
    X: Float[np.ndarray, "rows features"],
    Z: Float[np.ndarray, "columns features"],
    length: Float[np.ndarray, "..."],
    *,
    groups: tuple[int, ...] = (),
    linear: Float[np.ndarray, " weights"] | None = None,
) -> Float[np.ndarray, "rows columns"]:
    """K_ij = prod_g k(|x_i - z_j|_g / length) (w_0 + sum_k w_k x_ik z_jk), in double precision.

    `length` is one number or one for every feature. `groups` are the numbers of features of the factors, a single
    factor if left out; `linear` are the weights w, without which the linear factor is 1.
    """
    X, Z = np.asarray(X, np.float64), np.asarray(Z, np.float64)
    K = np.ones((len(X), len(Z)))
    for part in feature_groups(groups, X.shape[1]):
        K *= MATERN[smoothness](
            _distances(X[:, part], Z[:, part], length[part] if length.ndim else length), np.exp
        )
    return K if linear is None else K * (linear[0] + (X * linear[1:]) @ Z.T)


def _distances(X: np.ndarray, Z: np.ndarray, length: np.ndarray) -> np.ndarray:
    return distances(X / length, Z / length) if length.ndim else distances(X, Z) / length


def distances(
    X: Float[np.ndarray, "rows features"], Z: Float[np.ndarray, "columns features"]
) -> Float[np.ndarray, "rows columns"]:
    """Euclidean distances; of many features by |x|^2 + |z|^2 - 2 xz, a product of matrices and so much faster.

    Pairs so close that this would lose digits are computed one by one; where they are many, all are.
    """
    if X.shape[1] > _FEW_FEATURES:
        centre = Z.mean(axis=0)
        x, z = X - centre, Z - centre
        sums = np.sum(x**2, axis=1)[:, None] + np.sum(z**2, axis=1)
        squares = sums - 2 * x @ z.T
        near = np.argwhere(squares <= _NEAR * sums)
        if len(near) <= _MOST_NEAR * max(squares.shape):
            squares[tuple(near.T)] = [np.sum((X[row] - Z[column]) ** 2) for row, column in near]
            return np.sqrt(squares)
    return scipy.spatial.distance.cdist(X, Z)


def feature_groups(groups: tuple[int, ...], features: int) -> list[slice]:
    """The columns of every group; all of them in one if there are no groups."""
    ends = itertools.accumulate(groups or (features,), initial=0)
    return [slice(begin, end) for begin, end in itertools.pairwise(ends)]


# -- hyperparameters by marginal likelihood

Inputs = Float[np.ndarray, "samples features"]
Targets = Float[np.ndarray, "samples outputs"]
Weights = Float[np.ndarray, " samples"]
Vector = Float[np.ndarray, " parameters"]
Objective = Callable[[Vector], tuple[float, Vector]]

# Ranges of the search: lengths in deviations of an input; shares of the linear factor in units of p_0, which stays
# positive, because without it the kernel vanishes where all inputs are 0.
_LENGTHS = (0.03, 1e3)
_SHARES = (1e-6, 1e3)
_NUGGETS = (1e-13, 1.0)
_FIRST_NUGGET, _MAX_NUGGET = 1e-6, 1e9
# Lengths to start with, in units of the root of the number of inputs.
_STARTS = (1.0, 4.0)
_ITERATIONS = 150
_TOLERANCE = 1e-6
# Of a power, for its derivative by differences.
_STEP = 1e-4
# Directions of the outputs below this share of the first, and beyond this number, do not count.
_SMALL, _MOST_DIRECTIONS = 1e-5, 50


@dc.dataclass(frozen=True, eq=False)
class Hyperparameters:
    """A kernel that was found: `linear` are the weights (w_0, ..., w_d) of the linear factor, if there is one."""

    lengths: Float[np.ndarray, " features"]
    linear: Float[np.ndarray, " weights"] | None
    nugget: float


@dc.dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of the negative log likelihood.

    `inputs` are those through the Matern kernels alone; the linear factor does not depend on units of the inputs.
    """

    inputs: Inputs
    log_shares: Float[np.ndarray, " shares"]
    log_nugget: float


@dc.dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log likelihood of outputs Y of samples with weights w, as a function of scaled inputs."""

    smoothness: str
    Y: Targets
    w: Weights
    groups: tuple[int, ...] = ()

    def evaluate(
        self, Z: Inputs, shares: Float[np.ndarray, " shares"] | None, nugget: float
    ) -> tuple[float, Slopes]:
        """The value at inputs Z, each in units of its length, and the derivatives."""
        factors, slopes = zip(*(_matern(self.smoothness, Z[:, part]) for part in self._parts(Z)), strict=True)
        matern = _product(factors)
        unit = Z / _sizes(Z)
        linear = np.ones(1) if shares is None else shares[0] + (unit * shares[1:]) @ unit.T
        value, G, nugget = self._contract(matern * linear, nugget)
        H = G * linear
        by_input = np.empty_like(Z)
        for place, part in enumerate(self._parts(Z)):
            W = _product((H, slopes[place], *factors[:place], *factors[place + 1 :]))
            by_input[:, part] = 2 * (W.sum(axis=1)[:, None] * Z[:, part] - W @ Z[:, part])
        by_share = np.empty(0) if shares is None else _by_share(G * matern, unit, shares)
        return value, Slopes(by_input, by_share, nugget * float(np.sum(np.diag(G) / self.w)) / 2)

    def _parts(self, Z: Inputs) -> list[slice]:
        return feature_groups(self.groups, Z.shape[1])

    def _contract(
        self, K: Float[np.ndarray, "samples samples"], nugget: float
    ) -> tuple[float, Float[np.ndarray, "samples samples"], float]:
        """The value, G and the nugget: ten times larger, and again, where the matrix is singular."""
        factor, nugget = _cholesky(K, nugget, self.w)
        n, m = self.Y.shape
        solved = scipy.linalg.cho_solve((factor, True), np.column_stack([self.Y, np.ones(n)]), check_finite=False)
        v = solved[:, -1]
        a = solved[:, :-1] - v[:, None] * (solved[:, :-1].sum(axis=0) / v.sum())
        S = max(float(np.vdot(a, self.Y)), np.finfo(float).tiny)
        value = n / 2 * math.log(S / (n * m)) + float(np.log(np.diag(factor)).sum())
        return value, _inverse(factor) - (n / S) * (a @ a.T), nugget


def _product(matrices: Sequence[np.ndarray]) -> np.ndarray:
    return ft.reduce(np.multiply, matrices)


def _matern(smoothness: str, Z: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """The kernel matrix of unit length, and its derivatives by squared distances, with any diagonal."""
    r = scipy.spatial.distance.pdist(Z)
    K, slopes = (
        scipy.spatial.distance.squareform(f) for f in (MATERN[smoothness](r, np.exp), SLOPES[smoothness](r, np))
    )
    np.fill_diagonal(K, 1.0)
    return K, slopes


def _by_share(H: np.ndarray, unit: Inputs, shares: Float[np.ndarray, " shares"]) -> Float[np.ndarray, " shares"]:
    """Derivatives by the logarithms of shares before they are normalised."""
    products = np.concatenate([[H.sum()], np.sum(unit * (H @ unit), axis=0)])
    return shares * (products - shares @ products) / 2


def _sizes(Z: Inputs) -> Float[np.ndarray, " features"]:
    sizes = np.sqrt(np.mean(Z**2, axis=0))
    return np.where(sizes > 0, sizes, 1.0)


def _cholesky(K: np.ndarray, nugget: float, w: Weights) -> tuple[np.ndarray, float]:
    while nugget < _MAX_NUGGET:
        A = K.copy()
        A[np.diag_indices_from(A)] += nugget / w
        try:
            return scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False), nugget
        except np.linalg.LinAlgError:
            nugget *= 10
    raise SolveError(
        "the kernel matrix is singular with any ridge: the inputs or weights are not finite or too large"
    )


def _inverse(factor: np.ndarray) -> np.ndarray:
    (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (factor,))
    lower, _ = potri(factor, lower=1)
    return np.tril(lower) + np.tril(lower, -1).T


def find_kernel(
    smoothness: str,
    X: Inputs,
    Y: Targets,
    w: Weights,
    *,
    groups: tuple[int, ...] = (),
    is_linear: bool = False,
    nugget: float | None = None,
) -> Hyperparameters:
    """The kernel of the greatest likelihood, by L-BFGS on logarithms from two starts.

    A `nugget` that is given stays. Where all targets are equal nothing can be found: the first start is returned.
    """
    deviations = _deviations(X)
    scaled, Y = X / deviations, leading_directions(Y, w)
    d = X.shape[1]
    likelihood = Likelihood(smoothness, Y, w, groups)
    shares = np.log([1.0, *[1 / d] * d]) if is_linear else np.empty(0)
    first = math.log(nugget or _FIRST_NUGGET)
    starts = [np.concatenate([np.full(d, math.log(k * math.sqrt(d))), shares, [first]]) for k in _STARTS]
    units = [(1.0, 1.0), *[_SHARES] * d] if is_linear else []
    ranges = [*[_LENGTHS] * d, *units, (nugget, nugget) if nugget else _NUGGETS]

    def objective(theta: Vector) -> tuple[float, Vector]:
        Z = scaled * np.exp(-theta[:d])
        value, slopes = likelihood.evaluate(Z, _softmax(theta[d:-1]), math.exp(theta[-1]))
        by_length = -np.sum(Z * slopes.inputs, axis=0)
        return value, np.concatenate([by_length, slopes.log_shares, [slopes.log_nugget]])

    theta = _minimise(objective, starts, _logs(ranges)) if Y.shape[1] else starts[0]
    lengths, found = np.exp(theta[:d]) * deviations, _softmax(theta[d:-1])
    linear = None if found is None else np.append(found[0], found[1:] / _sizes(X) ** 2)
    return Hyperparameters(lengths, linear, math.exp(theta[-1]))


def find_powers(
    X: Inputs, Y: Targets, w: Weights, is_positive: Bool[np.ndarray, " features"]
) -> Float[np.ndarray, " features"]:
    """The power between -1 and 1 for every positive input, 0 for the logarithm; 1 for the others.

    Powers and lengths of a Matern 5/2 kernel of the greatest likelihood. The penalty (1 - power)^2 / 2 leaves
    inputs that do not matter as they are.
    """
    d, Y = X.shape[1], leading_directions(Y, w)
    likelihood, is_positive = Likelihood("5/2", Y, w), is_positive & ~_is_constant(X)
    logs = np.log(np.where(is_positive, X, 1.0))
    plain = (X - X.mean(axis=0)) / _deviations(X)

    def warped(powers: Vector) -> Inputs:
        return np.where(is_positive, _standard_powers(logs, powers), plain)

    def objective(theta: Vector) -> tuple[float, Vector]:
        lengths, powers, nugget = np.exp(theta[:d]), theta[d:-1], math.exp(theta[-1])
        Z = warped(powers) / lengths
        value, slopes = likelihood.evaluate(Z, None, nugget)
        moved = (warped(powers + _STEP) - warped(powers - _STEP)) / (2 * _STEP)
        by_power = np.sum(slopes.inputs * moved / lengths, axis=0) + powers - 1
        by_length = -np.sum(Z * slopes.inputs, axis=0)
        value += float(np.sum((powers - 1) ** 2)) / 2
        return value, np.concatenate([by_length, by_power, [slopes.log_nugget]])

    def start(power: float) -> Vector:
        powers = np.where(is_positive, power, 1.0)
        return np.concatenate([np.full(d, math.log(d) / 2), powers, [math.log(_FIRST_NUGGET)]])

    bounds = [
        *_logs([_LENGTHS] * d),
        *((-1.0, 1.0) if each else (1.0, 1.0) for each in is_positive),
        *_logs([_NUGGETS]),
    ]
    theta = _minimise(objective, [start(1.0), start(0.0)], bounds) if Y.shape[1] else start(1.0)
    return theta[d:-1]


def _standard_powers(logs: Inputs, powers: Vector) -> Inputs:
    """(x^p - 1) / p, which is log x for p = 0, with mean 0 and deviation 1."""
    centred = logs - logs.mean(axis=0)
    p = np.where(np.abs(powers) < _STEP / 10, _STEP / 10, powers)
    values = np.expm1(p * centred) / p
    values -= values.mean(axis=0)
    return values / _deviations(values)


def _minimise(objective: Objective, starts: Sequence[Vector], bounds: Sequence[tuple[float, float]]) -> Vector:
    """The best of several searches by L-BFGS."""
    options = {"maxiter": _ITERATIONS, "ftol": _TOLERANCE, "maxcor": 20}
    found = [
        scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        for start in starts
    ]
    return min(found, key=lambda each: each.fun).x


def _logs(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(math.log(low), math.log(high)) for low, high in ranges]


def leading_directions(Y: Targets, w: Weights) -> Float[np.ndarray, "samples directions"]:
    """The centred targets in their leading directions: fewer columns with nearly the same covariance."""
    U, s, _ = np.linalg.svd(Y - w @ Y / w.sum(), full_matrices=False)
    kept = s > max(_SMALL * s[0], 1e-14 * float(np.linalg.norm(Y)))
    return (U * s)[:, kept][:, :_MOST_DIRECTIONS]


def _softmax(theta: Vector) -> Vector | None:
    if not len(theta):
        return None
    shares = np.exp(theta - theta.max())
    return shares / shares.sum()


def _deviations(X: Inputs) -> Float[np.ndarray, " features"]:
    return np.where(_is_constant(X), 1.0, X.std(axis=0))


def _is_constant(X: Inputs) -> Bool[np.ndarray, " features"]:
    """Whether the deviation of an input is 0 or of rounding size."""
    return X.std(axis=0) <= 16 * np.finfo(float).eps * np.abs(X.mean(axis=0))
