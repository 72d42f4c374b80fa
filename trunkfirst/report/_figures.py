"""Drawings of a page as files of their own, beside it."""

from pathlib import Path

from ..errors import OutputNotWritableError
from ..files import write_text
from ._html import Drawing, Shown
from ._panel import Panel
from ._svg import to_inline, to_svg


def figures_folder(directory: Path) -> Path:
    """The folder `figures`, made if need be."""
    folder = directory / "figures"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def write_panel(folder: Path, number: int, panel: Panel) -> Shown:
    """Write the drawings of a panel; it has its number on the page."""
    drawings: list[Drawing] = []
    for image in panel.images:
        svg = to_svg(image)
        write_text(folder / f"{image.name}.svg", svg)
        drawings.append(Drawing(to_inline(svg), image.alt))
    return Shown(number, panel.title, panel.caption, tuple(drawings))
