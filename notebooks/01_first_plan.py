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
# # A first plan
#
# An LLM service splits its work: **prefill** replicas read prompts, **decode** replicas write
# answers. How many of each, on which GPU, cost least and still keep the latency objectives -
# and how sure is that? We ask it twice: once for a published cluster of one GPU type, once for
# a fleet that may mix two.
#
# A *replica* is one model instance. `3P4D` means three prefill and four decode replicas.

# %%
from pathlib import Path

import pandas as pd
from IPython.display import Image

from pdalloc import Fleet, evaluate, load_scenario, plan
from pdalloc.planning.sweeps import cost_sweep, demand_grid, latency_sweep, neighbours
from pdalloc.report import style
from pdalloc.report.figures import cost_against_demand, latency_against_demand

here = Path.cwd()
ROOT = here if (here / "experiments").is_dir() else here.parent
PAPER = ROOT / "experiments" / "paper_2603_04716"
MIXED = ROOT / "experiments" / "mixed_fleet"


def show(figure, width=560):
    """A figure as a picture, `width` pixels wide."""
    return Image(style.figure_bytes(figure, "png"), width=width)


def latency(scenario, answer):
    """Latencies against demand of the answer's fleet and its neighbours."""
    fleet = Fleet.of({(p.role, p.replica_type): p.replicas for p in answer.pools})
    curves = latency_sweep(scenario, [fleet, *neighbours(fleet)], demand_grid(scenario))
    return latency_against_demand(curves, answer)


def summary(answer):
    """The lines of an answer that we look at most."""
    latency = {f"{s.metric.upper()} {s.statistic} (s)": s.predicted_s for s in answer.slos}
    limit = answer.demand_limit_tokens_per_minute
    return {
        "fleet": answer.xpyd,
        "keeps its SLOs": all(s.kept for s in answer.slos),
        "USD/hour": answer.cost_usd_per_hour,
        **latency,
        "holds up to (Mtoken/min)": limit / 1e6,
    }


# %% [markdown]
# ## 1. One GPU type: the question of a paper
#
# arXiv 2603.04716 serves DeepSeek-V3.1 on replicas of 8 H200 each: prompts of 6144 tokens,
# answers of 512, five million tokens a minute. The first token should take 2 s on average, each
# further one 20 ms. The scenario file says exactly this, in the paper's own units.

# %%
question = load_scenario(PAPER / "scenario.yaml")
print(f"{question.title}: {question.demand:.2f} requests/s")
for slo in question.slos:
    print(f"  {slo.title} at most {slo.bound:g} s")

# %% [markdown]
# ### The paper's answer
#
# Its formulas give fractions of replicas, which it rounds to the *nearest* integers.

# %%
paper = plan(question, solver="paper")
pd.Series(paper.details, name="solver 'paper'").to_frame()

# %% [markdown]
# Prefill was rounded *down*. Does the fleet keep the promise it was sized for? The paper's own
# queueing formula says no:

# %%
print(f"{paper.xpyd}: {paper.reason}")
print(f"It holds up to {paper.demand_limit_tokens_per_minute / 1e6:.2f} Mtoken/min.")

# %% [markdown]
# ### Our answer
#
# `plan` searches the integers themselves, checks every objective, and proves that nothing
# cheaper works: the bound equals the cost.

# %%
answer = plan(question)
print(f"{answer.xpyd}, {answer.gpus} GPUs, {answer.status}")
print(f"{answer.cost_usd_per_hour:.2f} USD/h, nothing below {answer.bound_usd_per_hour:.2f} does")

# %%
show(cost_against_demand(cost_sweep(question, demand_grid(question)), answer))

# %% [markdown]
# How sure is that? The *margins* say by how much something may grow before an objective breaks:
# the demand, the prefill times, the decode step times, the outputs.

# %%
(100 * pd.Series(answer.margin.model_dump(), name="may grow by (%)")).to_frame().round(1)

# %% [markdown]
# Decode has next to no room: its steps must be as fast as the benchmark says. And the answer
# warns us about that benchmark:

# %%
for warning in answer.warnings:
    print("-", warning)

# %% [markdown]
# ### What the cluster measured
#
# The paper ran 3P3D and 3P4D at three loads each (its Figure 3). We predict all six points from
# the single-replica benchmarks alone.

# %%
measured = pd.read_csv(PAPER / "measured.csv", comment="#")


def predict(variant, *overrides):
    """Predicted mean TTFT (s) and TPOT (ms) at the measured points."""
    rows = []
    for point in measured.itertuples():
        rate = f"traffic.0.rate={point.demand_mtoken_per_min} Mtoken/min"
        scenario = load_scenario(PAPER / "scenario.yaml", variant, [rate, *overrides])
        found = {s.metric: s.predicted_s for s in evaluate(scenario, point.fleet).slos}
        rows.append((found["ttft"], 1e3 * found["tpot"]))
    return pd.DataFrame(rows, columns=["TTFT (s)", "TPOT (ms)"])


bench = predict("bench_curve")
fixed = predict("bench_curve", "replicas.0.service.prefill.noise=none")
points = measured[["fleet", "demand_mtoken_per_min"]]
points.assign(
    **{
        "TTFT measured (s)": measured.ttft_mean_s,
        "as M/M/1": bench["TTFT (s)"],
        "as M/D/1": fixed["TTFT (s)"],
        "TPOT measured (ms)": measured.tpot_mean_ms,
        "predicted": bench["TPOT (ms)"],
    }
).round(2)

# %% [markdown]
# How wrong is each, at the points that keep the TTFT bound (the last 3P4D point is at the edge of
# saturation, where no formula is worth much)?

# %%
below = measured.ttft_mean_s <= question.slos[0].bound


def worst(predicted, seen, unit):
    """Range of relative errors in percent, in words."""
    error = 100 * (predicted[unit] / seen - 1)
    return f"{error.min():+.1f} % to {error.max():+.1f} %"


print("TTFT as M/M/1:", worst(bench[below], measured.ttft_mean_s[below], "TTFT (s)"))
print("TTFT as M/D/1:", worst(fixed[below], measured.ttft_mean_s[below], "TTFT (s)"))
print("TPOT, all six:", worst(bench, measured.tpot_mean_ms, "TPOT (ms)"))

# %% [markdown]
# Two lessons.
#
# * All prompts are equally long, so prefill times ought to be constant (M/D/1). The measurements
#   refute that; exponential times (M/M/1) fit far better. The engine adds variance of its own.
# * Every measured TPOT lies above its prediction, and by much the same. The cluster's decode steps
#   are slower than the benchmark of one replica.
#
# ### Calibrated
#
# So we fit *one* number, a factor on decode step times, on the three 3P3D points only
# (`results/calibration.csv`). The 3P4D points, which it has never seen, are the test.

# %%
calibrated = predict("calibrated")
errors = {
    "benchmark": 100 * (bench["TPOT (ms)"] / measured.tpot_mean_ms - 1),
    "calibrated": 100 * (calibrated["TPOT (ms)"] / measured.tpot_mean_ms - 1),
}
points.assign(**{f"TPOT error, {name} (%)": error.round(1) for name, error in errors.items()})

# %% [markdown]
# One number was enough. It is more than the margin of 4P4D, so the plan changes:

# %%
tuned = load_scenario(PAPER / "scenario.yaml", "calibrated")
better = plan(tuned)
factor = pd.read_csv(PAPER / "results" / "calibration.csv").decode_factor.iloc[0]
print(
    f"decode steps {100 * (factor - 1):.1f} % slower; 4P4D bears {100 * answer.margin.decode:.1f} %"
)
pd.DataFrame(
    {
        "3P4D, deployed": summary(evaluate(tuned, "3P4D")),
        "4P4D, by the benchmark": summary(evaluate(tuned, "4P4D")),
        "the calibrated answer": summary(better),
    }
)

# %% [markdown]
# The picture shows why. Bold is 4P5D, thin lines are its neighbours, and the dots were measured
# on four decode replicas: at 4.93 Mtoken/min they are above 20 ms already. So 4P4D is the
# answer of the benchmark; nobody has measured that it is safe at 5, and the calibrated model says
# that it is not.

# %%
figure = latency(tuned, better)
four = measured[measured.fleet == "3P4D"]
tpot = figure.axes[1]
tpot.plot(four.demand_mtoken_per_min, four.tpot_mean_ms, "o", ms=3, color=style.BLACK, zorder=5)
show(figure, width=760)

# %% [markdown]
# ## 2. Two GPU types: who prefills, who decodes?
#
# Llama 2 70B, measured by Splitwise on A100 and H100, serves the conversations of an Azure trace
# at 50 requests/s. An H100 costs a good twice as much per hour as an A100. Either may take either
# role, and a role may mix both. We tighten the objectives one at a time.

# %%
variants = {None: "1 s, 100 ms", "tight_ttft": "0.4 s, 100 ms"}
variants |= {"tight_tpot": "1 s, 60 ms", "tight_both": "0.4 s, 60 ms"}
scenarios = {label: load_scenario(MIXED / "scenario.yaml", v) for v, label in variants.items()}
plans = {label: plan(scenario) for label, scenario in scenarios.items()}


def pools(answer, role):
    """The pools of a role in words."""
    return " + ".join(f"{p.replicas} x {p.gpu}" for p in answer.pools if p.role == role)


table = pd.DataFrame(
    {
        label: {
            "prefill": pools(mixed, "prefill"),
            "decode": pools(mixed, "decode"),
            "USD/h": mixed.cost_usd_per_hour,
            **{f"{gpu} alone": cost for gpu, cost in mixed.single_type.items()},
        }
        for label, mixed in plans.items()
    }
).T
table.index.name = "mean TTFT, mean TPOT"
table

# %% [markdown]
# Every pairing wins somewhere. With relaxed objectives the cheap A100 does everything. A tight
# first token wants the H100 where prompts are read, tight tokens want it where answers are
# written, and each time the other role stays with the A100. (The odd single A100 among H100s is
# integrality: the last bit of demand is cheapest on a small replica.)
#
# What mixing saves depends on the demand, since replicas come whole:

# %%
label = "1 s, 60 ms"
show(cost_against_demand(cost_sweep(scenarios[label], demand_grid(scenarios[label])), plans[label]))

# %% [markdown]
# The full set, both traces and six pairs of objectives, is `experiments/mixed_fleet`; there are
# also percentile objectives, a newer model on measured kernels, and the price ratio at which the
# roles change hands.
#
# ## 3. How far to trust this
#
# Every prediction here is a formula, and a simulator that knows none of them replays the plans
# request by request. Side by side, from the committed results:

# %%
checks = pd.concat(pd.read_csv(folder / "results" / "simulated.csv") for folder in (PAPER, MIXED))
columns = ["variant", "fleet", "metric", "predicted_s", "simulated_s", "simulated_half_width_s"]
checks[["scenario", *columns]].round(4)

# %% [markdown]
# The simulator judges the formulas, not the world. What neither knows:
#
# * **The machine.** Service times are benchmarks of one replica. Section 1 shows what that is
#   worth: one factor, fitted on your own cluster, moved the plan by a replica. The mixed fleet has
#   no such factor yet, and says so in its warnings.
# * **The edges.** The H200 cluster saturates earlier than the formula thinks (its last point). The
#   Splitwise tables end at a batch of 64, some prompts exceed the model's window, and KV capacities
#   are estimates; each answer lists what touches it:

# %%
for note in [*plans["1 s, 100 ms"].warnings, *plans["1 s, 100 ms"].estimates]:
    print("-", note)

# %% [markdown]
# * **The traffic.** Arrivals are Poisson at a constant rate. Real days have bursts, retries and
#   failures; read the demand margin with that in mind.
# * **The dispatcher.** Requests go to replicas at random, which is pessimistic: a router that
#   looks at queues does better.
#
# Your own question is one YAML file away; the README shows one.
