r"""The price of latency: what a second more of budget saves, equal at every stage."""

from __future__ import annotations

from sympy import Eq, Expr, Ge, sqrt, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

lam, tau, f1, f2, sigma, y = symbols("lambda tau f_1 f_2 sigma y", positive=True)
alpha1, alpha2, r1, r2, eta = symbols("alpha_1 alpha_2 r_1 r_2 eta", positive=True)
beta1, beta2 = symbols("beta_1 beta_2", positive=True)

total = r1 + r2
slack = tau - f1 - f2
cost = lam * (alpha1 + alpha2 + total**2 / slack)
price = lam * total**2 / slack**2
price_at = lam * total**2 / sigma**2


def stage_cost(alpha: Expr, root: Expr, room: Expr) -> Expr:
    """USD/h of a stage with sqrt(beta) = ``root`` at slack ``room``."""
    return lam * (alpha + root**2 / room)


def stage_dual(alpha: Expr, root: Expr) -> Expr:
    """min over y of the stage's cost plus eta y."""
    return lam * alpha + 2 * root * sqrt(lam * eta)


THEOREM = Theorem(
    name="price_of_latency",
    statement=(
        "Under a shared budget -d cost/d tau = lambda (sum sqrt(beta))^2/(tau - sum f)^2: the "
        "dual price of the budget, the same at every stage, and falling in tau. Under an SLO of "
        "its own a stage's price is lambda beta/(tau - f)^2."
    ),
    assumptions=("as in theorem shared_budget",),
    steps=(
        Step("The derivative of the least cost.", Eq(-cost.diff(tau), price)),
        Step(
            "A second less at stage 1 costs as much as the price, at its best slack.",
            Eq(
                -stage_cost(alpha1, r1, y).diff(y).subs(y, sigma * r1 / total),
                price_at,
            ),
        ),
        Step(
            "With a multiplier eta, cost + eta y exceeds lambda alpha + 2 sqrt(lambda beta eta) "
            "by a square: the stage's dual function.",
            Eq(
                stage_cost(alpha1, r1, y) + eta * y - stage_dual(alpha1, r1),
                (r1 * sqrt(lam / y) - sqrt(eta * y)) ** 2,
            ),
        ),
        Step(
            "At eta = the price the dual value equals the least cost: both are optimal.",
            Eq(
                (stage_dual(alpha1, r1) + stage_dual(alpha2, r2) - eta * sigma).subs(eta, price_at),
                cost.subs(tau, sigma + f1 + f2),
            ),
        ),
        Step(
            "The price falls as the budget grows: cost is convex in tau.",
            Ge(cost.diff(tau, 2).subs(tau, sigma + f1 + f2), 0),
        ),
        Step(
            "A stage with a bound of its own is a shared budget of one.",
            Eq(price_at.subs(r2, 0), -stage_cost(alpha1, r1, sigma).diff(sigma)),
        ),
    ),
    formulas=(
        Formula(
            symbols("eta"),
            price,
            shown=lam * (sqrt(beta1) + sqrt(beta2)) ** 2 / slack**2,
            where={beta1: r1**2, beta2: r2**2},
        ),
    ),
    source="convex duality; theorem shared_budget",
)
