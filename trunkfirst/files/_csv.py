"""Small tables as text: a folder with one comma-separated file for each array."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import CorruptFileError, DataError
from ._atomic import prepare_directory
from ._formats import write_text

_MOST_VALUES = 5_000_000


def write_csv_folder(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write NAME.csv for each array; numbers with all their digits, one row a line."""
    for name, array in arrays.items():
        if array.ndim > 2 or array.size > _MOST_VALUES:
            raise DataError(
                f"{name}: shape {array.shape} does not go into CSV, which is for at most two axes and "
                f"{_MOST_VALUES:,} values; use .npz"
            )
    folder = prepare_directory(path)
    for name, array in arrays.items():
        text = io.StringIO()
        rows = array.reshape(-1, 1) if array.ndim < 2 else array
        csv.writer(text, lineterminator="\n").writerows(rows.tolist())
        write_text(folder / f"{name}.csv", text.getvalue())


def read_csv_folder(path: Path | str) -> dict[str, np.ndarray]:
    """Read every *.csv file of a folder by its name without the ending."""
    files = sorted(Path(path).glob("*.csv"))
    if not files:
        raise CorruptFileError(
            f"{path} is a folder without .csv files; expected inputs.csv, points.csv, outputs.csv"
        )
    return {file.stem: read_csv(file) for file in files}


def read_csv(path: Path | str) -> np.ndarray:
    """One table (rows, columns) of numbers, with or without a line of titles above; or of words alone."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorruptFileError(f"cannot read {path} as CSV: {error}") from error
    if not any(_is_number(cell) for row in rows for cell in row):
        if rows and _is_separated_otherwise(rows[-1][0]):
            raise CorruptFileError(f"{path}: {rows[-1][0][:40]!r} is not a number; separate by commas")
        return np.array([cell for row in rows for cell in row], dtype=np.str_)
    has_titles = not any(_is_number(cell) for cell in rows[0])
    first = 2 if has_titles else 1
    return np.array([_numbers(path, line, row, len(rows[0])) for line, row in enumerate(rows[first - 1 :], first)])


def _numbers(path: Path | str, line: int, row: list[str], expected: int) -> list[float]:
    if len(row) != expected:
        raise CorruptFileError(f"{path}: row {line} has {len(row)} cells, the first row {expected}")
    for column, cell in enumerate(row, 1):
        if not _is_number(cell):
            hint = "; separate by commas" if _is_separated_otherwise(cell) else ""
            raise CorruptFileError(f"{path}: row {line}, column {column}: {cell!r} is not a number{hint}")
    return [float(cell) for cell in row]


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
