"""The catalogue on a terminal: every number with its source, date and licence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pdalloc.catalog import loader
from pdalloc.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

ORIGIN = ("source", "date", "licence")
MOST_VALUES = 16
"""Longer lists are counted, not printed."""


def print_catalogue(
    kind: str | None = None, name: str | None = None, console: Console | None = None
) -> None:
    """Print all kinds; the entries of ``kind``; or the entry ``name`` in full.

    ``console`` is rich's; by default standard output. Raises InputError for an unknown kind
    or entry, naming the known ones.
    """
    from rich.console import Console

    out = console or Console()
    if kind is None:
        _print_kinds(out)
        return
    if kind not in loader.KINDS:
        raise InputError(f"catalog: no kind {kind!r}; known kinds: {', '.join(loader.KINDS)}")
    if name is None:
        _print_entries(out, kind)
        return
    for depth, line in _lines(loader.entry(kind, name, "catalog")):
        look = "dim" if line.split(":")[0] in (*ORIGIN, "note") else ""
        _say(out, "  " * depth, line, look)


def _say(out: Console, indent: str, line: str, look: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    out.print(Padding(Text(line, style=look), (0, 0, 0, len(indent))))


def _print_kinds(out: Console) -> None:
    from rich.text import Text

    table = _table("kind", "entries", "pdalloc catalog KIND [ENTRY]")
    for kind in loader.KINDS:
        known = loader.entries(kind)
        table.add_row(kind, str(len(known)), Text(", ".join(known)))
    out.print(table)


def _print_entries(out: Console, kind: str) -> None:
    from rich.text import Text

    table = _table("name", "what it is, source of its numbers (date)")
    for name, found in loader.entries(kind).items():
        origins = list(dict.fromkeys(_origins(found)))
        sources = "; ".join(dict.fromkeys(source for source, _ in origins))
        dates = sorted({date for _, date in origins})
        when = f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else "".join(dates)
        origin = Text(f"{sources} ({when})", style="dim")
        table.add_row(Text(name), Text(_what(found)).append("\n").append_text(origin))
    out.print(table)


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=column in ("kind", "name"))
    return table


def _what(found: loader.Entry) -> str:
    """The title, or of a profile the model on its GPUs."""
    if "title" in found:
        return str(found["title"])
    return f"{found['llm']} on {found['gpus']} x {found['gpu']}"


def _origins(found: Any) -> Iterator[tuple[str, str]]:
    """(source, date) of every block of an entry that names its source."""
    if isinstance(found, Mapping):
        if "source" in found:
            yield str(found["source"]), str(found.get("date", ""))
        for value in found.values():
            yield from _origins(value)
    elif isinstance(found, list):
        for value in found:
            yield from _origins(value)


def _lines(found: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str]]:
    """(depth, ``key: value``) of an entry, in its order; source, date and licence last."""
    last = [key for key in (*ORIGIN, "note") if key in found]
    for key in [*(key for key in found if key not in last), *last]:
        value = found[key]
        if isinstance(value, Mapping):
            yield depth, f"{key}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield depth, f"{key}:"
            for item in value:
                (_, first), *rest = _lines(item, depth + 1)
                yield depth + 1, f"- {first}"
                yield from ((below + 1, line) for below, line in rest)
        else:
            yield depth, f"{key}: {_value(value)}"


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return " ".join(str(value).split())
    if len(value) > MOST_VALUES:
        return f"{len(value)} of them, from {value[0]} to {value[-1]}"
    return ", ".join(str(item) for item in value)
