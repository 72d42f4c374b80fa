"""Text files: plain, templates, JSON, TOML, and tables as comma-separated values. None of them runs code."""

import array
import csv
import io
import itertools
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..errors import CorruptFileError, DataError, SettingError
from .integrity import atomic_write, inside, open_file, prepare_directory, read_bytes, reading

# Python needs up to 20 bytes of memory for a byte of JSON.
_MOST_JSON = 2**22
_MOST_TOML = 2**18
_MOST_TEXT = 2**26
_DEEPEST = 64
# A string, or a bracket outside of strings.
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)
# Of a table
_MOST_VALUES = 5_000_000
_LONGEST_LINE = 2**22
_MOST_WORDS = 10_000
_LONGEST_WORD = 1_000
# A table with more columns is a function at many sensors, whose names say nothing.
_MOST_TITLES = 100
_CSV_ERRORS = (UnicodeDecodeError, csv.Error)


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def read_text(path: Path | str) -> str:
    """Read UTF-8 text; damage is a `CorruptFileError` that names the file."""
    with reading(path, "text", UnicodeDecodeError):
        return read_bytes(path, most=_MOST_TEXT).decode()


def read_resource(path: str) -> str:
    """The text of a file inside this library, by its path from the top of it."""
    return files("trunkfirst").joinpath(path).read_text("utf-8")


def fill_template(path: str, *, filters: Mapping[str, Any] | None = None, **values: Any) -> str:
    """A Jinja template inside this library with these values, which are escaped if its name ends in .html."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("trunkfirst", ""),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(path).render(values)


# -- JSON


def write_json(path: Path | str, value: object) -> None:
    """Write strict JSON: a number that is not finite becomes null."""
    write_text(path, to_json(value) + "\n")


def to_json(value: object, *, indent: int | None = 2) -> str:
    """Return strict JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def read_json(path: Path | str) -> Any:
    """Read JSON; damage is a `CorruptFileError` that names the file."""
    return parse_json(read_bytes(path, most=_MOST_JSON), path)


def parse_json(text: bytes | str, source: object) -> Any:
    """Parse JSON; a repeated key or more than 64 levels are a `CorruptFileError` that names `source`."""
    with reading(source, "JSON", ValueError):
        text = text if isinstance(text, str) else text.decode()
        _check_depth(text)
        value = json.loads(text, object_pairs_hook=_without_repetition)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        return value


def _check_depth(text: str) -> None:
    depth = 0
    for mark in _MARKS.finditer(text):
        depth += (mark[1] is not None) - (mark[2] is not None)
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} nested brackets")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in found if names.count(name) > 1)!r} is given twice")
    return found


# -- TOML


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a configuration file; a syntax error is a `SettingError` with the line."""
    try:
        values = tomllib.loads(read_bytes(path, most=_MOST_TOML).decode())
    except UnicodeDecodeError as error:
        raise CorruptFileError(
            f"cannot read {path}: it is not a TOML file, because it is not text: {error}"
        ) from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits is no TOMLDecodeError
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    if _is_deep(values):
        raise SettingError(f"{path} has more than {_DEEPEST} nested tables or lists")
    return values


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_DEEPEST):
        layer = [
            inner
            for item in layer
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return len(layer) > 0


# -- CSV


def write_csv(path: Path | str, rows: Iterable[Sequence[object]]) -> None:
    """Write a table; numbers with all their digits, one row per line."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def write_csv_folder(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write NAME.csv for each array."""
    for name, values in arrays.items():
        if Path(name).name != name:
            raise DataError(f"{name!r} is not a file name; rename this input or label")
        if values.ndim > 2 or values.size > _MOST_VALUES:
            raise DataError(
                f"{name}: shape {values.shape} does not fit into CSV, which has at most two axes and "
                f"{_MOST_VALUES:,} values; use .npz"
            )
    folder = prepare_directory(path)
    for name, values in arrays.items():
        rows = values.reshape(-1, 1) if values.ndim < 2 else values
        write_csv(folder / f"{name}.csv", rows.tolist())


def read_csv_folder(path: Path | str, *, titled: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read every *.csv file of a folder by its name without the ending; those `titled` as `read_columns` does."""
    names = sorted(file.name for file in Path(path).glob("*.csv"))
    if not names:
        raise CorruptFileError(
            f"{path} is a folder without .csv or .npy files; expected inputs.csv, points.csv, outputs.csv"
        )
    found: dict[str, np.ndarray] = {}
    for name in names:
        file = inside(path, name)
        found |= read_columns(file, file.stem) if file.stem in titled else {file.stem: read_csv(file)}
    return found


def read_columns(path: Path | str, name: str, *, files: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Read a table by columns, "NAME.TITLE" each, if it has a line of different titles; else whole, by `name`.

    A column with the names of `files`, with or without their endings, puts the rows in the order of the files.
    """
    with reading(path, "CSV", *_CSV_ERRORS):
        column, order = _file_column(path, files) if files else (None, None)
        table, titles = _read_table(path, without=column)
    table = table if order is None else table[order]
    if not all(titles) or not 0 < len(set(titles)) == len(titles) <= _MOST_TITLES:
        return {name: table}
    return {f"{name}.{title}": table[:, number] for number, title in enumerate(titles)}


def read_csv(path: Path | str) -> np.ndarray:
    """Read one table (rows, columns) of numbers, with or without a line of titles; or of words alone."""
    with reading(path, "CSV", *_CSV_ERRORS):
        return _read_table(path)[0]


def _file_column(path: Path | str, files: Sequence[str]) -> tuple[int | None, list[int] | None]:
    """The column that names files, and the row of each file; nothing if there is none."""
    rows = list(_rows(path))[1:]
    known = {word: number for number, file in enumerate(files) for word in (file, Path(file).stem)}
    for column in range(min(map(len, rows), default=0)):
        if all(row[column].strip() in known for row in rows):
            places = {known[row[column].strip()]: place for place, row in enumerate(rows)}
            if len(places) < len(files):
                lost = next(file for number, file in enumerate(files) if number not in places)
                raise DataError(
                    f"{path}: column {column + 1} has file names, but not {lost}; give a row for each file"
                )
            return column, [places[number] for number in range(len(files))]
    return None, None


def _read_table(path: Path | str, without: int | None = None) -> tuple[np.ndarray, list[str]]:
    """A table and its titles, if it has a line of them."""
    if without is not None:
        top, *rows = ([cell for n, cell in enumerate(row) if n != without] for row in _rows(path))
        return _table(path, iter(enumerate(rows, 2)), columns=len(top)), [cell.strip() for cell in top]
    cells = itertools.islice((cell for row in _rows(path) for cell in row), _MOST_WORDS + 1)
    if not any(map(_is_number, cells)):
        return _words(path), []
    top = next(_rows(path))
    has_titles = not any(map(_is_number, top))
    lines = itertools.islice(enumerate(_rows(path), 1), int(has_titles), None)
    return _table(path, lines, columns=len(top)), [cell.strip() for cell in top] if has_titles else []


def _rows(path: Path | str) -> Iterator[list[str]]:
    """Yield the rows that are not empty, one at a time: as text a number takes ten times its size."""
    with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(_lines(path, file)))


def _lines(path: Path | str, file: TextIO) -> Iterator[str]:
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise CorruptFileError(f"{path} has a line of more than {_LONGEST_LINE:,} letters; use .npz")
        yield line


def _words(path: Path | str) -> np.ndarray:
    rows = list(itertools.islice(_rows(path), _MOST_WORDS + 1))
    if rows and _has_other_separator(rows[-1][0]):
        raise CorruptFileError(f"{path}: {rows[-1][0][:40]!r} is not a number; separate by commas")
    words = [cell for row in rows for cell in row]
    if len(words) > _MOST_WORDS or max(map(len, words), default=0) > _LONGEST_WORD:
        raise CorruptFileError(
            f"{path} has no numbers, but more than {_MOST_WORDS:,} words, or a word of {_LONGEST_WORD:,} letters"
        )
    return np.array(words, dtype=np.str_)


def _table(path: Path | str, rows: Iterator[tuple[int, list[str]]], *, columns: int) -> np.ndarray:
    numbers = array.array("d")
    for line, row in rows:
        if len(row) != columns:
            hint = "; separate by commas" if any(map(_has_other_separator, row)) else ""
            raise CorruptFileError(f"{path}: row {line} has {len(row)} cells, the first row {columns}{hint}")
        try:
            numbers.extend(map(float, row))
        except ValueError:
            column, cell = next((n, cell) for n, cell in enumerate(row, 1) if not _is_number(cell))
            hint = "; separate by commas" if _has_other_separator(cell) else ""
            raise CorruptFileError(
                f"{path}: row {line}, column {column}: {cell[:40]!r} is not a number{hint}"
            ) from None
        if len(numbers) > _MOST_VALUES:
            raise CorruptFileError(f"{path} has more than {_MOST_VALUES:,} values, too many for CSV; use .npz")
    return np.array(numbers).reshape(-1, columns)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _has_other_separator(cell: str) -> bool:
    """Whether a cell holds several numbers between semicolons or spaces."""
    parts = cell.replace(";", " ").split()
    return len(parts) > 1 and all(map(_is_number, parts))
