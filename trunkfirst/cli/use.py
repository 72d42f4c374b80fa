"""Commands for a trained operator, and doctor."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .console import Json, Keys, Quiet, Rows, RunFolder, number, say, show

if TYPE_CHECKING:
    import numpy as np

    from ..data.scattered_data import AnyData
    from ..networks.operator import Operator
    from ..training_summary import TrainingSummary


_WORST, _FEW_NUMBERS = 5, 8


def evaluate(
    folder: RunFolder,
    data: Annotated[
        Path | None, typer.Option(help="Data to evaluate with.", show_default="the run's own test samples")
    ] = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Evaluate a trained operator on new samples.

    Prints the errors, also of each channel, next to the smallest possible with this trunk; the share of fields and
    values inside their prediction intervals; the number of outliers; and the samples with the largest errors.

    Example: trunkfirst evaluate runs/mine --data test.npz
    """
    import numpy as np

    from .. import evaluation
    from ..data.named_arrays import parse_keys
    from ..data.read_write import read_data
    from ..intervals import HeldOut
    from ..training_summary import load_run
    from .data_commands import in_memory

    operator, memory = load_run(folder)
    samples = _test_samples(folder) if data is None else in_memory(read_data(data, keys=parse_keys(keys or [])))
    inputs = _at_sensors(operator, memory, dict(samples.inputs))
    found = evaluation.evaluate(operator, samples.with_inputs(inputs))
    test = found.summary()
    known = operator.domain.intervals
    if known is not None and (samples.points.ndim == 3 or np.array_equal(samples.points, known.points)):
        test["coverage"] = known.coverage(HeldOut(samples, found.predictions))
    is_outlier = operator.domain.is_outlier(inputs)
    if operator.domain.novelty is not None:  # the second key is the name before 0.2
        test |= dict.fromkeys(("outlier_inputs", "strange_inputs"), int(is_outlier.sum()))
    worst = np.argsort(-found.errors, kind="stable")[:_WORST]
    test["worst"] = [
        {"sample": int(k), "relative_l2": float(found.errors[k]), "is_outlier": bool(is_outlier[k])} for k in worst
    ]
    statistics = [(n, (e.mean(), np.median(e), e.max())) for n, e in found.by_name().items()]
    rows = [[name, *map(number, values)] for name, values in statistics]
    columns = ["relative l2 error", "mean", "median", "max"]
    shares = [
        [f"{float(at):.0%}", f"{c['field']:.1%}", f"{c['pointwise']:.1%}"]
        for at, c in test.get("coverage", {}).items()
    ]
    tables: list[Rows] = [(f"{samples.samples} samples", columns, rows)]
    tables += [("inside their intervals", ["level", "fields", "values"], shares)] if shares else []
    show({"test": test}, *tables, _worst_samples(operator, inputs, test["worst"]), json=json, quiet=quiet)
    _warn_of_outliers(test.get("outlier_inputs", 0), samples.samples, quiet or json)
    return 0


def _worst_samples(operator: "Operator", inputs: "np.ndarray", worst: list[dict[str, Any]]) -> Rows:
    """The samples with the largest errors; with their inputs, where these are a few numbers."""
    from ..networks.training_domain import number_names

    names = (
        number_names(operator.input_names, operator.domain.input_sizes) if inputs.shape[1] <= _FEW_NUMBERS else ()
    )
    names = names if len(names) == inputs.shape[1] else ()
    rows = [
        [str(k := each["sample"]), number(each["relative_l2"]), "yes" if each["is_outlier"] else "no"]
        + [f"{inputs[k, column]:.4g}" for column in range(len(names))]
        for each in worst
    ]
    return "largest errors", ["sample", "relative l2 error", "outlier", *names], rows


def predict(
    folder: RunFolder,
    inputs: Annotated[
        Path, typer.Option(help="Inputs: .npz with 'inputs' (and 'sensors'), .nc, .zarr, .csv or .npy.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: .npz, .mat, .h5, .nc, .zarr, .vtu; without an ending, a folder of .vtu."
        ),
    ],
    points: Annotated[
        Path | None,
        typer.Option(help="Points to predict at: .npz, .npy or .csv.", show_default="the training points"),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="Confidence of the intervals: 0.8, 0.9 or 0.95.")
    ] = 0.9,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Predict outside the training domain too, without intervals.")
    ] = False,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Predict the outputs of new inputs, at any points of the training domain.

    The file has prediction intervals, if the run has them, and marks inputs unlike those of training (is_outlier).
    Points outside the training domain are refused; with --extrapolate they are marked (is_extrapolated), and their
    intervals are NaN.

    Axes, coordinates, names and units in .nc and .zarr are those of training.

    Example: trunkfirst predict runs/mine --inputs new.npz --out predicted.npz
    """
    import numpy as np

    from ..data.named_arrays import parse_keys
    from ..data.read_write import read_inputs, read_points
    from ..networks.prediction_files import check_target, write_predictions
    from ..training_summary import load_run

    check_target(out, inputs, points, _data_of(folder))
    operator, memory = load_run(folder)
    domain, given = operator.domain, read_inputs(inputs, keys=parse_keys(keys or []), names=operator.input_names)
    values = _at_sensors(operator, memory, given.functions)
    places = memory.points if points is None else read_points(points)
    is_outside = operator.is_outside(places)
    if not extrapolate:
        domain.refuse(places, is_outside)
    outputs = operator.values_at(values, places)
    arrays: dict[str, np.ndarray] = {"points": places, "outputs": outputs, "is_extrapolated": is_outside}
    if domain.intervals is not None:
        half = domain.intervals.half_width(places, level)
        half[is_outside] = np.nan
        arrays |= {"lower": outputs - half, "upper": outputs + half}
    is_outlier = domain.is_outlier(values)
    write_predictions(out, domain, arrays, is_outlier, given)
    outliers, outside = int(is_outlier.sum()), int(is_outside.sum())
    found = {
        "samples": len(values),
        "points": len(places),
        "outlier_inputs": outliers,
        "strange_inputs": outliers,  # the name before 0.2
        "extrapolated_points": outside,
        "level": None if domain.intervals is None else level,
        "out": str(out),
    }
    show(found, f"{len(values)} samples at {len(places)} points: {out}", json=json, quiet=quiet)
    _warn_of_outliers(outliers, len(values), quiet or json)
    if outside:
        which = f"{outside:,} of {len(places):,} points lie outside the training domain"
        say(f"warning: {which}; they have no intervals (is_extrapolated in the file)", quiet=quiet or json)
    return 0


def suggest(
    folder: RunFolder,
    count: Annotated[int, typer.Option(min=1, help="Number of inputs; as many as you can simulate at once.")] = 20,
    ranges: Annotated[
        str | None,
        typer.Option(
            help="Ranges of the inputs, comma separated: NAME=LOW:HIGH, or NAME=log:LOW:HIGH (logarithmic).",
            show_default="the range of training",
        ),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option(
            help="Choose from these inputs instead: .npz, .npy or .csv; needed for input functions.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .npz.")] = Path("next.csv"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the candidates.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Suggest the inputs to simulate next.

    These inputs reduce the expected error over the whole range most. Simulate them, then add the samples with
    trunkfirst fit --data new.npz --from runs/mine --suggested --out runs/mine-2. They lie where the operator is
    worst, so errors and intervals are measured without them.

    Example: trunkfirst suggest runs/mine --count 20 --ranges a=1:10,b=log:1e-3:1 --out next.csv
    """
    from ..files.integrity import verify_run
    from ..next_samples import suggest as find

    verify_run(folder)
    found = find(folder, count, ranges=ranges, pool=pool, seed=seed)
    found.write(out)
    places = "" if found.rows is None else f"; rows of the pool: {', '.join(map(str, found.rows))}"
    lines = (
        f"{found.in_words()}{places}: {out}",
        f"then: trunkfirst fit --data NEW --from {folder} --suggested --out FOLDER",
    )
    chosen = {"out": str(out), "rows": found.rows, "expected_errors": found.deviations}
    return show(chosen, *lines, json=json, quiet=quiet)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run, fit, compare or sweep.")],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write the figures and report.html of a folder again.

    Example: trunkfirst report runs/mine
    """
    from ..files.integrity import CHECKPOINTS, MANIFEST, no_run, verify_manifest
    from .console import write_run_report

    # A folder that only holds runs is none of a comparison: they may have nothing in common.
    if not any((folder / name).exists() for name in ("metrics.json", "sweep.json", MANIFEST, CHECKPOINTS)):
        raise no_run(folder)
    for each in (folder, *(path.parent for path in sorted(folder.glob("*/metrics.json")))):
        if any((each / name).exists() for name in ("metrics.json", "MANIFEST.sha256")):
            # Runs of a comparison may have been diagnosed later; each has its own manifest.
            verify_manifest(each, but=("*report.html", "*figures/*", "*/diagnosis.*"))
    page = write_run_report(folder)
    return show({"report": str(page)}, f"report: {page}", json=json, quiet=quiet)


def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="File to write, e.g. model.onnx, model.py or page.html.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="onnx (onnxruntime, any language), stablehlo (JAX), numpy (a Python file that needs only NumPy), "
            "html (an interactive explorer in a browser).",
            show_default="by the ending of the file: .onnx, .stablehlo, .py, .html",
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="single or double.", show_default="the operator's own")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a trained operator to one file for other programs.

    The file does not need trunkfirst. It contains the whole operator, and computes outputs from inputs and points
    in physical units. Single precision is refused if it changes outputs by more than 1e-5. The html page has
    sliders for the inputs and draws the predicted field; it works offline.

    Example: trunkfirst export runs/mine --out model.onnx
    """
    from ..exporters.formats import export as write, format_of

    to = to or format_of(out)
    done = write(folder, to, out, precision=precision)
    found = {"to": to, "precision": done.precision, "bytes": done.size, "error": done.error, "out": str(out)}
    cost = "" if done.error is None else f", which changes outputs by {number(done.error)} (relative)"
    text = f"{to} in {done.precision} precision{cost}, {done.size / 1024:,.0f} KiB: {out}"
    return show(found, text, json=json, quiet=quiet)


def serve(
    folder: RunFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs --token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="Token that clients must send.", envvar="TRUNKFIRST_TOKEN", show_default=False),
    ] = None,
    limit_mib: Annotated[float, typer.Option(min=0.001, max=1024, help="Largest request body in MiB.")] = 8.0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Serve a trained operator over HTTP.

    The interactive explorer is at /, predictions are at /predict. Needs: pip install 'trunkfirst[serve]'

    Example: trunkfirst serve runs/mine
    """
    from ..serve.requests import Limits
    from ..serve.server import serve as run_server

    def on_start(url: str) -> None:
        text = f"{folder} is served at {url}; stop with Ctrl-C"
        show({"url": url, "folder": str(folder)}, text, json=json, quiet=quiet)

    limits = Limits(bytes=int(limit_mib * 2**20))
    run_server(folder, host=host, port=port, token=token, limits=limits, on_start=on_start)
    return 0


def doctor(
    clear_cache: Annotated[bool, typer.Option("--clear-cache", help="Delete compiled programs first.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Check the installation.

    Shows versions, devices, double precision, write access to the cache, the compiled programs in it, and extras
    that are not installed. The exit code is 1 if a run would fail.

    Example: trunkfirst doctor
    """
    import jax

    from ..cache import cache_folder, clear_programs, program_folder, stored_programs
    from ..runs.directory import environment, missing_extras

    if clear_cache:
        say(f"{clear_programs()} compiled programs were deleted", quiet=quiet or json)
    with jax.enable_x64(True):
        has_double = bool(jax.jit(lambda one: one + 1e-12)(1.0) != 1)
    cache, programs, sizes = cache_folder(None), program_folder(), [f.stat().st_size for f in stored_programs()]
    nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
    is_writable = os.access(nearest, os.W_OK)
    faults = [] if has_double else ["JAX has no double precision on this device"]
    faults += [] if is_writable else [f"{cache} cannot be written; set TRUNKFIRST_CACHE to another folder"]
    found: dict[str, Any] = environment()
    found |= {"double_precision": has_double, "cache": str(cache), "cache_writable": is_writable}
    found["program_cache"] = programs and str(programs)
    found |= {"programs": len(sizes), "programs_mib": round(sum(sizes) / 2**20, 1), "ready": not faults}
    rows = [[name, str(value)] for name, value in {**found, **found["packages"]}.items() if name != "packages"]
    missing = missing_extras()
    found["missing_extras"] = missing
    optional = f"; optional, by pip install 'trunkfirst[EXTRA]': {', '.join(missing)}" if missing else ""
    text = f"not ready: {'; '.join(faults)}" if faults else f"ready: nothing is missing{optional}"
    show(found, ("trunkfirst doctor", ["item", "found"], rows), text, json=json, quiet=quiet)
    return 1 if faults else 0


def _test_samples(folder: Path) -> "AnyData":
    """The run's own test samples."""
    from ..run_data import load_run_data
    from ..runs.config import load_config
    from ..training_summary import check_own_samples

    config = load_config(folder / "config.toml")
    prepared = load_run_data(config.data, config.problem)
    check_own_samples(folder, sum(prepared.counts.values()))
    if prepared.test is None:
        raise UsageError(f"{folder} has no test samples; give --data FILE")
    return prepared.test


def _data_of(folder: Path) -> Path | None:
    """The file with the data of a run, if there is one."""
    from ..runs.config import load_config

    path = folder / "config.toml"
    file = load_config(path).data.file if path.is_file() else None
    return None if file is None else Path(file)


def _at_sensors(operator: "Operator", memory: "TrainingSummary", inputs: dict[str, Any]) -> "np.ndarray":
    """The inputs (samples, sensors), interpolated to the sensors of training."""
    import numpy as np

    from ..networks.training_domain import check_names

    names = operator.input_names
    if len(inputs) == 1 and len(names) == 1:
        inputs = {names[0]: next(iter(inputs.values()))}
    (first, *others) = inputs.values()
    if not others and len(names) > 1 and first.values.shape[1] == operator.sensors:
        return first.values  # a table without titles
    if set(names) < set(inputs):
        warnings.warn(f"not used: {', '.join(name for name in inputs if name not in names)}", stacklevel=2)
    else:
        check_names(inputs, names)
    counts = {name: len(memory.sensors[name]) if name in memory.sensors else None for name in names}
    counts |= {names[0]: operator.sensors} if len(names) == 1 else {}
    return np.concatenate([memory.at_sensors(name, inputs[name], counts[name]) for name in names], axis=1)


def _warn_of_outliers(outliers: int, samples: int, quiet: bool) -> None:
    if outliers:
        say(
            f"warning: {outliers} of {samples} inputs are unlike the training inputs; "
            "their predictions are unreliable (is_outlier in the file)",
            quiet=quiet,
        )
