"""How much to simulate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pdalloc.errors import InputError
from pdalloc.simulation.options import SimulationOptions
from pdalloc.system import System
from pdalloc.workload.arrivals import TimeVarying, Trace

SEED = 20261129
REQUESTS = 100_000
"""Requests per replication on the fast path."""
REQUESTS_WITH_OPTIONS = 20_000
"""The same where options are on, which are several times as slow."""
MOST_REQUESTS = 1_000_000
"""And no more than this, unless asked for; a fifth of it where options are on."""
FAILURES = 5
"""Failures of each replica that a replication has."""
STAYS = 100
"""A replication lasts at least this many stays of a request that meets nobody."""


@dataclass(frozen=True)
class Effort:
    """``requests`` per replication (None: as many as fit the system) and ``replications``."""

    requests: int | None = None
    replications: int = 10

    def __post_init__(self) -> None:
        if self.requests is not None and self.requests < 1:
            raise InputError(f"a simulation needs at least 1 request, got {self.requests}")
        if self.replications < 2:
            raise InputError(
                f"intervals need at least 2 replications, got {self.replications}; ask for more"
            )

    def requests_for(self, system: System, options: SimulationOptions) -> int:
        """Requests per replication: as given, or enough for what is usual to happen in it."""
        if self.requests is not None:
            return self.requests
        least = REQUESTS if options.off else REQUESTS_WITH_OPTIONS
        most = MOST_REQUESTS * least // REQUESTS
        typical = [c.process.typical_seconds for c in system.workload.classes]
        if options.failures is not None:
            typical.append(FAILURES * options.failures.mtbf)
        seconds = max(STAYS * _stay(system), *typical)
        return min(max(least, math.ceil(system.workload.rate * seconds)), most)

    def unseen(self, system: System, options: SimulationOptions) -> list[str]:
        """What a replication is too short to show, or shows the same each time; one line each."""
        seconds = self.requests_for(system, options) / system.workload.rate
        found = []
        for c in system.workload.classes:
            process = c.process
            if isinstance(process, TimeVarying) and seconds < sum(process.seconds):
                found.append(
                    f"{c.name}: a replication lasts {seconds:.3g} s and sees only the beginning of "
                    f"the {sum(process.seconds):.3g} s profile; ask for more --requests"
                )
            elif isinstance(process, Trace):
                part = min(seconds / process.typical_seconds, 1.0)
                found.append(
                    f"{c.name}: every replication replays the same arrivals"
                    + (f" (the first {part:.0%} of the trace)" if part < 1.0 else "")
                    + "; intervals hold for this trace, not for days like it"
                )
            elif seconds < process.typical_seconds / 5.0:
                found.append(
                    f"{c.name}: a replication lasts {seconds:.3g} s, short for such long bursts or "
                    f"sessions; ask for {_round(system, process.typical_seconds)} --requests"
                )
        if options.failures is not None and seconds < options.failures.mtbf:
            found.append(
                f"a replication lasts {seconds:.3g} s, a replica runs "
                f"{options.failures.mtbf:.3g} s between failures: few are seen; ask for more "
                "--requests, or simulate with one replica fewer"
            )
        return found


def _round(system: System, seconds: float) -> str:
    return f"{math.ceil(system.workload.rate * seconds / 1000.0) * 1000:,}"


def _stay(system: System) -> float:
    """Mean seconds of a request alone on the slowest replica types."""
    mix = system.workload.mix()
    steps, one, nothing = system.decode_steps(mix), np.ones(1), np.zeros(1)
    prefill = (
        float(mix.weight @ r.latency.prefill_seconds(mix.prompt, mix.cached))
        for r in system.replica_types.values()
    )
    step = (r.latency.step_seconds(one, nothing)[0] for r in system.replica_types.values())
    return max(prefill) + float(mix.weight @ steps) * float(max(step))
