"""How the kernels of this folder are compiled: once per machine where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """``function`` compiled on first call.

    Kernels call only those of their own file: Numba watches that file alone for changes.
    """
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # no folder can be written to: compile in every process
        return cast(F, numba.njit(function))
