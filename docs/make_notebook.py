"""Makes the notebooks from scripts in examples/ and runs them: python docs/make_notebook.py [NAME ...].

Comments at the beginning of a paragraph of `main` become text, the rest code; the last one draws the picture.
All cells run as one program.
"""

import ast
import base64
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = ("antiderivative", "paper", "mesh")
CUT = "--- next cell ---"


def cells(name: str) -> list[tuple[str, str]]:
    """(kind, source) of every cell."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines = source.splitlines()
    imports = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    main = next(part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "main")
    functions = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part is not main]
    title, _, *rest = (ast.get_docstring(tree) or "").split("\n\n")
    found = [("markdown", "\n\n".join([f"# {title.removesuffix('.')}", *rest]))]
    found += [("code", "\n".join(lines[part.lineno - 1 : part.end_lineno])) for part in functions]
    body = textwrap.dedent("\n".join(lines[main.lineno : main.body[-1].lineno - 1]))
    for paragraph in body.strip().split("\n\n"):
        text, code = _parted(paragraph.splitlines())
        found += [("markdown", text)] if text else []
        found.append(("code", code))
    # Of the imports those that are used: the picture is not written to a path here.
    begin = "\n".join(lines[imports[0].lineno - 1 : imports[-1].end_lineno])
    if not any("Path(" in code for _, code in found):
        begin = begin.replace("from pathlib import Path\n\n", "")
    return [found[0], ("code", begin), *found[1:]]


def _parted(lines: list[str]) -> tuple[str, str]:
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    code = lines[count:]
    if code[0] == "if picture is not None:":
        code = textwrap.dedent("\n".join(code[1:-1])).splitlines()
        code[-1] += ";"
    return " ".join(line[2:] for line in lines[:count]), "\n".join(code)


def run(sources: list[str]) -> tuple[list[str], bytes]:
    """What each cell prints, and the picture at the end."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        ends = [f"print({CUT!r})"] * len(sources)
        program = "\n".join(line for pair in zip(sources, ends, strict=True) for line in pair)
        program += f"\nfigure.savefig({str(picture)!r}, dpi=80)\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout.split(f"{CUT}\n")[:-1], picture.read_bytes()


def notebook(name: str) -> dict:
    """The whole notebook, format 4."""
    parts = cells(name)
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
    for each in sys.argv[1:] or NOTEBOOKS:
        text = json.dumps(notebook(each), indent=1) + "\n"
        (EXAMPLES / f"{each}.ipynb").write_text(text, encoding="utf-8")
