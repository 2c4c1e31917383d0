"""The service laws of the reference grids by their names there; mean 1 second.

``D`` constant, ``M`` exponential, ``E2``, ``E4`` Erlang, ``H2_2``, ``H2_4`` hyperexponential
with balanced means, ``LN_0.5``, ``LN_2``, ``LN_4`` lognormal, ``EMP`` an empirical
token-length law: 4096 equal atoms 0.15 + 0.85 L/mean, L 75 % lognormal (median 400, sigma .8)
and 25 % lognormal (median 2500, sigma .9), at most 16000.

Held out when the laws were made: ``UNI`` uniform from 0, ``BASE`` half constant and half
exponential, ``TWO`` nine short in ten (0.5) and one long (5.5), ``PAR`` Pareto of index 2.2 cut
at 100.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import ndtr

from pdalloc.laws import Array, Atoms, Exponentials, StopLossLaw, constant
from pdalloc.queueing.gamma_mixture import GammaMixture
from pdalloc.queueing.service import Service

LOGNORMAL_CELLS = 20_000
TOKEN_ATOMS = 4096
MEAN_TOKENS = 20_000
LEVELS = (np.arange(TOKEN_ATOMS) + 0.5) / TOKEN_ATOMS


def exponential(mean: float = 1.0) -> Exponentials:
    """Exp of ``mean`` seconds."""
    return Exponentials(np.array([mean]), np.ones(1), np.zeros(1))


def erlang(phases: int) -> GammaMixture:
    """Gamma of mean 1 s and SCV 1/``phases``."""
    return GammaMixture(np.ones(1), np.array([1.0 / phases]), np.ones(1))


def hyperexponential(scv: float) -> Exponentials:
    """H2 with balanced means: p = (1 + sqrt((s-1)/(s+1)))/2, means 1/(2p), 1/(2(1-p))."""
    p = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))
    shares = np.array([p, 1 - p])
    return Exponentials(0.5 / shares, shares, np.zeros(2))


def lognormal(scv: float) -> Atoms:
    """Cells of the normal scale, each at its conditional mean; mean 1 s."""
    sigma = math.sqrt(math.log1p(scv))
    edges = np.linspace(-8.0, 10.0, LOGNORMAL_CELLS + 1)
    edges[0], edges[-1] = -math.inf, math.inf
    weight, moment = np.diff(ndtr(edges)), np.diff(ndtr(edges - sigma))
    keep = weight > 0
    return Atoms(moment[keep] / weight[keep], weight[keep])


def token_lengths() -> Atoms:
    """``EMP`` above."""
    low, high = np.full(TOKEN_ATOMS, math.log(1e-2)), np.full(TOKEN_ATOMS, math.log(1e6))
    level = (np.arange(TOKEN_ATOMS) + 0.5) / TOKEN_ATOMS
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = 0.75 * ndtr((middle - math.log(400)) / 0.8)
        below += 0.25 * ndtr((middle - math.log(2500)) / 0.9)
        low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
    lengths = np.minimum(np.exp(low), 16_000.0)
    return Atoms(0.15 + 0.85 * lengths / lengths.mean(), np.full(TOKEN_ATOMS, 1 / TOKEN_ATOMS))


def quantile_atoms(quantiles: Array) -> Atoms:
    """Equally likely ``quantiles``, scaled to mean 1 s."""
    return Atoms(quantiles / quantiles.mean(), np.full(len(quantiles), 1.0 / len(quantiles)))


def pareto() -> Atoms:
    """``PAR`` above."""
    return quantile_atoms(np.minimum((1.0 - LEVELS) ** (-1.0 / 2.2), 100.0))


SINGLE: dict[str, Callable[[], StopLossLaw]] = {
    "D": lambda: constant(1.0),
    "M": exponential,
    "EMP": token_lengths,
    "UNI": lambda: quantile_atoms(2.0 * LEVELS),
    "BASE": lambda: quantile_atoms(0.5 - 0.5 * np.log1p(-LEVELS)),
    "TWO": lambda: Atoms(np.array([0.5, 5.5]), np.array([0.9, 0.1])),
    "PAR": pareto,
}
HELD_OUT = ("UNI", "BASE", "TWO", "PAR")


@cache
def law(name: str) -> StopLossLaw:
    """The law called ``name`` in the grids."""
    kind, _, number = name.partition("_")
    if name in SINGLE:
        return SINGLE[name]()
    if kind == "H2":
        return hyperexponential(float(number))
    return lognormal(float(number)) if kind == "LN" else erlang(int(kind.removeprefix("E")))


@cache
def service(name: str) -> Service:
    """The same with what laws work out of it kept."""
    return Service(law(name))


@cache
def tokens(name: str) -> tuple[Array, Service]:
    """(prompt lengths, all equally likely, law of seconds per prompt) for the simulator.

    Quantiles of the law called ``name`` in whole tokens, at a speed that makes the mean 1 s;
    the law returned is exactly that of these prompts.
    """
    if name == "D":
        return np.array([float(MEAN_TOKENS)]), service("D")
    whole = law(name)
    if name == "TWO":
        times = np.repeat(whole.values, (9, 1))  # type: ignore[attr-defined]
    elif isinstance(whole, Atoms) and len(whole.values) == TOKEN_ATOMS:
        times = whole.values
    else:
        times = _quantiles(whole)
    prompts = np.maximum(np.rint(MEAN_TOKENS * times), 1.0)
    seconds = prompts / prompts.mean()
    return prompts, Service(Atoms(seconds, np.full(len(seconds), 1.0 / len(seconds))))


def _quantiles(whole: StopLossLaw) -> Array:
    """Values at LEVELS: where P(T > t), the slope of the stop-loss transform, passes them."""
    reach = Service(whole)
    middles = 0.5 * (reach.residual.nodes[1:] + reach.residual.nodes[:-1])
    values: Array = np.interp(LEVELS, 1.0 - reach.survival, middles)
    return values
