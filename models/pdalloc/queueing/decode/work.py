r"""What requests ask of a decode replica: steps, and the context they hold at each.

A request takes n steps; at step k = 1..n it holds :math:`P + g (k-1)` tokens. A random step of
a random request is one of a *size-biased* request: long answers are seen more often, so the
mean context that steps see is

.. math:: \bar c = E\Big[\sum_{k \le n} (P + g (k-1))\Big] / E[n] .

g is 1, or more where a step gives a request several tokens (:mod:`.multi_token`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdalloc.errors import InputError
from pdalloc.laws import Array
from pdalloc.queueing.decode.multi_token import OneToken, TokensPerStep


@dataclass(frozen=True, eq=False)
class DecodeWork:
    """Points of the joint law of a request; arrays (n,), ``weight`` summing to 1.

    ``steps`` >= 0, ``context`` tokens held at the first step, ``growth`` tokens per step,
    ``gaps`` between output tokens that a request's steps give (tokens - 1 or tokens).
    ``first_gap``: the first step too ends a gap (its first token was made before it). Keep it:
    what it works out is cached. Raises InputError for arrays that do not fit or hold no steps.
    """

    steps: Array
    context: Array
    growth: Array
    gaps: Array
    weight: Array
    first_gap: bool = False

    def __post_init__(self) -> None:
        columns = (self.steps, self.context, self.growth, self.gaps, self.weight)
        if len({len(x) for x in columns}) != 1 or not len(self.weight):
            raise InputError("decode work needs as many steps, contexts and weights, at least 1")
        if not all(np.all(np.isfinite(x)) and np.all(x >= 0) for x in columns):
            raise InputError("decode work: steps, contexts and weights must be finite and >= 0")
        if abs(float(self.weight.sum()) - 1.0) > 1e-9:
            raise InputError("decode work: weights must sum to 1")
        if self.mean_steps <= 0.0:
            raise InputError(
                "every request has one output token, made by prefill: nothing to decode; "
                "set first_token: decode, or longer outputs"
            )

    @cached_property
    def mean_steps(self) -> float:
        """E[n]."""
        return float(self.weight @ self.steps)

    @cached_property
    def scv(self) -> float:
        """SCV of the steps of a request."""
        return max(float(self.weight @ self.steps**2) / self.mean_steps**2 - 1.0, 0.0)

    @cached_property
    def mean_context(self) -> float:
        """Tokens held by a request at a random step (size-biased)."""
        n = self.steps
        held = self.context * n + self.growth * n * (n - 1.0) / 2.0
        return float(self.weight @ held) / self.mean_steps

    @cached_property
    def context_variance(self) -> float:
        """Variance over steps and requests of the tokens held, tokens^2."""
        n, p, g = self.steps, self.context, self.growth
        square = p**2 * n + p * g * n * (n - 1.0) + g**2 * (n - 1.0) * n * (2.0 * n - 1.0) / 6.0
        second = float(self.weight @ square) / self.mean_steps
        return max(second - self.mean_context**2, 0.0)

    @cached_property
    def context_third(self) -> float:
        """Third central moment over steps and requests of the tokens held, tokens^3."""
        n, p, g = self.steps, self.context - self.mean_context, self.growth
        m = n - 1.0
        one, two, three = m * n / 2.0, m * n * (2.0 * m + 1.0) / 6.0, (m * n / 2.0) ** 2
        cube = n * p**3 + 3.0 * p**2 * g * one + 3.0 * p * g**2 * two + g**3 * three
        return float(self.weight @ cube) / self.mean_steps

    @cached_property
    def gap_steps(self) -> Array:
        """Steps that end a gap, per point (n,)."""
        return self.steps if self.first_gap else np.maximum(self.steps - 1.0, 0.0)

    @cached_property
    def zero_gaps(self) -> float:
        """Share of gaps that are 0 s because their tokens came in one step."""
        gaps = float(self.weight @ self.gaps)
        return max(1.0 - float(self.weight @ self.gap_steps) / gaps, 0.0) if gaps > 0 else 0.0

    @cached_property
    def steps_per_gap(self) -> float:
        """Mean over requests with gaps of gap steps / gaps: 1 with one token a step."""
        some = self.gaps > 0
        if not some.any():
            return 1.0
        share = self.gap_steps[some] / self.gaps[some]
        return float(self.weight[some] @ share / self.weight[some].sum())

    @cached_property
    def overlap(self) -> float:
        r""":math:`\int_0^\infty P(n > u)^2 du / E[n]`: 1 for fixed, 1/2 for geometric steps."""
        order = np.argsort(self.steps)
        above = np.cumsum(self.weight[order][::-1])[::-1]
        return float(above**2 @ np.diff(self.steps[order], prepend=0.0)) / self.mean_steps


def decode_work(
    prompt: Array,
    output: Array,
    weight: Array,
    first_token_by_decode: bool = True,
    tokens: TokensPerStep | None = None,
) -> DecodeWork:
    """The work of requests of ``prompt`` and ``output`` tokens (n,), ``weight`` summing to 1.

    Under ``first_token_by_decode`` all output tokens are decoded; otherwise the first is made
    before, and held at the first step. ``tokens`` is the law of tokens per step, one where
    None. Raises InputError for lengths below 1 or weights that do not sum to 1.
    """
    prompt, output, weight = (np.asarray(x, float) for x in (prompt, output, weight))
    if np.any(output < 1) or np.any(prompt < 0):
        raise InputError("decode work: an output has at least 1 token, a prompt no negative number")
    made = 0.0 if first_token_by_decode else 1.0
    decoded = output - made
    law = tokens if tokens is not None else OneToken()
    point, steps, share = law.steps(decoded)
    growth = np.divide(decoded[point], steps, out=np.ones_like(steps), where=steps > 0)
    gaps = np.maximum(output - 1.0, 0.0)[point]
    return DecodeWork(steps, prompt[point] + made, growth, gaps, weight[point] * share, made > 0.0)
