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
# # Mixed fleets
#
# An H100 costs a good twice as much per hour as an A100. It reads prompts faster and writes tokens
# faster, but not by the same factor, and not by the same factor for every length. So which GPU
# should prefill, which should decode, and when is a mixture cheapest?
#
# Llama 2 70B on replicas of eight GPUs, measured by Splitwise; 50 requests/s.

# %%
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Image
from scipy.interpolate import RegularGridInterpolator

from pdalloc import explain, frontier, load_scenario
from pdalloc.allocation.solvers import solver_named
from pdalloc.fleet import DECODE, PREFILL
from pdalloc.planning.frontier_answer import frontier_answer
from pdalloc.planning.plan import single_type_costs
from pdalloc.report import style
from pdalloc.report.explain_words import what_it_leans_on, why_this_many
from pdalloc.report.frontier_figure import frontier_figure
from pdalloc.report.frontier_table import pools

here = Path.cwd()
ROOT = here if (here / "experiments").is_dir() else here.parent
MIXED = ROOT / "experiments" / "mixed_fleet" / "scenario.yaml"
CHEAP, DEAR = "a100", "h100"
COLOURS = style.gpu_colours([CHEAP, DEAR])


def show(figure, width=640):
    """A figure as a picture, `width` pixels wide."""
    return Image(style.figure_bytes(figure, "png"), width=width)


# %% [markdown]
# ## 1. In fractions: the merit order
#
# Suppose that replicas could be divided. Then a role goes to the GPU with the least price per
# request/s that it admits within the objectives: the *merit order*. How much a replica admits is
# prediction inverted, and that depends on the lengths and on the bounds.


# %%
def rates(prompt, output, ttft, tpot):
    """Requests/s that one replica admits, by (role, GPU); bounds on means in seconds."""
    slo = f"{{ttft: {{mean: {ttft:.6g} s}}, tpot: {{mean: {tpot:.6g} s}}}}"
    lengths = f"prompt: {prompt:.0f} tokens, output: {output:.0f} tokens"
    traffic = f"traffic.0={{name: all, rate: 50 req/s, {lengths}, slo: {slo}}}"
    problem = load_scenario(MIXED, None, [traffic]).problem()
    return {(o.role, o.gpu): problem.rate(o) for o in problem.options}


def advantage(found, role):
    """The H100's rate over the A100's; above the price ratio it is worth its price."""
    cheap, dear = found[role, CHEAP], found[role, DEAR]
    return dear / cheap if cheap > 0 else (np.inf if dear > 0 else np.nan)


prices = {o.gpu: o.usd_per_hour / o.gpus for o in load_scenario(MIXED).problem().options}
PRICE = prices[DEAR] / prices[CHEAP]
print(f"H100 {prices[DEAR]} USD/h, A100 {prices[CHEAP]} USD/h: ratio {PRICE:.2f}")

# %% [markdown]
# Over prompt and output lengths, with a mean TTFT of 1 s and a mean TPOT of 60 or 80 ms:

# %%
prompts, outputs = np.geomspace(64, 8000, 12), np.geomspace(16, 1024, 6)


def ahead(tpot):
    """By role: advantage over price ratio; above 1 the H100 is cheapest. Shape as the grid."""
    cells = [[rates(prompt, output, 1.0, tpot) for output in outputs] for prompt in prompts]
    return {
        role: np.array([[advantage(cell, role) / PRICE for cell in row] for row in cells])
        for role in (PREFILL, DECODE)
    }


def fine(values, points=300):
    """Bilinear interpolation in logarithms; shape (points, points)."""
    logs = np.clip(np.log(values), -2.0, 2.0)
    table = RegularGridInterpolator((np.log(prompts), np.log(outputs)), logs)
    x, y = (np.linspace(np.log(a[0]), np.log(a[-1]), points) for a in (prompts, outputs))
    return np.exp(x), np.exp(y), table(np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1))


def phases(axes, x, y, prefill, decode):
    """Four areas: the colour is the decode GPU's; hatched where the H100 prefills."""
    axes.contourf(
        x, y, decode.T, levels=[-9, 0, 9], colors=[COLOURS[CHEAP], COLOURS[DEAR]], alpha=0.55
    )
    hatched = axes.contourf(x, y, prefill.T, levels=[0, 9], colors="none", hatches=["///"])
    hatched.set_edgecolor(style.GREY)
    hatched.set_linewidth(0.0)
    for values in (prefill, decode):
        axes.contour(x, y, values.T, levels=[0], colors=[style.BLACK], linewidths=1.0)


def label(axes, x, y, words):
    """Words on white in the middle of an area."""
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.9}
    axes.text(x, y, words, ha="center", va="center", fontsize=7, bbox=paper)


plain = [100, 200, 500, 1000, 2000, 5000]
words = {
    0.06: [(130, 40, "A100\ndoes both"), (550, 300, "A100 prefills,\nH100 decodes")],
    0.08: [(300, 130, "A100 does both"), (830, 30, "H100 prefills,\nA100 decodes →")],
}
with style.styled():
    figure, (panels,) = style.new_figure(style.PAGE_WIDTH, 2.9, 1, 2)
    for axes, (tpot, places) in zip(panels, words.items(), strict=True):
        values = ahead(tpot)
        x, y, prefill = fine(values[PREFILL])
        phases(axes, x, y, prefill, fine(values[DECODE])[-1])
        for place in [*places, (4700, 130, "H100\ndoes both")]:
            label(axes, *place)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(plain, plain)
        axes.set_yticks([20, 50, *plain[:-2]], [20, 50, *plain[:-2]])
        axes.minorticks_off()
        axes.set_xlabel("prompt (tokens)")
        axes.set_title(f"TPOT {1e3 * tpot:.0f} ms", loc="left")
    panels[0].set_ylabel("output (tokens)")
show(figure)

# %% [markdown]
# The colour is the decode GPU's, hatching means that the H100 prefills. Reading a short prompt is a
# fixed effort on either GPU, and the cheap one wins. Long prompts take the A100 so long that the
# bound on the first token leaves little time to wait: its admissible rate collapses, and the H100
# takes over, here at some 1500 tokens. In decode the boundary runs along the context, and it moves
# with the bound: at 60 ms the H100 is worth its price from a few hundred tokens on, at 80 ms only
# from 2500. Between the boundaries the roles are split, this way or that: there a mixed fleet is
# no matter of rounding.
#
# ## 2. What may the H100 cost?
#
# A role changes hands where the price ratio equals the ratio of the admissible rates. So the
# curves below are break-even prices: below a curve the H100 does the work, above it the A100.

# %%
some = np.geomspace(64, 6000, 10)
prefill_curves = {
    ttft: [advantage(rates(p, 128, ttft, 0.1), PREFILL) for p in some] for ttft in (0.4, 1.0, 3.0)
}
tpots = np.geomspace(0.04, 0.15, 10)
decode_curves = {
    prompt: [advantage(rates(prompt, 256, 2.0, t), DECODE) for t in tpots]
    for prompt in (128, 1024, 4096)
}
SHADES = (style.BLUE, style.BLACK, style.GREEN)

with style.styled():
    figure, ((left, right),) = style.new_figure(style.PAGE_WIDTH, 2.6, 1, 2)
    for (ttft, values), colour in zip(prefill_curves.items(), SHADES, strict=True):
        left.plot(some, values, color=colour, label=f"TTFT {ttft:g} s")
    for (prompt, values), colour in zip(decode_curves.items(), SHADES, strict=True):
        right.plot(1e3 * tpots, values, color=colour, label=f"prompt {prompt}")
    for axes, role in ((left, "prefill"), (right, "decode")):
        axes.axhline(PRICE, color=style.VERMILLION, lw=0.9, ls=(0, (5, 3)))
        axes.set_ylim(0.8, 5.0)
        axes.set_ylabel(f"break-even price ratio, {role}")
        axes.legend(loc="upper left" if role == "prefill" else "upper right")
    left.set_xscale("log")
    left.set_xticks([100, 200, 500, 1000, 2000, 5000], [100, 200, 500, 1000, 2000, 5000])
    left.minorticks_off()
    left.set_xlabel("prompt (tokens)")
    right.set_xlabel("bound on mean TPOT (ms)")
    left.annotate("list price ratio", (70, PRICE), (0, 3), textcoords="offset points",
                  color=style.VERMILLION, fontsize=6.5)  # fmt: skip
show(figure, 760)

# %% [markdown]
# The curves rise where the A100 comes near its floor, the time that it takes without load. There
# its rate goes to nothing while the H100 still has room, and no price is too high. Far from the
# floor what counts is speed alone, and the H100 is not twice as fast everywhere.
#
# ## 3. In whole replicas: the frontier
#
# Real replicas come whole, and real traffic has lengths of all kinds: now the conversations of the
# Azure trace, TPOT 100 ms. `frontier` moves one bound and finds every corner, the tightest bound
# that each fleet still holds, exactly.

# %%
question = load_scenario(MIXED)
found = frontier(question, "ttft", low=0.65, high=1.2, points=3)
curve = frontier_answer(found)
show(frontier_figure(curve))

# %%
pd.DataFrame(
    [
        {
            "TTFT from (ms)": round(1e3 * s.start),
            "to (ms)": round(1e3 * s.end),
            "prefill": pools(s.point.fleet, PREFILL),
            "decode": pools(s.point.fleet, DECODE),
            "USD/h": s.point.cost_usd_per_hour,
        }
        for s in curve.stretches
    ]
)

# %% [markdown]
# In fractions there would be one switch, from the A100 to the H100 as the bound gets tighter. In
# whole replicas the two trade places many times: a mixture is a way to buy just enough. Most
# steps are worth 2.72 USD/h, an H100 replica less and two A100 replicas more.
#
# Why the fleet at 600 ms, in words:

# %%
tight = load_scenario(MIXED, None, ["traffic.0.slo.ttft.mean=600 ms"])
why = explain(tight)
for line in [*why_this_many(why), *what_it_leans_on(why)]:
    print("-", line)

# %% [markdown]
# ## 4. What mixing saves
#
# Against the better of two fleets of one type, over the bound on TTFT:

# %%
rows = []
for bound in (0.4, 0.5, 0.6, 0.7, 0.8, 1.0):
    problem = load_scenario(MIXED, None, [f"traffic.0.slo.ttft.mean={bound} s"]).problem()
    cost = solver_named("exact").solve(problem).cost
    alone = {f"{gpu} alone": usd for gpu, usd in single_type_costs(problem).items()}
    saved = 100 * (1 - cost / min(alone.values()))
    rows.append({"TTFT (s)": bound, "mixed": cost, **alone, "saves (%)": saved})
pd.DataFrame(rows).round(2)

# %% [markdown]
# The A100 decodes at every bound: 100 ms per token is easy for it. What a tight first token asks
# for is a faster prefill alone. A fleet of one type has to buy it for both roles, a mixed one not.
#
# All of this rests on measured tables of one replica. A price is known to the cent, a service time
# is not: read the margins above before buying.
