"""A run with options: what the event loop reads and writes, and the loop in batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pdalloc.fleet import Fleet
from pdalloc.records import Array, RequestLog
from pdalloc.simulation.kernels.full import rows
from pdalloc.simulation.kernels.full.colocated import play_both_roles
from pdalloc.simulation.kernels.full.loop import begin, play
from pdalloc.simulation.kernels.full.outages import begin_outages, play_outages
from pdalloc.simulation.kernels.full.servers import Servers
from pdalloc.simulation.kernels.full.setup import most_events, state_of
from pdalloc.simulation.kernels.full.state import State
from pdalloc.simulation.kernels.heap import ENTRY
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws
from pdalloc.system import System

EVENTS = 1 << 18
"""Events played between two looks at the keyboard and the progress bar."""


class FullRun:
    """A run in progress."""

    def __init__(
        self,
        system: System,
        fleet: Fleet,
        draws: Draws,
        options: SimulationOptions,
        same_run: Servers | None = None,
    ) -> None:
        """``same_run``: the servers after the same run, which is now to be written down."""
        self.system, self.fleet, self.draws, self.options = system, fleet, draws, options
        self.state = state_of(system, fleet, draws, options, same_run)
        begin(self.state)
        if self.options.failures is not None:
            begin_outages(self.state)
        self._play_some = play if options.colocated is None else play_both_roles

    def play(self, progress: Callable[[int, int], None] | None) -> None:
        """Play to the end, calling ``progress(gone, requests)`` at most a hundred times."""
        requests, shown = len(self.draws.stream), 0
        while self.gone < requests:
            state = self.state = self._roomy(self.state)
            self._play_some(state, EVENTS, len(state.events) - reserve(state))
            if self.options.failures is not None:
                play_outages(state)
            if progress is not None and self.gone - shown >= max(requests // 100, 1):
                shown = self.gone
                progress(shown, requests)

    def _roomy(self, state: State) -> State:
        """``state`` with room for as many events as one event may cause."""
        if len(state.events) - reserve(state) > int(state.events[0]["index"]):
            return state
        events = np.empty(2 * len(state.events) + reserve(state), ENTRY)
        events[: len(state.events)] = state.events
        return state._replace(events=events)

    @property
    def gone(self) -> int:
        """Requests that have left."""
        return int(self.state.rules["gone"][0])

    @property
    def done_from_the_start(self) -> int:
        """How many requests are gone before the first, in order of arrival, that is not."""
        here = np.isnan(self.state.times[rows.LEFT])
        return int(here.argmax()) if here.any() else len(here)

    def log(self, requests: int | None = None) -> RequestLog:
        """The log of the first ``requests``, or of all; they must be gone."""
        stream, n = self.draws.stream, requests
        times, whole = self.state.times[:, :n], self.state.whole[:, :n]
        return RequestLog(
            arrival=stream.arrival[:n],
            prefill_start=times[rows.PREFILL_START],
            prefill_end=times[rows.PREFILL_END],
            transfer_end=times[rows.TRANSFER_END],
            decode_start=times[rows.DECODE_START],
            first_token=times[rows.FIRST_TOKEN],
            finish=times[rows.FINISH],
            prompt_tokens=stream.prompt[:n],
            output_tokens=stream.output[:n],
            traffic_class=stream.traffic_class[:n],
            prefill_replica=whole[rows.PREFILL_REPLICA],
            decode_replica=whole[rows.DECODE_REPLICA],
            status=whole[rows.STATUS],
            retries=whole[rows.RETRIES],
            recomputes=whole[rows.RECOMPUTES],
            left=times[rows.LEFT],
            transfer_start=times[rows.TRANSFER_START],
        )

    def record(self) -> Run:
        """The log, every pass and step, and when each token came: the run is played again.

        The first time it was counted how much there is to write down.
        """
        again = FullRun(
            self.system, self.fleet, self.draws, self.options, same_run=self.state.servers
        )
        again.play(None)
        return again._written()

    def _written(self) -> Run:
        state, log = self.state, self.log()
        prefills = int(state.rules["prefills"][0])
        decodes, first = state.servers[prefills:], state.servers[:prefills]
        times = None if self.options.steps_tell else self._token_times(log.finished)
        steps = self._diary(decodes, "diary", "begun")
        others = self._diary(decodes, "recompute_diary", "recomputes")
        if self.options.colocated is not None:
            return Run(log, *steps, *others, token_times=times, both_roles=True)
        return Run(log, *steps, *self._diary(first, "diary", "begun"), *others, times)

    def _token_times(self, finished: NDArray[np.bool_]) -> tuple[Array, ...]:
        """When each output token of each request came, s; of the ``finished`` ones, (n,)."""
        tokens = np.split(self.state.tokens, self.state.first_of[1:])
        kept = zip(tokens, finished, strict=True)
        return tuple(of_it if whole else of_it[:0] for of_it, whole in kept)

    def _diary(
        self, servers: Servers, place: str, count: str
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """(starts, seconds) of what each server began."""
        places = list(zip(servers[place], servers[count], strict=True))
        starts, seconds = (tuple(row[at : at + n] for at, n in places) for row in self.state.diary)
        return starts, seconds


def reserve(state: State) -> int:
    """How many events one event may schedule at most."""
    return most_events(state.times.shape[1], len(state.servers))
