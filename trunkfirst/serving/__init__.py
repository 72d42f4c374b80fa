"""Using a trained operator elsewhere: one file for other programs and languages."""

from ._export import FORMATS, Exported, export
from ._graph import Function, Graph, Operation
from ._javascript import to_javascript
from ._page import explorer_page
from ._server import serve
from ._server_limits import Limits
from ._trace import trace

__all__ = [
    "FORMATS",
    "Exported",
    "Function",
    "Graph",
    "Limits",
    "Operation",
    "explorer_page",
    "export",
    "serve",
    "to_javascript",
    "trace",
]
