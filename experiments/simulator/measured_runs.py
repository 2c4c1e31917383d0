r"""Two real co-located vLLM runs played again: fitted on one part, compared on the other.

A run gives, per request, lengths, when it arrived, was scheduled, got its first and its last
token. A pass of B decoding requests with S context tokens that also prefills prompt parts
takes

.. math:: t = a + b B + c S + d\,x + e\,q,

x the tokens of the parts and q the growth of their squares (:class:`Colocated`, chunked: one
pass, weights read once). Between its first and its last token a request sees L - 1 passes, so
its mean gap is a + b B + c S + d x + e q at the means it sees. Those means come from the run
itself: every other request spreads its tokens evenly from its first to its last, and its
prompt from when it was scheduled to its first token. Coefficients are not negative, and the
relative error is least, as in :mod:`pdalloc.latency.fitting`.

Then the same arrivals and lengths go through the co-located simulator with the engine's own
limits (max_num_seqs, max_num_batched_tokens). Two ways to leave a part out of the fit: the
requests of odd number, or those that finish in the second half of the run - which asks the
fit for batches that it has not seen.

What the simulator leaves out: the engine chooses a pass while the one before it runs, so from
scheduling to the first token lie two passes where the simulator has one (compare
``scheduled_to_first``), and an arrival misses the pass that is already chosen. It shows where
nobody waits for a slot; where all do, the wait hides it.

Data: folder ``root`` of reference tables; none of it is part of this repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.results import Row, Value
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Dispatch, Fleet, Role
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import Array, Ints, RequestLog
from pdalloc.simulation.fast import replay
from pdalloc.simulation.options import Colocated, SimulationOptions
from pdalloc.simulation.traffic import Draws, RequestStream
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass, Workload

Mask = NDArray[np.bool_]

FOLDER = "measured_runs"
RUNS = ("RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B")
PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True)
class Measured:
    """One run; arrays (n,), s from the first arrival on one clock, in order of arrival.

    ``slots`` requests run at once, ``budget`` tokens are in a pass at most.
    """

    arrival: Array
    scheduled: Array
    first: Array
    last: Array
    prompt: Ints
    output: Ints
    slots: int
    budget: int

    @property
    def latencies(self) -> dict[str, Array]:
        """TTFT, TPOT and E2E per request, s, and from scheduling to the first token."""
        ttft, e2e = self.first - self.arrival, self.last - self.arrival
        started = self.first - self.scheduled
        return {"ttft": ttft, "tpot": self.gap, "e2e": e2e, "scheduled_to_first": started}

    @property
    def gap(self) -> Array:
        """Mean time between tokens per request, s."""
        return (self.last - self.first) / (self.output - 1)


@dataclass(frozen=True)
class PassTime:
    """Coefficients a, b, c, d, e of the module's law, s; ``errors`` of each request's gap."""

    coefficients: tuple[float, ...]
    errors: Array

    def latency(self) -> Latency:
        """The law as prefill and step times of the co-located simulator."""
        a, b, c, d, e = self.coefficients
        return Latency(AffinePrefill(a, d, e), AffineDecode(a, b, c))


def read_run(folder: Path) -> Measured:
    """Read requests.jsonl and meta.json; raises InputError where there are none.

    The wall clock of arrivals is shifted to the engine's: the least delay between them is 0.
    """
    for name in ("requests.jsonl", "meta.json"):
        if not (folder / name).is_file():
            raise InputError(f"{folder.name}/{name}: no such file among the reference tables")
    lines = (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    requests: list[dict[str, Any]] = [json.loads(line) for line in lines]
    requests.sort(key=lambda request: request["arrival_time"])
    engine = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["engine_kwargs"]

    def column(name: str) -> Array:
        return np.array([request[name] for request in requests], float)

    arrival = column("arrival_time")
    arrival = arrival + (column("queued_ts") - arrival).min()
    return Measured(
        arrival - arrival[0],
        column("scheduled_ts") - arrival[0],
        column("first_token_ts") - arrival[0],
        column("last_token_ts") - arrival[0],
        column("input_toks").astype(np.int64),
        column("output_toks").astype(np.int64),
        int(engine["max_num_seqs"]),
        int(engine["max_num_batched_tokens"]),
    )


def seen(run: Measured) -> Array:
    """What each request sees in its mean pass: columns 1, B, S, x, q; shape (n, 5)."""
    passes = (run.output - 1).astype(float)
    from_, to = _common(run.first, run.last, run.first, run.last)
    length = (run.last - run.first)[None, :]
    tokens = (to - from_) / length * passes[None, :]
    position = (0.5 * (from_ + to) - run.first[None, :]) / length * passes[None, :]
    context = tokens * (run.prompt[None, :] + position)
    from_, to = _common(run.first, run.last, run.scheduled, run.first)
    share = (to - from_) / (run.first - run.scheduled)[None, :]
    prompt = run.prompt.astype(float)
    sums = tokens.sum(1), context.sum(1), share @ prompt, share @ prompt**2
    return np.column_stack([np.ones(len(passes)), *(total / passes for total in sums)])


def _common(from_i: Array, to_i: Array, from_j: Array, to_j: Array) -> tuple[Array, Array]:
    """The time that windows i and j have in common, from and to; shape (i, j)."""
    start = np.maximum(from_i[:, None], from_j[None, :])
    return start, np.maximum(np.minimum(to_i[:, None], to_j[None, :]), start)


def fit(run: Measured, use: Mask) -> PassTime:
    """Coefficients from the requests ``use`` (n,): least relative error, none negative."""
    from scipy.optimize import nnls

    design, gap = seen(run), run.gap
    weighted = design[use] / gap[use, None]
    scale = np.maximum(np.linalg.norm(weighted, axis=0), np.finfo(float).tiny)
    found = nnls(weighted / scale, np.ones(int(use.sum())))[0] / scale
    return PassTime(tuple(found.tolist()), design @ found / gap - 1.0)


def play(run: Measured, law: PassTime) -> RequestLog:
    """The same requests on one co-located replica, chunked prefill, without prefix hits."""
    n = len(run.arrival)
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, law.latency(), 0.0, max_batch=run.slots)
    rules: dict[Role, Dispatch] = dict.fromkeys(ROLES, "least_loaded")
    system = System(
        Llm("m", "M", 1.0, 1.0, 1e9, 1.0),
        Workload((TrafficClass("all", 1.0, fixed(1, 1)),)),
        {"r": kind},
        Link(),
        rules,
        "prefill",
    )
    stream = RequestStream(run.arrival, np.zeros(n, np.int64), run.prompt, np.zeros(n), run.output)
    nowhere = dict.fromkeys(ROLES, np.zeros(n, np.int64))
    draws = Draws(stream, np.ones(n), nowhere, dict.fromkeys(ROLES, np.zeros(n)))
    options = SimulationOptions(colocated=Colocated("chunked", run.budget))
    fleet = Fleet.of({(role, "r"): 1 for role in ROLES})
    return replay(system, fleet, draws, options=options).log


def parts(run: Measured) -> Mapping[str, Mask]:
    """Which requests are fitted on, by the name of the choice; (n,)."""
    even = np.arange(len(run.arrival)) % 2 == 0
    return {"even requests": even, "finished in the first half": run.last <= np.median(run.last)}


def rows(root: Path) -> dict[str, list[Row]]:
    """``measured``: latencies measured and simulated; ``fits``: coefficients and their errors."""
    found: dict[str, list[Row]] = {"measured": [], "fits": []}
    for name in RUNS:
        run = read_run(root / FOLDER / name)
        for choice, use in parts(run).items():
            law = fit(run, use)
            names: dict[str, Value] = {"run": name, "fitted_on": choice}
            found["measured"] += [{**names, **row} for row in compared(run, play(run, law), use)]
            found["fits"].append({**names, **_fit_row(law, use)})
    return found


def compared(run: Measured, log: RequestLog, use: Mask) -> list[dict[str, Value]]:
    """Rows of the requests left out of the fit, of all, and of those that need no free slot.

    The first ``slots`` requests never wait for a slot: their TTFT is prefill and scheduling.
    """
    subsets = {
        "left out": ~use,
        "all": np.ones(len(use), bool),
        "first of all": np.arange(len(use)) < run.slots,
    }
    simulated = {"ttft": log.ttft, "tpot": log.tpot, "e2e": log.e2e}
    simulated["scheduled_to_first"] = log.first_token - log.prefill_start
    return [
        {"requests": subset, "metric": metric, **row}
        for subset, keep in subsets.items()
        for metric, values in run.latencies.items()
        for row in _statistics(values[keep], simulated[metric][keep])
    ]


def _statistics(measured: Array, simulated: Array) -> list[dict[str, Value]]:
    """Mean and percentiles of both, s, and the median over requests of their distance."""
    pairs = {"mean": (float(measured.mean()), float(simulated.mean()))}
    for p in PERCENTS:
        pairs[f"p{p}"] = float(np.percentile(measured, p)), float(np.percentile(simulated, p))
    out: list[dict[str, Value]] = [
        {
            "statistic": name,
            "measured_s": real,
            "simulated_s": ours,
            "error_percent": 100.0 * (ours / real - 1.0),
        }
        for name, (real, ours) in pairs.items()
    ]
    apart = 100.0 * float(np.median(np.abs(simulated / measured - 1.0)))
    none: dict[str, Value] = {"measured_s": None, "simulated_s": None}
    return [*out, {"statistic": "median |error| per request", **none, "error_percent": apart}]


def _fit_row(law: PassTime, use: Mask) -> dict[str, Value]:
    names = (
        "base_s",
        "per_request_s",
        "per_context_token_s",
        "per_prompt_token_s",
        "per_square_s",
    )
    return {
        **dict(zip(names, law.coefficients, strict=True)),
        "median_error_percent": 100.0 * float(np.median(np.abs(law.errors[use]))),
        "median_error_left_out_percent": 100.0 * float(np.median(np.abs(law.errors[~use]))),
        "greatest_error_left_out_percent": 100.0 * float(np.abs(law.errors[~use]).max()),
    }
