r"""The dual cut: a fleet of whole replicas keeps a mean delay iff it keeps one line per nu.

One replica fed x has mean delay T(x) = f + g x/(1 - w x); u = w x is its utilisation and
kappa = g/w^2.
"""

from __future__ import annotations

from sympy import Eq, Ge, symbols

from pdalloc.theory.theorem import Formula, Step, Theorem

w, kappa, f, q, u, x, nu = symbols("w kappa f q u x nu", positive=True)
mu, root, steps, a, b, tau, idle = symbols("mu r L a b tau p", positive=True)

congestion = kappa * w**2
room = kappa * w * (q**2 - 1)
"""nu - f when q = sqrt(1 + (nu - f) w/g)."""
taken = (1 - 1 / q) / w
delay = f + congestion * x / (1 - w * x)
dual = kappa * (q - 1) ** 2
reward = x * (f + room) - x * delay
q_of_price = 1 + (nu - f) * w / congestion

THEOREM = Theorem(
    name="dual_cut",
    statement=(
        "Whole replicas n_k can be fed so that lambda requests/s have mean delay at most tau iff "
        "sum n_k D_k(nu) >= lambda (nu - tau) for every nu >= 0, D(nu) = kappa (q - 1)^2 and q = "
        "sqrt(1 + (nu - f)^+ w/g). A fleet that fails does so at some nu at or below the one at "
        "which the last type's delay reaches tau, mu_max tau^2 for M/M/1."
    ),
    assumptions=(
        "T(x) = f + g x/(1 - w x) per replica, of theorem shared_budget's family, kappa = g/w^2",
        "x T(x) is convex, so Lagrange's dual of the best split has no gap (a split with slack "
        "exists where the fleet is stable)",
    ),
    steps=(
        Step("x T(x) is convex.", Ge((x * delay).diff(x, 2).subs(x, (1 - 1 / (1 + u)) / w), 0)),
        Step(
            "D falls short of no reward: kappa (q - 1)^2 exceeds x nu - x T(x) by a square, "
            "1 - w x = p.",
            Eq(
                dual - reward.subs(x, (1 - idle) / w),
                kappa * (q * idle - 1) ** 2 / idle,
            ),
        ),
        Step("It is reached at x = (1 - 1/q)/w.", Eq(reward.subs(x, taken), dual)),
        Step(
            "So lambda (nu - tau) <= sum x_k (nu - T_k) <= sum n_k D_k(nu) for any split within "
            "the bound; for M/M/1 D = (sqrt(mu nu) - 1)^2.",
            Eq(q_of_price.subs({kappa: 1, w: 1 / mu, f: 1 / mu}), mu * nu),
        ),
        Step(
            "For decode q^2 = mu nu/kappa with mu = 1/(L b), kappa = 1 + a/b.",
            Eq(
                q_of_price.subs({f: steps * (a + b)}).subs({kappa: 1 + a / b, w: steps * b}),
                nu / (steps * b * (1 + a / b)),
            ),
        ),
        Step(
            "For M/G/1 q^2 = mu (nu - (1 - kappa)/mu)/kappa.",
            Eq(
                q_of_price.subs({w: 1 / mu, f: 1 / mu}),
                mu * (nu - (1 - kappa) / mu) / kappa,
            ),
        ),
        Step(
            "At its best rate a replica has delay f + kappa w (q - 1), rising with nu.",
            Eq(delay.subs(x, taken), f + kappa * w * (q - 1)),
        ),
        Step(
            "D = x (nu - T): where no type is faster than tau, sum n D <= (nu - tau) sum x. "
            "If the fleet carries less than lambda there, the cut fails there; else the best "
            "split's own nu is smaller and its cut fails.",
            Eq(dual, taken * (room - kappa * w * (q - 1))),
        ),
        Step(
            "For M/M/1 the delay sqrt(nu/mu) is tau at nu = mu tau^2.",
            Eq(
                (f + kappa * w * (q - 1)).subs({kappa: 1, w: 1 / mu, f: 1 / mu, q: mu * tau}),
                tau,
            ),
        ),
    ),
    formulas=(Formula(symbols("D"), dual),),
    source="Fenchel duality; the split for M/M/1 is Bell and Stidham's (1983)",
)
