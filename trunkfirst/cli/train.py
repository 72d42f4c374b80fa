"""Commands that train: run, compare, fit, resume. JAX is imported when a command is executed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..progress import TerminalReporter
from .console import number, print_json, print_table, say
from .options import (
    Devices,
    Iterations,
    Json,
    Keys,
    Out,
    Preset,
    Quiet,
    Samples,
    Scheduler,
    Seed,
    Settings,
    Target,
)

if TYPE_CHECKING:
    from ..runs.compare import Comparison
    from ..runs.run import Outcome


def run(
    target: Target,
    method: Annotated[
        str | None,
        typer.Option(
            help="two-step, two-step-without-qr, monolithic or monolithic-projected.", show_default="two-step"
        ),
    ] = None,
    preset: Preset = None,
    seed: Seed = None,
    samples: Samples = None,
    iterations: Iterations = None,
    settings: Settings = None,
    scheduler: Scheduler = None,
    devices: Devices = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train an operator on the data of a problem.

    Generates the data, trains, evaluates and writes a report. Problems: nonlinear-conductivity,
    discontinuous-conductivity, multiple-inputs, random-conductivity, binary-darcy, riemann, riemann-strong,
    burgers-front.

    Example: trunkfirst run nonlinear-conductivity --iterations 5000
    """
    from ..run_data import load_run_data
    from ..runs.run import run as run_config
    from .resolve import default_folder, resolve

    is_leader = _join_processes()
    (config,) = resolve(
        target,
        methods=None if method is None else [method],
        preset=preset,
        seed=seed,
        samples=samples,
        iterations=iterations,
        settings=_with_devices(settings, devices),
    )
    folder = out or default_folder(f"{config.name}-{config.method.name}-seed{config.seed}")
    with TerminalReporter(quiet=quiet or json or not is_leader) as reporter:
        if scheduler is not None:
            # the run then finds the data in the cache
            load_run_data(config.data, config.problem, scheduler=scheduler, reporter=reporter)
        outcome = run_config(config, folder, reporter=reporter)
    return _show_run(outcome, json, quiet) if is_leader else 0


def compare(
    target: Target,
    methods: Annotated[
        str, typer.Option(help="Methods, comma separated.")
    ] = "two-step,two-step-without-qr,monolithic",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds for each method.")] = 1,
    preset: Preset = None,
    seed: Seed = None,
    samples: Samples = None,
    iterations: Iterations = None,
    settings: Settings = None,
    scheduler: Scheduler = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with several methods on the same data.

    Prints one row per method and seed, and compares the results with the paper's.

    Example: trunkfirst compare nonlinear-conductivity --seeds 5
    """
    from ..run_data import load_run_data
    from ..runs.compare import compare as run_all
    from .resolve import default_folder, resolve

    is_leader = _join_processes()
    configs = resolve(
        target,
        methods=list(dict.fromkeys(name.strip() for name in methods.split(","))),
        preset=preset,
        seed=seed,
        samples=samples,
        iterations=iterations,
        settings=settings or [],
    )
    folder = out or default_folder(f"{configs[0].name}-compare")
    with TerminalReporter(quiet=quiet or json or not is_leader) as reporter:
        if scheduler is not None:
            load_run_data(configs[0].data, configs[0].problem, scheduler=scheduler, reporter=reporter)
        comparison = run_all(configs, folder, seeds=seeds, reporter=reporter)
    return _show_comparison(comparison, json, quiet) if is_leader else 0


def fit(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your data: .npz, .mat, .h5, .nc, .zarr, a folder of meshes or of CSV files.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; must not exist or be empty.")] = Path(
        "runs/fit"
    ),
    settings_file: Annotated[
        Path | None,
        typer.Option("--config", help="Settings in a TOML file; all are optional.", show_default=False),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Time allowed; less is used where more cannot pay.")
    ] = 5.0,
    test_share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=0.9, help="Share of the samples held back for testing; may be 0.", show_default="0.1"
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="Add the samples to those of an earlier fit.", show_default=False
        ),
    ] = None,
    suggested: Annotated[
        bool,
        typer.Option(
            "--suggested",
            help="The samples were asked for by `trunkfirst suggest`: they train, but errors and intervals are "
            "measured without them. A file with is_suggested needs no option.",
        ),
    ] = False,
    cross_validate: Annotated[
        bool,
        typer.Option(
            "--cross-validate",
            help="Then fit without each fifth of all samples in turn, in as many minutes as the fit may take, and "
            "write the errors there to cross_validation.json.",
        ),
    ] = False,
    seed: Seed = None,
    settings: Settings = None,
    devices: Devices = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train on your own data: a file with inputs, points and outputs.

    All settings are optional. Trunk, branch, encoder and weights are chosen by the error of the whole operator on
    samples that are left out. Closed forms come first, and an operator is saved within seconds; then networks are
    tried as long as they can pay. PCA + ridge and PCA + kernel ridge are measured on the same samples. All choices
    are written to config.toml and can be set by hand. `trunkfirst data check FILE` shows what a file contains.

    Example: trunkfirst fit --data my.npz --out runs/mine
    """
    from ..cross_validation import cross_validate_run
    from ..data.named_arrays import parse_keys
    from ..files.integrity import verify_run
    from ..runs.config import make_config
    from ..runs.more_samples import fit_more
    from ..runs.run import run as run_config
    from ..settings import put
    from .resolve import fit_values

    if cross_validate and earlier is not None:
        raise UsageError("--cross-validate is for the samples of one file; leave out --from")
    is_leader = _join_processes()
    values = fit_values(
        data,
        settings_file,
        minutes=minutes,
        test_share=test_share,
        seed=seed,
        settings=_with_devices(settings, devices),
        keys=parse_keys(keys or []),
    )
    if suggested:
        put(values, ["data", "suggested"], True)
    if earlier is not None:
        verify_run(earlier)
    with TerminalReporter(quiet=quiet or json or not is_leader) as reporter:
        found = None
        if earlier is None:
            config = make_config(values)
            outcome = run_config(config, out, reporter=reporter)
            found = cross_validate_run(config, out, reporter) if cross_validate else None
        else:
            outcome = fit_more(values, out, earlier, reporter=reporter)
    if not is_leader:
        return 0
    code = _show_run(outcome, json, quiet)
    for name, value in {} if found is None or json else found.rows().items():
        say(f"cross-validation, {name}: {value}", quiet=quiet)
    return code


def resume(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of an interrupted run, fit, comparison or sweep.")
    ],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Continue an interrupted run, fit, comparison or sweep.

    The result is bit-identical to that without interruption. Ctrl-C, SIGTERM, a crash or a power failure cost at
    most checkpoint_seconds (30) of work.

    Example: trunkfirst resume runs/mine
    """
    from ..runs.compare import Comparison
    from ..runs.resume import resume as resume_folder
    from ..runs.sweeps import Sweep
    from .parallel import show_sweep

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such run")
    is_leader = _join_processes()
    with TerminalReporter(quiet=quiet or json or not is_leader) as reporter:
        result = resume_folder(folder, reporter=reporter, on_run=reporter.on_run)
    if not is_leader:
        return 0
    if isinstance(result, Comparison):
        return _show_comparison(result, json, quiet)
    if isinstance(result, Sweep):
        return show_sweep(result, json=json, quiet=quiet)
    if result is not None:
        return _show_run(result, json, quiet)
    left = "nothing was left to do"
    if not (folder / "report.html").is_file():  # it was killed before this was written, as the last of all files
        left = f"its report was missing and is written now: {write_run_report(folder)}"
    if json:
        print_json({"status": "finished"})
    else:
        say(f"{folder} is already finished; {left}", quiet=quiet)
    return 0


def _join_processes() -> bool:
    """Join the other processes of a launcher, if any; True in the one that prints and writes the report."""
    from ..distributed.processes import is_leader, join_processes

    join_processes()
    return is_leader()


def _with_devices(settings: list[str] | None, devices: int | None) -> list[str]:
    """`--devices N` is `--set devices=N`."""
    return [*(settings or []), *([] if devices is None else [f"devices={devices}"])]


def write_run_report(folder: Path, data: object = None) -> Path:
    """Write the report of a run, comparison or sweep; with its data, if at hand, they are not read again."""
    from ..data.operator_data import OperatorData
    from ..report.pages import write_report
    from ..report.sweep_page import write_sweep

    if (folder / "sweep.json").is_file():
        return write_sweep(folder)
    return write_report(folder, data=data if isinstance(data, OperatorData) else None)


def _show_run(outcome: "Outcome", json: bool, quiet: bool) -> int:
    page = write_run_report(outcome.folder)
    if json:
        print_json(outcome.metrics)
    else:
        _print_metrics(outcome.config.name, [outcome.metrics], quiet)
        for line in _validation_lines(outcome.metrics):
            say(line, quiet=quiet)
        say(f"report: {page}", quiet=quiet)
    return 0


def _validation_lines(metrics: dict[str, Any]) -> list[str]:
    """The error on samples that were left out, with the baselines."""
    from ..records import BASELINES

    error = (metrics.get("validation") or {}).get("mean_relative_l2")
    if error is None:
        return []
    baselines = metrics.get("baseline") or []
    known = [f"{BASELINES[each['kind']]} {number(each['mean_relative_l2'])}" for each in baselines]
    return [f"validation error {number(error)}" + (f" ({', '.join(known)})" if known else "")]


def _show_comparison(comparison: "Comparison", json: bool, quiet: bool) -> int:
    page = write_run_report(comparison.folder, comparison.data)
    metrics = [outcome.metrics for outcome in comparison.outcomes]
    if json:
        print_json(metrics)
        return 0
    _print_metrics(comparison.outcomes[0].config.name, metrics, quiet)
    claims = [
        [claim.claim, claim.paper, claim.ours, {True: "yes", False: "no", None: "-"}[claim.holds]]
        for claim in comparison.claims
    ]
    print_table("the paper's claims", ["claim", "paper", "ours", "holds"], claims, quiet=quiet)
    say(f"report: {page}", quiet=quiet)
    return 0


def _print_metrics(title: str, metrics: list[dict[str, Any]], quiet: bool) -> None:
    rows = [_metrics_row(each) for each in metrics]
    print_table(title, list(rows[0]), [list(row.values()) for row in rows], quiet=quiet)


def _metrics_row(metrics: dict[str, Any]) -> dict[str, str]:
    """The most important metrics of a run, by the title of their column."""
    trunk, branch, test = metrics["trunk"], metrics["branch"] or {}, metrics["test"] or {}
    status = "" if metrics["status"] == "finished" else f" ({metrics['status']})"
    return {
        "method": f"{metrics['method']}{status}",
        "seed": str(metrics["seed"]),
        "loss": number(trunk["loss"]),
        "branch loss": number(branch.get("loss")),
        "rank": str(trunk["rank"]),
        "test mean": number(test.get("mean_relative_l2")),
        "median": number(test.get("median_relative_l2")),
        "max": number(test.get("max_relative_l2")),
        "optimal": number(test.get("optimal_mean_relative_l2")),
        "seconds": f"{trunk['seconds'] + branch.get('seconds', 0):.0f}",
    }
