"""Writes docs/settings.md from the records of the configuration: python docs/make_settings.py."""

from pathlib import Path

from trunkfirst.runs import RunConfig

HEAD = """# Settings

Every setting, with its default. In a file (`trunkfirst run my.toml`) the sections are TOML tables; on the command
line `--set trunk.activation=tanh`. In rising order of force: these defaults, the preset, the file, options,
`--set`. An unknown setting, or one that the chosen method never looks at, is an error. This page is made by
`python docs/make_settings.py`; a test keeps it true.
"""


def page() -> str:
    """The whole page."""
    top = [f"| `{name}` | `{_default(field)}` | {field.description or ''} |" for name, field in _plain(RunConfig)]
    parts = [HEAD, "## Top\n\n| setting | default | meaning |\n| --- | --- | --- |\n" + "\n".join(top)]
    for name, field in RunConfig.model_fields.items():
        section = field.annotation
        if hasattr(section, "model_fields"):
            rows = [f"| `{name}.{key}` | `{_default(f)}` | {f.description} |" for key, f in _plain(section)]
            table = "| setting | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows)
            parts.append(f"## [{name}]\n\n{section.__doc__}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _plain(model):
    return [
        (name, field)
        for name, field in model.model_fields.items()
        if not hasattr(field.annotation, "model_fields")
    ]


def _default(field) -> str:
    if field.is_required():
        return "required"
    return "-" if field.default is None else str(field.default)


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(page(), encoding="utf-8")
