"""Delay laws, one per file, found by name: a module here with a ``LAW``.

``delay_law(station)`` is the most accurate quick one that claims the station. What is most
accurate is read from a table that ``experiments/delay_laws/accuracy.py`` makes.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from functools import cache

from pdalloc.errors import InputError
from pdalloc.queueing.accuracy import measured_errors, regime
from pdalloc.queueing.delay_law import DelayLaw, unclaimed
from pdalloc.queueing.station import Station


@cache
def all_laws() -> dict[str, type[DelayLaw]]:
    """Every delay law by name."""
    found: dict[str, type[DelayLaw]] = {}
    for module in pkgutil.iter_modules(__path__):
        law: type[DelayLaw] = importlib.import_module(f"{__name__}.{module.name}").LAW
        found[law.name] = law
    return found


def laws_for(station: Station) -> list[type[DelayLaw]]:
    """Laws that claim ``station``, the most accurate first, those never measured last.

    Exact laws come before approximations, closed forms before lattices. May be empty.
    """
    kind, errors = regime(station), measured_errors()

    def rank(law: type[DelayLaw]) -> tuple[bool, bool, float, str]:
        error = errors.get((law.name, kind), math.inf)
        return not law.exact, law.on_lattice, error, law.name

    return sorted((law for law in all_laws().values() if law.claim.holds(station)), key=rank)


def delay_law(station: Station, quick: bool = True) -> DelayLaw:
    """The most accurate law of ``station``; with ``quick`` of those that take milliseconds.

    Raises UnsupportedError when no law claims it.
    """
    for law in laws_for(station):
        if law.quick or not quick:
            return law(station)
    raise unclaimed("any delay law", station)


def law_named(name: str) -> type[DelayLaw]:
    """The law called ``name``; raises InputError naming the others."""
    if name not in all_laws():
        raise InputError(f"delay law {name!r} is not one of {', '.join(sorted(all_laws()))}")
    return all_laws()[name]
