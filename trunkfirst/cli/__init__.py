"""The command line: all commands, and errors as one line and an exit code.

The modules of the commands import NumPy, JAX and most of the library inside the functions: help is fast, and the
number of threads is set before.
"""

import _thread
import os
import sys
import threading
import warnings
from typing import Annotated

import typer
from typer.exceptions import TyperException

from .. import __version__
from ..errors import Terminated, TrunkfirstError, UsageError, without_controls
from .data_commands import data_app
from .theory_commands import diagnose, sensors, study
from .train import LAUNCH_SETTINGS, compare, fit, launch, resume, run, sweep
from .use import doctor, evaluate, export, predict, report, serve, suggest

app = typer.Typer(
    name="trunkfirst",
    help="""Train deep operator networks (DeepONets) in two steps: the trunk first, then the branch.

    With your own data: trunkfirst fit --data my.npz --out runs/mine

    With a problem of the paper: trunkfirst run nonlinear-conductivity""",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"trunkfirst {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


# What other programs call it.
_HINTS = {
    "command 'train'": " Use trunkfirst fit FILE, or trunkfirst run PROBLEM.",
    "command 'test'": " Use trunkfirst evaluate DIR.",
    "command 'help'": " Use trunkfirst --help, or trunkfirst COMMAND --help.",
    "command 'version'": " Use trunkfirst --version.",
    "option: --iterations": ". Use --minutes, or --set trunk.iterations=N.",
    "option: --epochs": ". Use --minutes, or --set trunk.iterations=N.",
    "option: --method (Possible options: --set)": ". Use --set trunk.kind=K, branch.kind=K or method.kind=K.",
}

for command in (run, compare, fit, resume, sweep):
    app.command()(command)
app.command(context_settings=LAUNCH_SETTINGS)(launch)
for command in (evaluate, predict, suggest, report, export, serve, diagnose, sensors, study, doctor):
    app.command()(command)
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point of the console script."""
    _limit_threads()
    sys.unraisablehook = keep_interrupts
    try:
        code = run_command()
    except KeyboardInterrupt as error:  # a second one, while the first was handled
        code = 143 if isinstance(error, Terminated) else 130
    except Exception as error:
        from ..distributed.processes import unexpected_error_code

        code = unexpected_error_code(error)
    if "jax" in sys.modules:
        from ..distributed.processes import leave_processes

        code = leave_processes(code)
    sys.exit(code)


def _limit_threads() -> None:
    """Use one thread on one or two cores, half of the cores otherwise: the number decides the last bits of sums.

    XLA and the BLAS of NumPy and SciPy read these variables when they are loaded. Values already set are kept.
    """
    os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // 2)))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_interrupts(found: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C in a callback of the garbage collector, of which JAX has one, would be ignored: send it again."""
    if isinstance(found.exc_value, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(found)


def run_command(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. An error of this library is printed in one line."""
    warnings.showwarning = lambda message, *_: _print_error(f"warning: {message}")
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=arguments or ["--help"], standalone_mode=False, prog_name="trunkfirst")
    except TyperException as error:
        # `format_message`, where it exists, names the parameter
        message = getattr(error, "format_message", error.__str__)()
        hints = (hint for word, hint in _HINTS.items() if message.strip(".").endswith(word))
        _print_error(message + next(hints, ""))
        return UsageError.exit_code
    except TrunkfirstError as error:
        _print_error(error)
        return error.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt as error:
        _print_error("interrupted")
        return 143 if isinstance(error, Terminated) else 130
    if code == 130:  # Typer's own for Ctrl-C before the work begins
        _print_error("interrupted")
    return code if isinstance(code, int) else 0


def _print_error(message: object) -> None:
    lines = f"trunkfirst: {message}".split("\n")
    typer.echo("\n".join(map(without_controls, lines)), err=True)
