"""The core path: a run without options, played in batches of requests.

Without back-pressure nothing that happens at decode is felt at prefill, so the events of
:mod:`core` are few: one per stage and request, none per step or token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pdalloc.fleet import DECODE, PREFILL, ROLES, Fleet
from pdalloc.records import Array, Ints, RequestLog
from pdalloc.simulation.kernels.heap import empty_heap
from pdalloc.simulation.kernels.plain.core import play
from pdalloc.simulation.kernels.plain.decode import empty_ring
from pdalloc.simulation.kernels.plain.record import PlayedRun
from pdalloc.simulation.kernels.plain.replica import Replicas, idle_replicas
from pdalloc.simulation.kernels.plain.steps import Steps
from pdalloc.simulation.kernels.plain.table import (
    ARRIVAL,
    DECODE_REPLICA,
    FINISH,
    FIRST_TOKENS,
    OUTPUT,
    PREFILL_END,
    PREFILL_REPLICA,
    PROMPT,
    TIMES,
    TRANSFER_END,
    empty_table,
)
from pdalloc.simulation.kernels.step_table import base_table, slope_of
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System

BATCH = 1 << 15
"""Most requests played between two looks at the keyboard and the progress bar."""
LEAST_BATCH = 1 << 10


class PlainRun:
    """A run in progress; ``begun`` requests have arrived."""

    def __init__(self, system: System, fleet: Fleet, draws: Draws) -> None:
        self.system, self.fleet, self.draws = system, fleet, draws
        self.requests = len(draws.stream)
        self.times, self.whole = empty_table(self.requests)
        self.prefills, self.decodes = (
            idle_replicas(system.dispatch[role], [p.replicas for p in fleet.in_role(role)])
            for role in ROLES
        )
        self.ends, self.moving = empty_heap(len(self.prefills)), empty_heap(self.requests)
        self.latencies = {
            role: [system.replica_types[p.replica_type].latency for p in fleet.in_role(role)]
            for role in ROLES
        }
        set_up_decode(self.decodes, system, fleet, self.requests)
        self.leaving = empty_ring(len(self.decodes), int(draws.stream.output.max()))
        self.base = np.empty((0, 0))
        self.begun = 0

    @property
    def finished(self) -> int:
        """Requests that are done."""
        return int(self.decodes["finished"].sum())

    def play(self, progress: Callable[[int, int], None] | None) -> None:
        """Play to the end, calling ``progress(finished, requests)`` after every batch.

        That is about a hundred times, less often in a short run, more often in a very long one.
        """
        batch = min(max(self.requests // 100, LEAST_BATCH), BATCH)
        while self.begun < self.requests:
            end = min(self.begun + batch, self.requests)
            self._prepare(slice(self.begun, end))
            play(
                self.times,
                self.whole,
                self.prefills,
                self.ends,
                self.moving,
                self.decodes,
                self.leaving,
                self.base,
                FIRST_TOKENS.index(self.system.first_token),
                self.begun,
                end,
            )
            self.begun = end
            if progress is not None:
                progress(self.finished, self.requests)

    def _prepare(self, part: slice) -> None:
        """Fill in what the requests ``part`` need, and let the table of steps be long enough."""
        stream, draws = self.draws.stream, self.draws
        self.times[ARRIVAL, part] = stream.arrival[part]
        self.times[FINISH, part] = np.nan
        self.whole[PROMPT, part] = stream.prompt[part]
        self.whole[OUTPUT, part] = stream.output[part]
        for role, row, replicas in (
            (PREFILL, PREFILL_REPLICA, self.prefills),
            (DECODE, DECODE_REPLICA, self.decodes),
        ):
            rule = self.system.dispatch[role]
            pool, pick = draws.pool[role][part], draws.pick[role][part]
            self.whole[row, part] = meant_for(replicas, rule == "random", pool, pick)
        prompt = stream.prompt[part].astype(float)
        self.times[PREFILL_END, part] = self._prefill_seconds(part, prompt)
        size = self.system.llm.kv_bytes_per_token * prompt
        self.times[TRANSFER_END, part] = self.system.link.transfer_time(size)
        present = part.stop - self.finished
        most = min(int(self.decodes["limit"].max()), present)
        if self.base.shape[1] <= most:
            self.base = base_table(self.latencies[DECODE], 2 * most)

    def _prefill_seconds(self, part: slice, prompt: Array) -> Array:
        """Prefill times of the requests ``part`` in their pools, noise included, s."""
        cached, pool = self.draws.stream.cached[part], self.draws.pool[PREFILL][part]
        seconds = np.empty(len(prompt))
        for p, latency in enumerate(self.latencies[PREFILL]):
            mine = slice(None) if len(self.latencies[PREFILL]) == 1 else np.flatnonzero(pool == p)
            mean = latency.prefill_seconds(prompt[mine], cached[mine])
            noisy = latency.prefill_noise == "exponential"
            seconds[mine] = mean * self.draws.noise[part][mine] if noisy else mean
        return seconds

    def log(self, requests: int | None = None) -> RequestLog:
        """The log of the first ``requests``, or of all; they must be done."""
        stream, n = self.draws.stream, requests
        return RequestLog(
            **{name: row[:n] for name, row in zip(TIMES, self.times, strict=True)},
            prompt_tokens=stream.prompt[:n],
            output_tokens=stream.output[:n],
            traffic_class=stream.traffic_class[:n],
            prefill_replica=self.whole[PREFILL_REPLICA, :n],
            decode_replica=self.whole[DECODE_REPLICA, :n],
        )

    def record(self) -> Run:
        """The log, the passes of every prefill replica and the steps of every decode replica."""
        steps = Steps(self.times, self.whole, self.decodes, self.base, self.leaving.shape[1])
        prompt = self.draws.stream.prompt
        return PlayedRun(
            self.log(),
            steps,
            len(self.prefills),
            lambda: self._prefill_seconds(slice(None), prompt.astype(float)),
        )

    @property
    def done_from_the_start(self) -> int:
        """How many requests are done before the first, in order of arrival, that is not."""
        waiting = np.isnan(self.times[FINISH, : self.begun])
        return int(waiting.argmax()) if waiting.any() else self.begun


def set_up_decode(decodes: Replicas, system: System, fleet: Fleet, requests: int) -> None:
    """Write each decode replica's batch limit and step times into it.

    Raises InputError when a replica's KV space does not hold one request.
    """
    context = system.mean_context
    for p, pool in enumerate(fleet.in_role(DECODE)):
        kind = system.replica_types[pool.replica_type]
        mine = decodes["pool"] == p
        decodes["limit"][mine] = int(min(kind.batch_limit(context), requests))
        decodes["factor"][mine] = kind.latency.calibration.decode
        decodes["slope"][mine] = slope_of(kind.latency)
    decodes["by_prefill"] = int(system.first_token != "decode")


def meant_for(replicas: Replicas, at_random: bool, pool: Ints, pick: Array) -> Ints:
    """The replica that each request goes to at random, or the first of its pool; (n,)."""
    sizes = np.bincount(replicas["pool"])
    first = np.cumsum(sizes) - sizes
    if not at_random:
        return np.asarray(first[pool])
    return np.asarray(first[pool] + (pick * sizes[pool]).astype(np.int64))
