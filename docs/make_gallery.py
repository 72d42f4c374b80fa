"""Runs the scripts in examples/ and draws their pictures for the gallery: python docs/make_gallery.py [NAME ...].

`burgers` needs its file: python docs/make_gallery.py burgers burgers.npz.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from make_figures import IMAGES, script

NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "examples").glob("*.py"))


def main(*given: str) -> None:
    mpl.use("agg")
    files = [Path(each) for each in given if each.endswith(".npz")]
    names = [each for each in given if each in NAMES] or [each for each in NAMES if each != "burgers"]
    for name in names:
        script(f"examples/{name}.py").main(*files, IMAGES / f"example-{name.replace('_', '-')}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
