r"""The dispersion law: M/M/c scaled by how variable departures are on the queue's time scale.

.. math:: E[W] = \frac{1 + I(\theta)}{2}\, W_M, \qquad
          \theta\,(1 + I(\theta)) = \theta_D\,(1 + I_D(\theta_D)) ,

I(theta) the index of dispersion of a busy server's departures, Laplace-averaged over times of
1/theta (:meth:`pdalloc.queueing.service.Service.dispersion`): the service SCV for long times,
1 for short ones. theta_D is where constant service gives the exact M/D/c. The queue's
relaxation time is proportional to 1 + I, hence the second equation. Nothing is fitted.

Exact for constant and exponential service and at c = 1 (theta = 0, Pollaczek-Khinchine), and in
heavy traffic. The law of W | W > 0 is that of :mod:`pdalloc.queueing.dispersion`.

* seconds; Poisson arrivals
* this project's; indices of dispersion as descriptions of queues: Fendick, Whitt (1989),
  "Measurements and approximations to describe the offered traffic and predict the average
  workload in a single-server queue", Proceedings of the IEEE 77, 171-194

>>> from pdalloc.laws import constant
>>> from pdalloc.queueing.station import station
>>> round(Dispersion(station(1.0, constant(1.0), servers=2)).mean_wait, 5)
0.17674
"""

from __future__ import annotations

import math
from functools import cached_property

from pdalloc.laws import Law
from pdalloc.queueing.delay_law import DelayLaw
from pdalloc.queueing.deterministic import time_scale
from pdalloc.queueing.dispersion import dispersion_shape

WIDTH = math.log(1e4)
"""log theta is looked for this far on either side of theta_D."""


class Dispersion(DelayLaw):
    """E[W] = (1 + I)/2 W_M."""

    name = "dispersion"

    def _mean_wait(self) -> float:
        return 0.5 * (1.0 + self.station.service.dispersion(self.theta)) * self.erlang_wait

    @cached_property
    def theta(self) -> float:
        """Reciprocal of the queue's time scale, in mean services."""
        from scipy.optimize import brentq

        theta_d, ratio = time_scale(self.station.servers, self.rho)
        if theta_d == 0.0 or math.isinf(theta_d):
            return theta_d
        service, target = self.station.service, math.log(theta_d * 2.0 * ratio)

        def gap(log_theta: float) -> float:
            return log_theta + math.log1p(service.dispersion(math.exp(log_theta))) - target

        return math.exp(brentq(gap, target - WIDTH, target + WIDTH, xtol=1e-7))

    def _shape(self) -> Law:
        service, c = self.station.service, self.station.servers
        own = 1.0 + service.dispersion(self.theta)
        scale = self.theta * own / (2.0 * c * (1.0 - self.rho)) if self.theta < 1e12 else math.inf
        return dispersion_shape(service, c, self.rho, scale)


LAW = Dispersion
