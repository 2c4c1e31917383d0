r"""The fluid law of decode: no fluctuations, every replica has the mean batch. The baseline.

.. math:: B = \lambda E[n]\, t(B), \qquad \text{TPOT} = t(B) = a/(1 - \rho)

(the reference paper's TP_D = B/t(B) read the other way). It is what a law of large replicas
tends to: low by b/(a + b) in the mean and by the whole spread in percentiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdalloc.laws import Atoms, constant
from pdalloc.queueing.decode.operating import OperatingPoint
from pdalloc.queueing.decode.station import DecodeStation


@dataclass(frozen=True, eq=False)
class FluidLaw:
    """The fluid law of ``station``; it knows no waits and no spread.

    >>> from pdalloc.queueing.decode.work import decode_work
    >>> import numpy as np
    >>> work = decode_work(np.zeros(1), np.array([200.0]), np.ones(1))
    >>> law = FluidLaw(DecodeStation(0.0025, lambda k, s: 10.0 + k, work))
    >>> round(law.mean_tpot, 9)
    20.0
    """

    station: DecodeStation

    @property
    def batch(self) -> float:
        """B, requests."""
        return OperatingPoint(self.station).batch

    @property
    def mean_tpot(self) -> float:
        """t(B), seconds; times steps per gap where a step gives several tokens."""
        return OperatingPoint(self.station).step * self.station.work.steps_per_gap

    @property
    def itl(self) -> Atoms:
        """Always t(B), seconds."""
        return constant(OperatingPoint(self.station).step)
