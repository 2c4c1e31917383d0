r"""A shared budget over stages in series: the slack is split as the square roots of beta.

Two stages are enough: together they are again a stage of the family (fifth step), so a third is
added in the same way, and so on.
"""

from __future__ import annotations

from sympy import Eq, Expr, Ge, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, sigma, y1, y2, mu, x = symbols("lambda sigma y_1 y_2 mu x", positive=True)
alpha1, alpha2, r1, r2, r3 = symbols("alpha_1 alpha_2 r_1 r_2 r_3", positive=True)
c1, c2, f1, f2, tau = symbols("c_1 c_2 f_1 f_2 tau", positive=True)
kappa, steps, a, b, y = symbols("kappa L a b y", positive=True)
beta1, beta2 = r1**2, r2**2
"""r_i is the square root of beta_i."""
b1, b2 = symbols("beta_1 beta_2", positive=True)
words = {b1: beta1, b2: beta2}

total = r1 + r2
slack1 = sigma * r1 / total
spent = beta1 / y1 + beta2 / y2
least = total**2 / sigma
cost = lam * (alpha1 + alpha2 + least)
count = lam / c1 * (alpha1 + beta1 / slack1)


def replicas(work: Expr, congestion: Expr, slack: Expr) -> Expr:
    """n of the family at rate lambda and ``slack`` = T - floor."""
    return lam * (work + congestion / slack)


THEOREM = Theorem(
    name="shared_budget",
    statement=(
        "Stages of the family n = (lambda/c)(alpha + beta/(T - f)) under sum T <= tau cost least "
        "at T_i = f_i + sigma sqrt(beta_i)/sum sqrt(beta), sigma = tau - sum f; the cost is "
        "lambda [sum alpha + (sum sqrt(beta))^2/sigma]."
    ),
    assumptions=(
        "every request passes every stage; independent replicas, real counts, sigma > 0",
        "M/M/1: alpha = c/mu, beta = c/mu^2, f = 1/mu; M/G/1: beta times kappa = (1 + SCV)/2; "
        "batch law: alpha = c L b, beta = c L^2 b (a + b), f = L (a + b)",
    ),
    steps=(
        Step(
            "M/M/1 is in the family: 1/(mu - x) = T at x = lambda/n.",
            Eq(replicas(1 / mu, 1 / mu**2, y), lam / (mu - 1 / (1 / mu + y))),
        ),
        Step(
            "So is M/G/1 with Pollaczek and Khinchine's wait kappa x / (mu (mu - x)).",
            Eq((kappa * x / (mu * (mu - x))).subs(x, lam / replicas(1 / mu, kappa / mu**2, y)), y),
        ),
        Step(
            "So is decode: L (a + b)/(1 - lambda L b/n) = T.",
            Eq(
                steps
                * (a + b)
                / (1 - lam * steps * b / replicas(steps * b, steps**2 * b * (a + b), y)),
                steps * (a + b) + y,
            ),
        ),
        Step(
            "beta_1/y_1 + beta_2/y_2 exceeds (sum sqrt(beta))^2/(y_1 + y_2) by a square.",
            Eq(
                spent - total**2 / (y1 + y2),
                (r1 * y2 - r2 * y1) ** 2 / (y1 * y2 * (y1 + y2)),
            ),
        ),
        Step(
            "Two stages at their best are one stage with sqrt(beta) = sqrt(beta_1) + "
            "sqrt(beta_2), and a third merges likewise.",
            Eq(
                total**2 / y1 + r3**2 / y2 - (total + r3) ** 2 / (y1 + y2),
                (total * y2 - r3 * y1) ** 2 / (y1 * y2 * (y1 + y2)),
            ),
        ),
        Step(
            "The square vanishes at y_i = sigma sqrt(beta_i)/sum sqrt(beta).",
            (r1 * y2 - r2 * y1).subs({y1: slack1, y2: sigma * r2 / total}),
        ),
        Step("These slacks spend the budget.", Eq(slack1 + sigma * r2 / total, sigma)),
        Step(
            "The cost there is the stated one.",
            Eq(lam * (alpha1 + alpha2) + lam * spent.subs({y1: slack1, y2: sigma - slack1}), cost),
        ),
        Step(
            "More budget never costs more.",
            Ge(-cost.diff(sigma), 0),
        ),
        Step(
            "For M/M/1, n_i = (lambda/mu_i)(1 + sum_j (sqrt(c_j)/mu_j)/(sigma sqrt(c_i))).",
            Eq(
                count.subs({alpha1: c1 / mu, r1: sqrt(c1) / mu}),
                lam / mu * (1 + (sqrt(c1) / mu + r2) / (sigma * sqrt(c1))),
            ),
        ),
    ),
    formulas=(
        Formula(
            symbols("T_1"),
            f1 + (tau - f1 - f2) * r1 / total,
            shown=f1 + (tau - f1 - f2) * sqrt(b1) / (sqrt(b1) + sqrt(b2)),
            where=words,
        ),
        Formula(
            symbols("C"),
            cost,
            shown=lam * (alpha1 + alpha2 + (sqrt(b1) + sqrt(b2)) ** 2 / sigma),
            where=words,
        ),
        Formula(
            symbols("n_1"),
            count,
            shown=lam / c1 * (alpha1 + sqrt(b1) * (sqrt(b1) + sqrt(b2)) / sigma),
            where=words,
        ),
    ),
    source="Kleinrock (1964), square-root capacities of M/M/1 links; theorem batch_law",
)
