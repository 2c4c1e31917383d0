"""A published fleet that diverges under its publisher's own constants.

fleet_sim.yaml holds what another planner publishes for 100 requests/s: one prefill and three
decode replicas, 113.7 requests/s. Its decode throughput divides the slots by the time of a
request whose context is its *output* alone; decoded with prompt and output in the KV cache,
as its step time asks, three replicas serve far less. Here its constants are simulated:

* prefill at its word: each of its slots takes ceil(n / chunk) iterations at a full batch, the
  KV cache moves in the rest of its TTFT, and nobody waits, so decode sees what it says;
* a decode step of B requests with S context tokens in all takes base + per_request S /
  calibration_context seconds, at most ``slots`` requests a replica, L steps a request.

The same is asked with the law of lengths that it publishes (``azure``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from experiments.results import Row

from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import Array, RequestLog
from pdalloc.simulation.fast import simulate
from pdalloc.simulation.statistics import interval
from pdalloc.simulation.summary import queue_lengths
from pdalloc.simulation.traffic import child_seed
from pdalloc.system import ReplicaType, System
from pdalloc.workload.lengths import LengthLaw, fixed, joint_table
from pdalloc.workload.traffic import TrafficClass, Workload

PUBLISHED = Path(__file__).parent / "fleet_sim.yaml"
HORIZON, STEP = 300.0, 5.0
"""Seconds simulated, and between two points of a curve."""
REPLICATIONS = 8
FLEETS: Mapping[str, tuple[int, ...]] = {"mean": (3, 4, 5), "azure": (3, 4, 5, 6)}
"""Decode replicas by lengths: the prompt and output of its case, and its law for Azure's."""
BIN_POINTS = 32
"""Equally likely lengths that stand for a bin of the published law."""


@dataclass(frozen=True)
class Profile:
    """One GPU of the published planner; ``time`` of an iteration as fleet_sim.yaml says."""

    base_s: float
    per_request_s: float
    calibration_context: float
    chunk: int
    slots: int
    kv_tokens: int

    @property
    def per_context_token(self) -> float:
        """Seconds that one token of context adds to an iteration."""
        return self.per_request_s / self.calibration_context

    def time(self, batch: float, context: float) -> float:
        """Seconds of an iteration of ``batch`` requests of ``context`` tokens each."""
        return self.base_s + self.per_context_token * batch * context

    def full(self) -> float:
        """Seconds of an iteration with every slot taken at the calibration context."""
        return self.time(self.slots, self.calibration_context)


@dataclass(frozen=True)
class Published:
    """The content of fleet_sim.yaml."""

    rate: float
    lengths: Mapping[str, LengthLaw]
    prefill: Profile
    decode: Profile
    ttft_factor: float
    decode_efficiency: float
    answer: Mapping[str, float]

    @property
    def prefill_seconds(self) -> float:
        """Its prefill time of the mean prompt: full iterations over chunks."""
        prompt = self.lengths["mean"].mean_prompt
        return math.ceil(prompt / self.prefill.chunk) * self.prefill.full()

    def capacity_as_published(self, replicas: int) -> float:
        """Requests/s that it computes: the context of a request taken to be its output."""
        steps = self.lengths["mean"].mean_output + 1.0
        step = self.decode.time(self.decode.slots, steps)
        return self.decode_efficiency * replicas * self.decode.slots / (steps * step)

    def capacity(self, lengths: str, replicas: int) -> float:
        r"""Requests/s of full batches, :math:`n K / (E[L]\, t(K))`.

        The context of a token is E[L P + L (L - 1) / 2] / E[L]: each request counts once per
        step, and the j-th finds prompt and j - 1 tokens.
        """
        law = self.lengths[lengths]
        p, steps = law.prompt, law.output
        context = law.mean(steps * (p + 0.5 * (steps - 1.0))) / law.mean_output
        step = self.decode.time(self.decode.slots, context)
        return replicas * self.decode.slots / (law.mean_output * step)

    def system(self, lengths: str) -> System:
        """The published constants as a system; replica types ``p`` (a slot) and ``d``."""
        never = AffineDecode(1.0, 0.0)
        slot = Latency(AffinePrefill(self.prefill_seconds, 0.0), never)
        steps = AffineDecode(self.decode.base_s, 0.0, self.decode.per_context_token)
        decode = Latency(AffinePrefill(1.0, 0.0), steps)
        gpu, d = Gpu("gpu", "GPU"), self.decode
        types = {
            "p": ReplicaType("p", gpu, 1, (PREFILL,), slot, 0.0),
            "d": ReplicaType("d", gpu, 1, (DECODE,), decode, 0.0, d.kv_tokens, d.slots),
        }
        return System(
            Llm("m", "M", 1.0, 1.0, 1e9, 1.0),
            Workload((TrafficClass("all", self.rate, self.lengths[lengths]),)),
            types,
            Link((self.ttft_factor - 1.0) * self.prefill_seconds),
            {PREFILL: "central_queue", DECODE: "least_loaded"},
            "decode",
        )


def published(path: Path = PUBLISHED) -> Published:
    """Read fleet_sim.yaml."""
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    case, rules = content["case"], content["rules"]
    profiles = {name: Profile(**values) for name, values in content["profiles"].items()}
    azure = split_law(content["total_tokens"], content["share_within"], content["prompt_share"])
    return Published(
        float(case["rate_req_per_s"]),
        {"mean": fixed(case["prompt_tokens"], case["output_tokens"]), "azure": azure},
        profiles[case["prefill"]],
        profiles[case["decode"]],
        rules["ttft_factor"],
        rules["decode_efficiency"],
        content["answer"],
    )


def split_law(totals: list[int], within: list[float], prompt_share: float) -> LengthLaw:
    """Totals uniform between thresholds, ``prompt_share`` of each (rounded down) its prompt."""
    edges = np.array([1.0, *totals])
    weight = np.diff([0.0, *within])
    middle = (np.arange(BIN_POINTS) + 0.5) / BIN_POINTS
    total = np.rint(edges[:-1, None] + np.diff(edges)[:, None] * middle).ravel()
    prompt = np.maximum(np.floor(prompt_share * total), 1.0)
    output = np.maximum(total - prompt, 1.0)
    return joint_table(prompt, output, np.repeat(weight, BIN_POINTS))


def run(case: Published, lengths: str, replicas: int, seed: int, horizon: float) -> RequestLog:
    """The published fleet with ``replicas`` decode replicas, ``horizon`` s of arrivals or more."""
    prefills = case.prefill.slots * int(case.answer["prefill_replicas"])
    fleet = Fleet.of({(PREFILL, "p"): prefills, (DECODE, "d"): replicas})
    requests = math.ceil(case.rate * horizon + 10.0 * math.sqrt(case.rate * horizon))
    rates = dict.fromkeys(fleet.counts, case.rate)
    return simulate(case.system(lengths), fleet, rates, requests, child_seed(seed, replicas))


def backlog_rows(
    seed: int, horizon: float = HORIZON, fleets: Mapping[str, Iterable[int]] = FLEETS
) -> list[Row]:
    """Requests that wait for a decode slot, and those that decode, over time; one run each."""
    case, at = published(), np.arange(0.0, horizon + 0.5 * STEP, STEP)
    rows: list[Row] = []
    for lengths, counts in fleets.items():
        for replicas in counts:
            series = queue_lengths(run(case, lengths, replicas, seed, horizon), at)
            columns = zip(at, series["queue_decode"], series["in_decode"], strict=True)
            rows += [
                {
                    "lengths": lengths,
                    "decode_replicas": replicas,
                    "time_s": float(time),
                    "waiting_requests": int(waiting),
                    "decoding_requests": int(decoding),
                }
                for time, waiting, decoding in columns
            ]
    return rows


def fleet_rows(
    seed: int,
    horizon: float = HORIZON,
    replications: int = REPLICATIONS,
    fleets: Mapping[str, Iterable[int]] = FLEETS,
) -> list[Row]:
    """Each fleet: what its publisher says, what full batches serve, what replications show.

    ``growth`` is that of the requests in the decode stage over the second half of the run,
    ``tpot`` of the requests that arrive in it; half-widths at 95 %.
    """
    case = published()
    return [
        _fleet_row(case, lengths, replicas, seed, horizon, replications)
        for lengths, counts in fleets.items()
        for replicas in counts
    ]


def _fleet_row(
    case: Published, lengths: str, replicas: int, seed: int, horizon: float, replications: int
) -> Row:
    logs = (
        run(case, lengths, replicas, seed + 1 + i, horizon)  # the curves' run is another
        for i in range(replications)
    )
    waiting, growth, tpot = np.array([end_of(log, horizon) for log in logs]).T
    capacity = case.capacity(lengths, replicas)
    return {
        "lengths": lengths,
        "decode_replicas": replicas,
        "rate_req_per_s": case.rate,
        "published_capacity_req_per_s": case.capacity_as_published(replicas),
        "capacity_req_per_s": capacity,
        "stable": capacity > case.rate,
        "growth_by_capacity_req_per_s": max(case.rate - capacity, 0.0),
        "growth_req_per_s": float(growth.mean()),
        "growth_half_width_req_per_s": interval(growth)[1],
        "waiting_requests_at_end": float(waiting.mean()),
        "waiting_half_width_requests": interval(waiting)[1],
        "tpot_mean_ms": 1e3 * float(tpot.mean()),
        "tpot_half_width_ms": 1e3 * interval(tpot)[1],
    }


def end_of(log: RequestLog, horizon: float) -> Array:
    """(waiting at the end, growth in requests/s, mean TPOT in s) of a run."""
    at = np.array([0.5 * horizon, horizon])
    series = queue_lengths(log, at)
    there = series["queue_decode"] + series["in_decode"]
    late = (log.arrival >= at[0]) & (log.arrival < at[1])
    growth = (there[1] - there[0]) / (at[1] - at[0])
    return np.array([series["queue_decode"][1], growth, np.nanmean(log.tpot[late])])
