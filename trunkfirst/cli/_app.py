"""The command line. Commands are thin: read options, call the library, print."""

import sys
import warnings
from typing import Annotated

import typer
from typer.exceptions import TyperException

from .._version import __version__
from ..errors import Terminated, TrunkfirstError, UsageError
from ._data_app import data_app
from ._theory_app import diagnose, sensors, study
from ._train_app import compare, fit, resume, run
from ._use_app import doctor, evaluate, export, predict, report, serve
from .parallel import LAUNCH_SETTINGS, launch, sweep

app = typer.Typer(
    name="trunkfirst",
    help="Trains deep operator networks (DeepONets) trunk first: fit the trunk, orthonormalise, fit the branch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"trunkfirst {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version


for command in (run, compare, fit, resume, sweep):
    app.command()(command)
app.command(context_settings=LAUNCH_SETTINGS)(launch)
for command in (evaluate, predict, report, export, serve, diagnose, sensors, study, doctor):
    app.command()(command)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code, and turns our own errors into one line each."""
    warnings.showwarning = _show_warning
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=arguments or ["--help"], standalone_mode=False, prog_name="trunkfirst")
    except TyperException as error:
        # Where Typer has a sentence that names the parameter, that is the better one.
        sentence = getattr(error, "format_message", error.__str__)()
        print(f"trunkfirst: {sentence}", file=sys.stderr)  # noqa: T201
        return UsageError.exit_code
    except TrunkfirstError as error:
        print(f"trunkfirst: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt as error:
        print("trunkfirst: interrupted", file=sys.stderr)  # noqa: T201
        return 143 if isinstance(error, Terminated) else 130
    return code if isinstance(code, int) else 0


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"trunkfirst: warning: {message}", file=sys.stderr)  # noqa: T201
