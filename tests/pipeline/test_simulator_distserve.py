"""DistServe's rules as options of ours, against the same rules stated once more by hand."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.simulator import distserve

from pdalloc.errors import InputError

pytestmark = pytest.mark.pipeline

RULES = distserve.Rules(
    prefill=(15.0, 0.125, 1e-5),
    small=(20.0, 0.0005, 0.05),
    large=(8.0, 0.0004, 0.25),
    split=6,
    pass_tokens=3000.0,
)
AGREEMENT_S = 1e-9
"""1e-6 ms."""


def workload(requests: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bursts of arrivals, so that prompts share passes and the batch crosses the split."""
    rng = np.random.default_rng(7)
    arrival = np.cumsum(rng.exponential(0.4, requests) * rng.choice([0.01, 2.0], requests))
    return arrival - arrival[0], rng.integers(1, 1500, requests), rng.integers(1, 80, requests)


def call_ms(rules: distserve.Rules, tokens: float) -> float:
    """What calling a worker costs."""
    return rules.call_ms + rules.call_per_token_ms * tokens


def prefilled(rules: distserve.Rules, arrival, prompt) -> list[float]:
    """When each prompt is prefilled, ms: passes of whole prompts, first come first served."""
    ends: list[float] = []
    now, (a, b, c) = 0.0, rules.prefill
    while (first := len(ends)) < len(arrival):
        now = max(now, arrival[first])
        members = [prompt[first]]
        for i in range(first + 1, len(arrival)):
            if arrival[i] > now or sum(members) + prompt[i] > rules.pass_tokens:
                break
            members.append(prompt[i])
        tokens = sum(members)
        now += a + b * tokens + c * sum(n**2 for n in members) + rules.pipeline_ms
        now += call_ms(rules, tokens)
        ends += [now] * len(members)
    return ends


def decoded(rules: distserve.Rules, ready, prompt, output) -> dict[int, float]:
    """When each request has its tokens, ms: all that wait join at the end of a step."""
    waiting, now = list(range(len(ready))), 0.0
    batch: dict[int, int] = {}
    done: dict[int, float] = {}
    while waiting or batch:
        now = now if batch else max(now, ready[waiting[0]])
        while waiting and ready[waiting[0]] <= now:
            batch[waiting.pop(0)] = 0
        a, b, c = rules.small if len(batch) < rules.split else rules.large
        context = sum(prompt[i] + made for i, made in batch.items())
        now += a + b * (context + len(batch)) + c * len(batch) + call_ms(rules, context)
        batch = {i: made + 1 for i, made in batch.items()}
        done |= {i: now for i, made in batch.items() if made >= output[i]}
        batch = {i: made for i, made in batch.items() if i not in done}
    return done


def restated(rules: distserve.Rules, arrival, prompt, output) -> dict[str, np.ndarray]:
    """TTFT, E2E and TPOT by the rules above, s."""
    start = [1e3 * float(t) for t in arrival]
    ends = prefilled(rules, start, prompt.tolist())
    done = decoded(rules, ends, prompt.tolist(), output.tolist())
    ttft = 1e-3 * (np.array(ends) - start)
    e2e = 1e-3 * (np.array([done[i] for i in range(len(start))]) - start)
    return {"ttft": ttft, "e2e": e2e, "tpot": (e2e - ttft) / output}


STATED = {k: v for k, v in distserve.without(RULES).items() if v.first_token == "decode"}
"""The rules with each that the statement above can be without left out."""


@pytest.mark.parametrize("name", STATED)
def test_each_rule_is_an_option_of_ours(name: str) -> None:
    ours = distserve.latencies(distserve.run(STATED[name], *workload()))
    for metric, expected in restated(STATED[name], *workload()).items():
        assert np.abs(ours[metric] - expected).max() < AGREEMENT_S, metric


def test_the_workload_exercises_the_rules() -> None:
    """Passes hold several prompts, the batch is on both sides of the split."""
    log = distserve.run(RULES, *workload())
    assert len(np.unique(log.prefill_end)) < len(log)
    assert distserve.greatest(log)[0] > RULES.split
    alone = distserve.run(replace(RULES, split=10**9), *workload())
    assert np.any(alone.finish != log.finish)


def test_one_request_takes_the_times_that_the_fits_give() -> None:
    """a + b n + c n^2 + 3 ms + 1e-4 n, then L steps whose context grows by one."""
    n, steps = 1000, 3
    log = distserve.run(RULES, np.zeros(1), np.array([n]), np.array([steps]))
    found = distserve.latencies(log)
    ttft = 15.0 + 0.125 * n + 1e-5 * n**2 + 1.0 + 2.0 + 1e-4 * n
    decode = sum(20.0 + 0.0005 * (n + j + 1) + 0.05 + 2.0 + 1e-4 * (n + j) for j in range(steps))
    assert 1e3 * found["ttft"][0] == pytest.approx(ttft, abs=1e-9)
    assert 1e3 * found["e2e"][0] == pytest.approx(ttft + decode, abs=1e-9)


def test_most_at_once() -> None:
    """Two that decode together hold the tokens of both."""
    log = distserve.run(RULES, np.zeros(2), np.array([10, 20]), np.array([5, 5]))
    assert distserve.greatest(log) == (2, 40)


def write_tables(root: Path) -> None:
    """A folder of reference tables with the answers of the hand-made statement."""
    arrival, prompt, output = workload()
    for name in (distserve.WORKLOAD, distserve.PROFILE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    columns = {"start_time": arrival + 5.0, "prompt_len": prompt, "output_len": output}
    listed = {name: values.tolist() for name, values in columns.items()}
    requests = [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]
    (root / distserve.WORKLOAD).write_text(json.dumps(requests))
    fits = {"prefill": RULES.prefill, "decoding_smallbs": RULES.small}
    fits |= {"decoding_largebs": RULES.large}
    profile = {**fits, "decoding_large_small_bs_threshold": RULES.split}
    (root / distserve.PROFILE).write_text(json.dumps({"facebook/opt-13b": {"1": profile}}))
    rules = distserve.Rules(RULES.prefill, RULES.small, RULES.large, RULES.split)
    expected = restated(rules, arrival, prompt, output)
    with (root / distserve.ANSWERS).open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(distserve.METRICS.values())
        for row in zip(*(1e3 * expected[metric] for metric in distserve.METRICS), strict=True):
            writer.writerow(row)


def test_rows_from_tables(tmp_path) -> None:
    """All rules agree to 1e-6 ms; each rule left out is seen in some latency."""
    write_tables(tmp_path)
    rows = distserve.rows(tmp_path)
    assert len(rows) == 7 * len(distserve.METRICS)
    errors = {(row["rules"], row["metric"]): float(row["greatest_error_ms"] or 0.0) for row in rows}
    for (rules, metric), error in errors.items():
        if rules == "all rules":
            assert error < 1e-6, metric
    names = {rules for rules, _ in errors} - {"all rules"}
    for name in names:
        assert max(errors[name, metric] for metric in distserve.METRICS) > 1e-3, name


def test_a_missing_table_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"profiler-a100-80g\.distserve\.json: not among the ref"):
        distserve.read_rules(tmp_path)
