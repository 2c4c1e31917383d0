"""The event simulator against recursions that need no events: one replica, one rule at a time.

Each oracle is written anew from the rule's statement and shares no code with the simulator.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.fleet import PREFILL
from pdalloc.hardware.link import Link
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import REJECTED, TIMED_OUT
from pdalloc.simulation.options import (
    Clients,
    Colocated,
    Failures,
    KvMemory,
    Network,
    PassBudget,
)
from pdalloc.simulation.setup import down_seconds, up_seconds

SEEDS = range(25)
A, B, C = 0.02, 1e-3, 1e-6
STEP, PER_REQUEST, PER_TOKEN = 0.01, 2e-3, 1e-5
LATENCY = Latency(AffinePrefill(A, B, C), AffineDecode(STEP, PER_REQUEST, PER_TOKEN))
FAST_DECODE = Latency(LATENCY.prefill, AffineDecode(1e-9, 0.0))


def drawn(lab, seed: int, rate: float = 20.0, n: int = 60):
    """Poisson arrivals, prompts of 1 to 60 tokens (part of them cached), answers of 1 to 20."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, n))
    prompt, output = rng.integers(1, 61, n), rng.integers(1, 21, n)
    return lab.draws(arrival, prompt, output, cached=np.floor(prompt * rng.uniform(0, 0.9, n)))


def service(draws):
    """Prefill seconds of each prompt alone."""
    n, h = draws.stream.prompt.astype(float), draws.stream.cached
    return A + B * (n - h) + C * (n**2 - h**2)


def fcfs(arrival: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Ends of service: D_i = max(A_i, D_(i-1)) + S_i (Lindley 1952)."""
    ends, free = np.empty(len(arrival)), 0.0
    for i, (a, s) in enumerate(zip(arrival, seconds, strict=True)):
        ends[i] = free = max(a, free) + s
    return ends


@pytest.mark.parametrize("seed", SEEDS)
def test_one_prefill_replica_is_lindley_s_recursion(lab, seed: int) -> None:
    draws = drawn(lab, seed)
    log = lab.run(lab.system(FAST_DECODE), draws, slow={(PREFILL, 0): 1.5}).log
    assert log.prefill_end == pytest.approx(fcfs(draws.stream.arrival, 1.5 * service(draws)))


@pytest.mark.parametrize("seed", SEEDS)
def test_timeouts_by_the_virtual_wait(lab, seed: int) -> None:
    """Who would wait more than the patience leaves and costs nothing."""
    draws, patience, free = drawn(lab, seed, 40.0), 0.1, 0.0
    log = lab.run(lab.system(FAST_DECODE), draws, clients=Clients(timeout=patience)).log
    for i, (a, s) in enumerate(zip(draws.stream.arrival, service(draws), strict=True)):
        start = max(a, free)
        if start - a > patience:
            assert log.status[i] == TIMED_OUT
            assert log.left[i] == a + patience
        else:
            assert log.prefill_start[i] == pytest.approx(start)
            free = start + s
    assert (log.status == TIMED_OUT).any()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("room", [0, 2])
def test_refusals_by_counting_who_waits(lab, seed: int, room: int) -> None:
    draws, free = drawn(lab, seed), 0.0
    log = lab.run(lab.system(FAST_DECODE), draws, clients=Clients(max_queue=room)).log
    starts: list[float] = []
    for i, (a, s) in enumerate(zip(draws.stream.arrival, service(draws), strict=True)):
        if free > a and sum(start > a for start in starts) >= room:
            assert log.status[i] == REJECTED
            continue
        starts.append(max(a, free))
        assert log.prefill_start[i] == pytest.approx(starts[-1])
        free = starts[-1] + s
    assert (log.status == REJECTED).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_of_whole_prompts(lab, seed: int) -> None:
    draws, budget = drawn(lab, seed, 40.0), 50.0
    log = lab.run(lab.system(FAST_DECODE), draws, prefill_budget=PassBudget(budget)).log
    arrival, cost = draws.stream.arrival, draws.stream.prompt - draws.stream.cached
    square = draws.stream.prompt**2 - draws.stream.cached**2
    i, free, several = 0, 0.0, False
    while i < len(arrival):
        start = max(arrival[i], free)
        j = i + 1
        # At an idle replica the first to come starts at once, alone.
        while j < len(arrival) and arrival[j] <= start and start > arrival[i]:
            if cost[i : j + 1].sum() > budget:
                break
            j += 1
        free = start + A + B * cost[i:j].sum() + C * square[i:j].sum()
        assert log.prefill_start[i:j] == pytest.approx(start)
        assert log.prefill_end[i:j] == pytest.approx(free)
        several |= j > i + 1
        i = j
    assert several


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("budget", [7.0, 64.0])
def test_passes_of_chunks(lab, seed: int, budget: float) -> None:
    draws = drawn(lab, seed, 10.0)
    log = lab.run(lab.system(FAST_DECODE), draws, prefill_budget=PassBudget(budget, split=True)).log
    arrival, prompt = draws.stream.arrival, draws.stream.prompt
    at, ends = draws.stream.cached.copy(), np.zeros(len(arrival))
    now, i = 0.0, 0
    while i < len(arrival):
        idle = now < arrival[i]
        now = max(now, arrival[i])
        here = [i] if idle else [k for k in range(i, len(arrival)) if arrival[k] <= now]
        room, seconds, done = budget, A, []
        for k in here:
            part = min(room, prompt[k] - at[k])
            seconds += B * part + C * ((at[k] + part) ** 2 - at[k] ** 2)
            at[k] += part
            room -= part
            if at[k] == prompt[k]:
                done.append(k)
            if room <= 0:
                break
        now += seconds
        ends[done] = now
        i += len(done)
    assert log.prefill_end == pytest.approx(ends)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_link_behind_one_prefill_replica(lab, seed: int) -> None:
    draws = drawn(lab, seed)
    s = lab.system(FAST_DECODE, link=Link(0.3, 800.0))
    log = lab.run(s, draws, network=Network("fcfs")).log
    through = fcfs(log.prefill_end, draws.stream.prompt / 800.0)
    assert log.transfer_end == pytest.approx(through + 0.3)


def shared_ends(start: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Processor sharing by what remains: everyone's work goes down by dt / k between events."""
    left: dict[int, float] = {}
    ends, now = np.empty(len(start)), 0.0
    coming = list(np.argsort(start, kind="stable"))
    while coming or left:
        arrives = start[coming[0]] if coming else math.inf
        ready = now + min(left.values()) * len(left) if left else math.inf
        until = min(arrives, ready)
        left = {i: w - (until - now) / len(left) for i, w in left.items()}
        now = until
        if ready <= arrives:
            first = min(left, key=lambda i: left[i])
            ends[first] = now
            del left[first]
        else:
            new = coming.pop(0)
            left[new] = work[new]
    return ends


@pytest.mark.parametrize("seed", SEEDS)
def test_a_link_shared_by_several_prefill_replicas(lab, seed: int) -> None:
    draws = drawn(lab, seed, 60.0)
    s = lab.system(FAST_DECODE, dispatch="round_robin", link=Link(0.3, 1200.0))
    log = lab.run(s, draws, (4, 1), network=Network("processor_sharing", "fabric")).log
    ends = shared_ends(log.transfer_start, draws.stream.prompt / 1200.0)
    assert log.transfer_end == pytest.approx(ends + 0.3, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_outages_of_the_only_prefill_replica(lab, seed: int) -> None:
    """A pass that meets a failure starts anew at the repair."""
    draws, rule = drawn(lab, seed, 8.0, 40), Failures(0.4, 0.2)
    log = lab.run(lab.system(FAST_DECODE), draws, failures=rule).log
    down, t, k = [], 0.0, 0
    while t < 60.0:
        fails = t + up_seconds(0, rule, 0, k)
        t = fails + down_seconds(0, rule, 0, k)
        down.append((fails, t))
        k += 1
    free = 0.0
    for i, (a, s) in enumerate(zip(draws.stream.arrival, service(draws), strict=True)):
        start = max(a, free)
        for fails, repaired in down:
            if fails < start + s and repaired > start:
                start = repaired
        assert log.prefill_start[i] == pytest.approx(start)
        free = start + s
    assert free > draws.stream.arrival[-1]


class Memory:
    """One decode replica with ``size`` tokens of KV and no transfer time; lists of
    [index, context, left]. Who is ready asks for memory at once, in order.
    """

    def __init__(self, ready, prompt, output, size: float, full: bool) -> None:
        order = np.argsort(ready, kind="stable")
        self.waiting = [[i, prompt[i], output[i]] for i in order]
        self.ready, self.need, self.size, self.full = ready, prompt + output, size, full
        self.admitted: list[list[int]] = []
        self.batch: list[list[int]] = []
        self.lost: list[list[int]] = []
        self.finish, self.now, self.recomputes = np.empty(len(ready)), 0.0, 0

    def held(self, *others: list[int]) -> int:
        both = [*self.batch, *self.admitted, *others]
        return sum(self.need[r[0]] if self.full else r[1] for r in both)

    def admit(self, at: float, *others: list[int]) -> None:
        """In order of waiting; who is admitted at one instant then stands in order of index."""
        now: list[list[int]] = []
        while self.waiting and not self.lost and self.ready[self.waiting[0][0]] <= at:
            if self.held(self.waiting[0], *others, *now) > self.size:
                break
            now.append(self.waiting.pop(0))
        self.admitted += sorted(now)

    def elapse(self, seconds: float, *others: list[int]) -> None:
        """A pass goes on; whenever one becomes ready, memory is given to who waits."""
        end = self.now + seconds
        for at in [self.ready[r[0]] for r in self.waiting]:
            if self.now < at <= end:
                self.admit(at, *others)
        self.now = end

    def run(self) -> None:
        while self.waiting or self.admitted or self.batch or self.lost:
            if not (self.admitted or self.batch or self.lost):
                self.now = max(self.now, self.ready[self.waiting[0][0]])
            self.admit(self.now)
            if self.lost and self.held(self.lost[0]) <= self.size:
                self.recompute()
            else:
                self.step()

    def recompute(self) -> None:
        again = self.lost.pop(0)
        self.elapse(A + B * again[1] + C * again[1] ** 2, again)
        self.batch.append(again)

    def step(self) -> None:
        self.batch += self.admitted
        self.admitted = []
        context = sum(r[1] for r in self.batch)
        self.elapse(STEP + PER_REQUEST * len(self.batch) + PER_TOKEN * context)
        for r in self.batch:
            r[1], r[2] = r[1] + 1, r[2] - 1
            self.finish[r[0]] = self.now
        self.batch = [r for r in self.batch if r[2] > 0]
        while self.held() > self.size:
            self.lost.insert(0, self.batch.pop())
            self.recomputes += 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reserve", ["full", "context"])
def test_one_decode_replica_with_counted_memory(lab, seed: int, reserve) -> None:
    """150 tokens, prompts of up to 60: about three requests at a time."""
    draws = drawn(lab, seed, 25.0, 50)
    s = lab.system(LATENCY, dispatch="round_robin", kv_tokens=150)
    run = lab.run(s, draws, (50, 1), kv=KvMemory(reserve))
    lengths = draws.stream.prompt, draws.stream.output
    memory = Memory(run.log.prefill_end, *lengths, 150, reserve == "full")
    memory.run()
    assert run.log.recomputes.sum() == memory.recomputes
    assert (memory.recomputes > 0) == (reserve == "context")
    assert run.log.finish == pytest.approx(memory.finish)


@pytest.mark.parametrize("seed", SEEDS)
def test_back_pressure_with_room_for_one(lab, seed: int) -> None:
    """T_i = max(P_i, F_(i-1)); the next prefill starts at max(A_(i+1), T_i)."""
    draws = drawn(lab, seed, 4.0, 40)
    draws = lab.draws(draws.stream.arrival, [60] * 40, draws.stream.output, draws.stream.cached)
    s = lab.system(LATENCY, kv_tokens=60 + 20)
    log = lab.run(s, draws, kv=KvMemory("full", back_pressure=True)).log
    begins, done = 0.0, 0.0
    for i in range(40):
        start = max(draws.stream.arrival[i], begins)
        end = start + service(draws)[i]
        begins = max(end, done)
        assert log.prefill_start[i] == pytest.approx(start)
        assert log.transfer_start[i] == pytest.approx(begins)
        steps = np.arange(draws.stream.output[i])
        done = begins + float((STEP + PER_REQUEST + PER_TOKEN * (60 + steps)).sum())
        assert log.finish[i] == pytest.approx(done)


def together(arrival: np.ndarray, prompt: np.ndarray, output: np.ndarray, budget: float):
    """Co-located, prefill first, no memory limit: finish times by a loop over passes."""
    waiting = list(range(len(arrival)))
    batch: list[list[int]] = []
    finish, now = np.empty(len(arrival)), 0.0
    while waiting or batch:
        if not batch:
            now = max(now, arrival[waiting[0]])
        taken: list[int] = []
        while waiting and arrival[waiting[0]] <= now:
            if taken and prompt[taken].sum() + prompt[waiting[0]] > budget:
                break
            taken.append(waiting.pop(0))
        if taken:
            now += A + B * prompt[taken].sum() + C * (prompt[taken] ** 2).sum()
            batch += [[i, prompt[i], output[i]] for i in taken]
            continue
        now += STEP + PER_REQUEST * len(batch) + PER_TOKEN * sum(c for _, c, _ in batch)
        batch = [[i, c + 1, left - 1] for i, c, left in batch]
        for i, _, left in batch:
            if left == 0:
                finish[i] = now
        batch = [r for r in batch if r[2] > 0]
    return finish


@pytest.mark.parametrize("seed", SEEDS)
def test_one_colocated_replica(lab, seed: int) -> None:
    draws = drawn(lab, seed, 8.0)
    stream = lab.draws(draws.stream.arrival, draws.stream.prompt, draws.stream.output).stream
    run = lab.run(
        lab.system(LATENCY),
        lab.draws(stream.arrival, stream.prompt, stream.output),
        colocated=Colocated("prefill_first", 80.0),
    )
    finish = together(stream.arrival, stream.prompt, stream.output, 80.0)
    assert run.log.finish == pytest.approx(finish)
