"""The paper's problems and one more, by finite elements: meshes, forms, Newton, data in shards. No JAX."""

from ._abstract import AbstractProblem
from ._discontinuous_conductivity import DiscontinuousConductivity
from ._make import cache_folder, make_data, output_points
from ._meshes import Triangulation, grid_square, triangulate_square
from ._multiple_inputs import MultipleInputs
from ._nonlinear_conductivity import NonlinearConductivity
from ._random_conductivity import RandomConductivity
from ._registry import get_problem, problem_names

__all__ = [
    "AbstractProblem",
    "DiscontinuousConductivity",
    "MultipleInputs",
    "NonlinearConductivity",
    "RandomConductivity",
    "Triangulation",
    "cache_folder",
    "get_problem",
    "grid_square",
    "make_data",
    "output_points",
    "problem_names",
    "triangulate_square",
]
