"""Packages that solvers need: a word where one is missing, and none from those that chatter."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pdalloc.errors import UnsupportedError


def require(solver: str, *packages: str) -> None:
    """Raise UnsupportedError, in one line, unless ``packages`` can be imported."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            raise UnsupportedError(
                f"solver {solver!r} needs the package {package}: pip install {' '.join(packages)}"
            ) from None


@contextmanager
def silent() -> Iterator[None]:
    """Keep what a solver prints below Python out of this process's output and errors."""
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    for stream, _ in kept:
        os.dup2(null, stream)
    try:
        yield
    finally:
        for stream, before in kept:
            os.dup2(before, stream)
            os.close(before)
        os.close(null)
