"""Writes docs/commands.md from the command line itself: python docs/make_commands.py."""

import re
import textwrap
from pathlib import Path

import typer

from trunkfirst import errors
from trunkfirst.cli._app import app

HEAD = """# Commands

Everything that `trunkfirst COMMAND --help` says. Every command has `--json` (one object on standard output and
nothing else there) and `--quiet`; progress goes to standard error. Lists are comma separated. This page is made by
`python docs/make_commands.py`; a test keeps it true.
"""


def page() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    commands = dict(_flat(group, "trunkfirst"))
    summary = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_first(command)} |" for name, command in commands.items()
    ]
    table = "| command | does |\n| --- | --- |\n" + "\n".join(summary)
    return "\n\n".join([HEAD + "\n" + table, *map(_section, commands.items()), _exit_codes()]) + "\n"


def _flat(group, prefix: str):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _flat(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _first(command) -> str:
    return _cell(command.help.split("\n\n")[0])


def _section(item) -> str:
    name, command = item
    context = command.context_class(command, info_name=name)
    paragraphs = [_paragraph(text) for text in command.help.split("\n\n")]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in filter(None, records)]
    table = "| option | meaning |\n| --- | --- |\n" + "\n".join(rows)
    return "\n\n".join([f"## {name}", f"```\n{usage}\n```", *paragraphs, table])


def _paragraph(text: str) -> str:
    text = " ".join(text.split())
    example, is_example, command = text.partition("Example: ")
    return f"```\n{command}\n```" if is_example and not example else textwrap.fill(text, 115)


def _cell(text: str) -> str:
    text = re.sub(r"default: \((.*?)\)", r"default: \1", " ".join(text.split()))
    return text.replace("<int range>", "<int>").replace("<float range>", "<float>").replace("|", r"\|")


def _exit_codes() -> str:
    tree = errors.__doc__.split("```")[1].strip("\n")
    ends = (
        "0 is success; 130 follows Ctrl-C, 143 SIGTERM. In Python the same are exceptions of `trunkfirst.errors`."
    )
    return f"## Exit codes\n\n{ends}\n\n```\n{tree}\n```"


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(page(), encoding="utf-8")
