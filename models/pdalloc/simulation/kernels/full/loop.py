"""The event loop of the general path."""

from __future__ import annotations

from pdalloc.simulation.events import (
    ARRIVAL,
    FAILURE,
    LINK_END,
    PREFILL_END,
    REPAIR,
    STEP_END,
    STEP_START,
    TIMEOUT,
    TRANSFER_END,
)
from pdalloc.simulation.kernels.compile import kernel
from pdalloc.simulation.kernels.full.clients import arrive, time_out
from pdalloc.simulation.kernels.full.decode import end_turn, start_turn
from pdalloc.simulation.kernels.full.network import end_link
from pdalloc.simulation.kernels.full.routing import end_prefill, end_transfer
from pdalloc.simulation.kernels.full.rows import ARRIVAL as ARRIVAL_TIME
from pdalloc.simulation.kernels.full.state import KIND, State, schedule
from pdalloc.simulation.kernels.heap import least_time, pop


@kernel
def begin(s: State) -> None:
    """The first event, an arrival."""
    schedule(s, s.times[ARRIVAL_TIME, 0], ARRIVAL, 0)


@kernel
def play(s: State, most: int, room: int) -> None:
    """Play at most ``most`` events, while somebody is here and less than ``room`` events wait.

    Stops before a failure or a repair.
    """
    prefills = s.rules[0].prefills
    for _ in range(most):
        if s.rules[0].gone == s.rules[0].requests or s.events[0].index >= room:
            return
        now, kind, index = s.events[1].time, s.events[1].index // KIND, s.events[1].index % KIND
        if kind in (FAILURE, REPAIR):
            return
        pop(s.events)
        if kind == STEP_END:
            # The next turn comes after all else that happens now; most often that is nothing.
            if end_turn(s, now, prefills + index):
                if least_time(s.events) == now:
                    schedule(s, now, STEP_START, index)
                else:
                    start_turn(s, now, prefills + index)
        elif kind == STEP_START:
            start_turn(s, now, prefills + index)
        elif kind == ARRIVAL:
            arrive(s, now, index)
        elif kind == PREFILL_END:
            end_prefill(s, now, index)
        elif kind == TRANSFER_END:
            end_transfer(s, now, index)
        elif kind == LINK_END:
            end_link(s, now, index)
        elif kind == TIMEOUT:
            time_out(s, now, index)
