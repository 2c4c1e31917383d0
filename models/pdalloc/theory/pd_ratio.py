r"""The P:D ratio under a shared budget: a Moebius map of the slack, monotone between two limits.

w is work, kappa = congestion/w^2: 1 for M/M/1, (1 + SCV)/2 for M/G/1 and 1 + a/b for decode.
"""

from __future__ import annotations

from sympy import Eq, Expr, Ge, limit, oo, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

sigma, w_p, w_d, steps, a, b = symbols("sigma w_p w_d L a b", positive=True)
c_p, c_d, k_p, k_d = symbols("c_p c_d kappa_p kappa_d", positive=True)
excess = symbols("delta", nonnegative=True)
S = symbols("S", positive=True)

total = sqrt(c_p * k_p) * w_p + sqrt(c_d * k_d) * w_d
"""sum sqrt(beta), beta = c kappa w^2."""
lift_p, lift_d = sqrt(k_p / c_p), sqrt(k_d / c_d)
ratio = w_p / w_d * (sigma + lift_p * total) / (sigma + lift_d * total)
golden = w_p / w_d * lift_p / lift_d
slope = w_p / w_d * total * (lift_d - lift_p) / (sigma + lift_d * total) ** 2


def count(work: Expr, price: Expr, kappa: Expr) -> Expr:
    """Replicas per request/s of theorem shared_budget: (alpha + sqrt(beta) total/sigma)/c."""
    beta = price * kappa * work**2
    return (price * work + sqrt(beta) * total / sigma) / price


THEOREM = Theorem(
    name="pd_ratio",
    statement=(
        "Under a bound on the mean E2E the cheapest ratio is P/D = (w_p/w_d) (sigma + "
        "sqrt(kappa_p/c_p) S)/(sigma + sqrt(kappa_d/c_d) S), S = sum sqrt(c kappa) w. It moves "
        "monotonically from the golden ratio (tight) to load matching (loose) and rises with the "
        "budget iff kappa_d/c_d > kappa_p/c_p. The golden ratio is load matching times "
        "sqrt(kappa_p c_d/(kappa_d c_p)); a decode replica has kappa_d = 1 + a/b."
    ),
    assumptions=(
        "as in theorem shared_budget, one type per role",
        "kappa = 1 for M/M/1, (1 + SCV)/2 for M/G/1",
    ),
    steps=(
        Step(
            "The quotient of the counts of theorem shared_budget; demand cancels.",
            Eq(count(w_p, c_p, k_p) / count(w_d, c_d, k_d), ratio),
        ),
        Step(
            "For decode, congestion/work^2 = 1 + a/b.",
            Eq(steps**2 * b * (a + b) / (steps * b) ** 2, 1 + a / b),
        ),
        Step(
            "Tight: the golden ratio of A = kappa_p w_p^2 and B = kappa_d w_d^2.",
            Eq(limit(ratio, sigma, 0, "+"), sqrt(k_p * w_p**2 * c_d / (k_d * w_d**2 * c_p))),
        ),
        Step("Loose: load matching.", Eq(limit(ratio, sigma, oo), w_p / w_d)),
        Step(
            "Golden is load matching times sqrt(kappa_p c_d/(kappa_d c_p)).",
            Eq(golden, w_p / w_d * sqrt(k_p * c_d / (k_d * c_p))),
        ),
        Step("The slope in the slack.", Eq(ratio.diff(sigma), slope)),
        Step(
            "It is not negative when sqrt(kappa_d/c_d) = sqrt(kappa_p/c_p) + delta.",
            Ge(slope.subs(k_d, c_d * (lift_p + excess) ** 2), 0),
        ),
        Step(
            "By symmetry of the roles it is not positive in the other case.",
            Ge(-slope.subs(k_p, c_p * (lift_d + excess) ** 2), 0),
        ),
    ),
    formulas=(
        Formula(
            symbols("R"),
            ratio,
            shown=w_p / w_d * (sigma + lift_p * S) / (sigma + lift_d * S),
            where={S: total},
        ),
        Formula(symbols("S"), total),
    ),
    source="theorems shared_budget, golden_ratio, batch_law",
)
