"""Writes docs/settings.md from the records of the configuration: python docs/make_settings.py."""

import inspect
import json
import typing
from pathlib import Path
from typing import Any

from trunkfirst.runs.config import RunConfig
from trunkfirst.settings import kind_of, record_types

HEAD = """# Settings

This page lists every setting with its default. A configuration is a tree of records. The same records are the
Python interface:
`trunkfirst.NetworkTrunk(hidden=(50, 50), width=20)` in Python is

```
[method.trunk]
kind = "network"
hidden = [50, 50]
width = 20
```

in a file (`trunkfirst run my.toml`), and `--set trunk.hidden=[50,50] --set trunk.width=20` on the command line,
where `method.` may be left out. Where several kinds of record are possible, `kind` says which one; the word alone
is short for a record with its defaults: `--set branch=kernel`. Later sources override earlier ones: defaults,
preset, file, options, `--set`. An unknown setting, or one that the chosen kind does not have, is an error.

This page is written by `python docs/make_settings.py`; a test checks that it is up to date.
"""


def page() -> str:
    """A section for each record, in the order in which they are found from the top."""
    places: dict[Any, list[str]] = {}
    _visit(RunConfig, "", places)
    return "\n\n".join([HEAD.strip(), *(_section(record, paths) for record, paths in places.items())]) + "\n"


def _visit(record: Any, path: str, places: dict[Any, list[str]]) -> None:
    """Note that this record, and those inside, may be at this path."""
    known = places.setdefault(record, [])
    if path not in known:
        known.append(path)
    for name in _names(record):
        for option in _options(record, name):
            if option is not record:  # samples added to samples: the same settings again
                _visit(option, f"{path}.{name}".strip("."), places)


def _names(record: Any) -> list[str]:
    return [name for name, field in record.__pydantic_fields__.items() if name != "kind" and not field.exclude]


def _options(record: Any, name: str) -> list[Any]:
    return record_types(typing.get_type_hints(record, include_extras=True)[name])


def _section(record: Any, paths: list[str]) -> str:
    kind = kind_of(record)
    tables = ", ".join(f"`[{path}]`" for path in paths if path)
    place = f'{tables}, `kind = "{kind}"`' if kind else tables
    about = (inspect.getdoc(record) or "").partition("\n\n>>>")[0]
    rows = [f"| `{name}` | {_default(record, name)} | {_meaning(record, name)} |" for name in _names(record)]
    table = "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows])
    parts = (f"## {record.__name__}", place, about, table if rows else "")
    return "\n\n".join(part for part in parts if part)


def _default(record: Any, name: str) -> str:
    field = record.__pydantic_fields__[name]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "-"
    if _options(record, name):
        return f"`{kind_of(type(value))}`" if kind_of(type(value)) else "its defaults"
    return f"`{json.dumps(value)}`"


def _meaning(record: Any, name: str) -> str:
    described = record.__pydantic_fields__[name].description
    options = [_link(option) for option in _options(record, name)]
    return ": ".join(part for part in (described, ", ".join(options)) if part)


def _link(record: Any) -> str:
    return f"[{record.__name__}](#{record.__name__.lower()})"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(page(), encoding="utf-8")
