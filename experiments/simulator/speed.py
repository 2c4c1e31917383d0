"""What the fast simulator costs: CPU time by fleet and option, memory, compilation.

    python -m experiments.simulator.speed

prints the tables. CPU time is that of the process (user and system), the least of three runs
after compilation; drawing the requests is in it. "All percentiles" are mean, P50, P90, P95 and
P99 of TTFT, TPOT, E2E and of every token gap. The setting is that of ../paper_2603_04716 with
as many decode as prefill replicas, and demand in proportion.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from experiments.results import Row

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.latency.affine import AffineDecode
from pdalloc.latency.measured import MeasuredDecode
from pdalloc.scenario import load_scenario
from pdalloc.simulation import fast
from pdalloc.simulation.options import (
    PLAIN,
    Clients,
    Colocated,
    Failures,
    KvMemory,
    MultiToken,
    Network,
    Noise,
    PassBudget,
    SimulationOptions,
)
from pdalloc.simulation.summary import latencies
from pdalloc.simulation.traffic import draw
from pdalloc.system import System

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml"
PAPER_REPLICAS = 4
"""Prefill and decode replicas that the scenario's demand is for."""
SIZES = (1, 2, 4, 8, 16, 32, 64)
REQUESTS = 1_000_000
OPTION_REQUESTS = 50_000
COSTS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
REPEATS = 3
SEED = 1


@dataclass(frozen=True)
class Case:
    """A fleet under its demand."""

    system: System
    fleet: Fleet
    options: SimulationOptions = PLAIN

    @property
    def rates(self) -> dict[tuple[str, str], float]:
        """Equal weights of all pools of a role."""
        return dict.fromkeys(self.fleet.counts, 1.0)


@dataclass(frozen=True)
class Cost:
    """CPU seconds to draw and run, and to read all percentiles as well; both from the start."""

    run_cpu_s: float
    all_cpu_s: float


def paper_case(replicas: int, decode: str = "measured", options: SimulationOptions = PLAIN) -> Case:
    """``replicas`` of each role; ``decode``: the ``measured`` curve or an ``affine`` step."""
    system = load_scenario(SCENARIO, None).system
    (kind,) = system.replica_types.values()
    latency = kind.latency
    if decode == "affine":
        assert isinstance(latency.decode, MeasuredDecode)
        curve = latency.decode.curve
        latency = replace(latency, decode=affine_through(curve.x, curve.seconds, 6400.0))
    # Memory enough for every batch here, counted where an option asks for it.
    kind = replace(kind, latency=latency, kv_tokens=2e6)
    system = replace(system, replica_types={kind.name: kind})
    workload = system.workload.scaled(replicas / PAPER_REPLICAS)
    counts = {(PREFILL, kind.name): replicas, (DECODE, kind.name): replicas}
    return Case(system.with_workload(workload), Fleet.of(counts), options)


def affine_through(batch: np.ndarray, seconds: np.ndarray, context: float) -> AffineDecode:
    """Least squares a + b B through a curve; half of b is put on ``context`` tokens a request."""
    slope, base = np.polyfit(batch, seconds, 1)
    return AffineDecode(float(base), float(slope) / 2.0, float(slope) / 2.0 / context)


def spent(case: Case, requests: int) -> Cost:
    """What one run costs."""
    start = time.process_time()
    draws = draw(case.system.workload, case.fleet, case.rates, requests, SEED)
    run = fast.replay(case.system, case.fleet, draws, options=case.options)
    ran = time.process_time()
    latencies(run)
    return Cost(ran - start, time.process_time() - start)


def fastest(case: Case, requests: int, repeats: int = REPEATS) -> Cost:
    """The least of ``repeats`` runs, after one that compiles."""
    spent(case, min(requests, 1000))
    costs = [spent(case, requests) for _ in range(repeats)]
    return Cost(min(c.run_cpu_s for c in costs), min(c.all_cpu_s for c in costs))


def size_rows(
    sizes: Sequence[int] = SIZES, requests: int = REQUESTS, repeats: int = REPEATS
) -> list[Row]:
    """Requests per CPU-second by fleet size and kind of decode step."""
    rows: list[Row] = []
    for decode in ("measured", "affine"):
        for n in sizes:
            case = paper_case(n, decode)
            cost = fastest(case, requests, repeats)
            rows.append(
                {
                    "fleet": f"{n}P{n}D",
                    "replicas": 2 * n,
                    "decode_step": decode,
                    "requests": requests,
                    "run_cpu_s": cost.run_cpu_s,
                    "run_requests_per_cpu_s": requests / cost.run_cpu_s,
                    "all_percentiles_cpu_s": cost.all_cpu_s,
                    "all_percentiles_requests_per_cpu_s": requests / cost.all_cpu_s,
                }
            )
    return rows


def options() -> dict[str, SimulationOptions]:
    """Each option alone, at values that matter in the paper's setting."""
    return {
        "none": PLAIN,
        # A factor of 1 changes nothing but takes the general path.
        "none (general path)": SimulationOptions(slow={(PREFILL, 0): 1.0}),
        "slow replica": SimulationOptions(slow={(DECODE, 0): 1.2}),
        "prefill budget": SimulationOptions(prefill_budget=PassBudget(16384.0)),
        "chunked prefill": SimulationOptions(prefill_budget=PassBudget(8192.0, split=True)),
        "prefill noise": SimulationOptions(prefill_noise=Noise("gamma", 0.5)),
        "step noise": SimulationOptions(step_noise=Noise("gamma", 0.1)),
        "FCFS links": SimulationOptions(network=Network("fcfs", jitter=Noise("exponential"))),
        "shared links": SimulationOptions(network=Network("processor_sharing", "fabric")),
        "KV memory": SimulationOptions(kv=KvMemory()),
        "KV memory, back-pressure": SimulationOptions(kv=KvMemory("full", 0.01, True)),
        "several tokens a step": SimulationOptions(multi_token=MultiToken(1.7, "geometric")),
        "timeouts and retries": SimulationOptions(clients=Clients(2.0, 50, 2, 1.0)),
        "failures": SimulationOptions(failures=Failures(3600.0, 60.0)),
        "co-located, prefill first": SimulationOptions(colocated=Colocated("prefill_first")),
        "co-located, chunked": SimulationOptions(colocated=Colocated("chunked", 2048.0)),
    }


def option_rows(
    replicas: int = 4,
    requests: int = OPTION_REQUESTS,
    repeats: int = REPEATS,
    chosen: Mapping[str, SimulationOptions] | None = None,
) -> list[Row]:
    """Speed with each option, and relative to that without any, of the same few requests."""
    rows: list[Row] = []
    plain: Cost | None = None
    for name, option in (options() if chosen is None else chosen).items():
        cost = fastest(paper_case(replicas, options=option), requests, repeats)
        plain = plain or cost
        rows.append(
            {
                "option": name,
                "fleet": f"{replicas}P{replicas}D",
                "requests": requests,
                "run_requests_per_cpu_s": requests / cost.run_cpu_s,
                "run_speed_over_plain": plain.run_cpu_s / cost.run_cpu_s,
                "all_percentiles_requests_per_cpu_s": requests / cost.all_cpu_s,
                "all_percentiles_speed_over_plain": plain.all_cpu_s / cost.all_cpu_s,
            }
        )
    return rows


def cost_rows(
    counts: Sequence[int] = COSTS, replicas: int = PAPER_REPLICAS, decode: str = "affine"
) -> list[Row]:
    """Cost and peak memory by the number of requests, with all percentiles, a process each."""
    rows: list[Row] = []
    for requests in counts:
        found = in_a_new_process(
            "memory", requests=requests, replicas=replicas, decode=decode, repeats=REPEATS
        )
        per_request = 1e6 * found["all_cpu_s"] / requests
        first = rows[0]["all_percentiles_cpu_us_per_request"] if rows else per_request
        assert isinstance(first, float)
        rows.append(
            {
                "requests": requests,
                "fleet": f"{replicas}P{replicas}D",
                "decode_step": decode,
                "all_percentiles_cpu_s": found["all_cpu_s"],
                "all_percentiles_cpu_us_per_request": per_request,
                "per_request_over_first": per_request / first,
                "peak_memory_gb": found["peak_bytes"] / 1e9,
            }
        )
    return rows


def compile_rows() -> list[Row]:
    """CPU seconds of the first run in a fresh process, with and without code kept on disk."""
    rows: list[Row] = []
    for path, name in (("plain", "none"), ("general", "KV memory"), ("co-located", "chunked")):
        option = "co-located, chunked" if name == "chunked" else name
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("cold", "warm"):
                found = in_a_new_process("first", {"NUMBA_CACHE_DIR": folder}, option=option)
                rows.append(
                    {
                        "path": path,
                        "cache": cache,
                        "import_cpu_s": found["import_cpu_s"],
                        "first_run_cpu_s": found["first_cpu_s"],
                        "second_run_cpu_s": found["second_cpu_s"],
                    }
                )
    return rows


# In child processes.


def in_a_new_process(
    what: str, environment: Mapping[str, str] | None = None, **given: Any
) -> dict[str, float]:
    """What ``CHILDREN[what](**given)`` returns in a fresh process."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), what, json.dumps(given)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        | dict(environment or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def memory(requests: int, replicas: int, decode: str, repeats: int) -> dict[str, float]:
    """CPU seconds with all percentiles, and the most memory that the process held, bytes."""
    cost = fastest(paper_case(replicas, decode), requests, repeats)
    return {"all_cpu_s": cost.all_cpu_s, "peak_bytes": peak_bytes()}


def peak_bytes() -> float:
    """The most memory that this process has held.

    ``getrusage`` would count what the parent held when it made this process.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    fields = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines())
    return 1024.0 * float(fields["VmHWM"].split()[0])


def first(option: str) -> dict[str, float]:
    """CPU seconds up to now, of a small run, and of the same run again."""
    imported = time.process_time()
    case = paper_case(2, options=options()[option])
    costs = [asdict(spent(case, 1000))["all_cpu_s"] for _ in range(2)]
    return {"import_cpu_s": imported, "first_cpu_s": costs[0], "second_cpu_s": costs[1]}


CHILDREN: dict[str, Callable[..., dict[str, float]]] = {"memory": memory, "first": first}


def main(words: Sequence[str]) -> None:
    """``words``: a child's task and its arguments, or nothing."""
    if words:
        print(json.dumps(CHILDREN[words[0]](**json.loads(words[1]))))
        return
    for rows in (size_rows(), option_rows(), cost_rows(), compile_rows()):
        print(*(json.dumps(dict(row)) for row in rows), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
