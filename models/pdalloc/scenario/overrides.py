"""Dotted paths into a scenario: variants and ``--set traffic.0.slo.ttft.mean=250 ms``."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from pdalloc.errors import InputError

Raw = dict[str, Any]


def with_overrides(raw: Raw, overrides: Mapping[str, Any], origin: str) -> Raw:
    """A copy of ``raw`` with every dotted path of ``overrides`` set.

    Lists are indexed by number. Raises InputError naming ``origin`` and the path where a
    part of it does not exist; the last key may be new (the schema judges it later).
    """
    result = copy.deepcopy(raw)
    for path, value in overrides.items():
        _set(result, path, value, origin)
    return result


def parse_assignment(text: str) -> tuple[str, Any]:
    """``path=value`` with the value read as YAML; InputError without ``=`` or path."""
    import yaml

    path, found, value = text.partition("=")
    if not found or not path.strip():
        raise InputError(f"--set {text!r}: write path=value, e.g. traffic.0.rate='50 req/s'")
    try:
        return path.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"--set {text!r}: cannot read the value {value!r}") from None


def _set(root: Raw, path: str, value: Any, origin: str) -> None:
    where: Any = root
    parts = path.split(".")
    # A statistic such as p99.9 holds a dot: let the last two parts be one key again.
    if len(parts) > 2 and re.fullmatch(r"[pP][0-9]+\.[0-9]+", ".".join(parts[-2:])):
        parts = [*parts[:-2], f"{parts[-2]}.{parts[-1]}"]
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        so_far = ".".join(parts[: depth + 1])
        if isinstance(where, list):
            if not re.fullmatch("[0-9]+", part) or int(part) >= len(where):
                raise InputError(
                    f"{origin}: {so_far!r} does not exist; the list has {len(where)} entries, "
                    f"numbered from 0"
                )
            key: Any = int(part)
        elif isinstance(where, dict):
            key = part
        else:
            raise InputError(f"{origin}: {so_far!r} does not exist; its parent is a plain value")
        if last:
            where[key] = value
        else:
            if isinstance(where, dict) and where.get(key) is None:
                where[key] = {}
            where = where[key]
