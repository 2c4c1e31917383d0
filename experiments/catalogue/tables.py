"""Rows of the reference CSV files, as dictionaries of strings."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from pdalloc.errors import InputError

Row = dict[str, str]

READ_ON = "2026-11-29"
"""ISO date on which the reference tables were read into the catalogue."""


def read_rows(path: Path, needed: Iterable[str]) -> list[Row]:
    """All rows of ``path``; raises InputError when it is missing or lacks a ``needed`` column."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; the reference data folder must hold it")
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        raise InputError(f"{path}: lacks the column(s) {', '.join(missing)}, or any row")
    return rows


def select(rows: Iterable[Row], what: str, **wanted: str) -> list[Row]:
    """Rows whose columns equal ``wanted``; raises InputError naming ``what`` when there is none."""
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    if not found:
        criteria = ", ".join(f"{key}={value}" for key, value in wanted.items())
        raise InputError(f"{what}: no row with {criteria}")
    return found


def medians(points: Iterable[tuple[tuple[int, ...], float]]) -> dict[tuple[int, ...], float]:
    """Median value of each repeated key, keys in ascending order."""
    groups: dict[tuple[int, ...], list[float]] = {}
    for key, value in points:
        groups.setdefault(key, []).append(value)
    return {key: median(groups[key]) for key in sorted(groups)}
