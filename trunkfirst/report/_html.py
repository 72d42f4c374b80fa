"""The page: one HTML file with everything inside it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ._experiment import Claim
from ._panel import Omission
from ._tables import Table


@dataclass(frozen=True)
class Drawing:
    """An inline SVG with its description."""

    svg: str
    alt: str


@dataclass(frozen=True)
class Shown:
    """A numbered figure as the template takes it."""

    number: int
    title: str
    caption: str
    drawings: tuple[Drawing, ...]

    @property
    def columns(self) -> int:
        """Drawings side by side on a wide screen."""
        count = len(self.drawings)
        return count if count <= 3 else 2


@dataclass(frozen=True)
class Section:
    """Text, figures and tables under one heading, and the figures that could not be drawn."""

    key: str
    title: str
    figures: tuple[Shown, ...]
    omissions: tuple[Omission, ...]
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """Everything the template shows, as text."""

    # Opening
    title: str
    summary: tuple[str, str]
    task: str
    conditions: str
    notices: tuple[str, ...]
    remarks: tuple[str, ...]
    # Results
    paper: Table | None
    claims: tuple[Claim, ...]
    methods: Table
    choices: tuple[Table, ...]
    runs: Table | None
    sections: tuple[Section, ...]
    # How it was made
    configurations: Mapping[str, str]
    environment: Mapping[str, object]


def render(page: Page) -> str:
    """The page as HTML; every text is escaped, figures excepted, which matplotlib has escaped."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"numbers": _numbers, "readable": _readable}
    template = environment.from_string(files(__package__ or __name__).joinpath("template.html").read_text("utf-8"))
    return template.render(page=page)


def _numbers(text: str) -> Markup:
    """Escaped text in which neither 1.00e-3 nor |A| is broken at the end of a line."""
    return Markup(re.sub(r"\d\.\d+e-\d+|\|\w\|", r'<span class="number">\g<0></span>', str(escape(text))))  # noqa: S704


def _readable(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
