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
# # Simulate and validate
#
# A plan is a claim made by formulas. The simulator is its judge: it plays every request through
# every replica, step by step, reads none of the formulas, and gives each number an interval. Here
# it first confirms a plan, then shows what formulas do not see, and last repairs a plan that they
# got wrong.

# %%
from dataclasses import replace
from pathlib import Path

import pandas as pd
from IPython.display import Image

from pdalloc import evaluate, load_scenario, plan, simulate
from pdalloc.planning import Effort
from pdalloc.report import style
from pdalloc.report.simulation_figure import simulation_figure
from pdalloc.report.table import measured
from pdalloc.simulation.options import Clients, Colocated, Noise, SimulationOptions

here = Path.cwd()
ROOT = here if (here / "experiments").is_dir() else here.parent
PAPER = ROOT / "experiments" / "paper_2603_04716" / "scenario.yaml"
MIXED = ROOT / "experiments" / "mixed_fleet" / "scenario.yaml"
QUICK = Effort(requests=20_000, replications=5)


def show(figure, width=620):
    """A figure as a picture, `width` pixels wide."""
    return Image(style.figure_bytes(figure, "png"), width=width)


# %% [markdown]
# ## 1. One fleet, judged
#
# The case of arXiv 2603.04716 again: 6144-token prompts, 512-token answers, 5 million tokens a
# minute, and the 4P4D that the benchmark curve asks for. Five independent replications of 20,000
# requests each; the first and last tenth of every one are left out.

# %%
scenario = load_scenario(PAPER)
run = simulate(scenario, "4P4D", QUICK)
for slo in run.answer.slos:
    print(
        f"{slo.metric.upper()} {slo.statistic}: {1e3 * slo.simulated_s:.1f} "
        f"+- {1e3 * slo.half_width_s:.1f} ms {slo.verdict} {1e3 * slo.bound_s:.0f} ms"
    )
gap = run.answer.littles_law_gap
print(f"Little's law: N is within {abs(100 * gap.value):.1f} % of lambda T")

# %% [markdown]
# The first replication as a picture: who waits how long (the share of requests that are slower, on
# a logarithmic scale), and where requests are over time.

# %%
show(simulation_figure(run), width=760)

# %% [markdown]
# ## 2. Is the formula right?
#
# Predicted lines, simulated dots with 95 % intervals, over the demand that 4P4D can take.


# %%
def at(demand):
    """The scenario at `demand` Mtoken/min."""
    return load_scenario(PAPER, overrides=[f"traffic.0.rate={demand} Mtoken/min"])


demands = [3.0, 4.0, 4.5, 5.0, 5.5, 6.0]
answers = [evaluate(at(d), "4P4D", simulate=True, effort=QUICK) for d in demands]
rows = [
    {"demand (Mtoken/min)": d}
    | {f"{s.metric.upper()} predicted (ms)": 1e3 * s.predicted_s for s in answer.slos}
    | {f"{s.metric.upper()} simulated": measured(s, "±") for s in answer.slos}
    for d, answer in zip(demands, answers, strict=True)
]
pd.DataFrame(rows).round(1)

# %%
with style.styled():
    figure, (panels,) = style.new_figure(style.PAGE_WIDTH, 2.3, 1, 2)
    for axes, i, scale, unit in zip(panels, range(2), (1.0, 1e3), ("s", "ms"), strict=True):
        slos = [answer.slos[i] for answer in answers]
        axes.plot(demands, [scale * s.predicted_s for s in slos], color=style.BLACK)
        axes.errorbar(
            demands,
            [scale * s.simulated_s for s in slos],
            [scale * s.simulated_half_width_s for s in slos],
            fmt="o",
            ms=3,
            color=style.VERMILLION,
            capsize=2,
        )
        axes.axhline(scale * slos[0].bound_s, color=style.GREY, lw=0.8, ls="--")
        axes.set_xlabel("demand (Mtoken/min)")
        axes.set_ylabel(f"{slos[0].metric.upper()} {slos[0].statistic} ({unit})")
        axes.set_ylim(bottom=0)
show(figure)

# %% [markdown]
# The line goes through every dot: for this traffic (Poisson, a random choice of replica) both
# laws are right.
#
# ## 3. What formulas do not see
#
# A real service has more to it. Each row switches one thing on and leaves the rest; the same
# arrivals and lengths are used throughout, so the rows differ by nothing else.

# %%
KINDS = {
    "as the formula has it": SimulationOptions(),
    "prefill noise of SCV 2 on top": SimulationOptions(prefill_noise=Noise("lognormal", 2.0)),
    "step noise, SCV 0.5": SimulationOptions(step_noise=Noise("gamma", 0.5)),
    "clients leave after 2 s": SimulationOptions(clients=Clients(timeout=2.0)),
    "one decode replica 20 % slower": SimulationOptions(slow={("decode", 0): 1.2}),
}


def row(scenario, fleet="4P4D"):
    """What a simulated fleet comes to, in one row."""
    found = simulate(scenario, fleet, Effort(requests=10_000, replications=4)).answer
    latency = {x.metric: x for x in found.latencies}
    return {
        "TTFT mean (ms)": 1e3 * latency["ttft"].mean_s.value,
        "TTFT P99 (ms)": 1e3 * latency["ttft"].p99_s.value,
        "TPOT mean (ms)": 1e3 * latency["tpot"].mean_s.value,
        "ITL P99 (ms)": 1e3 * latency["itl"].p99_s.value,
        "attainment (%)": 100 * found.attainment.value,
    }


table = {name: row(replace(scenario, options=options)) for name, options in KINDS.items()}
pd.DataFrame(table).T.round(1)

# %% [markdown]
# How a pool's router chooses the replica matters more than any of these for TTFT. (Attainment
# counts requests that keep both bounds at once; under a bound on the *mean* a good share of them
# never does.)

# %%
RULES = ("random", "round_robin", "least_loaded", "central_queue")


def dispatched(rule):
    """The scenario with `rule` in both pools."""
    return load_scenario(PAPER, overrides=[f"dispatch={rule}"])


dispatch = pd.DataFrame({rule: row(dispatched(rule)) for rule in RULES}).T
dispatch.round(1)

# %%
with style.styled():
    figure, ((axes,),) = style.new_figure(style.COLUMN_WIDTH, 1.5)
    axes.barh(list(RULES)[::-1], dispatch["TTFT mean (ms)"][::-1], color=style.SKY, height=0.6)
    axes.set_xlabel("mean TTFT (ms), 4P4D at 5 Mtoken/min")
show(figure, width=420)

# %% [markdown]
# ## 4. Against co-located serving
#
# Does splitting the roles pay at all? Llama 2 70B, twenty requests a second of an Azure
# conversation trace, six H100 replicas: split in three ways, or together. Together, a replica does
# both: prompts first (`prefill_first`), or cut into chunks that ride along with decode steps
# (`chunked`: so many tokens in a pass).

# %%
CHAT = ["traffic.0.rate=20 req/s", "traffic.0.slo={ttft: {p90: 1 s}, tpot: {p90: 60 ms}}"]
chat = load_scenario(MIXED, overrides=CHAT)


def split(prefills):
    """Six replicas, so many of them for prefill."""
    return row(chat, f"prefill/h100x8={prefills},decode/h100x8={6 - prefills}")


def together(policy, tokens):
    """The same six, each in both roles."""
    options = SimulationOptions(colocated=Colocated(policy, float(tokens)))
    return row(replace(chat, options=options), "h100x8=6")


fleets = {f"{p}P{6 - p}D": split(p) for p in (2, 3, 4)}
fleets |= {f"chunked, {n} tokens": together("chunked", n) for n in (256, 512, 1024)}
fleets |= {"prefill first, 2048 tokens": together("prefill_first", 2048)}
pd.DataFrame(fleets).T.round(1)

# %% [markdown]
# Here it does not: with so few replicas either role of a split fleet is short, and a chunk of the
# right size serves both objectives from one pool. That is a fact about this load, these bounds and
# these measured times, and why the baseline belongs beside every plan.
#
# ## 5. A plan that formulas get wrong, repaired
#
# Traffic that doubles for ten seconds a minute is no Poisson stream. We tell the formula that it is
# (`arrival_scv: 1`), and let the simulator judge what comes of it.

# %%
BURSTS = [
    "traffic.0.rate=20 req/s",
    "traffic.0.slo={ttft: {p90: 1 s}, tpot: {mean: 100 ms}}",
    "traffic.0.arrivals={process: bursts, levels: [1, 2], lasts: 50 10 s}",
    "traffic.0.arrival_scv=1",
]
bursty = load_scenario(MIXED, overrides=BURSTS)
naive = plan(bursty, simulate=True, effort=QUICK)
print(f"{naive.fleet}: {naive.cost_usd_per_hour:.2f} USD/h")
for slo in naive.slos:
    print(
        f"{slo.metric.upper()} {slo.statistic} predicted {1e3 * slo.predicted_s:.0f} ms,", end=" "
    )
    print(f"simulated {1e3 * slo.simulated_s:.0f} ms: {slo.simulated_verdict}")

# %% [markdown]
# `repair` adds the cheapest replicas until every objective holds with confidence, on the same
# arrivals. It is the answer to "and what if the formula is off?"; that nothing cheaper would do is
# no longer proven.

# %%
mended = plan(bursty, repair=True, effort=QUICK)
print(f"added: {mended.details['added']}")
print(f"{mended.fleet}: {mended.cost_usd_per_hour:.2f} USD/h")
for slo in mended.slos:
    print(f"{slo.metric.upper()} {slo.statistic} {1e3 * slo.simulated_s:.0f} ms:", end=" ")
    print(slo.simulated_verdict)

# %% [markdown]
# ## What the simulator does not know
#
# It plays what it is told. Service times are a benchmark's, or your calibration's; kernels that
# slow down when their neighbours are busy, a scheduler's own overhead and caches that miss are in
# it only as noise. `docs/simulation.md` states every rule and every option that it has.
