"""The paper's problems by finite elements: meshes, weak forms, Newton's method, data in shards. No JAX."""

from ._abstract import AbstractProblem
from ._discontinuous_conductivity import DiscontinuousConductivity
from ._make import cache_folder, make_data, random_points
from ._meshes import Triangulation, grid_square, triangulate_square
from ._multiple_inputs import MultipleInputs
from ._nonlinear_conductivity import NonlinearConductivity
from ._registry import get_problem, problem_names

__all__ = [
    "AbstractProblem",
    "DiscontinuousConductivity",
    "MultipleInputs",
    "NonlinearConductivity",
    "Triangulation",
    "cache_folder",
    "get_problem",
    "grid_square",
    "make_data",
    "problem_names",
    "random_points",
    "triangulate_square",
]
