"""Rival laws of when requests arrive, one per file; each has a rate and gives times.

A law is stationary from time 0 on, except those that tell the time of day (a profile, a
trace). :class:`ArrivalProcess` is what they share.
"""

from __future__ import annotations

from pdalloc.workload.arrivals.modulated import MarkovModulated
from pdalloc.workload.arrivals.process import ArrivalProcess
from pdalloc.workload.arrivals.renewal import Poisson, Renewal
from pdalloc.workload.arrivals.sessions import Sessions
from pdalloc.workload.arrivals.time_varying import TimeVarying
from pdalloc.workload.arrivals.trace import Trace

__all__ = [
    "ArrivalProcess",
    "MarkovModulated",
    "Poisson",
    "Renewal",
    "Sessions",
    "TimeVarying",
    "Trace",
]
