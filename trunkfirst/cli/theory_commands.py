"""Commands of the theory: diagnose, sensors, study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UnknownNameError, UsageError
from ..progress import TerminalReporter
from .console import Json, Out, Quiet, Rows, RunFolder, Samples, default_folder, show

if TYPE_CHECKING:
    import numpy as np

    from ..runs.place_sensors import Placement

_SUFFIXES = (".npz", ".csv")

# -- diagnose


def diagnose(
    folder: RunFolder,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The same inputs with outputs at finer points.",
            show_default="a finer grid for a problem, otherwise the data of the run",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Show where the error of an operator comes from, and what to improve: width, points, samples or branch.

    Also estimates how many samples would halve the error, from fits to fewer samples.

    Example: trunkfirst diagnose runs/mine --data finer.npz
    """
    from ..files.integrity import update_manifest, verify_run
    from ..report.budget_figures import budget_sentence, budget_tables, samples_sentence
    from ..report.pages import write_report
    from ..runs.diagnose import diagnose_run

    verify_run(folder)
    with TerminalReporter(quiet=quiet or json) as reporter:
        found = diagnose_run(folder, data=data, reporter=reporter)
        update_manifest(folder, "diagnosis.*")
        page = write_report(folder)
    tables = ((table.caption, table.header, table.rows) for table in budget_tables(found))
    sentences = filter(None, (budget_sentence(found), samples_sentence(found)))
    return show(found, *tables, *sentences, f"report: {page}", json=json, quiet=quiet)


# -- sensors


def sensors(
    folder: RunFolder,
    count: Annotated[int, typer.Option(min=1, help="Number of sensors.")],
    method: Annotated[str, typer.Option(help="christoffel, pivoted or exchange.")] = "christoffel",
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Place input sensors instead of output sensors.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="File to write: .npz or .csv; a picture (.svg) is written next to it.")
    ] = Path("sensors.npz"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random draws.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Choose where to measure the outputs, with weights for least squares, and say how many sensors are enough.

    Example: trunkfirst sensors runs/mine --count 60 --out sensors.npz
    """
    from ..files.integrity import verify_run
    from ..files.npz import write_npz
    from ..report.study_page import SensorPicture, write_sensor_picture
    from ..runs.place_sensors import place_sensors

    if out.suffix not in _SUFFIXES:
        raise UsageError(f"--out {out}: expected a name ending in {' or '.join(_SUFFIXES)}")
    verify_run(folder)
    found = place_sensors(folder, count, method=method, inputs=inputs, seed=seed)
    (write_npz if out.suffix == ".npz" else _write_csv)(out, found.arrays())
    picture = out.with_suffix(".svg")
    ladders = {name: (ladder.counts, ladder.ratios) for name, ladder in found.ladders.items()}
    chosen, names = found.sensors.indices, found.coordinate_names
    content = SensorPicture(found.places, found.found.values, chosen, names, ladders, found.ratio)
    write_sensor_picture(picture, content)
    summary = {**found.summary(), "out": str(out), "picture": str(picture)}
    return show(summary, *_placement(found), f"{out}, {picture}", json=json, quiet=quiet)


def _write_csv(path: Path, arrays: "dict[str, np.ndarray]") -> None:
    """One line a sensor: its coordinates, its index, its weight."""
    from ..files.text_files import write_csv

    titles = [*(f"coordinate_{i + 1}" for i in range(arrays["points"].shape[1])), "index", "weight"]
    rows = zip(*(array.tolist() for array in arrays.values()), strict=True)
    write_csv(path, [titles, *([*point, index, weight] for point, index, weight in rows)])


def _placement(found: "Placement") -> list[str | Rows]:
    parts: list[str | Rows] = []
    if found.ladders:
        uniform, drawn = found.ladders["uniform"], found.ladders["christoffel"]
        rows = [
            [str(count), f"{a:.3g}", f"{b:.0%}", f"{c:.3g}", f"{d:.0%}"]
            for count, a, b, c, d in zip(
                uniform.counts, uniform.ratios, uniform.failures, drawn.ratios, drawn.failures, strict=True
            )
        ]
        columns = ["sensors", "uniform", "|G - I| > 1/2", "Christoffel", "|G - I| > 1/2"]
        title = f"least squares error / best error, {found.found.rank} functions"
        parts += [(title, columns, rows), _needed(found)]
    parts.append(found.sensors.sentence)
    if found.ratio is not None:
        parts.append(f"Least squares from these {found.method} sensors: {found.ratio:.3g} times the best error.")
    return [*parts, found.sentence, *found.notes]


def _needed(found: "Placement") -> str:
    def count(kind: str, ratio: str) -> str:
        return str(needed[kind][ratio] or "more than all of these")

    needed = found.needed()
    words = [
        f"for {ratio} times the best error {count('uniform', ratio)} drawn uniformly, "
        f"{count('christoffel', ratio)} by Christoffel"
        for ratio in needed["uniform"]
    ]
    return f"Needed, on this ladder: {'; '.join(words)}."


# -- study


def study(
    target: Annotated[
        str, typer.Argument(metavar="known-rates|PROBLEM", help="An operator with known rates, or a problem.")
    ] = "known-rates",
    samples: Samples = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also study the trunk of this run.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of samples and sensors.")] = 0,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Compare the paper's error bound with measured errors: its rates in N, K, m_x and m_y, and its four terms.

    Example: trunkfirst study nonlinear-conductivity --out runs/study
    """
    from ..files.integrity import prepare_directory, verify_run
    from ..files.text_files import write_json
    from ..problems.generate import problem_names
    from ..report.study_page import study_tables, write_study
    from ..runs.directory import environment
    from ..runs.study import KNOWN_RATES, study as run_study

    known = (KNOWN_RATES, *problem_names())
    if target not in known:
        raise UnknownNameError("study", target, known)
    if target == KNOWN_RATES and (samples is not None or run is not None):
        raise UsageError(f"--samples and --run are for problems; {KNOWN_RATES} makes its own samples")
    if run is not None:
        verify_run(run)
    folder = prepare_directory(out or default_folder(f"study-{target}"))
    with TerminalReporter(quiet=quiet or json) as reporter:
        found = run_study(target, samples=samples, run=run, seed=seed, reporter=reporter)
    summary = found.summary()
    write_json(folder / "study.json", summary)
    page = write_study(folder, summary, title=found.title, task=found.task, environment=environment())
    tables = ((table.caption, table.header, table.rows) for table in study_tables(summary))
    return show(summary, *tables, *found.notes, f"study: {page}", json=json, quiet=quiet)
