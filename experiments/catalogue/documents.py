"""Readable, deterministic YAML: blocks for mappings, one-line flow for lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

HEADER = "# Written by experiments/catalogue/run.py; change that, not this file.\n"
WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Lists in flow style, mappings in block style, keys in the order given."""


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


_Dumper.add_representer(list, _list)


def text(data: Mapping[str, Any], rows: Sequence[Sequence[int]] = ()) -> str:
    """The YAML document of ``data``, header included; ``rows`` go last, under the key rows.

    Rows that share their first number stand on one line, as far as it reaches.
    """
    body = yaml.dump(
        dict(data),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=WIDTH,
    )
    if not rows:
        return HEADER + body
    lines: list[str] = []
    for _, group in groupby(rows, key=lambda row: row[0]):
        cells = ", ".join(str(list(row)).replace(", ", ",") for row in group)
        lines += wrap(cells + ",", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return HEADER + body + "rows: [\n" + "\n".join(lines) + "\n]\n"


def write(path: Path, data: Mapping[str, Any], rows: Sequence[Sequence[int]] = ()) -> Path:
    """Write ``data`` and ``rows`` to ``path`` (folders made when missing); return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(data, rows), encoding="utf-8")
    return path


def significant(value: float, digits: int = 5) -> float:
    """``value`` rounded to ``digits`` significant digits."""
    return float(f"{value:.{digits}g}")
