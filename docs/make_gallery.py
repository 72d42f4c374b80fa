"""Draws the pictures of the gallery by running scripts in examples/: python docs/make_gallery.py NAME ..."""

import sys

import matplotlib as mpl
from make_figures import IMAGES, script


def main(*names: str) -> None:
    mpl.use("agg")
    for name in names:
        script(f"examples/{name}.py").main(IMAGES / f"example-{name.replace('_', '-')}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
