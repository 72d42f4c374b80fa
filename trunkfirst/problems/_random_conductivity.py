"""Darcy flow through a random two-valued medium: from the conductivity to the pressure."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data import InputFunction, OperatorData
from ._abstract import AbstractProblem, check_samples, check_solved
from ._cell_darcy import cell_darcy, interpolate
from ._cosine_field import draw_modes, evaluate_modes
from ._meshes import Triangulation, grid_square

_CELLS = 128
"""Where the equation is solved."""
_COARSE_CELLS = 16
"""Where inputs and outputs are given."""
_HIGH, _LOW = 12.0, 3.0
_UNIT = (0.0, 1.0)
_TOLERANCE = 1e-10


@dc.dataclass(frozen=True)
class RandomConductivity(AbstractProblem):
    """-div(a grad u) = 1 on (0, 1)^2, u = 0 on the boundary; operator a -> u.

    a is 12 where a Gaussian field (`draw_modes`) is not negative, 3 elsewhere. Each sample has a seed of its own,
    and the field is a function of position. On 128 x 128 cells a is its value at the centre of the cell; u is
    the bilinear solution there, for every resolution the same, 2e-3 (relative) off that on 512 x 512 cells.

    Grids are counted in cells: on N x N cells a lives in the cells, u at the (N + 1)^2 nodes. So the nodes of
    16 x 16 cells are nodes of 32 x 32, and those of 128 x 128. The input is the mean of a over each cell of
    16 x 16, with the centres as sensors: kernel ridge from 1,000 samples errs by 2.5 % from these, by 3.6 % from
    the values at the centres alone. The outputs are at the nodes of 16 x 16, or with points = "grid:32" at those
    of 32 x 32.
    """

    name = "random-conductivity"
    title = "Random conductivity"
    section = "4"
    equation = "-div(a grad u) = 1, u = 0 on the boundary, a = 12 or 3 by the sign of a Gaussian field"
    parameter_names = ("seed",)
    interval = _UNIT
    default_samples = 1250  # the usual split leaves 1,000 for training
    shard_samples = 50
    seconds_per_sample = 0.05
    needs_fields = True

    @property
    def mesh(self) -> Triangulation:
        return grid_square(_CELLS + 1, _UNIT)

    def parameters(self, samples: int, *, seed: int) -> Float[np.ndarray, "samples parameters"]:
        """A seed a sample, below 2^53 so that it is exact as a float; fewer samples are the first of more."""
        check_samples(samples)
        return np.random.default_rng(seed).integers(2**53, size=(samples, 1)).astype(float)

    def solve(
        self, parameters: Float[np.ndarray, "samples parameters"], *, first: int = 0
    ) -> Float[np.ndarray, "samples nodes"]:
        operator, source = cell_darcy(_CELLS), np.ones((_CELLS + 1) ** 2)
        solved = [operator.solve(conductivity(int(seed)).ravel(), source) for seed in parameters[:, 0]]
        residuals = np.array([residual for _, residual in solved])
        check_solved(self, parameters, residuals <= _TOLERANCE, residuals, first=first)
        return np.stack([u for u, _ in solved])

    def assemble(
        self,
        parameters: Float[np.ndarray, "samples parameters"],
        fields: Float[np.ndarray, "samples nodes"] | None,
        points: Float[np.ndarray, "points 2"] | None = None,
    ) -> OperatorData:
        assert fields is not None  # there is no closed form
        coarse = grid_square(_COARSE_CELLS + 1, _UNIT)
        places = coarse.points if points is None else points
        values = np.stack([cell_means(conductivity(int(seed))).ravel() for seed in parameters[:, 0]])
        return OperatorData(
            inputs={"conductivity": InputFunction(values, _sensors(), grid_shape=(_COARSE_CELLS, _COARSE_CELLS))},
            points=places,
            outputs=interpolate(fields, places, _CELLS),
            triangles=coarse.triangles if points is None else None,
            labels={"mean_conductivity": values.mean(axis=1)},
            output_name="pressure",
        )


def conductivity(seed: int, cells: int = _CELLS) -> Float[np.ndarray, "rows columns"]:
    """a at the centres of `cells` x `cells` cells, a row for each y."""
    field = evaluate_modes(draw_modes(seed), _centres(cells), _centres(cells))
    return np.where(field >= 0, _HIGH, _LOW)


def cell_means(a: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "coarse_rows coarse_columns"]:
    """Means over the coarse cells."""
    ratio = len(a) // _COARSE_CELLS
    return a.reshape(_COARSE_CELLS, ratio, _COARSE_CELLS, ratio).mean(axis=(1, 3))


def _centres(cells: int) -> Float[np.ndarray, " cells"]:
    return (np.arange(cells) + 0.5) / cells


def _sensors() -> Float[np.ndarray, "sensors 2"]:
    """Centres of the coarse cells, row by row from the bottom, x fastest."""
    x, y = np.meshgrid(_centres(_COARSE_CELLS), _centres(_COARSE_CELLS))
    return np.stack([x.ravel(), y.ravel()], axis=1)
