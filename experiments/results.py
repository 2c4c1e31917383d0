"""Tidy CSV in and out: one row per case, units in the headers, few digits."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pdalloc.errors import InputError

Value = str | int | float | bool | None
Row = Mapping[str, Value]

DIGITS = 6
"""Significant digits of a number in a results file."""


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """Write ``rows``, which have the same keys, to ``path``; None and NaN become empty cells."""
    if not rows:
        raise InputError(f"{path}: no rows to write")
    header = list(rows[0])
    if any(list(row) != header for row in rows):
        raise InputError(f"{path}: rows differ in their columns")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([cell(value) for value in row.values()] for row in rows)
    return path


def cell(value: Value) -> str:
    """``value`` as it stands in a CSV."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of ``path`` as text; lines that begin with # are comments."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; run the experiment that makes it")
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def numbers(rows: Iterable[Mapping[str, str]], column: str) -> list[float]:
    """A column as floats; empty cells are NaN."""
    return [float(row[column]) if row[column] else math.nan for row in rows]
