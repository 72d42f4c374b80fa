"""Train deep operator networks (DeepONets) in two steps, the trunk first.

Public names, listed in `__init__.pyi`, are imported when they are first used: `import trunkfirst` itself loads
neither JAX nor SciPy.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

from . import errors as errors

__version__ = "0.2.0"


def _modules() -> dict[str, str]:
    """The module of every public name, as the stub says."""
    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module is not None]
    return {alias.name: f".{node.module}" for node in imports for alias in node.names}


_MODULE_OF = _modules()

__all__ = ["__version__", "errors", *_MODULE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        hint = errors.did_you_mean(name, __all__).strip()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint and '; '}{hint}")
    try:
        return getattr(importlib.import_module(_MODULE_OF[name], __name__), name)
    except errors.MissingExtraError as error:
        return _missing(name, error)


def _missing(name: str, error: errors.MissingExtraError) -> type:
    """A class in place of one that needs an optional package: it can be imported, but not made."""

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    return type(name, (), {"__init__": refuse})


def __dir__() -> list[str]:
    return sorted(__all__)
