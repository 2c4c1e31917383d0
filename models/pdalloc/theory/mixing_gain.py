r"""How much mixing two types can save: at most the ratio of one cost to the tangent at the tie.

Units in which c_1 = mu_1 = 1; C = sqrt(c_2/c_1), M = sqrt(mu_2/mu_1), C = M + e, M = 1 + d.
"""

from __future__ import annotations

from sympy import Eq, Expr, Function, Ge, limit, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

d, e, T, nu, top, shape = symbols("d e T nu k_0 s", positive=True)
work, congestion, floor, y = symbols("w g f y", positive=True)
price, fraction = symbols("c phi", positive=True)
whole = symbols("m", integer=True, positive=True)
M = 1 + d
C = M + e

tie = (C**2 - 1) / (C**2 - M**2)
alone = (C**2 - 1) / (M**2 - 1)
slope = ((C - M) / (M - 1)) ** 2
mixed = ((C - 1) / (M - 1)) ** 2 - slope * tie
gain = (C + 1) * (C + M) / (2 * C * (M + 1))
price_only = (C + 1) ** 2 / (4 * C)

curve = Function("k")(T)
line = top - nu * T
numerator = curve.diff(T) * line - curve * line.diff(T)
# The same gain with C a symbol of its own, to vary M alone.
c_fixed, m_fixed = symbols("C M", positive=True)
gain_of_speed = (c_fixed + 1) * (c_fixed + M) / (2 * c_fixed * (M + 1))


def cost(price: Expr, speed: Expr, kappa: Expr, delay: Expr) -> Expr:
    """USD/h per request/s of the family: work 1/mu, congestion kappa/mu^2, floor kappa/mu."""
    return price / speed * (1 + kappa / (speed * delay - kappa))


THEOREM = Theorem(
    name="mixing_gain",
    statement=(
        "Under a mean delay over all requests the cheapest fleet of one type costs at most "
        "(C + 1)(C + M)/(2 C (M + 1)) times the cheapest mix, C = sqrt(c_2/c_1) > M = "
        "sqrt(mu_2/mu_1) > 1, with equality at tau = (c_2 - c_1)/(c_2 mu_1 - c_1 mu_2). Whatever "
        "the speeds this is below (C + 1)^2/(4 C), Kantorovich's constant of sqrt(c). With more "
        "than two types the largest value over pairs holds. So the best whole fleet of one type "
        "costs at most that times the best whole mix, and one replica. It is also the most that "
        "asking every pool for the bound costs over asking all requests together."
    ),
    assumptions=(
        "as in theorem two_types: real counts; or decode replicas with one a/b, where kappa = "
        "1 + a/b scales all delays",
        "the best mix carries traffic on at most two types, and the best single type is no "
        "dearer than the better of those two",
        "asked of every pool, the bound admits mu - 1/tau per replica: merit order, one type",
    ),
    steps=(
        Step(
            "Alone, both types cost the same at tau = (c_2 - c_1)/(c_2 mu_1 - c_1 mu_2).",
            Eq(cost(C**2, M**2, 1, tie), cost(1, 1, 1, tie)),
        ),
        Step(
            "They cost (c_2 - c_1)/(mu_2 - mu_1) there.",
            Eq(cost(1, 1, 1, tie), alone),
        ),
        Step(
            "The mix costs 2 C (C - 1)/((M - 1)(C + M)), from the common tangent of theorem "
            "two_types.",
            Eq(mixed, 2 * C * (C - 1) / ((M - 1) * (C + M))),
        ),
        Step("The quotient is the bound.", Eq(alone / mixed, gain)),
        Step(
            "Elsewhere it is smaller. With l = k_0 - nu T the tangent, k/l has the derivative "
            "N/l^2 whose N = k' l - k l' has N' = k'' l.",
            Eq(numerator.diff(T), curve.diff(T, 2) * line),
        ),
        Step(
            "N vanishes where l touches k, and k'' > 0: k/l falls before that point and grows "
            "after it, so the smaller of two such quotients is greatest where they cross.",
            Ge((work + congestion / (T - floor)).diff(T, 2).subs(T, floor + y), 0),
        ),
        Step(
            "No slower type, no gain: the bound is 1 at C = M.",
            Eq(gain.subs(e, 0), 1),
        ),
        Step("It is never below 1.", Ge(gain - 1, 0)),
        Step(
            "It falls as the dear type gets faster.",
            Ge(-gain_of_speed.diff(d).subs(c_fixed, 1 + e), 0),
        ),
        Step(
            "Its limit at equal speeds is (C + 1)^2/(4 C).",
            Eq(limit(gain_of_speed, d, 0), (c_fixed + 1) ** 2 / (4 * c_fixed)),
        ),
        Step(
            "That bounds it at any speed: the difference is (C + 1)(C - 1)(M - 1)/(4 C (M + 1)).",
            Eq(price_only - gain, (C + 1) * (C - 1) * (M - 1) / (4 * C * (M + 1))),
        ),
        Step(
            "With kappa the same for both, cost at delay kappa T is that of M/M/1 at T.",
            Eq(cost(C**2, M**2, shape, shape * T), cost(C**2, M**2, 1, T)),
        ),
        Step(
            "Whole: n = m - f of the single type cost c f more as m, f < 1, and no whole mix is "
            "cheaper than the real one.",
            Eq(price * whole - price * (whole - fraction), price * fraction),
        ),
    ),
    formulas=(
        Formula(
            symbols("G"),
            gain,
            "mixing_gain",
            {"price_ratio": C**2, "speed_ratio": M**2},
            shown=(c_fixed + 1) * (c_fixed + m_fixed) / (2 * c_fixed * (m_fixed + 1)),
            where={c_fixed: C, m_fixed: M},
        ),
        Formula(
            symbols("G_0"),
            price_only,
            "price_only_gain",
            {"price_ratio": C**2},
            shown=(c_fixed + 1) ** 2 / (4 * c_fixed),
            where={c_fixed: C},
        ),
    ),
    source=(
        "new; nearest: Bell and Stidham (1983) on the split over given servers, Kantorovich "
        "(1948) on the constant"
    ),
)
