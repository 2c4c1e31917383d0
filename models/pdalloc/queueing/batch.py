r"""The batch law on one page: continuous batching as processor sharing with its own speed.

Predictions use :mod:`pdalloc.queueing.decode`, which adds contexts, bursts and dispatch; this
plain case is what theorems speak of and what the larger law is tested against.

With k requests decoding, one iteration takes t(k) seconds and gives each of them a token.
Requests arrive Poisson(:math:`\lambda`) per replica and need L iterations. The stationary
number of requests is, whatever the law of L (Kelly 1979, ch. 3; Cohen 1979),

.. math:: \pi(k) \propto (\lambda E[L])^k \prod_{j=1}^{k} t(j)/j ,

negative binomial when t(k) = a + b k. Beyond K slots the speed is that of K and requests
wait: :math:`\pi(k+1)/\pi(k) = \sigma = \lambda E[L] t(K)/K` for k >= K.

* mean TPOT (Little over the slots): :math:`E[\min(N,K)] / (\lambda E[L])`, which is
  (a+b)/(1-rho) in the affine case without a limit, rho = lambda E[L] b;
* a token sees batch min(1 + N, K): the law of ITL;
* an arrival waits for the step under way to end, half a step on average, before its first.

Assumes Poisson arrivals and a context of fixed size per request (its size-biased mean).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError, UnstableError
from pdalloc.laws import Array, Atoms, Exponentials, Law, Mixture

NEGLIGIBLE = 1e-12
"""Relative mass at which the product form is cut off."""
MOST_REQUESTS = 1 << 17
UNIFORM_NODES = (np.arange(4) + 0.5) / 4
"""The boundary wait, uniform over a step, is carried by these four equally likely shares."""


@dataclass(frozen=True)
class BatchLaw:
    """One decode replica.

    ``rate`` requests/s on this replica (0 allowed), ``steps`` = E[L] iterations per request,
    ``step_time(k)`` seconds for batches k (array in, array out), ``slots`` = K (may be inf).
    ``steps_scv`` is the SCV of L, which scales the slot wait (below).
    Raises UnstableError when the offered load is at least what K requests can be served at.
    """

    rate: float
    steps: float
    step_time: Callable[[Array], Array]
    slots: float = math.inf
    steps_scv: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("steps", self.steps), ("SCV", self.steps_scv)):
            if not math.isfinite(value) or value < 0:
                raise InputError(
                    f"batch law: {name} must be finite and not negative, got {value:g}"
                )
        if not self.slots >= 1 or (math.isfinite(self.slots) and self.slots != int(self.slots)):
            raise InputError(f"batch law: slots must be a whole number >= 1, got {self.slots:g}")
        if self.utilisation >= 1.0:
            raise UnstableError(self._unstable(self.utilisation))

    @property
    def token_rate(self) -> float:
        """Offered iterations per second, lambda E[L]."""
        return self.rate * self.steps

    @cached_property
    def _law(self) -> tuple[Array, Array, float]:
        """(t(k) for k = 1..n, pi(0..n), sigma): n = K, pi(K) holding the waiting tail too.

        n stops short of K, and sigma is 0, where what lies beyond has no mass to speak of.
        """
        n = int(min(self.slots, 128))
        while True:
            k = np.arange(1, n + 1, dtype=float)
            times = self.step_time(k)
            with np.errstate(divide="ignore"):
                log_ratio = np.log(self.token_rate * times / k)
            log_pi = np.concatenate([[0.0], np.cumsum(log_ratio)])
            pi = np.exp(log_pi - log_pi.max())
            sigma = float(self.token_rate * times[-1] / n)
            if n < self.slots and sigma < 1.0 and pi[-1] / (1.0 - sigma) < NEGLIGIBLE * pi.sum():
                sigma = 0.0
                break
            if n == self.slots:
                break
            n = int(min(self.slots, 2 * n))
            if n > MOST_REQUESTS:
                raise UnstableError(self._unstable(sigma))
        if sigma >= 1.0:
            raise UnstableError(self._unstable(sigma))
        pi[-1] /= 1.0 - sigma
        return times, pi / pi.sum(), sigma

    @property
    def _full(self) -> bool:
        """Whether the slots can fill: the law reaches K."""
        return len(self._law[0]) == self.slots

    def _unstable(self, sigma: float) -> str:
        return (
            f"one decode replica is offered {self.rate:.4g} req/s of {self.steps:.4g} tokens: "
            f"{sigma:.3f} of what it can do at most; it takes more than "
            f"{max(int(sigma), 1)} replicas"
        )

    @property
    def utilisation(self) -> float:
        """Offered tokens/s over the most the replica can make (with K slots, or as k grows)."""
        if math.isfinite(self.slots):
            most = float(self.slots / self.step_time(np.array([self.slots]))[0])
        else:
            far = float(MOST_REQUESTS)
            most = far / float(self.step_time(np.array([far]))[0])
        return self.token_rate / most

    @property
    def mean_batch(self) -> float:
        """E[min(N, K)], requests."""
        _, pi, _ = self._law
        return float(pi @ np.arange(len(pi)))

    def batch_quantile(self, p: float) -> float:
        """Least batch that a share ``p`` of the time is not exceeded, requests."""
        _, pi, _ = self._law
        return float(np.searchsorted(np.cumsum(pi), p))

    @cached_property
    def mean_step(self) -> float:
        """Mean gap between a request's tokens in seconds: the mean TPOT of the batch law."""
        if self.token_rate == 0.0:
            return float(self.step_time(np.ones(1))[0])
        return self.mean_batch / self.token_rate

    @property
    def greatest_step(self) -> float:
        """Seconds of a full batch's step; inf where the slots never fill."""
        return float(self._law[0][-1]) if self._full else math.inf

    @property
    def wait_probability(self) -> float:
        """P(N >= K): an arrival finds no slot free."""
        return float(self._law[1][-1]) if self._full else 0.0

    @property
    def mean_slot_wait(self) -> float:
        """Mean wait for a slot over all requests, seconds.

        Little on the waiting room, exact for exponential L, times (1 + SCV_L)/2 (M/G/c's
        factor; simulated error -24 to +6 % for SCV <= 1, high for more).
        """
        _, _, sigma = self._law
        if self.rate == 0.0:
            return 0.0
        exponential = self.wait_probability * sigma / (1.0 - sigma) / self.rate
        return 0.5 * (1.0 + self.steps_scv) * exponential

    @cached_property
    def itl(self) -> Atoms:
        """Law of one inter-token gap: t(min(1 + N, K)), seconds."""
        times, pi, _ = self._law
        seen = np.minimum(np.arange(len(pi)), len(times) - 1)
        return Atoms(times[seen], pi)

    @property
    def mean_boundary_wait(self) -> float:
        """Mean wait for the step under way to end, seconds: half of t(N), 0 when idle."""
        times, pi, _ = self._law
        joins = pi[1:].copy()
        if self._full:
            joins[-1] = 0.0  # who waits for a slot starts as soon as a step frees it
        return float(0.5 * joins @ times)

    @cached_property
    def entry(self) -> Law:
        """Law of the time from reaching the replica to the start of the first step, seconds."""
        return self._arrival_law(with_first_step=False)

    @cached_property
    def first_token(self) -> Law:
        """Law of the time from reaching the replica to the end of the first step, seconds."""
        return self._arrival_law(with_first_step=True)

    @property
    def mean_entry(self) -> float:
        """Mean time from reaching the replica to the start of the first step, seconds."""
        return self.mean_boundary_wait + self.mean_slot_wait

    @cached_property
    def mean_first_token(self) -> float:
        """Mean time from reaching the replica to the end of the first step, seconds."""
        return self.mean_entry + self.itl.mean

    def _arrival_law(self, with_first_step: bool) -> Law:
        """An arrival finds N as pi says (PASTA): it joins at the next step, or queues."""
        times, pi, _ = self._law
        last = len(pi) - 1 if self._full else len(pi)
        first = times[np.minimum(np.arange(last), len(times) - 1)] * float(with_first_step)
        under_way = np.append(0.0, times[: last - 1])
        values = first[:, None] + under_way[:, None] * UNIFORM_NODES
        weights = np.repeat(pi[:last] / UNIFORM_NODES.size, UNIFORM_NODES.size)
        joins = float(weights.sum())
        joining = Atoms(values.ravel(), weights / joins)
        if self.wait_probability <= 0.0:
            return joining
        mean_wait = np.array([self.mean_slot_wait / self.wait_probability])
        step = times[-1:] * float(with_first_step)
        queued = Exponentials(mean_wait, np.ones(1), step)
        return Mixture((joining, queued), (joins, 1.0 - joins))
