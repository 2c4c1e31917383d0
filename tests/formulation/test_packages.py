"""A missing package in one line, and solvers that are kept quiet."""

from __future__ import annotations

import os
import sys

import pytest

from pdalloc.allocation.packages import require, silent
from pdalloc.errors import UnsupportedError


def test_what_is_there_needs_no_word() -> None:
    require("any", "numpy", "scipy")


@pytest.mark.parametrize("missing", ["first", "second"])
def test_the_first_missing_package_is_named_and_all_are_asked_for(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else os)
    with pytest.raises(UnsupportedError) as caught:
        require("mine", "first", "second")
    expected = f"solver 'mine' needs the package {missing}: pip install first second"
    assert str(caught.value) == expected


def test_nothing_printed_below_python_comes_through(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    print("before", file=sys.stderr)
    with silent():
        os.write(1, b"banner\n")
        os.write(2, b"warning\n")
        os.system("echo from a child; echo and its errors >&2")
    print("after")
    print("after", file=sys.stderr)
    assert capfd.readouterr() == ("before\nafter\n", "before\nafter\n")


def test_streams_come_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(ValueError, match="inside"), silent():
        raise ValueError("inside")
    os.write(1, b"out\n")
    os.write(2, b"err\n")
    assert capfd.readouterr() == ("out\n", "err\n")
    if before:  # and no descriptor is left open
        assert len(os.listdir("/proc/self/fd")) == before
