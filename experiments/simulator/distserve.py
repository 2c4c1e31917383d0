r"""DistServe's simulator on identical inputs: its rules as options and latency models of ours.

Its simulator (LLMServe/DistServe @82831f16, ``simdistserve``) for one prefill and one decode
replica, in our terms; a, b, c are the fits of its profile, ms:

* prefill passes take waiting prompts, whole, up to 66144 tokens: :class:`PassBudget`. A pass
  over prompts of n tokens takes a + b sum n + c sum n^2, 1 ms for the pipeline, and the call of
  a worker: 2 ms + 1e-4 ms per token;
* a request then takes L decode steps for its L tokens, as under our rule ``decode``, though
  its first token counts as made by prefill: its TTFT is the end of the prefill;
* a step of B requests with S context tokens takes a + b (S + B) + c B and the call of a
  worker; a, b, c are others from B = 95 on (:class:`Regimes`);
* nothing moves between replicas, and a step takes at most 50000 context tokens. The last rule
  has no option of ours: who is left over waits a turn. The workload never comes near.

Data: folder ``root`` of reference tables; its workload and answers are not part of this
repository.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from experiments.results import Row

from pdalloc.errors import InputError
from pdalloc.fleet import ROLES, Dispatch, Fleet, Role
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import DecodeStep, Latency
from pdalloc.records import Array, Ints, RequestLog
from pdalloc.simulation import reference
from pdalloc.simulation.options import PassBudget, SimulationOptions
from pdalloc.simulation.traffic import Draws, RequestStream
from pdalloc.system import FirstToken, ReplicaType, System
from pdalloc.workload.lengths import fixed
from pdalloc.workload.traffic import TrafficClass, Workload

MS = 1e-3
WORKLOAD, ANSWERS = "simulator/w2k_r1.5.json", "simulator/simdist_lat_2k.csv"
PROFILE, MODEL, PARALLEL = "profiles/distserve/profiler-a100-80g.distserve.json", "opt-13b", "1"
METRICS = {"ttft": "first_token_latency", "e2e": "total_latency", "tpot": "tpot"}
"""Our latencies by its columns (ms); its TPOT is (e2e - ttft) / L."""

Coefficients = tuple[float, float, float]


@dataclass(frozen=True)
class Rules:
    """Its constants, ms and tokens; ``steps`` says what makes the first token in our terms."""

    prefill: Coefficients
    small: Coefficients
    large: Coefficients
    split: int
    pipeline_ms: float = 1.0
    call_ms: float = 2.0
    call_per_token_ms: float = 1e-4
    pass_tokens: float = 66144.0
    first_token: FirstToken = "decode"

    def latency(self) -> Latency:
        """Its times as latency models, s."""
        a, b, c = self.prefill
        base, per_token = a + self.pipeline_ms + self.call_ms, b + self.call_per_token_ms
        prefill = AffinePrefill(MS * base, MS * per_token, MS * c)
        return Latency(prefill, Regimes(self._step(self.small), self._step(self.large), self.split))

    def _step(self, fit: Coefficients) -> AffineDecode:
        a, b, c = fit
        base, per_token = a + self.call_ms, b + self.call_per_token_ms
        return AffineDecode(MS * base, MS * (b + c), MS * per_token)

    def options(self) -> SimulationOptions:
        """Its batching of prompts; a budget below one token means one prompt at a time."""
        if self.pass_tokens < 1:
            return SimulationOptions()
        return SimulationOptions(prefill_budget=PassBudget(self.pass_tokens))


@dataclass(frozen=True)
class Regimes:
    """A step time with one form below ``split`` requests and another from there on."""

    small: DecodeStep
    large: DecodeStep
    split: int

    @property
    def range_batch(self) -> tuple[float, float]:
        """From the least batch of the one to the greatest of the other."""
        return self.small.range_batch[0], self.large.range_batch[1]

    def seconds(self, batch: Array, context: Array) -> Array:
        """Seconds of steps, shape (n,)."""
        small, large = (form.seconds(batch, context) for form in (self.small, self.large))
        return np.where(batch < self.split, small, large)


def read_rules(root: Path) -> Rules:
    """The published fits of OPT-13B on one A100."""
    profile = _json(root / PROFILE)[f"facebook/{MODEL}"][PARALLEL]
    prefill, small, large = (
        tuple(profile[name]) for name in ("prefill", "decoding_smallbs", "decoding_largebs")
    )
    return Rules(prefill, small, large, profile["decoding_large_small_bs_threshold"])


def read_workload(root: Path) -> tuple[Array, Ints, Ints]:
    """(arrival from the first on in s, prompt, output) of its requests."""
    requests = _json(root / WORKLOAD)
    start, prompt, output = (
        np.array([request[name] for request in requests])
        for name in ("start_time", "prompt_len", "output_len")
    )
    return start - start[0], prompt, output


def read_answers(root: Path) -> dict[str, Array]:
    """Its latencies per request, s, by our names."""
    with _existing(root / ANSWERS).open(encoding="utf-8") as table:
        found = list(csv.DictReader(table))
    return {
        name: MS * np.array([float(row[column]) for row in found])
        for name, column in METRICS.items()
    }


def _json(path: Path) -> Any:
    return json.loads(_existing(path).read_text(encoding="utf-8"))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path.name}: not among the reference tables in {path.parents[1]}")
    return path


def run(rules: Rules, arrival: Array, prompt: Ints, output: Ints) -> RequestLog:
    """One prefill and one decode replica under ``rules``."""
    kind = ReplicaType("r", Gpu("gpu", "GPU"), 1, ROLES, rules.latency(), 0.0)
    dispatch: dict[Role, Dispatch] = dict.fromkeys(ROLES, "least_loaded")
    system = System(
        Llm("m", "M", 1.0, 1.0, 1e9, 1.0),
        Workload((TrafficClass("all", 1.0, fixed(1, 1)),)),
        {"r": kind},
        Link(),
        dispatch,
        rules.first_token,
    )
    n = len(arrival)
    stream = RequestStream(arrival, np.zeros(n, np.int64), prompt, np.zeros(n), output)
    nowhere = dict.fromkeys(ROLES, np.zeros(n, np.int64))
    draws = Draws(stream, np.ones(n), nowhere, dict.fromkeys(ROLES, np.zeros(n)))
    fleet = Fleet.of({(role, "r"): 1 for role in ROLES})
    return reference.replay(system, fleet, draws, options=rules.options()).log


def latencies(log: RequestLog) -> dict[str, Array]:
    """TTFT, E2E and TPOT as it defines them, s."""
    ttft = log.prefill_end - log.arrival
    return {"ttft": ttft, "e2e": log.e2e, "tpot": (log.e2e - ttft) / log.output_tokens}


def without(rules: Rules) -> Mapping[str, Rules]:
    """``rules``, and each rule left out in turn."""
    return {
        "all rules": rules,
        "one prompt a pass": replace(rules, pass_tokens=0.0),
        "L - 1 decode steps": replace(rules, first_token="prefill"),
        "no pipeline time": replace(rules, pipeline_ms=0.0),
        "no call time": replace(rules, call_ms=0.0),
        "no call time per token": replace(rules, call_per_token_ms=0.0),
        "large-batch fit throughout": replace(rules, split=0),
    }


def rows(root: Path) -> list[Row]:
    """Error of each latency with all rules and without each, over its requests."""
    answers, requests = read_answers(root), read_workload(root)
    out: list[Row] = []
    for name, rules in without(read_rules(root)).items():
        log = run(rules, *requests)
        batch, context = greatest(log)
        for metric, values in latencies(log).items():
            gap = values - answers[metric]
            out.append(
                {
                    "rules": name,
                    "metric": metric,
                    "requests": len(gap),
                    "mean_ms": float(answers[metric].mean() / MS),
                    "mean_error_percent": float(100.0 * gap.mean() / answers[metric].mean()),
                    "greatest_error_ms": float(np.abs(gap).max() / MS),
                    "greatest_batch": batch,
                    "greatest_context_tokens": context,
                }
            )
    return out


def greatest(log: RequestLog) -> tuple[int, int]:
    """Most requests that decode at once, and a bound on their context tokens (whole lengths)."""
    come, gone = np.argsort(log.decode_start), np.argsort(log.finish)
    starts, ends = log.decode_start[come], log.finish[gone]
    tokens = log.prompt_tokens + log.output_tokens
    left = np.searchsorted(ends, starts, "right")
    batch = np.arange(1, len(log) + 1) - left
    held = np.cumsum(tokens[come]) - np.concatenate([[0], np.cumsum(tokens[gone])])[left]
    return int(batch.max()), int(held.max())
