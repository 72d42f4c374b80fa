"""`trunkfirst sensors` and `trunkfirst study`."""

import csv
import io
from math import isfinite
from pathlib import Path

import numpy as np

from ..errors import UnknownNameError, UsageError
from ..files import prepare_directory, verify_run, write_json, write_npz, write_text
from ..problems import problem_names
from ..progress import TerminalReporter
from ..report import SensorPicture, write_sensor_picture, write_study
from ..runs import KNOWN_RATES, Placement, Study, environment, place_sensors, study
from ._console import number, print_json, print_table, say
from ._settings import default_folder

_SUFFIXES = (".npz", ".csv")


def sensors_command(
    folder: Path, *, count: int, method: str, inputs: bool, out: Path, seed: int, json: bool, quiet: bool
) -> int:
    """Choose sensors, write them and a picture, and report the error with them."""
    if out.suffix not in _SUFFIXES:
        raise UsageError(f"--out {out}: expected a name ending in {' or '.join(_SUFFIXES)}")
    verify_run(folder)
    placement = place_sensors(folder, count, method=method, inputs=inputs, seed=seed)
    (write_npz if out.suffix == ".npz" else _write_csv)(out, placement.arrays())
    picture = out.with_suffix(".svg")
    write_sensor_picture(picture, _picture(placement))
    if json:
        print_json({**placement.summary(), "out": str(out), "picture": str(picture)})
    else:
        _print_placement(placement, quiet)
        say(f"{out}, {picture}", quiet=quiet)
    return 0


def _write_csv(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """One line a sensor: its coordinates, its index, its weight."""
    coordinates = arrays["points"].shape[1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(f"coordinate_{i + 1}" for i in range(coordinates)), "index", "weight"])
    for point, index, weight in zip(*(arrays[name].tolist() for name in arrays), strict=True):
        writer.writerow([*point, index, weight])
    write_text(path, text.getvalue())


def _picture(placement: Placement) -> SensorPicture:
    return SensorPicture(
        placement.places,
        placement.found.values,
        placement.sensors.indices,
        placement.coordinate_names,
        {name: (ladder.counts, ladder.ratios) for name, ladder in (placement.ladders or {}).items()},
        placement.ratio,
    )


def _print_placement(placement: Placement, quiet: bool) -> None:
    if placement.ladders is not None:
        uniform, drawn = placement.ladders["uniform"], placement.ladders["christoffel"]
        rows = [
            [str(count), f"{a:.3g}", f"{b:.0%}", f"{c:.3g}", f"{d:.0%}"]
            for count, a, b, c, d in zip(
                uniform.counts, uniform.ratios, uniform.failures, drawn.ratios, drawn.failures, strict=True
            )
        ]
        columns = ["sensors", "uniform", "|G - I| > 1/2", "Christoffel", "|G - I| > 1/2"]
        title = f"least squares error / best error, {placement.found.rank} functions"
        print_table(title, columns, rows, quiet=quiet)
        say(_needed(placement), quiet=quiet)
    say(placement.sensors.sentence, quiet=quiet)
    if placement.ratio is not None:
        say(
            f"Least squares from these {placement.method} sensors: {placement.ratio:.3g} times the best error.",
            quiet=quiet,
        )
    say(placement.sentence, quiet=quiet)
    for note in placement.notes:
        say(note, quiet=quiet)


def _needed(placement: Placement) -> str:
    found = placement.needed()
    words = [
        f"for {ratio} times the best error {_count(found['uniform'][ratio])} drawn uniformly, "
        f"{_count(found['christoffel'][ratio])} by Christoffel"
        for ratio in found["uniform"]
    ]
    return f"Needed, on this ladder: {'; '.join(words)}."


def _count(count: int | None) -> str:
    return "more than all of these" if count is None else str(count)


def study_command(
    target: str, *, samples: int | None, run: Path | None, seed: int, out: Path | None, json: bool, quiet: bool
) -> int:
    """Observe the bound; write study.json, figures and study.html."""
    known = (KNOWN_RATES, *problem_names())
    if target not in known:
        raise UnknownNameError("study", target, known)
    if target == KNOWN_RATES and (samples is not None or run is not None):
        raise UsageError(f"--samples and --run are for problems; {KNOWN_RATES} makes its own samples")
    if run is not None:
        verify_run(run)
    folder = prepare_directory(out or default_folder(f"study-{target}"))
    with TerminalReporter(quiet=quiet or json) as reporter:
        found = study(target, samples=samples, run=run, seed=seed, reporter=reporter)
    summary = found.summary()
    write_json(folder / "study.json", summary)
    page = write_study(folder, summary, title=found.title, task=found.task, environment=environment())
    if json:
        print_json(summary)
    else:
        _print_study(found, quiet)
        say(f"study: {page}", quiet=quiet)
    return 0


def _print_study(found: Study, quiet: bool) -> None:
    rows: list[list[str]] = []
    for ladder in found.ladders:
        slope = ladder.slope
        theory = "-" if ladder.theory is None else f"{ladder.theory:.3g}"
        rule = " or steeper" if ladder.rule == "not slower" else ""
        holds = {True: "yes", False: "no", None: "-"}[ladder.holds]
        interval = f"{slope.lower:.2f} to {slope.upper:.2f}" if isfinite(slope.lower) else "-"
        rows.append([f"{ladder.name}: {ladder.what}", f"{slope.value:.3f}", interval, theory + rule, holds])
    print_table(found.title, ["ladder", "slope", "95 %", "theory", "holds"], rows, quiet=quiet)
    columns = ["N, K, m_x, m_y", "C N^-2r", "K^-2s", "m_x^-2alpha", "m_y^-r_t", "sum", "measured", "r_t"]
    terms = [
        [
            f"{row.width}, {row.samples:,}, {row.sensors:,}, {row.points:,}",
            *map(number, (row.terms.width, row.terms.samples, row.terms.sensors, row.terms.points)),
            number(row.terms.total),
            number(row.measured),
            "vacuous" if row.terms.is_vacuous else f"{row.terms.exponent:.2g}",
        ]
        for row in found.together
    ]
    print_table("the terms of thm:main beside the mean squared error", columns, terms, quiet=quiet)
    for note in found.notes:
        say(note, quiet=quiet)
