"""What a figure function returns: a panel to show, or the reason why there is none."""

from dataclasses import dataclass

from ._types import Figure


@dataclass(frozen=True, eq=False)
class Image:
    """One drawing. `name` is its file name without suffix; `alt` says in words what is to be seen."""

    name: str
    alt: str
    figure: Figure


@dataclass(frozen=True, eq=False)
class Panel:
    """One or several drawings under a title and a caption."""

    title: str
    caption: str
    images: tuple[Image, ...]


@dataclass(frozen=True)
class Omission:
    """A figure that the files do not allow, and why."""

    title: str
    reason: str
