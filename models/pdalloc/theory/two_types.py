r"""Two types under a traffic-weighted mean: slow alone, a mix, or fast alone.

Square roots are symbols: c_g = s_g^2, mu_g = m_g^2, nu = v^2. Type 2 is faster by ``d`` in m and
dearer per request by ``e``: m_2 = m_1 + d and s_2 = s_1 m_2/m_1 + e.
"""

from __future__ import annotations

from sympy import Eq, Expr, Ge, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

m1, s1, d, e, v, y, T = symbols("m_1 s_1 d e v y T", positive=True)
tau = symbols("tau", positive=True)
k1, k2, k3, t1, t2, t3 = symbols("k_1 k_2 k_3 T_1 T_2 T_3", positive=True)
c1, c2, mu1, mu2, nu = symbols("c_1 c_2 mu_1 mu_2 nu^*", positive=True)
m2 = m1 + d
s2 = s1 * m2 / m1 + e


def cost(s: Expr, m: Expr, delay: Expr) -> Expr:
    """c/(mu - 1/T): USD/h per request/s."""
    return s**2 / (m**2 - 1 / delay)


def phi(s: Expr, m: Expr, price: Expr) -> Expr:
    """The index (sqrt(c) + sqrt(nu))^2/mu."""
    return (s + price) ** 2 / m**2


def best(s: Expr, m: Expr, price: Expr) -> Expr:
    """T at which a type is best when a second costs nu."""
    return (1 + s / price) / m**2


switch = (s2 * m1 - s1 * m2) / (m2 - m1)
top, bottom = best(s1, m1, switch), best(s2, m2, switch)
share = (tau - bottom) / (top - bottom)
middle = (t3 - t2) / (t3 - t1)
words = {c1: s1**2, c2: s2**2, mu1: m1**2, mu2: m2**2, nu: switch**2}

THEOREM = Theorem(
    name="two_types",
    statement=(
        "Let type 2 be faster and dearer per request. Under a mean delay tau over all requests "
        "the cheapest real fleet is type 1 for tau >= T_1*, type 2 for tau <= T_2*, and else both "
        "with w_1 = (tau - T_2*)/(T_1* - T_2*), where T_g* = (1 + sqrt(c_g/nu*))/mu_g and "
        "sqrt(nu*) = (sqrt(c_2 mu_1) - sqrt(c_1 mu_2))/(sqrt(mu_2) - sqrt(mu_1)). Of any number "
        "of types at most two carry traffic."
    ),
    assumptions=(
        "M/M/1 replicas fed evenly, real counts, traffic split in fixed shares",
        "mu_1 < mu_2 and c_1/mu_1 < c_2/mu_2; otherwise the fast type is best at every tau",
    ),
    steps=(
        Step(
            "Cost plus nu T exceeds the index by a square, at T = 1/mu + y.",
            Eq(
                cost(s1, m1, 1 / m1**2 + y) + v**2 * (1 / m1**2 + y) - phi(s1, m1, v),
                (s1 - v * m1**2 * y) ** 2 / (m1**4 * y),
            ),
        ),
        Step(
            "The square vanishes at T = (1 + sqrt(c/nu))/mu.",
            s1 - v * m1**2 * (best(s1, m1, v) - 1 / m1**2),
        ),
        Step(
            "The indices tie at nu*: both equal ((sqrt(c2) - sqrt(c1))/(sqrt(mu2) - sqrt(mu1)))^2.",
            Eq(phi(s1, m1, switch), ((s2 - s1) / (m2 - m1)) ** 2),
        ),
        Step("The other index is the same.", Eq(phi(s2, m2, switch), phi(s1, m1, switch))),
        Step("nu* > 0 as type 2 is dearer per request.", Ge(switch, 0)),
        Step(
            "A dearer second favours the fast type: sqrt(phi_1) - sqrt(phi_2) grows at 1/m_1 - "
            "1/m_2 per unit of v.",
            Ge(((s1 + v) / m1 - (s2 + v) / m2).diff(v), 0),
        ),
        Step("T_1* is the larger.", Ge(top - bottom, 0)),
        Step(
            "(T_1*, k_1) and (T_2*, k_2) lie on one line of slope -nu*: the common tangent.",
            Eq(
                cost(s1, m1, top) + switch**2 * top,
                cost(s2, m2, bottom) + switch**2 * bottom,
            ),
        ),
        Step("The shares give the mean.", Eq(share * top + (1 - share) * bottom, tau)),
        Step(
            "Of three types on one line the middle one is a mean of the outer: traffic moves to "
            "them at equal cost and delay.",
            Eq(
                middle * (k1 - v * t1) + (1 - middle) * (k1 - v * t3),
                k1 - v * t2,
            ),
        ),
        Step("The mean delay is the same too.", Eq(middle * t1 + (1 - middle) * t3, t2)),
        Step(
            "At equal c/mu, with x_g = mu_g T - 1, the slow type costs (c/mu)(1/x_1 - 1/x_2) more.",
            Eq(
                cost(s1, m1, T) - cost(s1 * m2 / m1, m2, T),
                (s1 / m1) ** 2 * (1 / (m1**2 * T - 1) - 1 / (m2**2 * T - 1)),
            ),
        ),
        Step(
            "x_2 > x_1 > 0 wherever the slow type can serve: the fast type is then cheaper, and "
            "the more so if its c/mu is less.",
            Ge((m2**2 * T - m1**2 * T).subs(T, 1 / m1**2 + y), 0),
        ),
    ),
    formulas=(
        Formula(
            symbols("nu^*"),
            switch**2,
            "switch_price",
            {"price_1": s1**2, "rate_1": m1**2, "price_2": s2**2, "rate_2": m2**2},
            shown=((sqrt(c2 * mu1) - sqrt(c1 * mu2)) / (sqrt(mu2) - sqrt(mu1))) ** 2,
            where=words,
        ),
        Formula(symbols("T_1^*"), top, shown=(1 + sqrt(c1 / nu)) / mu1, where=words),
        Formula(symbols("T_2^*"), bottom, shown=(1 + sqrt(c2 / nu)) / mu2, where=words),
    ),
    source="Lagrangian duality; Bell and Stidham (1983) on routing to unequal servers",
)
