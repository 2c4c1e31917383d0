r"""Merit order: the relaxation uses the type with the least USD per admissible request.

Primal: min c1 n1 + c2 n2 with k1 n1 + k2 n2 >= lambda and n >= 0. Dual: max lambda y with
k_i y <= c_i and y >= 0. Two types stand for any number: every other type's dual constraint
reads like the second's.
"""

from __future__ import annotations

from sympy import Eq, Ge, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, k1, k2, c1, stock, rest = symbols("lambda kappa_1 kappa_2 c_1 N_1 lambda_r", positive=True)
dearer, fraction = symbols("delta f", nonnegative=True)
whole = symbols("m", integer=True, positive=True)
c2 = k2 * (c1 / k1 + dearer)
"""Type 2 costs ``delta`` more per admissible request than type 1."""

n1 = lam / k1
price = c1 / k1
# With at most ``stock`` replicas of type 1, and a demand ``rest`` beyond what they carry.
demand = k1 * stock + rest
n2_bound = rest / k2
price_bound = c2 / k2
rent = k1 * price_bound - c1

THEOREM = Theorem(
    name="merit_order",
    statement=(
        "In the relaxation (real counts) the cheapest fleet of a role holds only the type with "
        "the least c_r/kappa_r until its stock or limit binds, then the next; its cost is "
        "lambda min c_r/kappa_r while nothing binds. With whole stocks only the last type used "
        "is a fraction, and rounding it up adds less than the price of one replica of it."
    ),
    assumptions=(
        "the stages are not coupled: kappa_r is a number",
        "c_2/kappa_2 = c_1/kappa_1 + delta with delta >= 0: type 1 is cheapest per request",
        "no shared stock; N_1, a whole number, is the most replicas of type 1",
    ),
    steps=(
        Step("n_1 = lambda/kappa_1, n_2 = 0 covers the demand.", Eq(k1 * n1, lam)),
        Step("y = c_1/kappa_1 keeps type 1's dual constraint with equality.", Eq(k1 * price, c1)),
        Step("It keeps type 2's: c_2 - kappa_2 y = kappa_2 delta >= 0.", Ge(c2 - k2 * price, 0)),
        Step("That slack is kappa_2 delta.", Eq(c2 - k2 * price, k2 * dearer)),
        Step("Primal cost equals dual value: both are optimal.", Eq(c1 * n1, lam * price)),
        Step(
            "Complementary slackness: n_i (c_i - kappa_i y) = 0 and y (coverage - lambda) = 0.",
            Eq(n1 * (c1 - k1 * price) + price * (k1 * n1 - lam), 0),
        ),
        Step(
            "When N_1 binds, n_1 = N_1 and n_2 = (lambda - kappa_1 N_1)/kappa_2 cover it.",
            Eq(k1 * stock + k2 * n2_bound, demand),
        ),
        Step(
            "With y = c_2/kappa_2 the limit's price w = kappa_1 y - c_1 is not negative.",
            Ge(rent, 0),
        ),
        Step(
            "Primal cost equals the dual value lambda y - N_1 w.",
            Eq(c1 * stock + c2 * n2_bound, demand * price_bound - stock * rent),
        ),
        Step(
            "When n_1 = m - f with m = ceil(n_1), 0 <= f < 1, deploying m costs c_1 f more.",
            Eq(c1 * whole - (lam * price).subs(lam, k1 * (whole - fraction)), c1 * fraction),
        ),
        Step(
            "When N_1 binds, n_1 is whole and n_2 = m - f: rounding up costs c_2 f more.",
            Eq(
                c1 * stock
                + c2 * whole
                - (c1 * stock + c2 * n2_bound).subs(rest, k2 * (whole - fraction)),
                c2 * fraction,
            ),
        ),
    ),
    formulas=(Formula(symbols("C_min"), lam * price),),
    source="linear programming duality; design section 3.7, item 6",
)
