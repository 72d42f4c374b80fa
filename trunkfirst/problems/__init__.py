"""The paper's problems and one more, solved by finite elements. No JAX."""

from .discontinuous_conductivity import DiscontinuousConductivity
from .generate import cache_folder, get_problem, make_data, output_points, problem_names
from .meshes import Triangulation, grid_square, triangulate_square
from .nonlinear_problems import MultipleInputs, NonlinearConductivity
from .problem import AbstractProblem
from .random_conductivity import RandomConductivity

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
