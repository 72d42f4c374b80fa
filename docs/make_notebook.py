"""Makes examples/antiderivative.ipynb from examples/antiderivative.py and runs it: python docs/make_notebook.py.

Comments at the beginning of a paragraph of `main` become text, the rest code. All cells run as one program.
"""

import ast
import base64
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "examples" / "antiderivative.py"
CUT = "--- next cell ---"
PICTURE = """import matplotlib.pyplot as plt

figure, panel = plt.subplots(figsize=(6, 3.2), layout="constrained")
panel.plot(finer, exact[:4].T, color="0.7", lw=4)
panel.plot(finer, predicted[:4].T, lw=1)
panel.set(title="four new samples: exact in grey, predictions on top", xlabel="x");"""


def cells() -> list[tuple[str, str]]:
    """(kind, source) of every cell."""
    source = SCRIPT.read_text(encoding="utf-8")
    tree = ast.parse(source)
    *_, function, main, _ = tree.body
    lines = source.splitlines()
    title, *rest = ast.get_docstring(tree).split("\n\n")
    found = [("markdown", f"# The antiderivative\n\n{title}\n\n{rest[-1]}")]
    found.append(("code", "import numpy as np\n\nimport trunkfirst"))
    found.append(("code", "\n".join(lines[function.lineno - 1 : function.end_lineno])))
    body = textwrap.dedent("\n".join(lines[main.lineno : main.body[-1].lineno - 1]))
    for paragraph in body.split("\n\n"):
        text, code = _parted(paragraph.splitlines())
        found += [("markdown", text)] if text else []
        found.append(("code", code))
    return [*found, ("markdown", "Predictions and exact solutions of four samples:"), ("code", PICTURE)]


def _parted(lines: list[str]) -> tuple[str, str]:
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line[2:] for line in lines[:count]), "\n".join(lines[count:])


def run(sources: list[str]) -> tuple[list[str], bytes]:
    """What each cell prints, and the picture at the end."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        ends = [f"print({CUT!r})"] * len(sources)
        program = "\n".join(line for pair in zip(sources, ends, strict=True) for line in pair)
        program += f"\nfigure.savefig({str(picture)!r}, dpi=80)\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.split(f"{CUT}\n")[:-1], picture.read_bytes()


def notebook() -> dict:
    """The whole notebook, format 4."""
    parts = cells()
    printed, picture = run([source for kind, source in parts if kind == "code"])
    found, count = [], 0
    for i, (kind, source) in enumerate(parts):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": source.splitlines(keepends=True)}
        if kind == "code":
            text = printed[count]
            count += 1
            stream = {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
            cell |= {"execution_count": count, "outputs": [stream] if text else []}
        found.append(cell)
    data = {"image/png": base64.b64encode(picture).decode(), "text/plain": ["<Figure>"]}
    found[-1]["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": found, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    SCRIPT.with_suffix(".ipynb").write_text(json.dumps(notebook(), indent=1) + "\n", encoding="utf-8")
