"""Shared by the benchmarks: options, clocks, tables and figures."""

import argparse
import contextlib
import dataclasses as dc
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import trunkfirst
from trunkfirst.runs.config import RunConfig, nested, problem_configs

# Times include compiling, unless stated otherwise.
os.environ.setdefault("TRUNKFIRST_PROGRAM_CACHE", "off")

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
PAPER_PROBLEMS = {
    "nonlinear-conductivity": "5.1",
    "discontinuous-conductivity": "5.2",
    "multiple-inputs": "5.3",
}
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
_PACKAGES = ("jax", "numpy", "scipy", "scikit-learn", "deepxde", "torch", "neuraloperator")
_MARKERS = "osD^vXP*"


def options_for(
    doc: str | None, add: Callable[[argparse.ArgumentParser], object], argv: Any
) -> argparse.Namespace:
    """The options of a script: its own, put in by `add`, and those that all have."""
    lines = (doc or "").strip().splitlines()
    parser = argparse.ArgumentParser(description=lines[0], epilog="\n".join(lines[1:]).strip())
    parser.formatter_class = _Help
    add(parser)
    parser.add_argument("--quick", action="store_true", help="a smoke test; writes only where --out says")
    parser.add_argument("--out", type=Path, help="folder for table and figure instead of those in the repository")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="processor: for a pinned process on a busy core"
    )
    options = parser.parse_args(argv)
    given = sys.argv[1:] if argv is None else argv
    shown = [word for word in given if word not in ("--out", str(options.out))]
    options.command = shlex.join(["python", f"benchmarks/{Path(parser.prog).name}", *shown])
    return options


def add_problems(parser: argparse.ArgumentParser) -> None:
    """The option that takes some of the paper's problems, by default all."""
    problems = list(PAPER_PROBLEMS)
    parser.add_argument("--problems", nargs="+", choices=problems, default=problems, help="which")


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Paragraphs as written, defaults shown."""


def make_run_config(
    preset: str, problem: str, values: dict[str, Any], *, iterations: int | None = None
) -> RunConfig:
    """The preset of a problem with some values changed, and other `iterations` of each step that has some."""
    return problem_configs(nested({"problem": problem} | values), preset=preset, iterations=iterations)[0]


class Stopwatch:
    """Seconds since it was made, less those spent inside `paused`."""

    def __init__(self, clock: str) -> None:
        self._clock = CLOCKS[clock]
        self._zero = self._clock()

    def read(self) -> float:
        """The seconds so far."""
        return self._clock() - self._zero

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while results are evaluated."""
        begin = self._clock()
        yield
        self._zero += self._clock() - begin


@dc.dataclass(frozen=True)
class Table:
    """Rows below a head, and notes about them."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table as text that people can read."""
        cells = [list(self.head), *([_word(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head, *body = ("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells)
        rule = "| " + " | ".join("-" * width for width in widths) + " |"
        return "\n".join([f"# {self.title}", "", head, rule, *body, *(f"\n{note}" for note in self.notes)])


def _word(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.3g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def publish(
    name: str, options: argparse.Namespace, table: Table, details: Any, draw: Callable[[Any], None]
) -> None:
    """Print the table; write it as markdown, with the details as JSON, and what `draw` puts on axes as SVG."""
    text = f"{table.markdown()}\n\n{source_of(options)}."
    print(text)
    if options.quick and options.out is None:
        return
    results, images = options.out or RESULTS, options.out or IMAGES
    for folder in (results, images):
        folder.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    record = {
        "table": dc.asdict(table),
        "command": options.command,
        "environment": environment(),
        "details": details,
    }
    (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _save_figure(images / f"{name}.svg", draw)


def published(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The details that `publish` wrote before; empty if there are none, and in a quick run."""
    path = (options.out or RESULTS) / f"{name}.json"
    return {} if options.quick or not path.is_file() else json.loads(path.read_text(encoding="utf-8"))["details"]


def notes_of_kept(measured: Mapping[str, str], options: argparse.Namespace) -> list[str]:
    """Who measured what an earlier call did: `measured` has the call and versions of every contender."""
    others = {source: [name for name in measured if measured[name] == source] for source in measured.values()}
    others.pop(source_of(options), None)
    return [f"From an earlier run: {', '.join(names)} ({source})." for source, names in others.items()]


def source_of(options: argparse.Namespace) -> str:
    """The command of this call and the versions that it runs."""
    return f"`{options.command}`; {environment()}; clock: {options.clock}"


def environment() -> str:
    """Versions, and the cores this process may use."""
    found = [f"trunkfirst {trunkfirst.__version__}"]
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Python {platform.python_version()}, {', '.join(found)}, {cores} core(s)"


def _save_figure(path: Path, draw: Callable[[Any], None]) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    draw(axes := figure.subplots())
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)  # where it covers nothing
    # Words stay words and nothing is random or dated: small files, and no change where nothing changed.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "trunkfirst"}):
        figure.savefig(path, metadata={"Date": None})


def draw_curves(axes: Any, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """One line with markers for each curve that has points."""
    for number, (name, curve) in enumerate(curves.items()):
        if curve:
            marker = _MARKERS[number % len(_MARKERS)]
            axes.plot(*zip(*curve, strict=True), marker=marker, markersize=4, linewidth=1.2, label=name)
