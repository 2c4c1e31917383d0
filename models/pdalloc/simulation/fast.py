"""The fast simulator: the runs of :mod:`pdalloc.simulation.reference`, compiled.

Given the same draws it gives the same log to the last bit: it does the additions of the
reference in the reference's order, only without an object per request, an event per step or a
loop over tokens. Kernels are compiled on first use and kept on disk.
"""

from __future__ import annotations

from pdalloc.fleet import Fleet
from pdalloc.records import RequestLog
from pdalloc.simulation.kernels.full.run import FullRun
from pdalloc.simulation.kernels.plain.run import PlainRun
from pdalloc.simulation.options import PLAIN, SimulationOptions
from pdalloc.simulation.reference import Progress
from pdalloc.simulation.setup import check
from pdalloc.simulation.statistics import Run
from pdalloc.simulation.traffic import Draws, Rates, Seed, draw
from pdalloc.system import System


class RunInterrupted(KeyboardInterrupt):
    """^C during a run; ``log`` holds the requests up to the first that was not done."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(f"interrupted after {len(log)} requests")
        self.log = log


def replay(
    system: System,
    fleet: Fleet,
    draws: Draws,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
) -> Run:
    """Run the requests in ``draws`` through ``fleet``: the log and every decode step.

    ``progress(finished, requests)`` is called about a hundred times. Raises InputError for
    options that do not fit the fleet, UnsupportedError for what only the reference can do and
    RunInterrupted on ^C.
    """
    return _played(system, fleet, draws, progress, options).record()


def simulate(
    system: System,
    fleet: Fleet,
    rates: Rates,
    requests: int,
    seed: Seed,
    progress: Progress | None = None,
    options: SimulationOptions = PLAIN,
) -> RequestLog:
    """Times of ``requests`` requests of ``system.workload`` on ``fleet``, from empty to empty.

    ``rates[role, replica type]`` in requests/s are the weights by which pools share the
    traffic; the same ``seed`` gives the same log, that of ``reference.simulate``. Raises
    InputError for rates or options that do not fit the fleet, or when a replica's KV space
    does not hold one request; UnsupportedError and RunInterrupted as :func:`replay`.
    """
    draws = draw(system.workload, fleet, rates, requests, seed)
    return _played(system, fleet, draws, progress, options).log()


def _played(
    system: System,
    fleet: Fleet,
    draws: Draws,
    progress: Progress | None,
    options: SimulationOptions,
) -> PlainRun | FullRun:
    check(system, fleet, draws, options)
    run: PlainRun | FullRun = (
        PlainRun(system, fleet, draws) if options.off else FullRun(system, fleet, draws, options)
    )
    try:
        run.play(progress)
    except KeyboardInterrupt:
        raise RunInterrupted(run.log(run.done_from_the_start)) from None
    return run
