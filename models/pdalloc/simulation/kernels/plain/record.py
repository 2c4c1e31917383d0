"""What a run on the core path leaves, worked out when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from pdalloc.records import Array, RequestLog
from pdalloc.simulation.kernels.plain.gaps import PlayedGaps
from pdalloc.simulation.kernels.plain.steps import Mask, Steps
from pdalloc.simulation.statistics import Run

Columns = tuple[Array, ...]


class PlayedRun(Run):
    """A run of which only the log is in memory; its steps are played again."""

    def __init__(
        self, log: RequestLog, steps: Steps, prefills: int, pass_seconds: Callable[[], Array]
    ) -> None:
        """``pass_seconds()`` are those of each request, s, shape (n,)."""
        nothing = tuple(np.empty(0) for _ in steps.decodes)
        self.__dict__.update(
            log=log,
            recompute_starts=nothing,
            recompute_seconds=nothing,
            _steps=steps,
            _prefills=prefills,
            _pass_seconds=pass_seconds,
        )

    @cached_property
    def _played(self) -> tuple[Columns, Columns]:
        steps: Steps = self.__dict__["_steps"]
        starts, seconds = zip(*map(steps.of, range(len(steps.decodes))), strict=True)
        return starts, seconds

    @cached_property
    def _by_replica(self) -> Columns:
        """The requests of each prefill replica, which starts them in order of arrival."""
        at = self.log.prefill_replica
        order = np.argsort(at.astype(np.int32), kind="stable")
        ends = np.cumsum(np.bincount(at, minlength=self.__dict__["_prefills"]))
        return tuple(np.split(order, ends[:-1]))

    @property
    def step_starts(self) -> Columns:
        """As :class:`Run`."""
        return self._played[0]

    @property
    def step_seconds(self) -> Columns:
        """As :class:`Run`."""
        return self._played[1]

    @cached_property
    def pass_starts(self) -> Columns:
        """As :class:`Run`; one prompt each."""
        return tuple(self.log.prefill_start[mine] for mine in self._by_replica)

    @cached_property
    def pass_seconds(self) -> Columns:
        """As :class:`Run`."""
        seconds = self.__dict__["_pass_seconds"]()
        return tuple(seconds[mine] for mine in self._by_replica)

    def decode_busy(self, d: int, start: float, end: float) -> float:
        """As :class:`Run`, without the steps in memory; no two of them overlap."""
        nobody, busy = np.zeros(len(self.log), bool), 0.0
        for part in self.__dict__["_steps"].portions(d, nobody):
            until = np.minimum(part.starts + part.seconds, end)
            busy += float(np.maximum(until - np.maximum(part.starts, start), 0.0).sum())
        return busy

    def gap_sample(self, keep: Mask) -> PlayedGaps:
        """As :class:`Run`, without the steps in memory."""
        return PlayedGaps(self.__dict__["_steps"], keep)
