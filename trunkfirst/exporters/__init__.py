"""A trained operator as one file: ONNX, StableHLO, a NumPy program, or the interactive explorer."""

from .explorer import explorer_page
from .formats import Exported, export, to_stablehlo
from .graph import Function, Graph, Operation
from .jaxpr import trace
from .onnx import to_onnx
from .scripts import to_javascript, to_numpy

__all__ = [
    "Exported",
    "Function",
    "Graph",
    "Operation",
    "explorer_page",
    "export",
    "to_javascript",
    "to_numpy",
    "to_onnx",
    "to_stablehlo",
    "trace",
]
