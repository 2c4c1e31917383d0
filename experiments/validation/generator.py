"""200 random questions: service times, lengths, fleets, dispatch, arrivals and SLOs.

Nothing here asks a prediction: what a question is follows from SEED and its number alone. Rates
are per request/s of demand; :mod:`experiments.validation.demand` scales them until the SLO binds.

A third each is bursty, has several types in a role, and is limited by the slots or the KV memory
of decode, drawn independently of each other. Where decode is limited it is the smaller role, and
the bounds are on latencies that hold the wait for a slot, with room for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pdalloc.catalog.loader import entries, length_law, profile_latency
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet, Role
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, independent
from pdalloc.workload.traffic import TrafficClass, Workload

SEED = 20261202
CASES = 200
SHARE = 1.0 / 3.0
"""Of the cases that are bursty, mixed, limited: each."""
ENGINE_BATCH = 256.0
"""Batch limit of an engine where nothing else limits it."""
MOST_REPLICAS = 12
METRICS: tuple[tuple[str, ...], ...] = (
    ("ttft",), ("tpot",), ("e2e",), ("ttft", "tpot"), ("ttft", "tpot", "e2e"),
)  # fmt: skip
"""What a request must keep, singly or jointly."""
TARGETS = (0.902, 0.994)
"""Predicted attainment at which an SLO binds."""
SLACKS = (1.15, 4.0)
"""Bound over what nearly every request has on an idle fleet."""
BALANCE, LIMITED_BALANCE = (0.6, 1.8), (0.4, 1.0)
"""Decode over prefill capacity."""
LIMITED_SLACKS = (1.5, 4.0)
LEVELS = (np.arange(20) + 0.5) / 20.0

Limit = Literal["", "slots", "memory"]


@dataclass(frozen=True)
class Case:
    """One question. ``system`` has 1 request/s, ``shares`` sum to 1 in each role.

    ``slack`` per metric of ``metrics``; ``target`` is the predicted attainment to bind at.
    """

    number: int
    system: System
    fleet: Fleet
    shares: Mapping[tuple[Role, str], float]
    metrics: tuple[str, ...]
    slack: tuple[float, ...]
    target: float
    lengths: str
    limit: Limit

    @property
    def arrival_scv(self) -> float:
        """SCV of the gaps between arrivals."""
        return self.system.workload.arrival_scv

    @property
    def bursty(self) -> bool:
        """Whether arrivals are burstier than Poisson."""
        return self.arrival_scv > 1.0

    @property
    def mixed(self) -> bool:
        """Whether some role has several replica types."""
        return len(self.fleet.pools) > len(ROLES)


def cases(numbers: range = range(CASES)) -> list[Case]:
    """The questions of these ``numbers``."""
    bursty, mixed, limited = (_chosen(i) for i in range(3))
    return [_case(i, bool(bursty[i]), bool(mixed[i]), bool(limited[i])) for i in numbers]


def _chosen(feature: int) -> np.ndarray:
    """Which cases have a feature; (CASES,)."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(0, feature)))
    chosen = np.zeros(CASES, bool)
    chosen[rng.permutation(CASES)[: math.ceil(SHARE * CASES)]] = True
    return chosen


def _case(number: int, bursty: bool, mixed: bool, limited: bool) -> Case:
    """Drawn again until decode and prefill can serve about as much."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(1, number)))
    limit: Limit = "" if not limited else ("slots", "memory")[int(rng.integers(2))]
    balance, slacks = (LIMITED_BALANCE, LIMITED_SLACKS) if limited else (BALANCE, SLACKS)
    while True:
        name, lengths = _lengths(rng)
        first = get_args(FirstToken)[int(rng.integers(3))]
        types = _types(rng, lengths, mixed, limit)
        counts = _counts(rng, types, lengths, first, balance)
        most = {key: n * capacity(key[0], types[key[1]], lengths, first)
                for key, n in counts.items()}  # fmt: skip
        whole = {role: sum(v for key, v in most.items() if key[0] == role) for role in ROLES}
        if balance[0] <= whole[DECODE] / whole[PREFILL] <= balance[1]:
            break
    scv = float(rng.uniform(2.0, 4.0)) if bursty else 1.0
    rules: tuple[Dispatch, ...] = get_args(Dispatch)
    holds_slot_wait = {"e2e", "ttft" if first == "decode" else "tpot"}
    choices = [m for m in METRICS if not limited or holds_slot_wait & set(m)]
    metrics = choices[int(rng.integers(len(choices)))]
    return Case(
        number,
        System(
            Llm("m", "M", 70e9, float(rng.uniform(1e5, 3e5)), 1e6, 70e9),
            Workload((TrafficClass("all", 1.0, lengths, arrival_scv=scv),)),
            types,
            Link(float(rng.uniform(1e-3, 1e-2)), log_uniform(rng, 5e9, 50e9)),
            {role: rules[int(rng.integers(len(rules)))] for role in ROLES},
            first,
        ),
        Fleet.of(counts),
        {key: value / whole[key[0]] for key, value in most.items()},
        metrics,
        tuple(log_uniform(rng, *slacks) for _ in metrics),
        float(rng.uniform(*TARGETS)),
        name,
        limit,
    )


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _lengths(rng: np.random.Generator) -> tuple[str, LengthLaw]:
    """Fixed, lognormal or the lengths of a trace."""
    kind = str(rng.choice(["fixed", "lognormal", "lognormal", "azure-2023-code",
                           "azure-2023-conversation"]))  # fmt: skip
    if kind.startswith("azure"):
        return kind, length_law(kind, "validation")
    prompt, output = log_uniform(rng, 200.0, 4000.0), log_uniform(rng, 20.0, 500.0)
    if kind == "fixed":
        return kind, fixed(round(prompt), round(output))
    return kind, independent(
        _lognormal(prompt, float(rng.uniform(0.3, 2.0))),
        _lognormal(output, float(rng.uniform(0.3, 2.0))),
    )


def _lognormal(mean: float, scv: float) -> np.ndarray:
    """Whole tokens at equally likely levels of a lognormal law."""
    from scipy.special import ndtri

    values = np.exp(math.sqrt(math.log1p(scv)) * ndtri(LEVELS))
    return np.asarray(np.maximum(np.rint(values * mean / values.mean()), 1.0))


def _types(
    rng: np.random.Generator, lengths: LengthLaw, mixed: bool, limit: Limit
) -> dict[str, ReplicaType]:
    """Replica types by name: one, or two of different speed."""
    first = _latency(rng, lengths)
    context = _context(lengths)
    slots = round(log_uniform(rng, 4.0, 32.0))
    batch = float(slots) if limit == "slots" else ENGINE_BATCH
    memory = math.inf
    if limit == "memory":
        memory = max(slots * context, 1.1 * float((lengths.prompt + lengths.output).max()))
    found = {}
    for name in "ab"[: 1 + mixed]:
        factors = (1.0, 1.0) if name == "a" else rng.uniform(1.2, 2.2, size=2)
        latency = first.slowed(*map(float, factors))
        gpu = Gpu(name, name.upper())
        found[name] = ReplicaType(name, gpu, 1, ROLES, latency, 1.0, memory, batch)
    return found


def _latency(rng: np.random.Generator, lengths: LengthLaw) -> Latency:
    """Affine times, or a measured profile of the catalogue."""
    noise: Literal["none", "exponential"] = "exponential" if rng.random() < 0.15 else "none"
    if rng.random() < 0.2:
        profiles = entries("profiles")
        measured = profile_latency(profiles[sorted(profiles)[int(rng.integers(len(profiles)))]])
        return Latency(measured.prefill, measured.decode, noise)
    base = log_uniform(rng, 5e-3, 30e-3)
    per_request = base / log_uniform(rng, 10.0, 200.0)
    per_token = 0.0
    if rng.random() < 0.5:
        per_token = per_request * float(rng.uniform(0.1, 1.0)) / _context(lengths)
    return Latency(
        AffinePrefill(float(rng.uniform(0.0, 20e-3)), log_uniform(rng, 2e-5, 2e-4)),
        AffineDecode(base, per_request, per_token),
        noise,
    )


def _counts(
    rng: np.random.Generator,
    types: Mapping[str, ReplicaType],
    lengths: LengthLaw,
    first: FirstToken,
    balance: tuple[float, float],
) -> dict[tuple[Role, str], int]:
    """Replicas per pool, decode to match prefill; a second type in one role or in both."""
    several = {PREFILL: 1, DECODE: 1}
    if len(types) == 2:
        chosen = ((2, 1), (1, 2), (2, 2))[int(rng.integers(3))]
        several = dict(zip(ROLES, chosen, strict=True))
    counts: dict[tuple[Role, str], int] = {}
    for name in list(types)[: several[PREFILL]]:
        counts[PREFILL, name] = int(rng.integers(1, MOST_REPLICAS + 1))
    offered = sum(
        n * capacity(PREFILL, types[name], lengths, first) for (_, name), n in counts.items()
    )
    wanted = offered * float(rng.uniform(*balance))
    for name in list(types)[: several[DECODE]]:
        share = wanted / several[DECODE] / capacity(DECODE, types[name], lengths, first)
        counts[DECODE, name] = min(max(round(share), 1), MOST_REPLICAS)
    return counts


def _context(lengths: LengthLaw) -> float:
    """Mean context at a random step, tokens: E[P L + L^2/2] / E[L]."""
    steps = lengths.output
    return lengths.mean(lengths.prompt * steps + 0.5 * steps**2) / lengths.mean(steps)


def capacity(role: Role, kind: ReplicaType, lengths: LengthLaw, first: FirstToken) -> float:
    """Requests/s that one replica can serve at most."""
    if role == PREFILL:
        none = np.zeros_like(lengths.prompt)
        return 1.0 / lengths.mean(kind.latency.prefill_seconds(lengths.prompt, none))
    context = _context(lengths)
    slots = np.array([kind.batch_limit(context)])
    step = float(kind.latency.step_seconds(slots, slots * context)[0])
    steps = np.maximum(lengths.output - (first != "decode"), 0.0)
    return float(slots[0]) / step / max(lengths.mean(steps), 1e-9)
