"""The one error family: each message is one line saying what, where and how to mend it.

Everything a user can cause raises a subclass of :class:`PdallocError`; the command line
prints the message and exits with 2. Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class PdallocError(Exception):
    """Base of every error that input can cause; ``str(error)`` is one line."""


class InputError(PdallocError):
    """A number, name or file that cannot be used: NaN, negative, unknown, truncated."""


class UnitError(InputError):
    """A quantity whose unit is missing, unknown or of the wrong dimension."""


class UnstableError(PdallocError):
    """More work is offered than the servers can do (utilisation >= 1): no steady state."""


class InfeasibleError(PdallocError):
    """No fleet keeps the SLOs; the message names the SLO and the least bound that works."""


class UnsupportedError(PdallocError):
    """A well-formed question that no law or solver here answers; the message says which does."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put ``where`` (a field, a file) before the message of an error that does not name it."""
    try:
        yield
    except PdallocError as error:
        if where in str(error):
            raise
        raise type(error)(f"{where}: {error}") from None
