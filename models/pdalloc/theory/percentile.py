r"""Prefill replicas under a percentile: :math:`n = \lambda/(\mu - \ln(1/(1-p))/\tau)`."""

from __future__ import annotations

import sympy
from sympy import Eq, exp, log, oo, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, mu, x, tau, n, s, t = symbols("lambda mu x tau n s t", positive=True)
rho, gap = symbols("rho delta", positive=True)
p = symbols("p", positive=True)

# Laplace transforms: one service, then a geometric number (1 - rho) rho^k of k + 1 services.
service = mu / (mu + s)
sojourn = (1 - rho) * service / (1 - rho * service)
exponential = sympy.integrate(gap * exp(-gap * t) * exp(-s * t), (t, 0, oo))
value = lam / (mu - log(1 / (1 - p)) / tau)

THEOREM = Theorem(
    name="percentile",
    statement=(
        "M/M/1 replicas whose sojourn exceeds tau with probability 1 - p number "
        "n = lambda / (mu - ln(1/(1 - p)) / tau)."
    ),
    assumptions=(
        "each replica is an M/M/1 queue, first come first served, fed x = lambda/n",
        "0 < p < 1 and mu tau > ln(1/(1 - p))",
    ),
    steps=(
        Step(
            "An arrival that finds k waits k + 1 services: the transform T(s) solves "
            "T = (1 - rho) B + rho B T with B = mu/(mu + s).",
            sojourn - (1 - rho) * service - rho * service * sojourn,
        ),
        Step(
            "With rho = x/mu it is (mu - x)/(mu - x + s).",
            Eq(sojourn.subs(rho, x / mu), (mu - x) / (mu - x + s)),
        ),
        Step(
            "That is the transform of an exponential delay of rate mu - x.",
            Eq(exponential, gap / (gap + s)),
        ),
        Step(
            "Its tail is exp(-(mu - x) t).",
            Eq(sympy.integrate(gap * exp(-gap * t), (t, tau, oo)), exp(-gap * tau)),
        ),
        Step(
            "At x = lambda/n with the stated n the tail at tau is 1 - p.",
            Eq(exp(-(mu - lam / value) * tau), 1 - p),
        ),
        Step(
            "It is the mean's count at tau / ln(1/(1 - p)).",
            Eq(value, (lam / (mu - 1 / t)).subs(t, tau / log(1 / (1 - p)))),
        ),
    ),
    formulas=(
        Formula(
            symbols("n"),
            value,
            "mm1_count_percentile",
            {"rate": lam, "service_rate": mu, "sojourn": tau, "p": p},
        ),
    ),
    source="Kleinrock (1975), vol. 1, sec. 5.7",
)
