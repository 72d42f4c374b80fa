"""Figures as SVG: one text for a file of its own, one to stand inside the page."""

import re
from io import BytesIO

from ._panel import Image
from ._style import INK

_DOTS_PER_INCH = 200  # of the bitmaps inside maps
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def to_svg(image: Image) -> str:
    """The figure as a complete SVG document on white; equal figures give equal bytes."""
    import matplotlib as mpl

    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": image.name}):  # ids that depend on the content alone
        image.figure.savefig(buffer, format="svg", dpi=_DOTS_PER_INCH, metadata=_NO_METADATA)
    return buffer.getvalue().decode().replace("<svg ", '<svg style="background: #ffffff" ', 1)


def to_inline(svg: str) -> str:
    """The same drawing for use inside HTML: no outside names, unique ids, the page's text colour.

    Namespaces are implied in HTML; ids of groups repeat from figure to figure and nothing refers to them.
    """
    body = svg[svg.index("<svg ") :]
    body = re.sub(r"<style [^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href=", "href=").replace(INK, "currentColor")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    return re.sub(r"<svg [^>]*>", _opening_tag(body), body, count=1)


def _opening_tag(body: str) -> str:
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body)
    assert box is not None  # matplotlib always writes it
    widest = round(1.4 * float(box.group(1)))
    return f'<svg viewBox="{box.group(0)[9:-1]}" style="max-width: {widest}px" aria-hidden="true">'
