"""What every delay law keeps, whichever station it claims: limits, order, its own claim."""

from __future__ import annotations

import csv
import math
import time
from importlib import import_module, resources
from itertools import pairwise

import numpy as np
import pytest
from experiments.delay_laws.services import service
from hypothesis import given, settings
from hypothesis import strategies as st

from pdalloc.errors import InputError, UnsupportedError
from pdalloc.fleet import Dispatch
from pdalloc.laws import Atoms, constant
from pdalloc.queueing.accuracy import measured_errors, regime
from pdalloc.queueing.delay_law import DelayLaw, service_shape
from pdalloc.queueing.delay_laws import all_laws, delay_law, law_named, laws_for
from pdalloc.queueing.service import Service
from pdalloc.queueing.station import Station, station

DISPATCH: tuple[Dispatch, ...] = ("random", "round_robin", "least_loaded", "central_queue")
LAWS = sorted(all_laws().values(), key=lambda law: law.name)


def sample(law: type[DelayLaw], rho: float = 0.8, servers: int = 4) -> Station:
    """A station that ``law`` claims."""
    names = {"constant": ("D",), "exponential": ("M",), "any": ("EMP", "H2_2", "E4")}
    for name in names[law.claim.service]:
        at = Station(rho * servers, service(name), servers, 1.0, law.claim.dispatch[0])
        if law.claim.holds(at):
            return at
    raise AssertionError(f"no sample for {law.name}")


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_everything_a_law_offers_fits_together(law: type[DelayLaw]) -> None:
    """E[W] = P(W>0) E[W | W>0]; Little; sojourn = wait + service; percentiles in order."""
    at = sample(law)
    found = law(at)
    assert 0.0 < found.p_wait <= 1.0
    assert found.mean_wait > 0.0
    assert found.queue_length == pytest.approx(at.rate * found.mean_wait)
    assert found.wait.mean == pytest.approx(found.mean_wait, rel=1e-9)
    assert found.sojourn.mean == pytest.approx(found.mean_wait + at.service.mean, rel=1e-9)
    assert found.mean_sojourn == pytest.approx(found.sojourn.mean)
    quantiles = [found.wait.quantile(p) for p in (0.01, 0.5, 0.9, 0.99, 0.999)]
    assert quantiles[0] == 0.0
    assert all(b >= a for a, b in pairwise(quantiles))
    assert found.sojourn.quantile(0.9) >= max(quantiles[2], at.service.law.quantile(0.9)) * 0.999


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_tail_and_quantile_agree(law: type[DelayLaw]) -> None:
    found = law(sample(law))
    assert found.wait.tail(-1.0) == 1.0
    for p in (0.9, 0.99):
        assert found.wait.tail(found.wait.quantile(p)) == pytest.approx(1 - p, rel=4e-2)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_law_has_its_mean(law: type[DelayLaw]) -> None:
    """The lattice that sojourns are convolved from keeps mean and P(W > 0)."""
    found = law(sample(law))
    step = 60.0 * found.mean_wait / 16384
    masses = found.wait.lattice(step, 16384)
    assert masses.sum() == pytest.approx(1.0, abs=2e-3)
    assert masses @ np.arange(16384) * step == pytest.approx(found.mean_wait, rel=2e-2)
    assert masses[0] == pytest.approx(1.0 - found.p_wait, abs=1e-2)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_no_load_no_wait(law: type[DelayLaw]) -> None:
    found = law(sample(law).at(0.0))
    assert (found.mean_wait, found.p_wait, found.queue_length) == (0.0, 0.0, 0.0)
    assert found.wait.quantile(0.999) == 0.0
    assert found.wait.tail(0.0) == 0.0
    assert found.sojourn.quantile(0.9) == pytest.approx(
        found.station.service.law.quantile(0.9), rel=1e-2
    )


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_more_load_waits_longer(law: type[DelayLaw]) -> None:
    loads = [sample(law, rho) for rho in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)]
    means = [law(at).mean_wait for at in loads]
    assert all(b > a for a, b in pairwise(means))
    highs = [law(at).wait.quantile(0.99) for at in loads]
    assert all(b >= a for a, b in pairwise(highs))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_heavy_traffic_is_kingmans(law: type[DelayLaw]) -> None:
    """(1 - rho) E[W] -> (c_a^2 + s) E[S] / (2 c), c_a^2 at the queue (Kingman 1962)."""
    at = sample(law, 0.999)
    arrivals = 1.0 / at.servers if at.dispatch == "round_robin" else 1.0
    queues = 1 if at.dispatch in ("round_robin", "random") else at.servers
    limit = (arrivals + at.service.scv) / (2 * queues * (1 - at.utilisation))
    assert law(at).mean_wait == pytest.approx(limit * at.service.mean, rel=2e-2)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_units_do_not_matter(law: type[DelayLaw]) -> None:
    """Service and gaps 20 times as short: waits 20 times as short."""
    at = sample(law)
    parts = at.service.law
    fast = Service(type(parts)(*_shrunk(parts, 0.05)))
    found, other = law(at), law(Station(20 * at.rate, fast, at.servers, 1.0, at.dispatch))
    assert other.mean_wait == pytest.approx(0.05 * found.mean_wait, rel=1e-6)
    assert other.wait.quantile(0.99) == pytest.approx(0.05 * found.wait.quantile(0.99), rel=1e-4)


def _shrunk(law: object, factor: float) -> list[np.ndarray]:
    if isinstance(law, Atoms):
        return [factor * law.values, law.weights]
    return [factor * law.means, law.weights, factor * law.shifts]  # type: ignore[attr-defined]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("servers", [2, 64, 1000, 10_000])
def test_stable_to_ten_thousand_servers(law: type[DelayLaw], servers: int) -> None:
    """Finite, ordered in the load and not negative, for utilisation to .999."""
    low, high = law.claim.servers
    if not low <= servers <= high:
        servers = int(min(high, 64))
    rhos = (0.3, 0.9, 0.99, 0.999) if law.quick else (0.9,)
    means = [law(sample(law, rho, servers)).mean_wait for rho in rhos]
    assert all(math.isfinite(m) and m >= 0.0 for m in means)
    assert all(b >= a for a, b in pairwise(means))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_station_outside_the_claim_is_refused(law: type[DelayLaw]) -> None:
    at = sample(law)
    outside = next(
        s
        for s in (
            Station(1.0, at.service, 4, 1.0, "random"),
            Station(1.0, at.service, 4, 1.0, "central_queue"),
        )
        if not law.claim.holds(s)
    )
    with pytest.raises(UnsupportedError, match="laws_for") as caught:
        law(outside)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_every_law_says_what_it_is(law: type[DelayLaw]) -> None:
    """A module of its own: equation, units, reference, doctest."""
    page = import_module(law.__module__).__doc__ or ""
    assert law.__module__.rsplit(".", 1)[1] == law.name
    for part in ("seconds", ">>> ", "* "):
        assert part in page
    assert any(year in page for year in map(str, range(1917, 2027)))


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("arrival_scv", [0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("name", ["D", "M", "EMP"])
@pytest.mark.parametrize("servers", [1, 3, 200])
def test_every_station_has_a_default(
    dispatch: Dispatch, arrival_scv: float, name: str, servers: int
) -> None:
    at = Station(0.8 * servers, service(name), servers, arrival_scv, dispatch)
    found = delay_law(at)
    assert type(found) in laws_for(at)
    assert found.quick
    assert math.isfinite(found.mean_wait) and math.isfinite(found.wait.quantile(0.99))


def test_exact_laws_come_first() -> None:
    assert delay_law(station(1.6, constant(1.0), servers=2)).name == "mdc"
    assert delay_law(Station(1.6, service("M"), 2)).name == "mmc"
    assert delay_law(Station(1.6, service("EMP"), 2, dispatch="random")).name == "mg1"
    assert delay_law(Station(1.6, service("EMP"), 2, dispatch="round_robin")).exact
    assert delay_law(Station(0.8, service("EMP"), 1, 4.0)).name == "single_servers"


def test_others_are_ranked_by_measured_error() -> None:
    """The default of M/G/c is the one with the least errors in the table, whoever that is."""
    at = Station(14.4, service("EMP"), 16)
    errors = measured_errors()
    ranked = [errors[law.name, regime(at)] for law in laws_for(at) if not law.exact]
    assert ranked == sorted(ranked)
    assert len(ranked) >= 9


def test_the_slow_law_is_no_default_unless_asked_for() -> None:
    at = Station(3.2, service("H2_2"), 4)
    assert delay_law(at).quick
    assert any(not law.quick for law in laws_for(at))
    assert delay_law(at, quick=False).mean_wait == pytest.approx(delay_law(at).mean_wait, rel=0.06)


def test_the_shipped_table_is_the_experiments() -> None:
    """Generated, not typed: the package's copy is that of the experiment's results."""
    shipped = resources.files("pdalloc.queueing").joinpath("accuracy.csv").read_text("utf-8")
    rows = list(csv.DictReader(shipped.splitlines()))
    assert {r["law"] for r in rows} == set(all_laws())
    assert all(float(r["median_percent"]) <= float(r["worst_percent"]) for r in rows)


def test_laws_are_found_by_name() -> None:
    assert law_named("kimura").name == "kimura"
    with pytest.raises(InputError, match="kimura"):
        law_named("kimurra")


def test_shapes_of_service() -> None:
    assert service_shape(service("D")) == "constant"
    assert service_shape(service("M")) == "exponential"
    for name in ("E4", "H2_2", "EMP", "LN_2"):
        assert service_shape(service(name)) == "any"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.05, 20.0), st.floats(0.05, 1.0)), min_size=1, max_size=5),
    st.integers(1, 300),
    st.floats(0.05, 0.97),
    st.floats(1.02, 1.3),
    st.sampled_from(DISPATCH),
)
def test_the_default_is_monotone(
    parts: list[tuple[float, float]], servers: int, rho: float, growth: float, dispatch: Dispatch
) -> None:
    """More load waits longer, whatever the law of lengths.

    Mean and P(W > 0) of least assigned work are fitted apart: their quotient, and with it P99,
    may fall: a little at 16 servers, by 30 % at 150 with constant work, where it is not asserted.
    """
    values, weights = (np.array(column) for column in zip(*parts, strict=True))
    s = Service(Atoms(values, weights / weights.sum()))
    most, slack = min(rho * growth, 0.98), 0.15 if dispatch == "least_loaded" else 2e-2
    light, heavy = (
        delay_law(Station(r * servers / s.mean, s, servers, 1.0, dispatch)) for r in (rho, most)
    )
    # what a lattice leaves below 1e-7 services is rounding
    assert heavy.mean_wait >= light.mean_wait * (1 - 2e-3) - 1e-7 * s.mean
    assert heavy.p_wait >= light.p_wait * (1 - 1e-2) - 1e-6
    if dispatch != "least_loaded" or servers <= 16:
        assert heavy.wait.quantile(0.99) >= light.wait.quantile(0.99) * (1 - slack) - 1e-9


@pytest.mark.parametrize("servers", [2, 16, 200])
def test_a_call_of_the_default_is_quick(servers: int) -> None:
    """A millisecond or so, warm: the least of many calls, since machines are shared."""
    s = service("EMP")
    delay_law(Station(0.5 * servers, s, servers)).wait.quantile(0.99)
    spent = []
    for i in range(30):
        started = time.perf_counter()
        found = delay_law(Station((0.9 + 1e-3 * i) * servers, s, servers))
        assert found.mean_wait < found.wait.quantile(0.99)
        spent.append(time.perf_counter() - started)
    assert min(spent) < 3e-3


@pytest.mark.parametrize("dispatch", DISPATCH)
@pytest.mark.parametrize("arrival_scv", [1.0, 1.2, 4.0])
@pytest.mark.parametrize(
    ("servers", "load"), [(2, 1e-3), (50, 0.5), (200, 0.5), (500, 5.0), (3000, 50.0)]
)
def test_next_to_no_load_has_a_law(
    dispatch: Dispatch, arrival_scv: float, servers: int, load: float
) -> None:
    """Where doubles hardly hold the chance of a wait: finite, and no longer than one server's by
    more than a lattice tells (3 % of a service)."""
    constant = service("D")
    at = Station(load / constant.mean, constant, servers, arrival_scv, dispatch)
    law = delay_law(at)
    one = delay_law(Station(at.rate / servers, constant, 1, arrival_scv))
    assert 0.0 <= law.mean_wait <= one.mean_wait + 0.03 * constant.mean
    assert 0.99 < law.sojourn.quantile(0.99) / constant.mean < 3.0  # a lattice step is a service
