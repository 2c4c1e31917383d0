r"""The golden ratio of P to D: right algebra for its own model, and where queues part from it."""

from __future__ import annotations

from sympy import Eq, Ge, limit, oo, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

P, D, A, B, tau, sigma = symbols("P D A B tau sigma", positive=True)
price_p, price_d = symbols("C_p C_d", positive=True)
lam, w_p, w_d, floors = symbols("lambda w_p w_d f", positive=True)
speed_p, speed_d, flops, bytes_ = symbols("f_p f_d A' B'", positive=True)
y_p, y_d = symbols("y_p y_d", positive=True)

golden = sqrt(A * price_d / (B * price_p))
least = (sqrt(A * price_p) + sqrt(B * price_d)) ** 2
golden_count = sqrt(A / price_p) * sqrt(least) / tau
"""P of the golden fleet; A, B are congestion x lambda when the stages are queues."""

# The same A and B in the queueing model: n = lambda w + A/y, shared slack sigma = tau - floors.
prefill = lam * w_p + golden_count * tau / sigma
decode = lam * w_d + sqrt(B / price_d) * sqrt(least) / sigma
# With slacks of their own, by what each role costs: beta = C A/lambda, alpha = C w.
spend_p = price_p * (lam * w_p + A / y_p)
spend_d = price_d * (lam * w_d + B / y_d)
separate = (spend_p / price_p) / (spend_d / price_d)

THEOREM = Theorem(
    name="golden_ratio",
    statement=(
        "P C_p + D C_d is least under A/P + B/D <= tau at P/D = sqrt(A C_d/(B C_p)). For queues "
        "with A, B = lambda x congestion this is only the tight limit of the ratio; the loose one "
        "is load matching, w_p/w_d. The golden fleet lacks the load lambda w and the factor "
        "tau/sigma, so it always breaks the bound. With a bound per role price drops out."
    ),
    assumptions=(
        "A, B > 0 hold the speeds; real counts; w = replica-seconds of work per request",
        "queues: the family of theorem shared_budget, sigma = tau - floors > 0",
    ),
    steps=(
        Step(
            "(P C_p + D C_d)(A/P + B/D) exceeds (sqrt(A C_p) + sqrt(B C_d))^2 by a square.",
            Eq(
                (P * price_p + D * price_d) * (A / P + B / D) - least,
                (P * sqrt(B * price_p) - D * sqrt(A * price_d)) ** 2 / (P * D),
            ),
        ),
        Step(
            "The square vanishes at the golden ratio.",
            (P * sqrt(B * price_p) - D * sqrt(A * price_d)).subs(P, golden * D),
        ),
        Step(
            "With A = A'/f_p and B = B'/f_d the speeds stay: sqrt(A' f_d C_d/(B' f_p C_p)).",
            Eq(
                golden.subs({A: flops / speed_p, B: bytes_ / speed_d}),
                sqrt(flops * speed_d * price_d / (bytes_ * speed_p * price_p)),
            ),
        ),
        Step(
            "For queues the ratio tends to the golden one as the slack vanishes.",
            Eq(limit(prefill / decode, sigma, 0, "+"), golden),
        ),
        Step(
            "It tends to load matching as the slack grows.",
            Eq(limit(prefill / decode, sigma, oo), w_p / w_d),
        ),
        Step(
            "Queues need at least lambda w more than the golden count, at any budget.",
            Ge((prefill - golden_count - lam * w_p).subs(tau, sigma + floors), 0),
        ),
        Step(
            "From tau = sqrt(A/C_p) (sqrt(A C_p) + sqrt(B C_d))/(lambda w_p) on the golden "
            "prefill pool is not even stable.",
            Eq(golden_count.subs(tau, sqrt(A / price_p) * sqrt(least) / (lam * w_p)), lam * w_p),
        ),
        Step(
            "With a bound on each role the ratio does not depend on price.",
            separate.diff(price_p) ** 2 + separate.diff(price_d) ** 2,
        ),
    ),
    formulas=(
        Formula(
            symbols("R"),
            golden,
            "golden_ratio",
            {
                "prefill_work": A,
                "decode_work": B,
                "prefill_price": price_p,
                "decode_price": price_d,
            },
        ),
    ),
    source="Cauchy-Schwarz; theorem shared_budget",
)
