r"""Square-root staffing: P(W > 0) of a pool of a + beta sqrt(a) servers has a limit in (0, 1).

epsilon = 1/sqrt(a) goes to 0; phi and Phi are the normal density and law at beta.
"""

from __future__ import annotations

from sympy import Eq, erf, exp, limit, log, pi, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

beta, epsilon, lost, h, Phi, phi = symbols("beta epsilon B h Phi phi", positive=True)

servers = (1 + beta * epsilon) / epsilon**2
"""n = a + beta sqrt(a) at a = 1/epsilon^2."""
rho = 1 / (1 + beta * epsilon)
# log of a^n e^-a / n! by Stirling, plus half of log a, that the limit is finite.
log_mass = (
    servers * (1 - log(1 + beta * epsilon))
    - 1 / epsilon**2
    - log(2 * pi * (1 + beta * epsilon)) / 2
)
erlang_c = lost / (1 - rho * (1 - lost))
waits = 1 / (1 + beta * Phi / phi)
density = exp(-(beta**2) / 2) / sqrt(2 * pi)
normal = (1 + erf(beta / sqrt(2))) / 2

THEOREM = Theorem(
    name="square_root",
    statement=(
        "A pool with one queue and n = a + beta sqrt(a) servers for a erlangs has P(W > 0) -> "
        "[1 + beta Phi(beta)/phi(beta)]^-1 as a grows, whatever a: spare servers grow as the "
        "square root of the load. The mean wait is P(W > 0)/(beta sqrt(a)) services."
    ),
    assumptions=(
        "M/M/n, beta > 0 fixed",
        "Stirling's formula, and P(X <= n) -> Phi(beta) for X Poisson with mean a (central limit)",
    ),
    steps=(
        Step(
            "sqrt(a) P(X = n) tends to phi(beta).",
            Eq(limit(log_mass, epsilon, 0, "+"), log(density)),
        ),
        Step(
            "So Erlang B, P(X = n)/P(X <= n), is epsilon h with h = phi/Phi in the limit, and "
            "Erlang C = B/(1 - rho (1 - B)) tends to h/(beta + h).",
            Eq(limit(erlang_c.subs(lost, epsilon * h), epsilon, 0, "+"), h / (beta + h)),
        ),
        Step("That is the stated limit.", Eq((h / (beta + h)).subs(h, phi / Phi), waits)),
        Step("At beta = 0 everybody waits.", Eq(waits.subs(beta, 0), 1)),
        Step(
            "The mean wait is C/(n - a) services, n - a = beta sqrt(a).",
            Eq(servers - 1 / epsilon**2, beta / epsilon),
        ),
    ),
    formulas=(
        Formula(
            symbols("P_W"),
            waits.subs({Phi: normal, phi: density}),
            "wait_probability",
            {"margin": beta},
            shown=waits,
            where={Phi: normal, phi: density},
        ),
    ),
    source="Halfin and Whitt (1981), proposition 1",
)
