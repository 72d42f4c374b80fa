"""`trunkfirst launch`."""

import sys

from ..runs import Launch, launch


def launch_command(plan: Launch) -> int:
    """Start the processes; they print, the launcher itself says only what goes wrong."""

    def say(text: str) -> None:
        if "--quiet" not in plan.arguments:
            print(f"trunkfirst launch: {text}", file=sys.stderr)  # noqa: T201

    return launch(plan, say=say)
