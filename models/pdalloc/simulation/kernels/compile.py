"""How a kernel is compiled: once per machine, again whenever any kernel's source changes.

Numba keeps machine code beside the source (``__pycache__``), else in the user's cache folder,
else in ``NUMBA_CACHE_DIR``. It looks only at the file of the function that is called, not at
those of the functions that it calls, so the name under which code is kept carries a digest of
them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


@cache
def _digest() -> str:
    """Ten hexadecimal digits that change with any source in this folder or below it."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:10]


def kernel(function: F) -> F:
    """``function`` compiled on first call, kept on disk where there is a place for it."""
    return _compiled(function)


def part(function: F) -> F:
    """A kernel that is called in one place, where it is put: it is not compiled by itself."""
    return _compiled(function, inline="always")


def _compiled(function: F, **options: Any) -> F:
    """Kernels allocate nothing, so arrays need no reference counts (``_nrt``).

    Counting took half of the time.
    """
    function.__qualname__ = f"{function.__qualname__}_{_digest()}"
    options["_nrt"] = False
    try:
        return cast(F, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder can be written to: compile in every process
        return cast(F, numba.njit(**options)(function))
