r"""Decode replicas under an ITL percentile: exact by the beta function, approximate by normal."""

from __future__ import annotations

from sympy import Eq, Expr, erfinv, gamma, simplify, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, steps, a, b, tau, p = symbols("lambda L a b tau p", positive=True)
rho, s, z, root, spare = symbols("rho s z r sigma", positive=True)
k = symbols("k", integer=True, nonnegative=True)


def weight(j: Expr) -> Expr:
    """C(j + s - 1, j)."""
    return gamma(j + s) / (gamma(s) * gamma(j + 1))


def mass(j: Expr) -> Expr:
    """pi(j) of theorem batch_law, s = 1 + a/b."""
    return weight(j) * (1 - rho) ** s * rho**j


def flux(j: Expr) -> Expr:
    """-(j + 1) w(j + 1) rho^j (1 - rho)^(s - 1)."""
    return -(j + 1) * weight(j + 1) * rho**j * (1 - rho) ** (s - 1)


beta_density = gamma(s + k + 1) / (gamma(s) * gamma(k + 1)) * (1 - rho) ** (s - 1) * rho**k
mean = s * rho / (1 - rho)
variance = s * rho / (1 - rho) ** 2
shape = 1 + a / b
quantile = a + b * (1 + mean + z * sqrt(s * rho) / (1 - rho))
spread = sqrt(b * (a + b))
positive_root = (sqrt(z**2 * b * (a + b) + 4 * tau * (tau - a - b)) - z * spread) / (2 * tau)
count = lam * steps * b / positive_root**2

# G(u) = ((1 - rho)/(1 - rho u))^s, the generating function of pi.
u = symbols("u", positive=True)
generating = ((1 - rho) / (1 - rho * u)) ** s
first = generating.diff(u).subs(u, 1)
second = generating.diff(u, 2).subs(u, 1)

THEOREM = Theorem(
    name="itl_percentile",
    statement=(
        "Decode keeps P(ITL <= tau) >= p iff each replica's load is at most rho = 1 - I^-1(1 + "
        "a/b, k + 1; p) with k = floor((tau - a)/b) - 1, I the regularised incomplete beta "
        "function: n = lambda L b/rho. Taking N as normal, sqrt(rho) = [sqrt(z^2 b (a + b) + "
        "4 tau (tau - a - b)) - z sqrt(b (a + b))]/(2 tau), which is too kind."
    ),
    assumptions=(
        "the batch law of theorem batch_law: a token sees a step a + b (1 + N)",
        "tau >= a + b; z is the normal quantile of p",
    ),
    steps=(
        Step(
            "d pi(j)/d rho = F(j) - F(j - 1) with F(j) = -(j + 1) w(j + 1) rho^j "
            "(1 - rho)^(s - 1): the sum over j <= k telescopes to F(k).",
            simplify((mass(k).diff(rho) - flux(k) + flux(k - 1)) / mass(k)),
        ),
        Step("F(-1) = 0.", flux(k - 1).subs(k, 0)),
        Step(
            "F(k) is minus the density of a beta law (s, k + 1) at 1 - rho, and P(N <= k) is 1 at "
            "rho = 0: so P(N <= k) = I_{1 - rho}(s, k + 1).",
            Eq(flux(k), -beta_density),
        ),
        Step("The mean of N is s rho/(1 - rho).", Eq(first, mean)),
        Step("Its variance is s rho/(1 - rho)^2.", Eq(second + first - first**2, variance)),
        Step(
            "Mean plus z deviations of ITL meet tau iff tau rho + z sqrt(b (a + b) rho) = "
            "tau - a - b.",
            Eq(
                (quantile.subs(s, shape).subs(rho, root**2) - tau) * (1 - root**2),
                a + b - tau + tau * root**2 + z * spread * root,
            ),
        ),
        Step(
            "The stated root solves that quadratic.",
            tau * positive_root**2 + z * spread * positive_root - (tau - a - b),
        ),
        Step(
            "At z = 0 it is the mean's count.",
            Eq(count.subs(z, 0), lam * steps * b / (1 - (a + b) / tau)),
        ),
    ),
    formulas=(
        Formula(
            symbols("n"),
            count.subs(z, sqrt(2) * erfinv(2 * p - 1)),
            "itl_count_normal",
            {"rate": lam, "steps": steps, "base": a, "per_request": b, "itl": tau, "p": p},
            shown=count,
            where={z: sqrt(2) * erfinv(2 * p - 1)},
        ),
    ),
    source="theorem batch_law; Patil (1960) on the negative binomial and the beta function",
)
