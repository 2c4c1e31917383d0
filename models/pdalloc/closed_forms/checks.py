"""Arguments that closed forms refuse, in one line each."""

from __future__ import annotations

import math

from pdalloc.errors import InputError


def positive(**values: float) -> None:
    """Raise InputError for the first of ``values`` that is not positive and finite."""
    for name, value in values.items():
        if not math.isfinite(value) or value <= 0:
            raise InputError(f"{name} must be positive and finite, got {value:g}")


def not_negative(**values: float) -> None:
    """Raise InputError for the first of ``values`` that is negative or not finite."""
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise InputError(f"{name} must be finite and not negative, got {value:g}")


def probability(**values: float) -> None:
    """Raise InputError for the first of ``values`` that is not strictly between 0 and 1."""
    for name, value in values.items():
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} must lie strictly between 0 and 1, got {value:g}")
