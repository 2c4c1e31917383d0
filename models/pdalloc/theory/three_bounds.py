r"""Bounds on each stage and on their sum: the slack is split by square roots, cut at the bounds.

One stage at its bound and one inside it stand for any number: every other stage reads like one
of the two.
"""

from __future__ import annotations

from sympy import Eq, Expr, Ge, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, u, theta, y, eta, w = symbols("lambda u theta y eta w", positive=True)
r1, r2, spare, sigma = symbols("r_1 r_2 delta sigma", positive=True)
w_p, w_d, g_p, g_d, c_p, c_d = symbols("w_p w_d g_p g_d c_p c_d", positive=True)
beta2 = symbols("beta_2", positive=True)

y2 = theta * r2
spent = u + y2
common = 1 / theta**2
own = r1**2 / u**2 - common
"""Prices per request/s of the common bound and of stage 1's own."""
primal = r1**2 / u + r2**2 / y2
dual = 2 * r1 * sqrt(common + own) + 2 * r2 * sqrt(common) - common * spent - own * u
ratio = (w_p + g_p / u) / (w_d + g_d / (sigma - u))


def replicas(price: Expr, work: Expr, congestion: Expr, slack: Expr) -> Expr:
    """(alpha + beta/y)/c with alpha = c w and beta = c g, per request/s."""
    return (price * work + price * congestion / slack) / price


THEOREM = Theorem(
    name="three_bounds",
    statement=(
        "Under a bound on each stage (slack u_i) and one on their sum (slack sigma < sum u) cost "
        "is least at y_i = min(u_i, theta sqrt(beta_i)), theta from sum y = sigma. The common "
        "bound is worth lambda/theta^2 per second, a stage's own lambda (beta_i/u_i^2 - "
        "1/theta^2). So P/D depends on prices only where the E2E bound alone is binding."
    ),
    assumptions=("as in theorem shared_budget; two roles in the last sentence",),
    steps=(
        Step(
            "beta/y + p y exceeds 2 sqrt(beta p) by a square, at any price p = eta + w.",
            Eq(
                r1**2 / y + (eta + w) * y - 2 * r1 * sqrt(eta + w),
                (r1 / sqrt(y) - sqrt((eta + w) * y)) ** 2,
            ),
        ),
        Step("Inside its bound a stage has y = theta sqrt(beta) at p = eta.", r2 - y2 / theta),
        Step(
            "At its bound u = theta sqrt(beta_1) - delta the own price is not negative.",
            Ge(own.subs(r1, (u + spare) / theta), 0),
        ),
        Step("The dual value of those prices equals the cost: both are optimal.", Eq(dual, primal)),
        Step(
            "The cost falls by the common price per second of common slack.",
            Eq(-(primal.subs(theta, (sigma - u) / r2)).diff(sigma).subs(sigma, spent), common),
        ),
        Step(
            "It falls by the own price per second of stage 1's own bound.",
            Eq(-(primal.subs(theta, (sigma - u) / r2)).diff(u).subs(sigma, spent), own),
        ),
        Step(
            "Once a stage is at its bound the counts, hence P/D, do not depend on prices.",
            Eq(replicas(c_p, w_p, g_p, u) / replicas(c_d, w_d, g_d, sigma - u), ratio),
        ),
    ),
    formulas=(
        Formula(
            symbols("eta_E"),
            lam * r2**2 / (sigma - u) ** 2,
            shown=lam * beta2 / (sigma - u) ** 2,
            where={beta2: r2**2},
        ),
        Formula(symbols("R"), ratio),
    ),
    source="water-filling by Lagrange multipliers; theorems shared_budget, price_of_latency",
)
