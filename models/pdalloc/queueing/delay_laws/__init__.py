"""Delay laws, one per file, found by name: a module here with a ``LAW``.

Which of those that claim a station is the default is read from ``accuracy.csv``, which
``experiments/delay_laws/accuracy.py`` makes from the reference grids.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pdalloc.queueing.delay_law import DelayLaw


@cache
def all_laws() -> dict[str, type[DelayLaw]]:
    """Every delay law by name."""
    found: dict[str, type[DelayLaw]] = {}
    for module in pkgutil.iter_modules(__path__):
        law: type[DelayLaw] = importlib.import_module(f"{__name__}.{module.name}").LAW
        found[law.name] = law
    return found
