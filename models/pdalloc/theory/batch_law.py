r"""The decode batch law for t(k) = a + b k: negative binomial, mean TPOT (a + b)/(1 - rho)."""

from __future__ import annotations

import sympy
from sympy import Eq, gamma, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, steps, a, b = symbols("lambda L a b", positive=True)
rho, z = symbols("rho z", positive=True)
k = symbols("k", integer=True, nonnegative=True)
shape = 1 + a / b


def step_time(batch: sympy.Expr) -> sympy.Expr:
    """t(k) = a + b k."""
    return a + b * batch


# pi(k) up to its normalisation, and the binomial series F(z) = (1 - z)^-(1 + a/b).
weight = gamma(k + shape) / (gamma(shape) * gamma(k + 1))
series = (1 - z) ** -shape
ratio = lam * steps * step_time(k + 1) / (k + 1)
death_rate = (k + 1) / (steps * step_time(k + 1))
generating = series.subs(z, rho * z) / series.subs(z, rho)
mean_number = sympy.diff(generating, z).subs(z, 1)
load = lam * steps * b
tpot = (a + b) / (1 - load)

THEOREM = Theorem(
    name="batch_law",
    statement=(
        "With step time t(k) = a + b k the number of decoding requests is negative binomial, "
        "pi(k) = C(k + a/b, k) (1 - rho)^(1 + a/b) rho^k with rho = lambda L b; the mean TPOT "
        "is (a + b)/(1 - rho), whatever the law of the output length."
    ),
    assumptions=(
        "Poisson arrivals of lambda requests/s per replica, L iterations each on average",
        "no limit on the batch, context counted in b, rho = lambda L b < 1",
        "all k requests advance one token per step: processor sharing at speed 1/t(k), so the "
        "product form holds for any law of L (Kelly 1979)",
    ),
    steps=(
        Step(
            "Births at rate lambda balance deaths at rate (k+1)/(L t(k+1)) under the product "
            "form, whose ratio pi(k+1)/pi(k) is lambda L t(k+1)/(k+1).",
            Eq(lam, ratio * death_rate),
        ),
        Step(
            "For the affine step that ratio is rho (k + 1 + a/b)/(k + 1).",
            Eq(ratio, load * (k + shape) / (k + 1)),
        ),
        Step(
            "So pi(k) is proportional to w(k) rho^k with w(k) = C(k + a/b, k).",
            Eq(weight.subs(k, k + 1) / weight, (k + shape) / (k + 1)),
        ),
        Step("w(0) = 1.", Eq(weight.subs(k, 0), 1)),
        Step(
            "F(z) = (1 - z)^-(1 + a/b) solves (1 - z) F' = (1 + a/b) F.",
            (1 - z) * sympy.diff(series, z) - shape * series,
        ),
        Step("F(0) = 1 = w(0).", Eq(series.subs(z, 0), 1)),
        Step(
            "The coefficients of that equation give F's series the ratio of w: hence "
            "sum w(k) rho^k = F(rho), the normalisation.",
            (k + 1) * weight.subs(k, k + 1) - k * weight - shape * weight,
        ),
        Step(
            "The mean number is G'(1) of G(z) = F(rho z)/F(rho).",
            Eq(mean_number, shape * rho / (1 - rho)),
        ),
        Step(
            "By Little's law a token takes E[N]/(lambda L) seconds.",
            Eq(mean_number.subs(rho, load) / (lam * steps), tpot),
        ),
        Step(
            "As the load vanishes a request decodes alone.",
            Eq(sympy.limit(tpot, lam, 0), step_time(sympy.Integer(1))),
        ),
    ),
    formulas=(Formula(symbols("TPOT"), tpot),),
    source="Kelly (1979), ch. 3; Cohen (1979)",
)
