r"""Bursts: a Poisson stream whose rate jumps between the states of a Markov chain (MMPP).

The chain visits the states in turn and stays in state i for Exp(d_i). It starts in its
stationary law, :math:`\pi_i = d_i / \sum d`, so the mean rate is :math:`\sum \pi_i r_i` from
time 0 on. Its long-run index of dispersion is

.. math:: I = 1 + \frac{2}{\bar r} \int_0^\infty \mathrm{Cov}(r(0), r(t))\, dt
            = 1 - \frac{2}{\bar r} \sum_{ij} \pi_i \tilde r_i (Q^{\#})_{ij} \tilde r_j,

with :math:`\tilde r = r - \bar r` and :math:`-Q^\#` the deviation matrix
:math:`(\mathbf{1}\pi - Q)^{-1} - \mathbf{1}\pi`; for two states this is Fischer and
Meier-Hellstern (1993), "The Markov-modulated Poisson process (MMPP) cookbook".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pdalloc.errors import InputError
from pdalloc.workload.arrivals.process import CYCLES, Array, check_pieces, check_rates, inverted


@dataclass(frozen=True)
class MarkovModulated:
    """State i: arrivals at ``rates[i]`` req/s for an exponential time of mean ``dwell[i]`` s."""

    rates: tuple[float, ...]
    dwell: tuple[float, ...]

    def __post_init__(self) -> None:
        check_rates("modulated arrivals", self.rates, self.dwell)
        if len(self.rates) < 2:
            raise InputError("modulated arrivals need at least two states; one is Poisson")

    @property
    def weights(self) -> Array:
        """Share of time in each state, shape (states,)."""
        dwell = np.array(self.dwell)
        share: Array = dwell / dwell.sum()
        return share

    @property
    def rate(self) -> float:
        """Mean arrivals/s over the states."""
        return float(self.weights @ np.array(self.rates))

    @property
    def dispersion(self) -> float:
        """Limit of Var(N(t)) / E[N(t)] (module docstring); 1 is Poisson."""
        n, weights = len(self.rates), self.weights
        leave = 1.0 / np.array(self.dwell)
        chain = np.diag(-leave) + np.roll(np.diag(leave), 1, axis=1)
        always = np.tile(weights, (n, 1))
        deviation = np.linalg.inv(always - chain) - always
        excess = np.array(self.rates) - self.rate
        return float(1.0 + 2.0 * (weights * excess) @ deviation @ excess / self.rate)

    @property
    def typical_seconds(self) -> float:
        """CYCLES rounds through the states, s."""
        return CYCLES * sum(self.dwell)

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """``count`` arrival times, s (:class:`ArrivalProcess`)."""
        level = np.cumsum(rng.exponential(size=count))
        state = int(rng.choice(len(self.rates), p=self.weights))
        order = np.roll(np.arange(len(self.rates)), -state)
        rates, dwell = np.array(self.rates)[order], np.array(self.dwell)[order]
        time, expected = [np.zeros(1)], [np.zeros(1)]
        # As many turns at once as the levels left to reach are expected to take.
        while expected[-1][-1] < level[-1]:
            missing = level[-1] - expected[-1][-1]
            check_pieces("bursts", len(dwell) * missing / float(rates @ dwell))
            turns = 1 + int(missing / (rates @ dwell))
            stay = rng.exponential(np.tile(dwell, turns))
            time.append(time[-1][-1] + np.cumsum(stay))
            expected.append(expected[-1][-1] + np.cumsum(stay * np.tile(rates, turns)))
        return inverted(np.concatenate(time), np.concatenate(expected), level)

    def scaled(self, factor: float) -> MarkovModulated:
        """Every state's rate times ``factor``; the states last as long as before."""
        return replace(self, rates=tuple(r * factor for r in self.rates))
