"""Every run of the tests is the same run: examples of properties are drawn from fixed seeds."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
