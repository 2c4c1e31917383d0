r"""What to read off a run: its steady part, intervals over replications, Little's law.

*Warm-up rule*. A run starts empty and ends empty, so its first requests meet too little
load and its last ones too. By order of arrival, the first and the last tenth are left out
(:func:`steady`). The cut depends on nothing observed, so it selects no kind of request; the
run must be long against one request's stay (Law 2015, "Simulation Modeling and Analysis",
section 9.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.records import Ints, RequestLog, Sample, sample_of

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

WARM_UP = 0.1
"""Share of the requests left out at the start of a run."""
COOL_DOWN = 0.1
"""Share of the requests left out at its end."""
CONFIDENCE = 0.95
"""Level of every interval."""


@dataclass(frozen=True)
class _StepsSeen:
    """Per request: its gaps are steps ``begin`` to ``end`` - 1, and ``own_gap`` where ``early``."""

    requests: Ints
    begin: Ints
    end: Ints
    early: Mask
    own_gap: Array


@dataclass(frozen=True)
class Run:
    """What a run leaves: the requests' times, and every step of every decode replica.

    ``step_starts[d]`` and ``step_seconds[d]`` of decode replica d, seconds, shape (steps,);
    likewise ``pass_*`` of each prefill replica's passes and ``recompute_*`` of each decode
    replica's recompute passes, where the simulator keeps them. ``token_times[i]``: when each
    output token of request i came, s; kept where steps alone do not tell. ``both_roles``:
    prefill replica r and decode replica r are one machine.
    """

    log: RequestLog
    step_starts: tuple[Array, ...]
    step_seconds: tuple[Array, ...]
    pass_starts: tuple[Array, ...] = ()
    pass_seconds: tuple[Array, ...] = ()
    recompute_starts: tuple[Array, ...] = ()
    recompute_seconds: tuple[Array, ...] = ()
    token_times: tuple[Array, ...] | None = None
    both_roles: bool = False

    def decode_work(self, d: int) -> list[tuple[Array, Array]]:
        """(starts, seconds) of what decode replica ``d`` did, s."""
        work = [(self.step_starts[d], self.step_seconds[d])]
        if self.recompute_starts:
            work.append((self.recompute_starts[d], self.recompute_seconds[d]))
        return work

    def decode_busy(self, d: int, start: float, end: float) -> float:
        """Seconds of [start, end] in which decode replica ``d`` works."""
        return covered(self.decode_work(d), start, end)

    def gap_sample(self, keep: Mask) -> Sample:
        """The gaps of :meth:`gaps`, each step's length once with how many requests saw it."""
        if self.token_times is not None:
            return sample_of(self.gaps(keep))
        values, counts = [np.empty(0)], [np.empty(0, np.int64)]
        for d, seconds in enumerate(self.step_seconds):
            seen = self._steps_seen(d, keep)
            came = np.bincount(seen.begin, minlength=len(seconds) + 1)
            went = np.bincount(seen.end, minlength=len(seconds) + 1)
            saw = np.cumsum(came - went)[: len(seconds)]
            values += [seconds[saw > 0], seen.own_gap[seen.early]]
            counts += [saw[saw > 0], np.ones(int(seen.early.sum()), np.int64)]
        return Sample(np.concatenate(values), np.concatenate(counts))

    def gaps_over(self, bound: float) -> Ints:
        """How many of each request's gaps exceed ``bound`` seconds, shape (n,)."""
        over = np.zeros(len(self.log), np.int64)
        if self.token_times is not None:
            for i in np.flatnonzero(self.log.finished):
                over[i] = np.sum(np.diff(self.token_times[i]) > bound)
            return over
        for d, seconds in enumerate(self.step_seconds):
            seen = self._steps_seen(d, self.log.finished)
            up_to = np.concatenate([[0], np.cumsum(seconds > bound)])
            over[seen.requests] = up_to[seen.end] - up_to[seen.begin]
            over[seen.requests] += seen.early & (seen.own_gap > bound)
        return over

    def _steps_seen(self, d: int, keep: Mask) -> _StepsSeen:
        """The gaps of the requests in ``keep`` (n,) that decode replica ``d`` served.

        Looked up in :meth:`gaps`' way, for all of them at once.
        """
        log, starts, seconds = self.log, self.step_starts[d], self.step_seconds[d]
        mine = np.flatnonzero(keep & (log.decode_replica == d) & (log.output_tokens > 1))
        first = np.searchsorted(starts, log.decode_start[mine])
        first_end = log.decode_start[mine] + seconds[first]
        early = log.first_token[mine] < first_end  # made before the first step
        end = first + log.output_tokens[mine] - early
        return _StepsSeen(mine, first + 1, end, early, first_end - log.first_token[mine])

    def gaps(self, keep: Mask) -> Array:
        """All gaps between output tokens (ITL) of the requests in ``keep`` (n,), seconds.

        A request's steps follow each other without a break, so its gaps are consecutive step
        times; only the one after a first token made before the first step holds more. With
        token times the gaps are theirs: tokens of one step are 0 s apart.
        """
        if self.token_times is not None:
            times = [self.token_times[i] for i in np.flatnonzero(keep & self.log.finished)]
            if not times:
                return np.empty(0)
            own = np.ones(sum(map(len, times)), bool)
            own[np.cumsum([len(of_it) for of_it in times]) - 1] = False  # to the next request
            return np.diff(np.concatenate(times), append=0.0)[own]
        log, parts = self.log, [np.empty(0)]
        for i in np.flatnonzero(keep & (log.output_tokens > 1)):
            seconds = self.step_seconds[log.decode_replica[i]]
            first = np.searchsorted(self.step_starts[log.decode_replica[i]], log.decode_start[i])
            left = int(log.output_tokens[i]) - 1
            first_end = log.decode_start[i] + seconds[first]
            if log.first_token[i] < first_end:  # made before the first step
                parts.append(np.array([first_end - log.first_token[i]]))
                left -= 1
            parts.append(seconds[first + 1 : first + 1 + left])
        return np.concatenate(parts)


def covered(work: Sequence[tuple[Array, Array]], start: float, end: float) -> float:
    """Seconds of [start, end] that are in at least one interval (starts, lengths), s."""
    begin = np.concatenate([starts for starts, _ in work])
    until = np.concatenate([starts + seconds for starts, seconds in work])
    order = np.argsort(begin, kind="stable")
    begin, until = np.clip(begin[order], start, end), np.clip(until[order], start, end)
    before = np.concatenate([[start], np.maximum.accumulate(until)[:-1]]) if len(until) else until
    return float(np.maximum(until - np.maximum(begin, before), 0.0).sum())


def steady(log: RequestLog) -> Mask:
    """Which requests to keep by the warm-up rule, shape (n,)."""
    n = len(log)
    index = np.arange(n)
    keep: Mask = (index >= math.floor(n * WARM_UP)) & (index < n - math.floor(n * COOL_DOWN))
    return keep


def interval(samples_per_replication: Sequence[float] | Array) -> tuple[float, float]:
    """Mean and 95 % half-width (Student t) of one number per independent replication.

    Both in the samples' unit. Raises InputError for fewer than two replications.

    >>> mean, half_width = interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(half_width, 3)
    (2.0, 2.484)
    """
    from scipy.special import stdtrit

    samples = np.asarray(samples_per_replication, float)
    if len(samples) < 2:
        raise InputError(f"an interval needs at least 2 replications, got {len(samples)}")
    error = samples.std(ddof=1) / math.sqrt(len(samples))
    t = stdtrit(len(samples) - 1, 0.5 + CONFIDENCE / 2)
    return float(samples.mean()), float(t * error)


def littles_law(log: RequestLog) -> tuple[float, float, float]:
    r"""(N observed, :math:`\lambda T`, N / :math:`\lambda T` - 1) over the steady part.

    The window runs from the first kept arrival to the last. N is the mean number of requests
    present in it, whoever they are; :math:`\lambda` the arrivals in it per second and T their
    mean stay, however they left. The two agree when as much work enters the window as leaves
    it: a large gap says that the run is too short or has no steady state (Little 1961).
    Raises InputError when fewer than two requests are kept.
    """
    keep = steady(log)
    start, end = window(log)
    gone = log.finish if log.left is None else log.left
    overlap = np.minimum(gone, end) - np.maximum(log.arrival, start)
    observed = float(np.maximum(overlap, 0.0).sum() / (end - start))
    # n arrivals span n - 1 gaps.
    rate = (keep.sum() - 1) / (end - start)
    expected = float(rate * (gone - log.arrival)[keep].mean())
    return observed, expected, observed / expected - 1.0


def window(log: RequestLog) -> tuple[float, float]:
    """First and last kept arrival, s: the time that counts.

    Raises InputError when fewer than two requests are kept, or all come at once.
    """
    kept = log.arrival[steady(log)]
    if len(kept) < 2 or kept[-1] <= kept[0]:
        raise InputError(f"the steady part needs a longer run than {len(log)} requests")
    return float(kept[0]), float(kept[-1])
