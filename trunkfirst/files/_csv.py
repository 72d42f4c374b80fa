"""Small tables as text: a folder with one comma-separated file for each array."""

import array
import csv
import io
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np

from ..errors import CorruptFileError, DataError
from ._atomic import prepare_directory
from ._formats import write_text
from ._limits import inside, open_file

_MOST_VALUES = 5_000_000
_LONGEST_LINE = 2**22
_MOST_WORDS = 10_000
_LONGEST_WORD = 1_000


def write_csv_folder(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write NAME.csv for each array; numbers with all their digits, one row a line."""
    for name, values in arrays.items():
        if Path(name).name != name:
            raise DataError(f"{name!r} is no name of a file; rename this input or label")
        if values.ndim > 2 or values.size > _MOST_VALUES:
            raise DataError(
                f"{name}: shape {values.shape} does not go into CSV, which is for at most two axes and "
                f"{_MOST_VALUES:,} values; use .npz"
            )
    folder = prepare_directory(path)
    for name, values in arrays.items():
        text = io.StringIO()
        rows = values.reshape(-1, 1) if values.ndim < 2 else values
        csv.writer(text, lineterminator="\n").writerows(rows.tolist())
        write_text(folder / f"{name}.csv", text.getvalue())


def read_csv_folder(path: Path | str) -> dict[str, np.ndarray]:
    """Read every *.csv file of a folder by its name without the ending."""
    names = sorted(file.name for file in Path(path).glob("*.csv"))
    if not names:
        raise CorruptFileError(
            f"{path} is a folder without .csv files; expected inputs.csv, points.csv, outputs.csv"
        )
    return {Path(name).stem: read_csv(inside(path, name)) for name in names}


def read_csv(path: Path | str) -> np.ndarray:
    """One table (rows, columns) of numbers, with or without a line of titles above; or of words alone."""
    try:
        cells = itertools.islice((cell for row in _rows(path) for cell in row), _MOST_WORDS + 1)
        if not any(map(_is_number, cells)):
            return _words(path)
        top = next(_rows(path))
        has_titles = not any(map(_is_number, top))
        rows = itertools.islice(enumerate(_rows(path), 1), int(has_titles), None)
        return _table(path, rows, columns=len(top))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptFileError(f"cannot read {path} as CSV: {error}") from error


def _rows(path: Path | str) -> Iterator[list[str]]:
    """The rows that are not empty, one at a time: as words a number takes ten times its size."""
    with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        yield from filter(None, csv.reader(_lines(path, file)))


def _lines(path: Path | str, file: TextIO) -> Iterator[str]:
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise CorruptFileError(f"{path} has a line of more than {_LONGEST_LINE:,} letters; use .npz")
        yield line


def _words(path: Path | str) -> np.ndarray:
    rows = list(itertools.islice(_rows(path), _MOST_WORDS + 1))
    if rows and _is_separated_otherwise(rows[-1][0]):
        raise CorruptFileError(f"{path}: {rows[-1][0][:40]!r} is not a number; separate by commas")
    words = [cell for row in rows for cell in row]
    if len(words) > _MOST_WORDS or max(map(len, words), default=0) > _LONGEST_WORD:
        raise CorruptFileError(
            f"{path} holds no numbers, but more than {_MOST_WORDS:,} words, or one of {_LONGEST_WORD:,} letters"
        )
    return np.array(words, dtype=np.str_)


def _table(path: Path | str, rows: Iterator[tuple[int, list[str]]], *, columns: int) -> np.ndarray:
    numbers = array.array("d")
    for line, row in rows:
        if len(row) != columns:
            raise CorruptFileError(f"{path}: row {line} has {len(row)} cells, the first row {columns}")
        try:
            numbers.extend(map(float, row))
        except ValueError:
            raise _not_a_number(path, line, row) from None
        if len(numbers) > _MOST_VALUES:
            raise CorruptFileError(f"{path} has more than {_MOST_VALUES:,} values, too many for CSV; use .npz")
    return np.array(numbers).reshape(-1, columns)


def _not_a_number(path: Path | str, line: int, row: list[str]) -> CorruptFileError:
    column, cell = next((n, cell) for n, cell in enumerate(row, 1) if not _is_number(cell))
    hint = "; separate by commas" if _is_separated_otherwise(cell) else ""
    return CorruptFileError(f"{path}: row {line}, column {column}: {cell[:40]!r} is not a number{hint}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_separated_otherwise(cell: str) -> bool:
    """Whether a cell holds several numbers between semicolons or spaces."""
    parts = cell.replace(";", " ").split()
    return len(parts) > 1 and all(map(_is_number, parts))
