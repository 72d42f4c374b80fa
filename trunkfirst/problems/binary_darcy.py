"""Darcy flow through a two-valued medium that is constant on square cells: all of it is known to the input."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data.operator_data import InputFunction, OperatorData
from .meshes import Points, Triangulation, grid_square
from .problem import AbstractProblem, Fields, Parameters, PerSample, check_samples
from .random_conductivity import cell_diffusion, conductivity, interpolate

_SOLVE_CELLS = 128
"""Cells in each direction for the solve."""
_UNIT = (0.0, 1.0)


@dc.dataclass(frozen=True)
class BinaryDarcy(AbstractProblem):
    """-div(a grad u) = 1 on (0, 1)^2, u = 0 on the boundary; operator a -> u, both at the centres of the cells.

    a is 12 or 3 on each of `cells` x `cells` squares, by the sign of a Gaussian field at its centre. u is the
    bilinear finite-element solution on 128 x 128 squares, which divide the cells. Unlike in random-conductivity,
    where the input is a mean over cells, the input determines the output.
    """

    cells: int = 32
    """Cells in each direction: a divisor of 64, so that centres of cells are nodes of the solve."""

    name = "binary-darcy"
    title = "Binary Darcy flow"
    section = "4"
    equation = "-div(a grad u) = 1, u = 0 on the boundary, a = 12 or 3 on every cell of a grid"
    parameter_names = ("seed", "cells")
    interval = _UNIT
    default_samples = 1250
    shard_samples = 50
    seconds_per_sample = 0.05
    needs_fields = True

    @property
    def mesh(self) -> Triangulation:
        return grid_square(_SOLVE_CELLS + 1, _UNIT)

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        """Return one seed per sample and the number of cells. Fewer samples are a prefix."""
        check_samples(samples)
        seeds = np.random.default_rng(seed).integers(2**53, size=samples).astype(float)
        return np.stack([seeds, np.full(samples, float(self.cells))], axis=1)

    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        ratio, load = _SOLVE_CELLS // self.cells, np.full((_SOLVE_CELLS + 1) ** 2, 1 / _SOLVE_CELLS**2)
        media = (np.kron(self.medium(int(seed)), np.ones((ratio, ratio))) for seed in parameters[:, 0])
        solved = [cell_diffusion(_SOLVE_CELLS).solve(a.ravel(), load) for a in media]
        return np.stack([u for u, _ in solved]), np.array([residual for _, residual in solved])

    def medium(self, seed: int) -> Float[np.ndarray, "rows columns"]:
        """Return a on the cells, one row for each y."""
        return conductivity(seed, self.cells)

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        assert fields is not None  # there is no closed form
        centres = (np.arange(self.cells) + 0.5) / self.cells
        sensors = np.stack([x.ravel() for x in np.meshgrid(centres, centres)], axis=1)
        values = np.stack([self.medium(int(seed)).ravel() for seed in parameters[:, 0]])
        return OperatorData(
            inputs={"conductivity": InputFunction(values, sensors, grid_shape=(self.cells, self.cells))},
            points=sensors if points is None else points,
            outputs=interpolate(fields, sensors if points is None else points, _SOLVE_CELLS),
            labels={"mean_conductivity": values.mean(axis=1)},
            output_name="pressure",
        )
