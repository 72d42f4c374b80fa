"""Settings of the documentation site: `make docs` builds it, with warnings as errors."""

import re

from sphinx.ext.napoleon import Config, GoogleDocstring

import trunkfirst

project = "trunkfirst"
author = "The trunkfirst authors"
project_copyright = "The trunkfirst authors"
version = release = trunkfirst.__version__

highlight_language = "text"
smartquotes = False  # they would make a dash of the "--" of an option
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries = False

html_theme = "furo"
html_title = f"trunkfirst {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
templates_path: list[str] = []


def setup(app) -> None:
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("autodoc-process-signature", with_short_names)
    app.connect("html-page-context", keep_numbers_whole)


def keep_numbers_whole(app, name, template, context: dict, doctree) -> None:
    """Browsers would break 2.11e-7, --out and SHA-256 at their hyphens and 3 % at its space."""
    del app, name, template, doctree
    whole = re.compile(r"(?<![\w./-])(\d[\d.,]*e-\d+|--?[a-z][\w-]*|SHA-256|Ctrl-C)(?=[^<>]*<)")
    body = whole.sub(r'<span class="whole">\1</span>', context.get("body", ""))
    parts = re.split(r"(<pre>.*?</pre>)", body, flags=re.DOTALL)
    parts[::2] = [re.sub(r"(?<=\d) %", "&#160;%", part) for part in parts[::2]]
    context["body"] = "".join(parts)


def as_restructured_text(app, what, name, thing, options, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in single backticks; here they become what Sphinx reads."""
    del app, name, options
    if what == "class":
        lines += _settings(thing)
    if what != "attribute":  # where "word: text" would be read as a type
        lines[:] = GoogleDocstring(lines, Config(napoleon_use_ivar=True, napoleon_use_rtype=False)).lines()
    found: list[str] = []
    is_fenced = is_doctest = False
    for line in lines:
        is_doctest = bool(line.strip()) and (is_doctest or line.lstrip().startswith(">>>"))
        if line.startswith("```"):
            is_fenced = not is_fenced
            found += ["::", ""] if is_fenced else [""]
        else:
            found.append(f"    {line}" if is_fenced else line if is_doctest else _line(line))
    lines[:] = found


def _settings(thing) -> list[str]:
    """The fields of a record with their descriptions, as arguments."""
    fields = getattr(thing, "__pydantic_fields__", {})
    described = [f"    {name}: {field.description}" for name, field in fields.items() if field.description]
    return ["", "Args:", *described, ""] if described else []


def _line(text: str) -> str:
    pieces = re.split(r"`+([^`]+)`+", text)
    escape = re.compile(r"([*|\\]|_(?=\W|$))")
    return "".join(f"``{piece}``" if i % 2 else escape.sub(r"\\\1", piece) for i, piece in enumerate(pieces))


def with_short_names(app, what, name, thing, options, signature: str | None, returned: str | None):
    """Shorten the names of arrays; show records with their defaults only."""
    del app, name, options
    if what == "class" and hasattr(thing, "__pydantic_fields__"):
        return _record_signature(thing), None
    return tuple(
        text and re.sub(r"jaxlib\._jax\.Array|\bjax\.Array", "Array", text) for text in (signature, returned)
    )


def _record_signature(record) -> str:
    fields = {
        name: field for name, field in record.__pydantic_fields__.items() if name != "kind" and not field.exclude
    }
    positional = [_argument(name, field) for name, field in fields.items() if not field.kw_only]
    by_keyword = [_argument(name, field) for name, field in fields.items() if field.kw_only]
    return f"({', '.join([*positional, *(['*'] if by_keyword else []), *by_keyword])})"


def _argument(name: str, field) -> str:
    if field.is_required():
        return name
    value = field.get_default(call_default_factory=True)
    return f"{name}={type(value).__name__}()" if hasattr(value, "__pydantic_fields__") else f"{name}={value!r}"
