# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Closed forms
#
# How many replicas, which ratio, is a mix worth it? Much of that has an answer on one line. Each
# line here is a theorem: a statement, its assumptions, and steps that sympy verifies before your
# eyes. Then the same formulas as numbers, beside whole fleets found by trying them all.
#
# The stages are measured: Llama 2 70B, prompts of 2048 tokens, answers of 256, on A100 and H100 at
# CoreWeave's prices of 2023. Counts are real numbers until we round.

# %%
import itertools
import math

import numpy as np
import pandas as pd
from IPython.display import Image, Math
from sympy import Eq, sqrt, symbols

from pdalloc import closed_forms as cf
from pdalloc.catalog.loader import entry, profile_latency, usd_per_gpu_hour
from pdalloc.report import style
from pdalloc.theory import theorems
from pdalloc.theory.theorem import FalseStepError, Step, Theorem

PROMPT, STEPS, RATE = 2048, 256, 20.0


def show(figure, width=620):
    """A figure as a picture, `width` pixels wide."""
    return Image(style.figure_bytes(figure, "png"), width=width)


def measured(replica):
    """(USD/h, seconds of a prompt, a, b) of a replica such as `h100-tp8`."""
    gpu, _, gpus = replica.partition("-tp")
    times = profile_latency(entry("profiles", f"splitwise/llama2-70b/{replica}", "notebook"))
    seconds = float(times.prefill_seconds(np.array([float(PROMPT)]), np.zeros(1))[0])
    batch = np.array([1.0, 2.0])
    one, two = times.step_seconds(batch, batch * (PROMPT + STEPS / 2))
    price = int(gpus) * usd_per_gpu_hour("coreweave-2023", gpu, "notebook")
    return price, seconds, float(2 * one - two), float(two - one)


def prefill(replica):
    """Prefill as M/M/1."""
    price, seconds, _, _ = measured(replica)
    return cf.Stage.mm1(price, 1 / seconds)


def decode(replica):
    """Decode by the batch law."""
    price, _, base, per_request = measured(replica)
    return cf.Stage.batch(price, STEPS, base, per_request)


# %% [markdown]
# ## 1. What a theorem is here
#
# A derivation is data: sentences, each with a claim that sympy must prove from the assumptions on
# its symbols. What it cannot decide does not hold.

# %%
known = theorems()
budget = known["shared_budget"]
print(budget.statement, end="\n\n")
for number, step in enumerate(budget.steps, 1):
    print(f"{number}. {step.sentence} [{'holds' if step.holds else 'FALSE'}]")
Math(rf"\begin{{aligned}}{budget.latex}\end{{aligned}}")

# %% [markdown]
# A wrong step is found, with its place:

# %%
x, y = symbols("x y", positive=True)
wishful = Step("Roots add.", Eq(sqrt(x + y), sqrt(x) + sqrt(y)))
wrong = Theorem("wishful", "statement", ("x, y > 0",), (wishful,), ())
try:
    wrong.check()
except FalseStepError as error:
    print(error)

# %%
pd.DataFrame(
    {name: (len(t.steps), t.source) for name, t in known.items()}, index=["steps", "source"]
).T

# %% [markdown]
# ## 2. One family for every stage
#
# A stage with mean delay T takes n = lambda (work + congestion/(T - floor)) replicas: M/M/1, M/G/1
# and the decode batch law alike. What tells them apart is kappa = congestion/work^2. For M/M/1 it
# is 1. For decode it is 1 + a/b: a decode replica queues as if its service varied wildly.

# %%
P, D = prefill("h100-tp8"), decode("a100-tp8")
for name, stage in (("prefill, H100", P), ("decode, A100", D)):
    kappa = stage.congestion / stage.work**2
    print(f"{name}: work {stage.work:.3f} s, floor {stage.floor:.2f} s, kappa {kappa:.0f}")

# %% [markdown]
# ## 3. Which ratio of P to D?
#
# With a bound on TTFT and another on TPOT each role is sized alone: price drops out of the ratio.
# One bound on the mean E2E couples the roles, and the cheapest ratio then moves with the bound:
# from the **golden ratio** (tight) to **load matching** (loose), always in one direction. Neither
# end is right in between, and the ends are far apart because kappa of decode is large.

# %%
Math(rf"\begin{{aligned}}{known['pd_ratio'].latex}\end{{aligned}}")

# %%
FLOOR = P.floor + D.floor


def keeps(p, d, tau):
    """Whether p + d replicas keep a mean E2E of tau."""
    if p <= RATE * P.work or d <= RATE * D.work:
        return False
    return P.delay(RATE, p) + D.delay(RATE, d) <= tau


def cost(p, d):
    """USD/h."""
    return p * P.price + d * D.price


def cheapest(tau):
    """Of all whole fleets."""
    fleets = itertools.product(range(1, 40), range(1, 90))
    return min((f for f in fleets if keeps(*f, tau)), key=lambda f: cost(*f))


def at_ratio(ratio, tau):
    """The smallest D with P = ceil(ratio D) that keeps the bound."""
    return next(
        (math.ceil(ratio * d), d) for d in range(1, 200) if keeps(math.ceil(ratio * d), d, tau)
    )


RULES = {"golden ratio": cf.tight_ratio(P, D), "load matching": cf.loose_ratio(P, D)}
for factor in (1.3, 2.0, 4.0):
    tau = factor * FLOOR
    best = cheapest(tau)
    print(f"E2E {tau:.1f} s: best {best[0]}P{best[1]}D, {cost(*best):.0f} USD/h;", end=" ")
    print(f"closed form P/D {cf.shared_ratio(P, D, tau):.2f}")
    for rule, ratio in RULES.items():
        fleet = at_ratio(ratio, tau)
        more = 100 * (cost(*fleet) / cost(*best) - 1)
        print(f"    {rule} ({ratio:.2f}): {fleet[0]}P{fleet[1]}D, {more:.0f} % more")

# %%
taus = FLOOR * np.geomspace(1.02, 12, 120)
budgets = [cf.shared_budget(RATE, [P, D], tau) for tau in taus]
with style.styled():
    figure, ((left, right),) = style.new_figure(style.PAGE_WIDTH, 2.5, 1, 2)
    left.plot(taus, [cf.shared_ratio(P, D, tau) for tau in taus], color=style.BLUE)
    left.set_xscale("log")
    left.set_xlim(taus[0], taus[-1])
    left.set_ylim(0, 0.6)
    for rule, ratio in RULES.items():
        left.axhline(ratio, color=style.GREY, ls="--", lw=0.8)
        left.text(taus[-1], ratio + 0.012, rule, color=style.GREY, ha="right")
    left.set_ylabel("cheapest P/D")
    right.plot(taus, [b.cost for b in budgets], color=style.BLUE, label="real counts")
    whole = FLOOR * np.geomspace(1.1, 11, 25)
    right.plot(
        whole,
        [cost(*cheapest(t)) for t in whole],
        "o",
        ms=3,
        color=style.VERMILLION,
        label="best whole fleet",
    )
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_yticks([200, 500, 1000, 2000, 5000], ["200", "500", "1000", "2000", "5000"])
    right.set_xlim(taus[0], taus[-1])
    right.set_ylabel("USD/h")
    right.legend()
    for axes in (left, right):
        axes.set_xlabel("bound on the mean E2E (s)")
        axes.set_xticks([12, 20, 40, 80, 120], ["12", "20", "40", "80", "120"])
        axes.minorticks_off()
show(figure)

# %% [markdown]
# **The price of latency** is the slope on the right: what a second more of budget saves. It is the
# same at every stage and equals the dual of the solver's relaxation (the tests compare it with
# Clarabel's). Whole fleets stay above the line by less than one replica of each role.

# %%
for factor in (1.3, 2.0, 4.0):
    tau = factor * FLOOR
    found = cf.shared_budget(RATE, [P, D], tau)
    print(f"E2E {tau:.1f} s: {found.cost:.0f} USD/h,", end=" ")
    print(f"a second saves {found.price_of_latency:.1f} USD/h;", end=" ")
    print(f"rounding adds at most {cf.rounding_bound(found.counts, [P.price, D.price]):.0f}")

# %% [markdown]
# **TTFT, TPOT and E2E at once**: the slack is split as before and cut where a role meets its own
# bound. From then on price no longer moves the ratio. Here with a bound on TTFT beside 23.2 s:

# %%
for ttft in (0.2, 0.3, 0.6, math.inf):
    found = cf.bounded_budget(RATE, [P, D], [ttft, math.inf], 2 * FLOOR)
    counts = " and ".join(f"{n:.1f}" for n in found.counts)
    print(
        f"TTFT {ttft:.1f} s: {counts} replicas, {found.cost:.0f} USD/h; a second of E2E saves",
        end=" ",
    )
    print(f"{found.budget_price:.1f} USD/h, 10 ms of TTFT {found.bound_prices[0] / 100:.2f}")

# %% [markdown]
# ## 4. Decode under a percentile
#
# The batch is negative binomial, so the count for "99 % of gaps between tokens below tau" is exact
# in one line of an inverse beta function. Taking the batch as normal gives a formula by hand, which
# is too kind, by more the tighter the bound.

# %%
_, _, BASE, SHARE = measured("a100-tp8")
gaps = (BASE + SHARE) * np.linspace(1.04, 2.0, 1000)
question = (RATE, STEPS, BASE, SHARE)
counts = {
    "P99 of ITL, exact": [cf.itl_count(*question, tau, 0.99) for tau in gaps],
    "P99, normal": [cf.itl_count_normal(*question, tau, 0.99) for tau in gaps],
    "mean TPOT": [cf.decode_count(*question, tau) for tau in gaps],
}
for factor in (1.2, 1.5, 2.0):
    tau = factor * (BASE + SHARE)
    exact, normal = (f(*question, tau, 0.99) for f in (cf.itl_count, cf.itl_count_normal))
    print(f"{1e3 * tau:.0f} ms: exact {exact:.1f} replicas, normal {normal:.1f};", end=" ")
    print(f"for the mean alone {cf.decode_count(*question, tau):.1f}")

# %%
with style.styled():
    figure, ((axes,),) = style.new_figure(style.COLUMN_WIDTH * 1.35, 2.5)
    looks = ((style.BLUE, "-"), (style.ORANGE, "--"), (style.GREY, "-"))
    for (name, values), (colour, dash) in zip(counts.items(), looks, strict=True):
        axes.plot(1e3 * gaps, values, color=colour, ls=dash, label=name, drawstyle="steps-post")
    axes.set_ylim(0, 80)
    axes.set_xlabel("bound on the gap between tokens (ms)")
    axes.set_ylabel("decode replicas")
    axes.legend()
show(figure, width=480)

# %% [markdown]
# ## 5. Is a mix of GPU types worth it?
#
# If the bound is on the mean over *all* requests, a slow cheap type may serve some if a fast one
# makes up for it. The best mix lies on the common tangent of the two cost curves. At most two types
# carry traffic, however many there are.

# %%
Math(rf"\begin{{aligned}}{known['two_types'].latex}\end{{aligned}}")

# %%
slow, fast = prefill("a100-tp4"), prefill("h100-tp8")
nu = cf.switch_price(slow.price, 1 / slow.work, fast.price, 1 / fast.work)
ends = [s.floor + math.sqrt(s.delay_cost / nu) for s in (slow, fast)]
tie = (fast.price - slow.price) / (fast.price / slow.work - slow.price / fast.work)
mix = cf.population_mix(RATE, [slow, fast], tie)
alone = cf.single_type_cost(RATE, [slow, fast], tie)
print(f"A100x4 alone from {ends[0]:.2f} s on, H100x8 alone up to {ends[1]:.2f} s, both between")
print(f"at {tie:.2f} s: alone {alone:.1f} USD/h, mixed {mix.cost:.1f},", end=" ")
print(f"ratio {alone / mix.cost:.4f}")

# %% [markdown]
# And no bound on the mean can make it pay more: **the most that mixing saves** depends on the
# ratios of price and speed alone, and stays below a constant of the price ratio whatever the
# speeds. So does what it costs to ask every pool to keep the bound by itself, as plans here do. The
# bound is new as far as we know; the nearest result is Bell and Stidham's on how to split traffic
# over given servers.

# %%
print(known["mixing_gain"].statement)
known["mixing_gain"].check()
Math(rf"\begin{{aligned}}{known['mixing_gain'].latex}\end{{aligned}}")

# %%
delays = np.linspace(0.16, 2.2, 400)
ratios = np.linspace(1.0, 9.0, 200)
with style.styled():
    figure, ((left, right),) = style.new_figure(style.PAGE_WIDTH, 2.5, 1, 2)
    for name, stage, colour in (("A100x4", slow, style.ORANGE), ("H100x8", fast, style.SKY)):
        at = delays[delays > stage.floor * 1.02]
        left.plot(at, [stage.price * stage.replicas(1.0, t) for t in at], color=colour, label=name)
    touch = [s.price * s.replicas(1.0, t) for s, t in zip((slow, fast), ends, strict=True)]
    left.plot(ends, touch, "o-", ms=3, color=style.BLACK, lw=1.0, label="mix")
    left.axvline(tie, color=style.GREY, ls=":", lw=0.8)
    left.set_xlim(0.1, 2.2)
    left.set_ylim(4, 12)
    left.set_xlabel("mean TTFT over all requests (s)")
    left.set_ylabel("USD/h per request/s")
    left.legend()
    right.plot(
        ratios, [100 * (1 - 1 / cf.price_only_gain(r)) for r in ratios], color=style.BLACK, ls="--"
    )
    for speed, colour in ((1.2, style.PURPLE), (2.0, style.BLUE), (4.0, style.GREEN)):
        at = ratios[ratios >= speed]
        right.plot(at, [100 * (1 - 1 / cf.mixing_gain(r, speed)) for r in at], color=colour)
        right.text(
            9.1,
            100 * (1 - 1 / cf.mixing_gain(9.0, speed)),
            f"{speed:g} x the speed",
            color=colour,
            va="center",
        )
    right.text(9.1, 100 * (1 - 1 / cf.price_only_gain(9.0)), "any speed", va="center")
    right.set_xlim(1, 9)
    right.set_ylim(0, 26)
    right.set_xlabel("price of the fast type / price of the slow one")
    right.set_ylabel("mixing saves at most (%)")
show(figure)

# %% [markdown]
# For measured replicas that is little. Twice the GPUs of one kind can never save more than 3 %.
# What mixed fleets do save comes from whole numbers, stock, or sending *different* requests to
# different types, and there the bound says when to stop looking: a fleet of one type is within
# this much, and one replica, of the best mix.

# %%
pairs = [("a100-tp4", "a100-tp8"), ("a100-tp4", "h100-tp8"), ("a100-tp8", "h100-tp8")]
pairs += [("a100-tp2", "h100-tp8"), ("h100-tp2", "h100-tp4")]
for one, two in pairs:
    a, b = prefill(one), prefill(two)
    price, speed = b.price / a.price, a.work / b.work
    saved = 100 * (1 - 1 / cf.mixing_gain(price, speed))
    print(f"{one} + {two}: {price:.2f} x the price, {speed:.2f} x the speed,", end=" ")
    print(f"saves at most {saved:.1f} %")

# %% [markdown]
# Six replica types at once, any bound, prefill and decode. The quotient peaks where two types
# cost the same, so the search over bounds is a handful of points (this holds for M/G/1 and decode
# too; the formula above is for exponential service, and prompts of one length could gain more).

# %%
names = [f"{gpu}-tp{n}" for gpu in ("a100", "h100") for n in (2, 4, 8)]
for role, stage in (("prefill", prefill), ("decode", decode)):
    worst = cf.greatest_gain([stage(name) for name in names])
    print(f"{role}: the best single type is at most {100 * (worst - 1):.1f} % above the best mix")

# %% [markdown]
# ## 6. Pools
#
# Replicas behind one queue share their slack: a erlangs of work need about a + beta sqrt(a)
# servers. Against exact Erlang C the rule is at most two short.

# %%
for load in (3.0, 30.0, 300.0, 3000.0):
    rule, exact = cf.square_root_count(load, 0.05), cf.erlang_count(load, 0.05)
    print(f"{load:.0f} erlangs, 5 % wait: rule {rule:.1f}, exact {exact}")

# %% [markdown]
# ## What closed forms do not know
#
# Real counts, Poisson arrivals, no limit on the batch, one kind of request, replicas that do not
# share a queue (but for the last section). They are oracles for the solvers and first answers for
# people; a plan is certified by the full prediction and judged by simulation.
