r"""M/M/1 replicas under a percentile of the wait alone, by Wright's omega function.

omega(z) is the w with w + ln w = z; sympy knows it as LambertW(exp(z)).
"""

from __future__ import annotations

from sympy import Eq, LambertW, exp, log, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, mu, x, t, s, p, v = symbols("lambda mu x t s p v", positive=True)
rho = symbols("rho", positive=True)

service = mu / (mu + s)
wait = (1 - rho) / (1 - rho * service)
tail = x / mu * exp(-(mu - x) * t)
# The exceedance 1 - p at which v = x t solves the equation.
exceeded = v * exp(v) / (mu * t * exp(mu * t))
argument = log((1 - p) * mu * t) + mu * t
value = lam * t / LambertW(exp(argument))

THEOREM = Theorem(
    name="wait_percentile",
    statement=(
        "M/M/1 replicas whose wait exceeds t with probability 1 - p are each offered x = "
        "omega(ln((1 - p) mu t) + mu t)/t, omega Wright's function, and number lambda/x."
    ),
    assumptions=(
        "each replica is an M/M/1 queue, first come first served, fed x = lambda/n",
        "0 < p < 1, t > 0; at t = 0, x = (1 - p) mu",
    ),
    steps=(
        Step(
            "An arrival that finds k waits k services: its transform is that of an atom 1 - rho "
            "at zero and else an exponential of rate mu - x.",
            Eq(
                wait.subs(rho, x / mu),
                1 - x / mu + x / mu * (mu - x) / (mu - x + s),
            ),
        ),
        Step("So P(W > 0) is the tail at t = 0.", Eq(tail.subs(t, 0), x / mu)),
        Step(
            "With v = x t the tail is 1 - p iff v e^v = (1 - p) mu t e^(mu t).",
            Eq(tail.subs(x, v / t), exceeded),
        ),
        Step(
            "Hence v + ln v = ln((1 - p) mu t) + mu t, which defines v = omega of the right side.",
            Eq(log(v) + v, log(exceeded * mu * t) + mu * t),
        ),
        Step(
            "The tail grows with x, so that is the greatest load.",
            Eq(tail.diff(x), tail * (1 / x + t)),
        ),
    ),
    formulas=(
        Formula(
            symbols("n"),
            value,
            "mm1_count_wait_percentile",
            {"rate": lam, "service_rate": mu, "wait": t, "p": p},
        ),
    ),
    source="Kleinrock (1975), vol. 1, sec. 5.7; Corless and Jeffrey (2002)",
)
