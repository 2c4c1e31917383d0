"""pdalloc: the cheapest prefill/decode GPU fleet that keeps an LLM service's objectives.

>>> from pdalloc import load_scenario, plan          # doctest: +SKIP
>>> plan(load_scenario("scenario.yaml")).xpyd        # doctest: +SKIP
'4P4D'

Names are imported when first used, so that ``pdalloc --help`` is quick.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Answer": "pdalloc.planning",
    "Fleet": "pdalloc.fleet",
    "PdallocError": "pdalloc.errors",
    "RequestLog": "pdalloc.records",
    "Scenario": "pdalloc.scenario",
    "compare": "pdalloc.planning",
    "evaluate": "pdalloc.planning",
    "Simulation": "pdalloc.planning",
    "explain": "pdalloc.planning",
    "frontier": "pdalloc.planning",
    "load_scenario": "pdalloc.scenario",
    "plan": "pdalloc.planning",
    "scenario_from_mapping": "pdalloc.scenario",
    "simulate": "pdalloc.planning",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module 'pdalloc' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
