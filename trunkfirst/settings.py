"""Records: frozen, validated settings that are at once the Python interface and the configuration file.

A record is a dataclass checked by pydantic. Where several kinds are possible, the field `kind` distinguishes
them, in Python by the class, in a file by its text. An unknown key is an error that lists the keys that exist.
"""

import dataclasses as dc
import difflib
import functools as ft
import json
import operator
import tomllib
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import Field
from pydantic_core import PydanticSerializationError, core_schema

from .errors import SettingError, TrunkfirstError, UnknownNameError, ValueRangeError

__all__ = [
    "Field",
    "OneOf",
    "from_values",
    "kind_field",
    "kind_of",
    "merge",
    "parse_setting",
    "put",
    "record",
    "record_types",
    "to_toml",
    "to_values",
]

T = TypeVar("T")
_CONFIG = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(Field, dc.field))
def record(cls: type[T]) -> type[T]:
    """Make a class a record: a frozen dataclass whose fields are validated, with errors of this library."""
    made = pydantic.dataclasses.dataclass(frozen=True, config=_CONFIG)(cls)
    init = made.__init__

    @ft.wraps(init)
    def checked(self: Any, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except pydantic.ValidationError as error:
            names = _positional(made)
            raise _explain(error, made, dict(zip(names, args, strict=False)) | values) from None

    made.__init__ = checked
    return typing.cast("type[T]", made)


def kind_field(kind: str) -> Any:
    """The field `kind` of one record among several: `kind: Literal["qr"] = kind_field("qr")`."""
    return Field(default=kind, kw_only=True, repr=False)


class OneOf:
    """Marks a field that takes one of several records: `Annotated[AbstractTrunk, OneOf(NetworkTrunk, ...)]`.

    A value is an instance of the annotated type, a user's own subclass included; the name of a kind; or plain
    values with a `kind`.
    """

    def __init__(self, *options: type) -> None:
        self.options = options

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> Any:
        union: Any = ft.reduce(operator.or_, self.options)
        schema = handler.generate_schema(Annotated[union, Field(discriminator="kind")])

        def one_of(value: Any, validate: Callable[[Any], Any]) -> Any:
            if isinstance(value, source):
                return value
            return validate({"kind": value} if isinstance(value, str) else value)

        return core_schema.no_info_wrap_validator_function(one_of, schema)


def from_values(record_type: type[T], values: Any) -> T:
    """The record of nested plain `values`; the first thing wrong raises an error that names the key."""
    values = _with_defaults(record_type, values)
    try:
        return _adapter(record_type).validate_python(values)
    except pydantic.ValidationError as error:
        raise _explain(error, record_type, values) from None


def _with_defaults(owner: Any, values: Any) -> Any:
    """`values`, where a section of the default's kind, or of none, changes the default that its owner gives it."""
    if not isinstance(values, dict) or not dc.is_dataclass(owner):
        return values
    defaults: dict[str, Any] = {field.name: _default(field) for field in dc.fields(owner) if field.name in values}
    sections = {name: to_values(default) for name, default in defaults.items() if dc.is_dataclass(default)}
    merged = merge(sections, values)
    return {name: _with_defaults(_member(_options(owner, name), value), value) for name, value in merged.items()}


def _default(field: dc.Field[Any]) -> Any:
    return getattr(field.default, "default", field.default)


def to_values(settings: Any) -> dict[str, Any]:
    """The record as nested plain values, its kind first, without those that are None; `from_values` reads it."""
    try:
        values = _adapter(type(settings)).dump_python(settings, mode="json", warnings="error")
    except PydanticSerializationError as error:
        raise SettingError("a part of the method is an object of your own, which no file can describe") from error
    return _without_none(values)


@ft.cache
def _adapter(record_type: type[T]) -> pydantic.TypeAdapter[T]:
    return pydantic.TypeAdapter(record_type)


def _without_none(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    ordered = sorted(values.items(), key=lambda item: item[0] != "kind")
    return {name: _without_none(value) for name, value in ordered if value is not None}


# Errors

_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")


def _explain(error: pydantic.ValidationError, record_type: type, values: Any) -> Exception:
    """The first error in words; places inside a union carry its tag, which is no key."""
    found: list[Any] = error.errors()
    first = next((each for each in found if each["type"] in _UNKNOWN_KEY), found[0])
    key, owner, options = _locate(first["loc"], record_type, values)
    name = ".".join(key)
    if first["type"] in _UNKNOWN_KEY:
        known = _names(owner)
        others = [kind for option in options if key[-1] in _names(option) and (kind := kind_of(option))]
        close = difflib.get_close_matches(key[-1], known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        if others:
            of = " or ".join(f"{'.'.join([*key[:-1], 'kind'])} = {kind}" for kind in others)
            hint = f"{kind_of(owner)} has none, set {of}; "
        return SettingError(f"there is no setting {name!r}; {hint}known here: {', '.join(known)}")
    if first["type"] == "union_tag_invalid":
        expected = first["ctx"]["expected_tags"].replace("'", "").split(", ")
        return UnknownNameError(f"{name} of kind", str(first["ctx"]["tag"]), tuple(expected))
    if isinstance(first["input"], type):
        made = first["input"].__name__
        return ValueRangeError(f"{made} is a class; give one of its objects, {made}()")
    if first["type"] in ("model_attributes_type", "dataclass_type") and (kinds := _kinds(owner, key)):
        return ValueRangeError(f"setting {name} is {first['input']!r}; give one of: {', '.join(kinds)}")
    if first["type"] == "union_tag_not_found":
        return SettingError(f"setting {name + '.kind'!r} is missing")
    if first["type"] in ("missing", "missing_argument"):
        return SettingError(f"setting {name!r} is missing")
    if isinstance(cause := first.get("ctx", {}).get("error"), TrunkfirstError):
        return cause
    if isinstance(cause, Exception):
        return ValueRangeError(f"{name}: {cause}" if name else str(cause))
    hint = ", such as (50, 50)" if first["type"] == "tuple_type" else ""
    return ValueRangeError(f"setting {name} is {first['input']!r}: {first['msg'].lower()}{hint}")


def _kinds(owner: Any, key: list[str]) -> list[str]:
    """The kinds that a setting takes, as records in Python and words in files."""
    return [f"{option.__name__}() or {kind_of(option)!r}" for option in _options(owner, key[-1])]


def _names(record_type: Any) -> list[str]:
    """The settings of a record type, without its kind."""
    is_record = dc.is_dataclass(record_type)
    return [field.name for field in dc.fields(record_type) if field.name != "kind"] if is_record else []


def _locate(place: tuple[int | str, ...], record_type: Any, values: Any) -> tuple[list[str], Any, list[Any]]:
    """The keys on the path to an error, the record type that owns the last, and the types it could have been."""
    keys: list[str] = []
    owner: Any = record_type
    options: list[Any] = []
    names = _positional(owner)
    is_tag = False  # of a union; it may have the name of a key
    for part in place:
        if isinstance(part, int) and not keys and part < len(names):
            part = names[part]  # a positional argument
        is_tag = not is_tag and bool(keys) and isinstance(values, dict) and part == values.get("kind")
        if is_tag:
            continue
        if keys:
            options = _options(owner, keys[-1])
            owner = _member(options, values)
        keys.append(str(part))
        values = values.get(part) if isinstance(values, dict) else getattr(values, str(part), None)
        values = {"kind": values} if isinstance(values, str) else values
    return keys, owner, options


def _positional(record_type: Any) -> list[str]:
    """The fields that can be given without their names."""
    return [field.name for field in dc.fields(record_type) if not field.kw_only]


def _options(owner: Any, name: str) -> list[Any]:
    """The record types that field `name` of `owner` takes."""
    if not dc.is_dataclass(owner):
        return []
    return record_types(typing.get_type_hints(owner, include_extras=True).get(name))


def _member(options: list[Any], values: Any) -> Any:
    """The record type among `options` that the kind in `values` names."""
    kind = values.get("kind") if isinstance(values, dict) else None
    return next((option for option in options if kind is None or kind_of(option) == kind), None)


def kind_of(record_type: Any) -> str | None:
    """The kind of a record type, if it has one."""
    return next((_default(field) for field in dc.fields(record_type) if field.name == "kind"), None)


def record_types(annotation: Any) -> list[Any]:
    """The record types that a field with this annotation takes."""
    return [option for option in _flatten(annotation) if dc.is_dataclass(option)]


def _flatten(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        first, *marks = typing.get_args(annotation)
        return next((list(mark.options) for mark in marks if isinstance(mark, OneOf)), _flatten(first))
    if origin in (typing.Union, types.UnionType):
        return [option for part in typing.get_args(annotation) for option in _flatten(part)]
    return [annotation]


# Nested values: settings from a command, merging, TOML


def parse_setting(text: str) -> tuple[list[str], Any]:
    """`a.b=c` of the option `--set`: the path and the value, read as TOML and otherwise taken as a word."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise SettingError(f"--set {text!r}: expected key=value, e.g. --set trunk.iterations=5000")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return key.split("."), parsed


def put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Set `values[a][b] = value` for the path [a, b]."""
    *sections, name = path
    for section in sections:
        inner = values.setdefault(section, {})
        if isinstance(inner, str):  # a kind by its name
            inner = values[section] = {"kind": inner}
        if not isinstance(inner, dict):
            raise SettingError(f"there is no setting {'.'.join(path)!r}: {section} is a value")
        values = inner
    values[name] = value


def merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    """`low` overridden by `high`, section by section; a section of another kind replaces the whole.

    A section that names no kind goes with any, so that nothing that was given is dropped in silence.
    """
    merged = dict(low)
    for name, value in high.items():
        old: Any = merged.get(name)
        new: Any = {"kind": value} if isinstance(value, str) and isinstance(old, dict) else value
        is_same = isinstance(new, dict) and isinstance(old, dict)
        is_same = is_same and (None in (kinds := (old.get("kind"), new.get("kind"))) or kinds[0] == kinds[1])
        merged[name] = merge(old, new) if is_same else new
    return merged


def to_toml(settings: Any) -> str:
    """The record as a TOML document."""
    return "\n".join(_toml_lines(to_values(settings), ())).lstrip("\n") + "\n"


def _toml_lines(values: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {name: value for name, value in values.items() if not isinstance(value, dict)}
    lines = ["", f"[{'.'.join(path)}]"] if path and plain else []
    lines += [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in plain.items()]
    for name, value in values.items():
        if isinstance(value, dict):
            lines += _toml_lines(value, (*path, _toml_key(name)))
    return lines


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(name)} = {_toml_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def setting_text(value: Any) -> str:
    """A value as text; hidden widths as 50x50, a record by its kind and values."""
    if isinstance(value, dict):
        return "-".join(map(setting_text, value.values()))
    if isinstance(value, (list, tuple)):
        return "x".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
