"""Requests grouped with their like: a law over thousands of kinds from a few dozen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdalloc.laws import Array

GROUPS = 16
"""Requests are grouped into this many classes of like length."""
SHIFTS = 6
"""Within a group of like length, requests are grouped into this many of like first gap."""


def group_requests(
    keys: tuple[Array, Array], weight: Array, values: tuple[Array, ...]
) -> tuple[Array, list[Array]]:
    """(weights, means of each of ``values``) of GROUPS x SHIFTS groups of like requests.

    Requests are grouped by the first key, then by the second; arrays (n,) in, (groups,) out.
    """
    group = _equal_parts(keys[0], weight, GROUPS)
    if np.ptp(keys[1]) > 0.0:
        for g in range(GROUPS):
            mine = group == g
            if mine.any():
                part = _equal_parts(keys[1][mine], weight[mine] / weight[mine].sum(), SHIFTS)
                group[mine] = g + GROUPS * part
    mass = np.bincount(group, weight)
    used = mass > 0
    means = [np.bincount(group, weight * x)[used] / mass[used] for x in values]
    return np.asarray(mass[used], float), means


def _equal_parts(values: Array, weight: Array, parts: int) -> NDArray[np.intp]:
    """Index 0..parts-1 of each value when sorted values are cut into equal weights; (n,)."""
    order = np.argsort(values, kind="stable")
    middle = np.empty_like(weight)
    middle[order] = np.cumsum(weight[order]) - weight[order] / 2
    return np.minimum(middle * parts, parts - 1).astype(np.intp)
