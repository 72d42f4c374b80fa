"""`trunkfirst resume`."""

from pathlib import Path

from ..distributed.processes import is_leader, join_processes
from ..runs import Comparison, Sweep, resume
from ._compare import show_comparison
from ._console import TerminalReporter, print_json, say
from ._run import show_outcome
from .parallel import show_sweep


def resume_command(folder: Path, *, json: bool, quiet: bool) -> int:
    """Go on with a run, fit, comparison or sweep that was broken off."""
    join_processes()
    quiet = quiet or not is_leader()
    with TerminalReporter(quiet=quiet or json) as reporter:
        result = resume(folder, reporter=reporter, on_run=reporter.on_run)
    if isinstance(result, Comparison):
        return show_comparison(result, json=json, quiet=quiet)
    if isinstance(result, Sweep):
        return show_sweep(result, json=json, quiet=quiet)
    if result is not None:
        return show_outcome(result, json=json, quiet=quiet)
    if json and is_leader():
        print_json({"status": "finished"})
    else:
        say(f"{folder} is finished already; nothing was left to do", quiet=quiet)
    return 0
