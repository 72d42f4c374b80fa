"""Draws the pictures of the gallery by running scripts in examples/: python docs/make_gallery.py NAME[=FILE] ...

FILE is the data of an example that reads them, as in burgers=burgers.npz.
"""

import sys

import matplotlib as mpl
from make_figures import IMAGES, script
from PIL import Image

COLOURS = 256  # fewer bytes than true colours, and no visible difference


def main(*names: str) -> None:
    mpl.use("agg")
    for name, _, file in (each.partition("=") for each in names):
        picture = IMAGES / f"example-{name.replace('_', '-')}.png"
        script(f"examples/{name}.py").main(*([file] if file else []), picture)
        image = Image.open(picture).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        image.save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
