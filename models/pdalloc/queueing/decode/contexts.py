r"""What the contexts of a batch add to a step time beyond the batch's size.

A step law known by mean, variance V and third cumulant :math:`2\theta V` is taken as Pearson's
type III; seen by gaps, which weigh it with 1 + (lift/V)(t - E t), it has

.. math:: Var = V + 2\theta l - l^2, \qquad
          \kappa_3 = \theta^3 [2(k + w) + w (1-w)(4 - 2w)], \quad k = V/\theta^2,\ w = l/\theta,

l the lift of the mean. Theta itself is half of

.. math:: 2 D - \beta, \quad D = \frac{V}{E t - a}, \quad
          \beta = z \Big(\frac{2 E h^2}{E h} - \frac{E h^3}{E h^2}\Big),

h the seconds that a request adds to a random step of its own and z the batch's quantum. That is
exact in light traffic, where t - a is a Poisson sum of such h, without contexts (negative
binomial), and in heavy traffic (gamma); between them it is an interpolation. What the batch's own
law does not explain of variance and third cumulant is the contexts'.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdalloc.queueing.decode.fluctuations import Moments
from pdalloc.queueing.decode.work import DecodeWork


@dataclass(frozen=True)
class Contexts:
    """``slope`` = s', ``mean_slope`` = s (s/request); per request ``variance`` (s^2) of t given
    the batch, and its ``scale`` theta (s)."""

    slope: float
    mean_slope: float
    variance: float
    scale: float


def seen(variance: float, theta: float, lift: float) -> tuple[float, float]:
    """(variance, third cumulant) as gaps see it, from those of steps.

    >>> seen(1.0, 0.5, 0.0)
    (1.0, 1.0)
    """
    if theta <= 0.0:
        return variance, 0.0
    k, w = variance / theta**2, lift / theta
    third = theta**3 * (2.0 * (k + w) + w * (1.0 - w) * (4.0 - 2.0 * w))
    return variance + 2.0 * theta * lift - lift**2, third


def contexts(
    work: DecodeWork, slopes: tuple[float, float], m: Moments, feedback: float
) -> Contexts:
    """Of a replica with moments ``m`` at the step time's slopes (b, c), c > 0."""
    b, c = slopes
    mean = b + c * work.mean_context
    spread = c**2 * work.context_variance
    square = mean**2 + spread
    cube = mean**3 + 3.0 * mean * spread + c**3 * work.context_third
    quantum = (1.0 - feedback) * m.var_batch / m.batch
    theta = 0.5 * (
        2.0 * m.var_step / (m.step * feedback) - quantum * (2.0 * square / mean - cube / square)
    )
    slope = m.batch_step / m.var_batch
    batch_theta = m.var_batch / m.batch - 0.5 * quantum
    variance, third = seen(m.var_step, theta, m.itl_lift)
    batch_variance, batch_third = seen(m.var_batch, batch_theta, m.gap_batch)
    requests = m.batch + m.gap_batch
    rest = max(variance - slope**2 * batch_variance, 0.0) / requests
    skew = third - slope**3 * batch_third - 3.0 * slope * rest * batch_variance
    scale = skew / (2.0 * rest * requests) if rest > 0.0 else 0.0
    return Contexts(slope, mean, rest, max(scale, rest / (c * work.mean_context)))
