r"""Conversations: a user comes, asks, thinks, asks again with all that was said before.

Sessions start as a Poisson process; a session has a geometric number of turns of mean m; the
time from the arrival of a turn to that of the next is exponential of mean :math:`\theta`
(the answer included: arrivals do not wait for the simulated system). Both laws have no
memory, so the stream is stationary from time 0 on when it starts with
Poisson(:math:`\nu (m - 1) \theta`) sessions that think, each j >= 1 turns old with probability
:math:`(1 - q) q^{j-1}`, :math:`q = 1 - 1/m` (:math:`\nu` sessions/s).

Later turns carry the conversation: turn k's prompt is all former prompts and answers, which
are cached, and its new part. So a class's lengths are those of a *new* part and an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pdalloc.errors import InputError
from pdalloc.workload.arrivals.process import CYCLES, Array, Ints, check_positive

MOST_THINKING = 1e7
"""Sessions that may be under way when a simulation begins."""
SAMPLED = 2000
"""Turns that stand for all turns where a formula needs their law."""


@dataclass(frozen=True)
class Sessions:
    """``session_rate`` sessions/s of ``turns`` turns on average, ``think`` s between them.

    A session whose context would exceed ``context_limit`` tokens starts anew, with nothing
    cached.
    """

    session_rate: float
    turns: float
    think: float
    context_limit: float = np.inf

    def __post_init__(self) -> None:
        check_positive("session_rate", self.session_rate, "sessions/s")
        check_positive("think time", self.think, "s")
        if not np.isfinite(self.turns) or self.turns < 1:
            raise InputError(f"a session has at least 1 turn on average, got {self.turns:g}")
        if np.isnan(self.context_limit) or self.context_limit <= 0:
            raise InputError("the context limit of sessions must be positive")

    @property
    def rate(self) -> float:
        """Turns/s: session rate times mean turns."""
        return self.session_rate * self.turns

    @property
    def dispersion(self) -> float:
        """Limit of Var(N(t)) / E[N(t)]: E[turns^2] / E[turns] = 2 turns - 1.

        That of a batch Poisson process, which clustering in time approaches in the long run.
        """
        return 2.0 * self.turns - 1.0

    @property
    def typical_seconds(self) -> float:
        """CYCLES mean sessions, s."""
        return CYCLES * self.turns * self.think

    def times(self, count: int, rng: np.random.Generator) -> Array:
        """``count`` arrival times, s (:class:`ArrivalProcess`)."""
        return self.conversations(count, rng)[0]

    def conversations(self, count: int, rng: np.random.Generator) -> tuple[Array, Ints, Ints]:
        """The first ``count`` turns: (times in s, session numbers, turns from 0); (count,)."""
        q = 1.0 - 1.0 / self.turns
        thinking = self.session_rate * (self.turns - 1.0) * self.think
        if thinking > MOST_THINKING:
            raise InputError(
                f"{thinking:.3g} sessions think at any time, more than a simulation holds "
                f"({MOST_THINKING:.3g}): shorten think, or leave sessions out"
            )
        old = rng.poisson(thinking)
        # As many new sessions as turns: the count-th turn comes no later than their last start.
        start = np.concatenate(
            [
                rng.exponential(self.think, old),
                np.cumsum(rng.exponential(1.0 / self.session_rate, count)),
            ]
        )
        length = rng.geometric(1.0 - q, old + count)
        former = np.concatenate([rng.geometric(1.0 - q, old), np.zeros(count)])
        session = np.repeat(np.arange(old + count), length)
        first = np.cumsum(length) - length
        turn = np.arange(len(session)) - first[session]
        think = rng.exponential(self.think, len(session))
        think[first] = start
        elapsed = np.cumsum(think)
        time = elapsed - elapsed[first][session] + start[session]
        order = np.argsort(time, kind="stable")[:count]
        age = (turn + former[session].astype(np.int64))[order]
        return time[order], session[order].astype(np.int64), age.astype(np.int64)

    def turn_sample(
        self, prompt: Array, output: Array, weight: Array, rng: np.random.Generator
    ) -> tuple[Ints, Array]:
        """SAMPLED random turns: (point of the length law, context carried in tokens); (SAMPLED,).

        ``prompt``, ``output`` and ``weight`` (k,) are the law of new parts and answers. A
        random turn has a geometric number of turns before it, from 0 on (renewal theory: the
        turn law has no memory), stratified here so that the sample's noise is small.
        """
        level = (np.arange(SAMPLED) + rng.random(SAMPLED)) / SAMPLED
        q = 1.0 - 1.0 / self.turns
        before = np.zeros(SAMPLED, np.int64)
        if q > 0.0:
            before = np.floor(np.log1p(-level) / np.log(q)).astype(np.int64)
        place = (rng.permutation(SAMPLED) + rng.random(SAMPLED)) / SAMPLED
        cumulative = np.cumsum(weight) / weight.sum()
        chosen = np.minimum(np.searchsorted(cumulative, place, "right"), len(weight) - 1)
        new = np.rint(prompt + output).astype(np.int64)
        history = new[rng.choice(len(weight), int(before.sum()), p=weight)]
        session = np.arange(SAMPLED)
        carried = carried_context(session, before, new[chosen], history, self.context_limit)
        return chosen.astype(np.int64), carried.astype(float)

    def scaled(self, factor: float) -> Sessions:
        """``factor`` times as many sessions of the same kind."""
        return replace(self, session_rate=self.session_rate * factor)


def carried_context(session: Ints, turn: Ints, new: Ints, history: Ints, limit: float) -> Ints:
    """Context in tokens that each turn carries over; arrays (n,) in order of arrival.

    ``new`` tokens (prompt and answer) of each turn; ``history`` those of the turns that came
    before the first seen turn of a session (``turn`` > 0), session by session in order of
    arrival, shape (turns before,). Where context and new tokens exceed ``limit`` the session
    starts anew from 0.
    """
    held: dict[int, int] = {}
    past = iter(history.tolist())

    def said(before: int, tokens: int) -> int:
        return before + tokens if before + tokens <= limit else tokens

    carried = np.zeros(len(session), np.int64)
    for i, (s, age, tokens) in enumerate(zip(session, turn, new.tolist(), strict=True)):
        if s not in held:
            held[s] = 0
            for _ in range(age):
                held[s] = said(held[s], next(past))
        total = said(held[s], tokens)
        carried[i] = total - tokens
        held[s] = total
    return carried


def turns_before(session: Ints, turn: Ints) -> int:
    """Turns before the first seen one, over all sessions: the history that is not seen."""
    first = np.unique(session, return_index=True)[1]
    return int(turn[first].sum())
