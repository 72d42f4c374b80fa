"""Commands that train: run, compare, fit, sweep, resume, launch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FailedRunsError, UsageError
from ..progress import TerminalReporter
from . import console
from .console import (
    Devices,
    Iterations,
    Json,
    Keys,
    Out,
    Preset,
    Quiet,
    Rows,
    Samples,
    Scheduler,
    Seed,
    Settings,
    Target,
    default_folder,
    metrics_table,
    say,
    show,
    validation_lines,
)

if TYPE_CHECKING:
    from ..runs.compare import Comparison
    from ..runs.run import Outcome
    from ..runs.sweeps import Sweep

# Options after the launched command belong to that command.
LAUNCH_SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}


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
    from ..runs.config import resolve
    from ..runs.run import run as run_config

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
    workers: Annotated[
        int,
        typer.Option(min=1, help="Number of parallel processes; with more than one, less progress is printed."),
    ] = 1,
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

    Prints a row for each method and seed, and compares the results with those of the paper.

    Example: trunkfirst compare nonlinear-conductivity --seeds 5
    """
    from ..run_data import load_run_data
    from ..runs.compare import compare as run_all
    from ..runs.config import resolve

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
        comparison = run_all(configs, folder, seeds=seeds, workers=workers, reporter=reporter)
    return _show_comparison(comparison, json, quiet) if is_leader else 0


def fit(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The data; short for --data FILE.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data: .npz, .mat, .h5, .nc, .zarr, or a folder of meshes, .csv or .npy files.",
            show_default=False,
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
        float, typer.Option(min=0.1, help="Time limit; the fit ends earlier if more time would not help.")
    ] = 5.0,
    test_share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=0.9, help="Share of the samples held back for the test; 0 for none.", show_default="0.1"
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Folder of an earlier fit, to whose samples these are added.",
            show_default=False,
        ),
    ] = None,
    suggested: Annotated[
        bool,
        typer.Option(
            "--suggested",
            help="The samples are those that trunkfirst suggest asked for: use them for training only, not to "
            "measure errors and intervals. Not needed for a file with is_suggested.",
        ),
    ] = False,
    cross_validate: Annotated[
        bool,
        typer.Option(
            "--cross-validate",
            help="Afterwards, leave out each fifth of all samples in turn, fit again, and write the "
            "errors to cross_validation.json. May take as many minutes again.",
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

    Trunk, branch, encoder and weights are chosen by the error of the whole operator on samples that are left out.
    Methods in closed form are tried first, and an operator is saved within seconds; then networks, if they can
    still reduce the error. PCA + ridge and PCA + kernel ridge are measured on the same samples. All choices are
    written to config.toml and can be made with --set. `trunkfirst data check FILE` shows what a file contains.

    Example: trunkfirst fit my.npz --out runs/mine
    """
    from ..data.named_arrays import parse_keys
    from ..files.integrity import verify_run
    from ..interface import run_cross_validated
    from ..runs.config import fit_values, make_config
    from ..runs.resume import fit_more
    from ..runs.run import run as run_config
    from ..settings import put

    if file is not None and data is not None:
        raise UsageError(f"two data files, {file} and --data {data}; give one, or --from DIR to add samples")
    if cross_validate and earlier is not None:
        raise UsageError("--cross-validate is for the samples of one file; leave out --from")
    is_leader = _join_processes()
    values = fit_values(
        file or data,
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
        if earlier is not None:
            outcome, found = fit_more(values, out, earlier, reporter=reporter), None
        elif cross_validate:
            outcome, found = run_cross_validated(make_config(values), out, reporter=reporter)
        else:
            outcome, found = run_config(make_config(values), out, reporter=reporter), None
    if not is_leader:
        return 0
    code = _show_run(outcome, json, quiet)
    for name, value in {} if found is None or json else found.rows().items():
        say(f"cross-validation, {name}: {value}", quiet=quiet)
    return code


def sweep(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="A configuration file with a section [sweep].")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; an interrupted sweep there is resumed.", show_default="runs/..."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel processes.", show_default="one for each core")
    ] = None,
    scheduler: Scheduler = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with every combination of some settings.

    Writes a table and a figure. The section [sweep] of the file has a list of values for each setting:
    width = [20, 40], inputs = ["raw", "standardise"], seed = [0, 1, 2].

    Example: trunkfirst sweep my.toml --out runs/widths
    """
    from ..files.integrity import absent
    from ..files.text_files import read_toml
    from ..runs.config import make_grid
    from ..runs.sweeps import sweep as run_all

    if not config.is_file():
        raise absent(config)
    grid = make_grid(read_toml(config))
    folder = out or default_folder(f"{config.stem}-sweep")
    with TerminalReporter(quiet=quiet or json) as reporter:
        reporter.say(f"{len(grid.configs)} runs in {folder}")
        found = run_all(
            grid, folder, workers=workers, scheduler=scheduler, on_run=reporter.on_run, reporter=reporter
        )
    return _show_sweep(found, json, quiet)


def resume(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of an interrupted run, fit, comparison or sweep.")
    ],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Continue an interrupted run, fit, comparison or sweep.

    The result is the same to the bit as without the interruption. Ctrl-C, SIGTERM, a crash or a power failure lose
    at most checkpoint_seconds (30) of work.

    Example: trunkfirst resume runs/mine
    """
    from ..checkpoints import lock_folder
    from ..files.integrity import no_run, remove_leftovers
    from ..runs.compare import Comparison
    from ..runs.resume import resume as resume_folder
    from ..runs.sweeps import Sweep

    if not folder.is_dir():
        raise no_run(folder)
    is_leader = _join_processes()
    with TerminalReporter(quiet=quiet or json or not is_leader) as reporter:
        result = resume_folder(folder, reporter=reporter, on_run=reporter.on_run)
    if not is_leader:
        return 0
    if isinstance(result, Comparison):
        return _show_comparison(result, json, quiet)
    if isinstance(result, Sweep):
        return _show_sweep(result, json, quiet)
    if result is not None:
        return _show_run(result, json, quiet)
    left = "nothing was left to do"
    if not (folder / "report.html").is_file():  # it was killed before this was written, as the last of all files
        with lock_folder(folder):
            remove_leftovers(folder, older_than=0)
        left = f"its report was missing and is written now: {console.write_run_report(folder)}"
    return show({"status": "finished"}, f"{folder} is already finished; {left}", json=json, quiet=quiet)


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="run, fit, compare or resume.")],
    processes: Annotated[int, typer.Option(min=1, help="Number of processes on this host.")],
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the first process.", show_default="a free port of this host"
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Number of hosts; each runs this command.")] = 1,
    node: Annotated[int, typer.Option(min=0, help="Index of this host, from 0.")] = 0,
    restarts: Annotated[int, typer.Option(min=0, help="How often to restart after a process is lost.")] = 3,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that processes wait for each other before one counts as hung.")
    ] = 600.0,
) -> int:
    """Train in several processes, on one or more hosts.

    Each process has a share of the points and samples. The first one prints and writes the results. All read the
    data and, after a restart, the run folder; several hosts must share both. If a process dies or hangs, all
    restart from the last checkpoint. Ctrl-C and SIGTERM write a checkpoint and end all processes.

    Under Slurm and Open MPI no launcher is needed: srun trunkfirst fit ...

    Example: trunkfirst launch --processes 2 fit --data my.npz --out runs/mine
    """
    from ..distributed.launch import Launch, launch as start

    def warn(text: str) -> None:
        if "--quiet" not in command:
            typer.echo(f"trunkfirst launch: {text}", err=True)

    return start(Launch(tuple(command), processes, coordinator, node, nodes, restarts, patience), say=warn)


def _join_processes() -> bool:
    """Join the other processes of a launcher, if any; True in the one that prints and writes the report."""
    from ..distributed.processes import is_leader, join_processes

    join_processes()
    return is_leader()


def _with_devices(settings: list[str] | None, devices: int | None) -> list[str]:
    """`--devices N` is `--set devices=N`."""
    return [*(settings or []), *([] if devices is None else [f"devices={devices}"])]


def _show_run(outcome: "Outcome", json: bool, quiet: bool) -> int:
    """Write the report of a run and print its metrics."""
    page = console.write_run_report(outcome.folder)
    table = metrics_table(outcome.config.name, [outcome.metrics])
    lines = (*validation_lines(outcome.metrics), f"report: {page}")
    return show(outcome.metrics, table, *lines, json=json, quiet=quiet)


def _show_comparison(comparison: "Comparison", json: bool, quiet: bool) -> int:
    """Write the report of a comparison and print its metrics and the paper's claims."""
    page = console.write_run_report(comparison.folder)
    metrics = [outcome.metrics for outcome in comparison.outcomes]
    claims = [
        [claim.claim, claim.paper, claim.ours, {True: "yes", False: "no", None: "-"}[claim.holds]]
        for claim in comparison.claims
    ]
    tables: tuple[Rows, ...] = (
        metrics_table(comparison.outcomes[0].config.name, metrics),
        ("the paper's claims", ["claim", "paper", "ours", "holds"], claims),
    )
    return show(metrics, *tables, f"report: {page}", json=json, quiet=quiet)


def _show_sweep(found: "Sweep", json: bool, quiet: bool) -> int:
    """Write the report of a sweep and print its table; return the exit code."""
    from ..report.pages import sweep_table

    page, summary = console.write_run_report(found.folder), found.summary()
    table = sweep_table(summary)
    lines = (*found.explain_failures(), f"report: {page}")
    show(summary, (table.caption, table.header, table.rows), *lines, json=json, quiet=quiet)
    return FailedRunsError.exit_code if found.failures else 0
