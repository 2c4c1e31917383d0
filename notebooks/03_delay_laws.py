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
# # Delay laws
#
# A plan is only as good as what it believes about waiting. Here are the formulas behind every
# prediction: what each says, where it fails, and beside each number a simulation that reads none
# of them.
#
# Times of the first half are in *mean services*: 1 is what one prompt takes on average. Prompts
# have the lengths of a mixed chat load, three quarters short (median 400 tokens) and one quarter
# long (median 2500), so service times vary: their squared coefficient of variation (SCV) is 2.

# %%
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Image

here = Path.cwd()
ROOT = here if (here / "experiments").is_dir() else here.parent
sys.path.insert(0, str(ROOT))

from experiments.delay_laws.decode_runs import lengths, measure
from experiments.delay_laws.dispatch_grid import waits
from experiments.delay_laws.services import tokens
from experiments.results import read_csv
from paper.figures import fig_delay_laws

from pdalloc.queueing.decode import DecodeLaw, DecodeStation, decode_work
from pdalloc.queueing.decode.fluid import FluidLaw
from pdalloc.queueing.delay_laws import delay_law, laws_for
from pdalloc.queueing.inverse import greatest_rate
from pdalloc.queueing.station import Station
from pdalloc.report import style
from pdalloc.simulation.options import SimulationOptions
from pdalloc.simulation.statistics import interval

REPLICATIONS = 8
RULES = ("central_queue", "least_loaded", "round_robin", "random")
prompts = tokens("EMP")[1]


def show(figure, width=620):
    """A figure as a picture, `width` pixels wide."""
    return Image(style.figure_bytes(figure, "png"), width=width)


def pool(c, rho, dispatch="central_queue", scv=1.0):
    """`c` prefill replicas at utilisation `rho`."""
    return Station(rho * c, prompts, c, scv, dispatch)


def simulated(at, requests=150_000):
    """Waits of a pool, a row per replication."""
    cell = (at.dispatch, "EMP", at.servers, at.utilisation, at.arrival_scv)
    return np.array([waits(cell, requests, i) for i in range(REPLICATIONS)])


def with_interval(values):
    """Mean over replications and its 95 % half-width, in words."""
    mean, half = interval([float(v) for v in values])
    return f"{mean:.3g} ± {half:.1g}"


print(f"service SCV {prompts.scv:.2f}; simulated: {REPLICATIONS} replications each")

# %% [markdown]
# ## 1. One replica: exact
#
# With Poisson arrivals one replica is M/G/1. Its mean wait is Pollaczek and Khinchine's, and the
# whole *law* of the wait follows from the table of lengths, percentiles included. Nothing is
# approximated, so the simulation must agree.

# %%
one = pool(1, 0.8)
law, seen = delay_law(one), simulated(one, 500_000)
print(f"law: {type(law).name}")
print(f"mean wait: law {law.mean_wait:.2f}, simulated {with_interval(seen.mean(axis=1))}")
for p in (0.5, 0.9, 0.99):
    print(f"P{100 * p:.0f}: law {law.wait.quantile(p):.2f}, ", end="")
    print(f"simulated {with_interval(np.quantile(seen, p, axis=1))}")

# %% [markdown]
# A bound on the mean hides this: one request in a hundred waits nearly six times as long as
# the average.
#
# ## 2. Many replicas, one queue: a dozen rivals
#
# For several replicas and general service there is no exact formula. Half a century of
# approximations mix two cases that *are* known, constant and exponential service; each is a file
# in `queueing/delay_laws`. Most know service by its SCV alone. Here are all that claim a pool of
# 64 replicas at utilisation .8, the most trusted first.

# %%
many = pool(64, 0.8)
seen = simulated(many, 800_000)
mean, p99 = seen.mean(axis=1), np.quantile(seen, 0.99, axis=1)
rivals = {}
for kind in laws_for(many):
    law = kind(many)
    rivals[kind.name] = (law.mean_wait, law.p_wait, law.wait.quantile(0.99))
rivals["simulated"] = (mean.mean(), (seen > 1e-6).mean(), p99.mean())
columns = ["mean wait", "P(W > 0)", "P99 wait"]
print(f"simulated mean {with_interval(mean)}, P99 {with_interval(p99)}")
pd.DataFrame(rivals, index=columns).T.round(4)

# %% [markdown]
# They agree on how many wait and differ by more than a third in how long. One pool proves little;
# over a whole grid (utilisation .5 to .98, ten service laws, each case exact or simulated to a
# fraction of a per cent) the picture is this:

# %%
show(fig_delay_laws.draw(), width=860)

# %% [markdown]
# **Where they fail.** A two-moment formula cannot tell a lognormal from a two-point law of the same
# SCV, and with many servers a wait is over before long services show: a queue that lasts for a
# tenth of a service never sees their variance. The *dispersion* law asks how variable departures
# are *on the time scale of the queue*, which is why it holds from 2 to 200 servers. It is the
# default because it wins in that table, not because it is ours: `laws_for` reads the ranking from
# `results/accuracy.csv`. It has its own bad cases: service laws that were kept aside while it was
# made, above all two-point ones (nine prompts short, one eleven times as long).

# %%
accuracy = read_csv(fig_delay_laws.RESULTS / "accuracy.csv")


def error(row):
    """Median, 95th percentile and worst |error| of a row, in words."""
    median, p95, worst = (float(row[f"{k}_percent"]) for k in ("median", "p95", "worst"))
    return f"median {median:.2f} %, 95th {p95:.1f} %, worst {abs(worst):.0f} %"


for row in accuracy:
    kinds = (fig_delay_laws.GRID, "held-out service laws")
    if row["law"] == "dispersion" and row["regime"] in kinds:
        print(f"{row['regime']}, {row['statistic']}: {error(row)}")

# %% [markdown]
# ## 3. What dispatch costs
#
# The choice of formula moves the mean wait by per cents. The choice of *router* moves it by a
# factor of ten or more. Lines are laws, dots are simulated with 95 % intervals, for 8 replicas.

# %%
COLOURS = dict(zip(RULES, (style.BLUE, style.GREEN, style.ORANGE, style.VERMILLION), strict=True))
loads, line = (0.5, 0.7, 0.8, 0.9), np.linspace(0.45, 0.93, 17)
runs = {(rule, rho): simulated(pool(8, rho, rule)) for rule in RULES for rho in loads}
with style.styled():
    figure, (panels,) = style.new_figure(style.PAGE_WIDTH, 2.6, 1, 2)
    for axes, level in zip(panels, (None, 0.99), strict=True):
        axes.set_xlim(0.45, 0.93)
        axes.set_yscale("log")
        for rule, colour in COLOURS.items():
            laws = [delay_law(pool(8, rho, rule)) for rho in line]
            values = [law.wait.quantile(level) if level else law.mean_wait for law in laws]
            axes.plot(line, values, color=colour, label=rule.replace("_", " "))
            for rho in loads:
                w = runs[rule, rho]
                value, half = interval(np.quantile(w, level, axis=1) if level else w.mean(axis=1))
                axes.errorbar(rho, value, half, fmt="o", ms=3, color=colour, capsize=2)
        axes.set_ylim(0.02 if level is None else 0.5, None)
        axes.set_xlabel("utilisation")
        axes.set_ylabel(f"{'P99' if level else 'mean'} wait (mean services)")
    panels[0].legend(loc="lower right")
show(figure)

# %% [markdown]
# The laws answer backwards as well: how far may the same 8 replicas be loaded if 99 % of prompts
# shall wait at most ten mean services?

# %%
allowed = {rule: greatest_rate(delay_law, pool(8, 0.5, rule), 10.0, 0.99) / 8 for rule in RULES}
for rule, rho in allowed.items():
    more = allowed["central_queue"] / rho
    print(f"{rule:14} up to utilisation {rho:.2f}: {more:.1f} x the GPUs per request")

# %% [markdown]
# *Random* and *round robin* split the pool into queues of their own (exact laws: M/G/1, and GI/G/1
# with every c-th arrival). *Least loaded* is nearly one queue, but routes without seeing how far
# running prompts are. Its law rests on two limits that are theory, joined by a correction fitted to
# simulation: of all prefill laws the one to trust least. From the accuracy table:

# %%
for row in accuracy:
    poisson = row["regime"].startswith("least_loaded, Poisson")
    if row["law"] == "least_assigned" and poisson and row["statistic"] != "p_wait":
        print(f"{row['regime']}, {row['statistic']}: {error(row)}")

# %% [markdown]
# ## 4. Bursts
#
# Gaps between arrivals of SCV 4 (gamma). Taken for Poisson, waits come out far too small.

# %%
burst = pool(8, 0.85, scv=4.0)
seen = simulated(burst, 300_000)
rows = {
    "simulated": (seen.mean(), np.quantile(seen, 0.99, axis=1).mean()),
    "default law": (delay_law(burst).mean_wait, delay_law(burst).wait.quantile(0.99)),
}
poisson = delay_law(burst.poisson)
rows["taken for Poisson"] = (poisson.mean_wait, poisson.wait.quantile(0.99))
for name, (mean, p99) in rows.items():
    print(f"{name:18} mean {mean:.2f}, P99 {p99:.1f}")

# %% [markdown]
# The rule matters here too. Round robin takes every eight gaps together and evens bursts out;
# random dispatch thins them, but its queues stay long whatever comes.

# %%
for rule in RULES:
    smooth, bursty = (delay_law(pool(8, 0.85, rule, scv)).mean_wait for scv in (1.0, 4.0))
    print(f"{rule:14} mean wait {smooth:.2f}, with bursts {bursty:.2f}")

# %% [markdown]
# ## 5. Decode: a batch, not a queue
#
# A decode replica serves its requests together; a step takes a + b B seconds with B of them.
# Planners use the **fluid** law: the batch at which as many requests leave as come,
# TPOT = a/(1-rho). A real batch fluctuates, and requests see the full moments more than the empty
# ones. The **batch law** (state-dependent processor sharing) has the whole distribution: negative
# binomial, with mean TPOT (a + b)/(1-rho). Here a = 10 ms and b = 1 ms, answers of 200 tokens on
# average.

# %%
A, B = 10e-3, 1e-3


def decode(rho, output="geometric", mean=200.0, base=A, **more):
    """A decode pool at utilisation `rho`: (station, lengths)."""
    law = lengths(output, mean)
    work = decode_work(law.prompt, law.output, law.weight)
    still = DecodeStation(0.0, lambda batch, held: base + B * batch + 0.0 * held, work, **more)
    return still.at(rho * still.capacity), law


def played(rho, requests=60_000, base=A, **more):
    """What `REPLICATIONS` runs measured, a column each, in ms."""
    station, law = decode(rho, base=base, **more)
    numbers = (base, B, 0.0)
    runs = [
        measure(station, numbers, law, requests, seed, SimulationOptions())
        for seed in range(REPLICATIONS)
    ]
    fields = ("mean_tpot", "itl_p99", "tpot_p99")
    return {f: np.array([1e3 * getattr(run, f) for run in runs]) for f in fields}


loads = (0.3, 0.5, 0.7, 0.85)
measured = {rho: played(rho) for rho in loads}
for rho in loads:
    station, _ = decode(rho)
    law = DecodeLaw(station)
    print(f"rho {rho}: mean TPOT fluid {1e3 * FluidLaw(station).mean_tpot:.1f} ms,", end=" ")
    print(f"batch {1e3 * law.mean_tpot:.1f},", end=" ")
    print(f"simulated {with_interval(measured[rho]['mean_tpot'])}")

# %% [markdown]
# **Percentiles.** Three things are easily mixed up: the mean; the P99 *gap* between tokens (ITL);
# and the P99 *request*, whose TPOT averages over its own gaps. They have laws of their own.
# Averaging over an answer helps next to nothing here: short answers hardly average, and the batch
# remembers for longer than an answer lasts. The fluid law knows one number for all three.

# %%
line = np.linspace(0.2, 0.88, 18)
NAMES = {"mean_tpot": "mean TPOT", "tpot_p99": "P99 of requests' TPOT", "itl_p99": "P99 ITL"}
with style.styled():
    figure, ((axes,),) = style.new_figure(style.COLUMN_WIDTH * 1.35, 2.9)
    at = [decode(rho)[0] for rho in line]
    fluid = [1e3 * FluidLaw(station).mean_tpot for station in at]
    axes.plot(line, fluid, color=style.VERMILLION, ls="--", label="fluid, all three")
    laws = [DecodeLaw(station) for station in at]
    lines = {
        "mean_tpot": [law.mean_tpot for law in laws],
        "tpot_p99": [law.tpot().quantile(0.99) for law in laws],
        "itl_p99": [law.itl.quantile(0.99) for law in laws],
    }
    for (key, values), colour in zip(
        lines.items(), (style.BLUE, style.GREEN, style.SKY), strict=True
    ):
        axes.plot(line, 1e3 * np.array(values), color=colour, label=NAMES[key])
        for rho in loads:
            value, half = interval(measured[rho][key])
            axes.errorbar(rho, value, half, fmt="o", ms=3, color=colour, capsize=2)
    axes.set_ylim(0, None)
    axes.set_xlabel("utilisation of the decode replica")
    axes.set_ylabel("ms")
    axes.legend(loc="upper left")
show(figure, width=480)

# %% [markdown]
# **Least loaded.** A router that sends each request to the replica with the fewest makes batches
# equal, so a pool of R behaves like one replica with R times the requests and 1/R of the effect
# each: mean TPOT about (a + b/R)/(1-rho), and far thinner tails.

# %%
for replicas in (1, 4, 16):
    pool_of = {"replicas": replicas, "dispatch": "least_loaded"}
    law = DecodeLaw(decode(0.7, **pool_of)[0])
    seen = played(0.7, 40_000 * min(replicas, 4), **pool_of)
    mean, p99 = 1e3 * law.mean_tpot, 1e3 * law.itl.quantile(0.99)
    print(f"{replicas:2} replicas: mean TPOT {mean:.1f} ms", end=" ")
    print(f"({with_interval(seen['mean_tpot'])}), P99 ITL {p99:.0f}", end=" ")
    print(f"({with_interval(seen['itl_p99'])})")

# %% [markdown]
# **Short answers.** The negative binomial is for long ones. With two tokens a request joins at one
# step boundary and is gone two steps later, and what it meets is not what time sees. The exact
# second moments (a self-exciting process of steps) keep the law right there too:

# %%
for tokens_out in (2.0, 5.0, 20.0, 200.0):
    about = {"output": "fixed", "mean": tokens_out}
    station, _ = decode(0.8, **about)
    seen = played(0.8, 100_000, **about)["mean_tpot"]
    long_answers = 1e3 * (A + B) / (1.0 - 0.8)
    mean = 1e3 * DecodeLaw(station).mean_tpot
    print(f"{tokens_out:3.0f} tokens: law {mean:.1f} ms,", end=" ")
    print(f"(a + b)/(1-rho) {long_answers:.1f}, simulated {with_interval(seen)}")

# %% [markdown]
# Over all decode cells of the experiment (contexts, bursts, slots, dispatch, several tokens a
# step):

# %%
for row in read_csv(fig_delay_laws.RESULTS / "decode_accuracy.csv"):
    if row["family"] == "all" and row["statistic"] != "mean_itl":
        print(f"{row['statistic']:18} {row['cells']:>3} cells: {error(row)}")

# %% [markdown]
# Waits for a slot are the weak spot: their worst cells are a third off. A pool that waits for slots
# all the time should be simulated.
#
# ## What the laws do not know
#
# * **Prompt batching.** A prefill replica takes one prompt at a time. What ignoring passes of
#   several prompts costs is simulated in `experiments/delay_laws/results/batching.csv`. At
#   utilisation .8 and with no base time per pass the law errs by:

# %%
for row in read_csv(fig_delay_laws.RESULTS / "batching.csv"):
    if (row["utilisation"], row["base_share"]) == ("0.8", "0"):
        mean, p99 = (float(row[f"{k}_error_percent"]) for k in ("mean", "p99"))
        print(f"budget {row['budget_prompts']} mean prompts: mean {mean:.0f} %, P99 {p99:.0f} %")

# %% [markdown]
# * **Everything that moves in time**: a daily profile, failures, clients that give up. The laws are
#   for a steady load, and an answer's warnings say what was left out.
#
# The judge has the last word: `pdalloc plan --validate` puts every prediction beside a simulation.
