"""Pools and fleets: how many replicas of which type in which role. Names only, no physics.

A *replica* is one model instance (a GPU type times a parallelism) in one role; a *pool* is
the replicas of one role and type under one dispatcher; a *fleet* is all pools. ``3P4D``
counts replicas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pdalloc.errors import InputError

Role = str
PREFILL: Role = "prefill"
DECODE: Role = "decode"
ROLES: tuple[Role, ...] = (PREFILL, DECODE)
"""Roles in the order a request visits them; an encode stage would come first."""

Dispatch = Literal["random", "round_robin", "least_loaded", "central_queue"]


@dataclass(frozen=True, order=True)
class Pool:
    """``replicas`` of type ``replica_type`` (its name in the scenario) in ``role``."""

    role: Role
    replica_type: str
    replicas: int

    def __post_init__(self) -> None:
        if isinstance(self.replicas, bool) or not isinstance(self.replicas, int):
            raise InputError(f"pool {self.label}: replicas must be an integer")
        if self.replicas < 0:
            raise InputError(f"pool {self.label}: replicas must not be negative")

    @property
    def label(self) -> str:
        """``prefill/h200x8``: how users name a pool."""
        return f"{self.role}/{self.replica_type}"


@dataclass(frozen=True)
class Fleet:
    """All pools with at least one replica, sorted by role order and type."""

    pools: tuple[Pool, ...]

    @staticmethod
    def of(counts: dict[tuple[Role, str], int]) -> Fleet:
        """A fleet from ``{(role, replica type): replicas}``; empty pools are dropped."""
        pools = [Pool(role, name, n) for (role, name), n in counts.items()]
        kept = [pool for pool in pools if pool.replicas > 0]
        return Fleet(tuple(sorted(kept, key=lambda p: (ROLES.index(p.role), p.replica_type))))

    def in_role(self, role: Role) -> tuple[Pool, ...]:
        """The pools of one role."""
        return tuple(pool for pool in self.pools if pool.role == role)

    def count(self, role: Role, replica_type: str) -> int:
        """Replicas of one type in one role; 0 where there is no such pool."""
        return sum(p.replicas for p in self.in_role(role) if p.replica_type == replica_type)

    @property
    def counts(self) -> dict[tuple[Role, str], int]:
        """``{(role, replica type): replicas}``."""
        return {(p.role, p.replica_type): p.replicas for p in self.pools}

    @property
    def xpyd(self) -> str:
        """Replicas per role summed over types, as ``3P4D``."""
        prefill, decode = (sum(p.replicas for p in self.in_role(role)) for role in ROLES)
        return f"{prefill}P{decode}D"

    def __str__(self) -> str:
        return ",".join(f"{pool.label}={pool.replicas}" for pool in self.pools)


def parse_fleet(text: str, types: dict[Role, list[str]]) -> Fleet:
    """Read ``3P4D`` (one type per role) or ``prefill/h200x8=3,decode/h200x8=4``.

    ``types`` names the replica types that may serve each role. Raises InputError for
    anything else, an unknown type, or ``3P4D`` where a role has several types.
    """
    short = re.fullmatch(r"\s*(\d+)[pP](\d+)[dD]\s*", text)
    if short:
        counts = {}
        for role, number in zip(ROLES, short.groups(), strict=True):
            if len(types[role]) != 1:
                known = ", ".join(f"{role}/{name}" for name in types[role])
                raise InputError(
                    f"fleet {text!r}: {len(types[role])} replica types may serve {role}; "
                    f"write the pools out, e.g. {known.split(', ')[0]}={number} (known: {known})"
                )
            counts[role, types[role][0]] = int(number)
        return Fleet.of(counts)
    counts = {}
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\w+)/([^=\s]+)\s*=\s*(\d+)\s*", item)
        if not match:
            raise InputError(f"fleet {text!r}: write 3P4D or role/type=replicas, not {item!r}")
        role, name, number = match.groups()
        if role not in types:
            raise InputError(f"fleet {text!r}: role {role!r} is not one of {', '.join(types)}")
        if name not in types[role]:
            known = ", ".join(types[role])
            raise InputError(f"fleet {text!r}: no type {name!r} for {role} (known: {known})")
        counts[role, name] = counts.get((role, name), 0) + int(number)
    return Fleet.of(counts)


def parse_both_roles(text: str, types: dict[Role, list[str]]) -> Fleet:
    """Read a co-located fleet: ``h200x8=7``, or ``7`` where one type may serve both roles.

    Its pools stand in both roles. Raises InputError for anything else.
    """
    both = [name for name in types[PREFILL] if name in types[DECODE]]
    known = ", ".join(both) or "none"
    counts: dict[tuple[Role, str], int] = {}
    for item in text.split(","):
        match = re.fullmatch(r"\s*(?:([^=\s/]+)\s*=)?\s*(\d+)\s*", item)
        if not match:
            raise InputError(
                f"fleet {text!r}: co-located replicas do both roles; write type=replicas, "
                f"not {item!r} (known: {known})"
            )
        if match[1] is None and len(both) != 1:
            raise InputError(
                f"fleet {text!r}: {len(both)} replica types may serve both roles; write "
                f"type={match[2]} (known: {known})"
            )
        name = match[1] or both[0]
        if name not in both:
            raise InputError(f"fleet {text!r}: no type {name!r} for both roles (known: {known})")
        for role in ROLES:
            counts[role, name] = counts.get((role, name), 0) + int(match[2])
    return Fleet.of(counts)
