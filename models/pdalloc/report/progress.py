"""A progress bar on stderr for work that turns out to be long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

SHOWN_AFTER = 1.0
"""Seconds of work after which the bar appears."""

Report = Callable[[int, int], None]
"""Called with (done, total)."""


@contextmanager
def bar(title: str, enabled: bool) -> Iterator[Report | None]:
    """Yield a callable ``progress(done, total)``, or None where nobody would see the bar.

    It appears once the work has lasted SHOWN_AFTER seconds and is wiped at the end. Nobody
    sees it when not ``enabled`` or when stderr is not a terminal.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    shown: list[Progress] = []
    start = time.monotonic()

    def progress(done: int, total: int) -> None:
        if not shown and time.monotonic() - start >= SHOWN_AFTER and done < total:
            shown.append(_started(title, total))
        for display in shown:
            display.update(display.task_ids[0], completed=done, total=total)

    try:
        yield progress
    finally:
        for display in shown:
            display.stop()


def _started(title: str, total: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Remaining())
    display = Progress(*columns, console=Console(stderr=True), transient=True)
    display.add_task(title, total=total)
    display.start()
    return display
