"""The law of a decode pool against closed forms and limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import nbinom

from pdalloc.errors import InputError, PdallocError, UnstableError
from pdalloc.laws import Atoms
from pdalloc.queueing.batch import BatchLaw
from pdalloc.queueing.decode import DecodeLaw, DecodeStation, decode_work
from pdalloc.queueing.decode.fluid import FluidLaw
from pdalloc.queueing.decode.multi_token import FixedTokens, GeometricTokens

Array = NDArray[np.float64]
RULES = ("random", "round_robin", "least_loaded", "central_queue")


@pytest.mark.parametrize("law", ["fixed", "geometric", "two"])
@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("a", [10.0, 200.0])
def test_affine_mean(a: float, rho: float, law: str, pools: Any) -> None:
    """Reference notes 2: mean TPOT = (a + b)/(1 - rho) for every law of (long) lengths."""
    found = pools.law(rho, a, work=pools.work(law))
    assert found.mean_tpot == pytest.approx((a + 1.0) / (1.0 - rho), rel=1e-3)
    assert found.mean_itl == pytest.approx((a + 1.0) / (1.0 - rho), rel=1e-3)
    assert found.mean_batch == pytest.approx((a + 1.0) * rho / (1.0 - rho), rel=1e-2)
    assert found.utilisation == pytest.approx(rho, rel=1e-9)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("rho", [0.3, 0.8])
@pytest.mark.parametrize("a", [10.0, 40.0])
def test_affine_itl_is_negative_binomial(a: float, rho: float, p: float, pools: Any) -> None:
    """Reference notes 2: ITL_p = a + b (1 + NB.ppf(p)), NB(1 + a/b, 1 - rho); a step later at
    most, where the discrete time of 200 steps shows."""
    exact = a + 1.0 + float(nbinom.ppf(p, 1.0 + a, 1.0 - rho))
    assert pools.law(rho, a).itl.quantile(p) == pytest.approx(exact, abs=1.0)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("n", [1.0, 2.0])
def test_short_outputs(n: float, rho: float, pools: Any) -> None:
    """Reference notes 2: at L = 1, 2 the continuous law is high by (b/(a+b)) rho/(1+rho)
    (exact for one step: Var B = E B/(1 - rho^2))."""
    work = decode_work(np.zeros(1), np.array([n + 1.0]), np.ones(1), first_token_by_decode=False)
    found = pools.law(rho, work=work).mean_tpot
    high = 11.0 / (1.0 - rho) / found - 1.0
    assert high == pytest.approx(rho / (1.0 + rho) / 11.0, rel=0.15 if n == 1.0 else 0.5)


@pytest.mark.parametrize("rho", [0.2, 0.7, 0.95])
@pytest.mark.parametrize("slots", [1, 8, 32])
def test_slots_as_the_batch_law(slots: int, rho: float, pools: Any) -> None:
    """Without contexts one replica with K slots is :class:`BatchLaw`: mean, ITL, batch."""
    station = pools.station(rho, a=20.0, slots=slots)
    found = DecodeLaw(station)
    plain = BatchLaw(
        station.rate, 200.0, lambda k: 20.0 + np.asarray(k, float), slots, station.work.scv
    )
    assert found.mean_tpot == pytest.approx(plain.mean_step, rel=2e-3)
    assert found.itl.quantile(0.99) == pytest.approx(plain.itl.quantile(0.99), abs=1.01)
    assert found.greatest_step == (math.inf if found.batches.full == 0 else 20.0 + slots)
    if slots == 1:
        assert found.wait_probability == pytest.approx(rho, rel=1e-9)
        # Pollaczek-Khinchine, fixed services of 200 steps of 21 s
        expected = 0.5 * rho / (1.0 - rho) * 200.0 * 21.0
        assert found.mean_slot_wait == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rho", [0.3, 0.85])
def test_one_replica_knows_no_dispatch(rule: str, rho: float, pools: Any) -> None:
    plain, other = pools.law(rho, slots=64), pools.law(rho, slots=64, dispatch=rule)
    assert other.mean_tpot == pytest.approx(plain.mean_tpot, rel=1e-9)
    assert other.wait_probability == pytest.approx(plain.wait_probability, rel=1e-9)


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_random_split_of_poisson_is_one_replica(rho: float, pools: Any) -> None:
    """R replicas under random dispatch are R replicas of 1/R of the rate each."""
    one, many = pools.law(rho), pools.law(rho, replicas=12)
    assert many.station.rate == pytest.approx(12 * one.station.rate)
    assert many.mean_tpot == pytest.approx(one.mean_tpot, rel=1e-12)
    assert many.itl.quantile(0.99) == one.itl.quantile(0.99)


@pytest.mark.parametrize("replicas", [4, 64])
@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_join_least_active(replicas: int, rho: float, pools: Any) -> None:
    """Reference notes 2: about (a + b/R)/(1 - rho)."""
    found = pools.law(rho, 40.0, replicas=replicas, dispatch="least_loaded").mean_tpot
    assert found == pytest.approx((40.0 + 1.0 / replicas) / (1.0 - rho), rel=3e-3)


def test_huge_pools_are_fluid(pools: Any) -> None:
    """R -> inf under least_loaded: the mean is the fluid law's, but for whole batches."""
    found = pools.law(0.6, 40.0, replicas=4096, dispatch="least_loaded")
    fluid = FluidLaw(found.station)
    assert fluid.mean_tpot == pytest.approx(40.0 / 0.4, rel=1e-9)
    assert found.mean_tpot == pytest.approx(fluid.mean_tpot, rel=1e-3)
    assert found.itl.quantile(0.99) <= fluid.mean_tpot + 2.0


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_contexts_vanish_continuously(rho: float, pools: Any) -> None:
    """c -> 0: the law without contexts; P99 to half a request's step."""
    work = pools.work("geometric", prompts=(50.0, 900.0))
    tiny = 1e-6 / work.mean_context
    plain, other = pools.law(rho, work=work), pools.law(rho, b=1.0 - 1e-6, c=tiny, work=work)
    assert other.mean_tpot == pytest.approx(plain.mean_tpot, rel=1e-4)
    assert other.itl.quantile(0.99) == pytest.approx(plain.itl.quantile(0.99), abs=0.6)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_uneven_contexts_cost(rho: float, pools: Any) -> None:
    """Long prompts lengthen their own steps: mean and P99 exceed those of equal contexts at the
    same load."""
    even = pools.work("geometric", prompts=(1000.0,))
    uneven = pools.work("geometric", prompts=(100.0, 1900.0))
    laws = [pools.law(rho, b=0.1, c=0.9 / w.mean_context, work=w) for w in (even, uneven)]
    assert laws[1].mean_tpot > laws[0].mean_tpot
    assert laws[1].itl.quantile(0.99) > laws[0].itl.quantile(0.99)


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_own_context_prolongs_own_steps(rho: float, pools: Any) -> None:
    """Request means rise with the own context by c tokens x (1 .. 1/(1-rho))."""
    work = pools.work("geometric", prompts=(100.0, 1900.0))
    c = 0.9 / work.mean_context
    law = pools.law(rho, b=0.1, c=c, work=work)
    short, long = law.request_means(np.array([200.0, 200.0]), np.array([300.0, 2100.0]))
    assert 1.0 <= (long - short) / (c * 1800.0) <= 1.0 / (1.0 - rho)


@pytest.mark.parametrize("law", ["fixed", "geometric"])
def test_bursts_and_clocks(law: str, pools: Any) -> None:
    """Burstier arrivals, longer steps; SCV 1 is Poisson; fixed lengths feel bursts most."""
    work = pools.work(law)
    means = [
        pools.law(0.6, work=work, arrival_scv=scv).mean_tpot for scv in (0.0, 0.5, 1.0, 2.0, 8.0)
    ]
    assert means == sorted(means)
    assert means[2] == pytest.approx(27.5, rel=2e-3)


@pytest.mark.parametrize("tokens", [FixedTokens(2.0), FixedTokens(1.6), GeometricTokens(3.0)])
def test_several_tokens_a_step(tokens: Any, pools: Any) -> None:
    """Mean TPOT = mean step x gap steps per gap; a share 1 - steps/gaps of gaps is 0 s."""
    law = pools.law(0.5, work=pools.work(tokens=tokens))
    expected = 22.0 * law.station.work.steps_per_gap
    assert law.mean_tpot == pytest.approx(expected, rel=2e-3)
    zero = law.station.work.zero_gaps
    assert law.itl.quantile(0.9 * zero) == 0.0
    assert law.itl.mean == pytest.approx((1.0 - zero) * 22.0, rel=2e-3)
    assert law.mean_itl == pytest.approx(law.itl.mean, rel=2e-3)


def test_draft_tokens_raise_the_rate(pools: Any) -> None:
    """Half the steps, twice the capacity."""
    one, two = pools.station(0.5), pools.station(0.5, work=pools.work(tokens=FixedTokens(2.0)))
    assert two.capacity == pytest.approx(2.0 * one.capacity, rel=1e-9)


@pytest.mark.parametrize("rho", [0.3, 0.8])
@pytest.mark.parametrize("law", ["fixed", "geometric"])
def test_tpot_of_requests(rho: float, law: str, pools: Any) -> None:
    """Reference notes 2: the mean is the same for every length; less spread than a gap has."""
    found = pools.law(rho, work=pools.work(law))
    assert found.tpot().mean == pytest.approx(found.mean_tpot, rel=1e-9)
    assert found.mean_tpot < found.tpot().quantile(0.99) < found.itl.quantile(0.99)


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_variance_given_the_length(rho: float, pools: Any) -> None:
    """Var(TPOT | L) = Var(ITL) g((1-rho) L/E[L]), g(x) = 2(x-1+e^-x)/x^2 (geometric lengths)."""
    law = pools.law(rho, work=pools.work("geometric"))
    assert isinstance(law.itl, Atoms)
    spread = law.itl.second_moment - law.itl.mean**2
    x = (1.0 - rho) * np.array([20.0, 200.0, 2000.0]) / law.steps
    expected = spread * 2.0 * (x - 1.0 + np.exp(-x)) / x**2
    assert law.step_variance(np.array([20.0, 200.0, 2000.0])) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_first_gap_holds_entry(rho: float, pools: Any) -> None:
    """Under the prefill rule E[TPOT] = mean step + E[extra / gaps]."""
    work = pools.work("two", mean=10.0, first_token_by_decode=False)
    law = pools.law(rho, work=work)
    extra = np.array([3.0, 11.0])
    exact = law.mean_tpot + float(work.weight @ (extra / work.gaps))
    assert law.tpot(extra).mean == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_boundary_wait(rho: float, pools: Any) -> None:
    """Reference notes 2: (1/2) sum_{k>=1} pi(k) t(k) = (a (1 - pi(0)) + b E[N])/2."""
    law = pools.law(rho)
    idle = (1.0 - rho) ** 11
    exact = 0.5 * (10.0 * (1.0 - idle) + 11.0 * rho / (1.0 - rho))
    assert law.mean_boundary_wait == pytest.approx(exact, rel=5e-3)
    assert law.entry.mean == pytest.approx(law.mean_entry, rel=1e-6)
    assert law.first_token.mean == pytest.approx(law.mean_first_token, rel=0.01)
    central = pools.law(rho, replicas=3, dispatch="central_queue")
    assert central.mean_boundary_wait < 0.6 * law.mean_boundary_wait  # the first of 3: 1/4


def test_slot_waits(pools: Any) -> None:
    """Mean = P x conditional mean; Little's law for who waits; one queue beats R queues."""
    own = pools.law(0.9, a=20.0, slots=16, replicas=4)
    one = pools.law(0.9, a=20.0, slots=16, replicas=4, dispatch="central_queue")
    assert own.slot_wait.mean == pytest.approx(own.mean_slot_wait, rel=1e-9)
    assert own.mean_waiting == pytest.approx(own.station.rate * own.mean_slot_wait)
    assert one.mean_slot_wait < own.mean_slot_wait
    assert one.wait_probability < own.wait_probability
    # P(W > 0) Erlang-like: M/D/64 waits less often than M/D/16 of the same load
    assert one.slot_wait.quantile(0.99) < own.slot_wait.quantile(0.99)


@pytest.mark.parametrize("rule", RULES)
def test_an_idle_pool(rule: str, pools: Any) -> None:
    """Rate 0: every step holds one request; nobody waits."""
    law = pools.law(0.0, replicas=3, slots=8, dispatch=rule)
    assert (law.mean_tpot, law.mean_itl, law.itl.quantile(0.99)) == (11.0, 11.0, 11.0)
    assert (law.wait_probability, law.mean_slot_wait, law.mean_entry) == (0.0, 0.0, 0.0)
    assert (law.slot_wait.mean, law.first_token.mean) == (0.0, 11.0)
    assert law.tpot().quantile(0.5) == pytest.approx(11.0, rel=1e-6)
    assert law.greatest_step == math.inf


@settings(max_examples=40, deadline=None)
@given(
    st.floats(2.0, 200.0),
    st.floats(0.02, 0.9),
    st.floats(1.01, 1.08),
    st.sampled_from(RULES),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([math.inf, 48]),
    st.integers(1, 16),
)
def test_more_load_never_helps(
    a: float, rho: float, more: float, rule: str, c: float, slots: float, replicas: int
) -> None:
    """Mean TPOT, P99 ITL, P99 TPOT and P(wait) rise with the rate: exactly under random dispatch
    without contexts, else up to .05, .1 and 1 % (P99 TPOT of slots that contexts blur)."""
    exact = rule == "random" and c == 0.0
    output = np.repeat([40.0, 300.0], 2)
    work = decode_work(np.tile([50.0, 800.0], 2), output, np.full(4, 0.25))
    share = c / work.mean_context
    still = DecodeStation(
        0.0,
        lambda batch, held: a + (1.0 - c) * batch + share * held,
        work,
        replicas,
        slots,
        rule,  # type: ignore[arg-type]
    )
    low, high = (DecodeLaw(still.at(r * still.capacity)) for r in (rho, more * rho))
    assert high.mean_tpot >= low.mean_tpot * (1 - (1e-6 if exact else 5e-4))
    assert high.itl.quantile(0.99) >= low.itl.quantile(0.99) * (1 - 1e-3)
    assert high.tpot().quantile(0.99) >= low.tpot().quantile(0.99) * (1 - 1e-2)
    assert high.wait_probability >= low.wait_probability - 1e-9


@pytest.mark.parametrize("rho", [0.4, 0.9])
def test_measured_tables(rho: float, pools: Any) -> None:
    """A table without contexts is the numeric product form: :class:`BatchLaw` of the table."""
    sizes, seconds = (
        np.array([1.0, 8.0, 16.0, 32.0, 64.0]),
        np.array([10.0, 11.0, 14.0, 22.0, 40.0]),
    )

    def table(batch: Array, held: Array | None = None) -> Array:
        values: Array = np.interp(batch, sizes, seconds)
        return values

    still = DecodeStation(0.0, table, pools.work(), slots=64)
    assert still.affine is None
    station = still.at(rho * still.capacity)
    plain = BatchLaw(station.rate, 200.0, table, 64, station.work.scv)
    found = DecodeLaw(station)
    assert found.mean_tpot == pytest.approx(plain.mean_step, rel=0.01)
    assert found.itl.quantile(0.99) == pytest.approx(plain.itl.quantile(0.99), rel=0.03)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rate": -1.0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": True}, "replicas"),
        ({"replicas": 2.0}, "replicas"),
        ({"slots": 0.5}, "slots"),
        ({"slots": True}, "slots"),
        ({"slots": math.nan}, "slots"),
        ({"arrival_scv": -1.0}, "SCV"),
        ({"dispatch": "alphabetical"}, "known: random"),
        ({"step_time": lambda batch, held: 0.0 * batch}, "positive time"),
    ],
)
def test_impossible_stations(change: dict[str, Any], says: str, pools: Any) -> None:
    good = {"rate": 1e-6, "step_time": lambda batch, held: 10.0 + batch, "work": pools.work()}
    with pytest.raises(InputError, match=says):
        DecodeStation(**{**good, **change})


@pytest.mark.parametrize("slots", [math.inf, 32])
@pytest.mark.parametrize("times", [1.0, 1.3, 5.0])
def test_overload_names_rho_and_the_least_count(slots: float, times: float, pools: Any) -> None:
    """lambda L t(K)/K >= R (lambda L b >= R without a limit): rho and the replicas it takes."""
    still = pools.station(0.0, replicas=3, slots=slots)
    with pytest.raises(UnstableError, match=f"rho = {times:.3f}") as error:
        still.at(times * still.capacity * (1.0 + 1e-9))
    assert f"at least {math.floor(times * 3 + 1e-6) + 1} replicas" in str(error.value)


@pytest.mark.parametrize("rho", [0.99, 0.999])
def test_near_full_load(rho: float, pools: Any) -> None:
    """(a + b)/(1 - rho) still, or a refusal that says so; never a wrong number."""
    try:
        assert pools.law(rho).mean_tpot == pytest.approx(11.0 / (1.0 - rho), rel=5e-3)
    except PdallocError as error:
        assert "rho" in str(error)


@pytest.mark.parametrize("replicas", [2, 6])
def test_boundary_wait_by_dispatch(replicas: int, pools: Any) -> None:
    """Half a step on its own; the first of R uniform boundaries, 1/(R + 1), from one queue;
    more than half where requests follow departures."""
    laws = {rule: pools.law(0.7, replicas=replicas, dispatch=rule) for rule in RULES}
    share = {
        rule: law.mean_boundary_wait
        / float(np.where(law.batches.batch > 0, law.batches.share, 0.0) @ law.batches.seconds)
        for rule, law in laws.items()
    }
    assert share["random"] == pytest.approx(0.5, rel=1e-9)
    assert share["round_robin"] == pytest.approx(0.5, rel=1e-9)
    assert share["central_queue"] == pytest.approx(1.0 / (replicas + 1.0), rel=1e-9)
    assert 0.5 < share["least_loaded"] < 1.0
    for law in laws.values():
        assert law.entry.mean == pytest.approx(law.mean_entry, rel=1e-6)


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_a_lasting_echo_is_a_greater_rate(rho: float, pools: Any) -> None:
    """r0 more requests/s for long: steps longer by r0 dt/drate, t = a/(1 - rate m) the fluid."""
    law = pools.law(rho)
    step = law.point.step
    lasting, more = 1e7 * step, 1e-6

    def pattern(frequency: Any) -> Any:
        return 2.0 * more * lasting / (1.0 + (lasting * frequency) ** 2)

    load = law.steps * 1.0  # m(0): b = 1 s a step
    exact = more * step * load / (1.0 - law.rate * load)
    assert law.echo(np.array([1.0, 50.0, 200.0]), pattern) == pytest.approx(
        np.full(3, exact), rel=0.02
    )


def test_an_echo_before_the_stay_is_heard_less(pools: Any) -> None:
    """More requests a stay before the request joins, or beside it: those beside it are felt."""
    law = pools.law(0.5)
    stay = 200.0 * law.point.step

    def pattern(at: float) -> Any:
        return lambda frequency: np.exp(-1j * frequency * at)

    early, beside, late = (
        law.echo(np.array([200.0]), pattern(t))[0] for t in (-stay, 0.0, 2 * stay)
    )
    assert beside > early > 0.0
    assert abs(late) < 0.02 * beside
