"""What it costs to ignore that prefill takes several prompts in one pass.

    python experiments/delay_laws/run.py batching

No delay law here knows passes of several prompts. Each cell simulates a pool of four replicas
(least_loaded) whose passes take waiting prompts up to a token budget, and sets the law of one
prompt per pass beside it: results/batching.csv, error in percent of mean and P99 time from
arrival to the end of prefill. Prompts are ``EMP`` lengths; a pass takes a base time and a time
per token; ``base_share`` is the base's share of a mean pass of one prompt, utilisation that of
one prompt per pass. A few minutes.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from experiments.delay_laws.dispatch_grid import system
from experiments.delay_laws.services import tokens
from experiments.results import Row

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.laws import Array, Atoms
from pdalloc.queueing.delay_laws import delay_law
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station
from pdalloc.simulation import fast
from pdalloc.simulation.options import PassBudget, SimulationOptions
from pdalloc.simulation.statistics import interval, steady
from pdalloc.simulation.traffic import child_seed, draw
from pdalloc.system import System

SEED = 20261130
REPLICATIONS = 4
REQUESTS = 200_000
SERVERS = 4
BASES = (0.0, 0.1, 0.3)
BUDGETS = (1.0, 2.0, 4.0, 8.0)
"""Token budgets of a pass, in mean prompts; 1.0 lets short prompts share a pass too."""
LOADS = (0.5, 0.8, 0.9)


def pool(base: float, rate: float) -> System:
    """Four replicas' system with a pass time of ``base`` + the rest by tokens, mean 1 s."""
    made = system("least_loaded", "EMP", rate, 1.0)
    mean = tokens("EMP")[0].mean()
    latency = Latency(AffinePrefill(base, (1.0 - base) / mean), AffineDecode(1e-6, 0.0))
    kind = made.replica_types["r"]
    types = {"r": type(kind)(kind.name, kind.gpu, 1, kind.roles, latency, 1.0)}
    return System(made.llm, made.workload, types, made.link, made.dispatch, made.first_token)


def stays(base: float, budget: float, rate: float, requests: int, replication: int) -> Array:
    """Seconds from arrival to the end of prefill, steady requests of one replication."""
    fleet = Fleet.of({(PREFILL, "r"): SERVERS, (DECODE, "r"): 1})
    s = pool(base, rate)
    rates = dict.fromkeys(fleet.counts, 1.0)
    draws = draw(s.workload, fleet, rates, requests, child_seed(SEED, replication))
    limit = PassBudget(budget * float(tokens("EMP")[0].mean()))
    log = fast.replay(s, fleet, draws, options=SimulationOptions(prefill_budget=limit)).log
    keep = steady(log)
    found: Array = (log.prefill_end - log.arrival)[keep]
    return found


def law_stay(base: float, rate: float) -> tuple[float, float]:
    """Mean and P99 of the law of one prompt per pass, seconds."""
    prompts = tokens("EMP")[0]
    seconds = base + (1.0 - base) * prompts / prompts.mean()
    service = Service(Atoms(seconds, np.full(len(prompts), 1.0 / len(prompts))))
    law = delay_law(Station(rate, service, SERVERS, dispatch="least_loaded"))
    return law.mean_sojourn, law.sojourn.quantile(0.99)


def rows(requests: int = REQUESTS) -> list[Row]:
    """Every cell."""
    found: list[Row] = []
    for base, rho, budget in product(BASES, LOADS, BUDGETS):
        runs = [stays(base, budget, rho * SERVERS, requests, i) for i in range(REPLICATIONS)]
        mean, mean_ci = interval([float(r.mean()) for r in runs])
        p99, p99_ci = interval([float(np.quantile(r, 0.99)) for r in runs])
        law_mean, law_p99 = law_stay(base, rho * SERVERS)
        found.append(
            {
                "base_share": base,
                "utilisation": rho,
                "budget_prompts": budget,
                "mean_s": mean,
                "mean_ci_s": mean_ci,
                "p99_s": p99,
                "p99_ci_s": p99_ci,
                "mean_error_percent": 100.0 * (law_mean / mean - 1.0),
                "p99_error_percent": 100.0 * (law_p99 / p99 - 1.0),
                "seed": SEED,
            }
        )
    return found
