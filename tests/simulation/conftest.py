"""Small systems, draws without chance, and runs with options, for the simulator's tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.reference import replay
from pdalloc.simulation.statistics import Run, interval, steady
from pdalloc.simulation.traffic import Draws, RequestStream, child_seed, draw
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed
from pdalloc.workload.traffic import TrafficClass, Workload


class Lab:
    """What the tests of this folder share: one replica type ``r``, one byte of KV a token."""

    HAND = Latency(AffinePrefill(0.5, 0.25), AffineDecode(0.5, 0.25, 0.0625))
    """Prefill 1/2 + n/4 s, step 1/2 + B/4 + S/16 s: times are sums of powers of two."""
    INSTANT = AffinePrefill(0.0, 1e-15)
    """No prefill time to speak of."""

    @staticmethod
    def system(
        latency: Latency = HAND,
        lengths: LengthLaw | None = None,
        rate: float = 1.0,
        dispatch: Dispatch = "random",
        first_token: FirstToken = "decode",
        link: Link | None = None,
        max_batch: float = math.inf,
        kv_tokens: float = math.inf,
        traffic: TrafficClass | None = None,
    ) -> System:
        kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, latency, 1.0)
        return System(
            Llm("m", "M", 1, 1.0, 1e9, 1),
            Workload((traffic or TrafficClass("all", rate, lengths or fixed(2, 3)),)),
            {"r": replace(kind, max_batch=max_batch, kv_tokens=kv_tokens)},
            link or Link(),
            dict.fromkeys(ROLES, dispatch),
            first_token,
        )

    @staticmethod
    def fleet(prefills: int = 1, decodes: int = 1) -> Fleet:
        return Fleet.of({(PREFILL, "r"): prefills, (DECODE, "r"): decodes})

    @staticmethod
    def draws(
        arrival: Sequence[float],
        prompt: Sequence[int],
        output: Sequence[int],
        cached: Sequence[float] | None = None,
    ) -> Draws:
        """Draws that leave nothing to chance (random dispatch takes the first replica)."""
        n = len(arrival)
        none = np.zeros(n)
        stream = RequestStream(
            np.array(arrival, float),
            np.zeros(n, np.int64),
            np.array(prompt),
            none if cached is None else np.array(cached, float),
            np.array(output),
        )
        zero, pick = dict.fromkeys(ROLES, np.zeros(n, np.int64)), dict.fromkeys(ROLES, none)
        return Draws(stream, np.ones(n), zero, pick)

    @staticmethod
    def run(
        system: System, draws: Draws, replicas: tuple[int, int] = (1, 1), **options: Any
    ) -> Run:
        return replay(system, Lab.fleet(*replicas), draws, options=SimulationOptions(**options))

    @staticmethod
    def simulate(
        system: System,
        requests: int,
        seed: int | np.random.SeedSequence,
        replicas: tuple[int, int] = (1, 1),
        **options: Any,
    ) -> Run:
        fleet = Lab.fleet(*replicas)
        draws = draw(system.workload, fleet, dict.fromkeys(fleet.counts, 1.0), requests, seed)
        return replay(system, fleet, draws, options=SimulationOptions(**options))

    @staticmethod
    def confirm(samples: Sequence[float], expected: float, width: float = 0.05) -> None:
        """The theory lies within two 95 % half-widths, which are narrow enough to see a fault."""
        mean, half_width = interval(samples)
        assert half_width < width * expected, (mean, half_width)
        assert mean == pytest.approx(expected, abs=2.0 * half_width)

    @staticmethod
    def replicate(
        measure: Any,
        system: System,
        requests: int,
        replicas: tuple[int, int] = (1, 1),
        replications: int = 8,
        seed: int = 1,
        **options: Any,
    ) -> list[float]:
        """``measure(run, kept requests' log)`` of independent replications."""
        values = []
        for i in range(replications):
            run = Lab.simulate(system, requests, child_seed(seed, i), replicas, **options)
            values.append(float(measure(run, run.log.select(steady(run.log)))))
        return values


@pytest.fixture(scope="session")
def lab() -> type[Lab]:
    return Lab
