"""The closed forms, derived and checked step by step with sympy: one theorem per file.

A module here with a ``THEOREM`` is found by :func:`theorems`; nothing else needs to know it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdalloc.theory.theorem import Theorem


def theorems() -> dict[str, Theorem]:
    """Every theorem by name, in order of name."""
    found: dict[str, Theorem] = {}
    for module in pkgutil.iter_modules(__path__):
        theorem = getattr(importlib.import_module(f"{__name__}.{module.name}"), "THEOREM", None)
        if theorem is not None:
            found[theorem.name] = theorem
    return dict(sorted(found.items()))
