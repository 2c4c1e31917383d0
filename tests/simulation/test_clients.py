"""Clients that give up or are refused, and come again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency
from pdalloc.records import FINISHED, REJECTED, TIMED_OUT
from pdalloc.simulation.options import Clients
from pdalloc.simulation.statistics import littles_law
from pdalloc.workload.lengths import fixed

MM1 = Latency(AffinePrefill(1.0, 0.0), AffineDecode(1e-9, 0.0), "exponential")


def queue(lab, rho: float, dispatch: str = "random", servers: int = 1):
    """Exponential prefills of mean 1 s, first token from prefill, one token."""
    return lab.system(MM1, fixed(1, 1), rho * servers, dispatch, "prefill")


def share(status: int):
    return lambda run, log: (log.status == status).mean()


@pytest.mark.parametrize(("rho", "patience"), [(0.8, 2.0), (1.3, 3.0)])
def test_timeouts_are_those_of_constant_patience(lab, rho: float, patience: float) -> None:
    """M/M/1+D, waits above tau abandon: P = (1 - rho) rho e / (1 - rho^2 e), e = exp(-(mu - lambda)
    tau) (Barrer 1957, "Queuing with impatient customers and ordered service").
    """
    e = math.exp(-(1 - rho) * patience)
    expected = (1 - rho) * rho * e / (1 - rho**2 * e)
    shares = lab.replicate(
        share(TIMED_OUT), queue(lab, rho), 8000, clients=Clients(timeout=patience)
    )
    lab.confirm(shares, expected, width=0.12)


@pytest.mark.parametrize(("rho", "room"), [(0.8, 2), (1.5, 0)])
def test_refusals_are_those_of_m_m_1_k(lab, rho: float, room: int) -> None:
    """P(loss) = (1 - rho) rho^K / (1 - rho^(K + 1)), K = 1 + room."""
    k = 1 + room
    expected = (1 - rho) * rho**k / (1 - rho ** (k + 1))
    shares = lab.replicate(share(REJECTED), queue(lab, rho), 8000, clients=Clients(max_queue=room))
    lab.confirm(shares, expected, width=0.12)


def test_without_room_to_wait_a_central_queue_loses_by_erlang_b(lab) -> None:
    """M/M/c/c, c = 3, 2.4 erlang: B = a^c / c! / sum a^k / k!."""
    a, c = 2.4, 3
    expected = a**c / math.factorial(c) / sum(a**k / math.factorial(k) for k in range(c + 1))
    shares = lab.replicate(
        share(REJECTED),
        queue(lab, a / c, "central_queue", c),
        8000,
        (c, 1),
        clients=Clients(max_queue=0),
    )
    lab.confirm(shares, expected, width=0.08)


def test_room_to_wait_is_per_replica_and_pooled_under_a_central_queue(lab) -> None:
    """Two replicas run, room for 1 each: two wait, the fifth is refused. Random: all at the first,
    one runs, one waits, three are refused.
    """
    draws = lab.draws([0.0] * 5, [2] * 5, [1] * 5)
    room = Clients(max_queue=1)
    for dispatch, expected in (("central_queue", [0, 0, 0, 0, 1]), ("random", [0, 0, 1, 1, 1])):
        log = lab.run(lab.system(dispatch=dispatch), draws, (2, 1), clients=room).log
        assert (log.status == REJECTED).astype(int).tolist() == expected


def test_timeline_of_a_client_that_gives_up_and_comes_again(lab) -> None:
    """Prefills of 1 s. Request 2 waits from 0.25 to 1.25, comes again at 1.75 and starts at 2."""
    draws = lab.draws([0.0, 0.125, 0.25], [2, 2, 2], [1, 1, 1])
    clients = Clients(timeout=1.0, retries=1, retry_delay=0.5)
    log = lab.run(lab.system(), draws, clients=clients).log
    assert log.prefill_start.tolist() == [0.0, 1.0, 2.0]
    assert log.retries.tolist() == [0, 0, 1]
    assert log.arrival.tolist() == [0.0, 0.125, 0.25]
    assert log.status.tolist() == [FINISHED] * 3
    gone = lab.run(lab.system(), draws, clients=Clients(timeout=1.0)).log
    assert gone.status.tolist() == [FINISHED, FINISHED, TIMED_OUT]
    assert gone.left[2] == 1.25
    assert np.isnan(gone.prefill_start[2]) and np.isnan(gone.finish[2])
    assert gone.prefill_replica[2] == gone.decode_replica[2] == -1


def test_who_starts_at_the_deadline_is_in_time(lab) -> None:
    draws = lab.draws([0.0, 0.5], [2, 2], [1, 1])
    log = lab.run(lab.system(), draws, clients=Clients(timeout=0.5)).log
    assert log.prefill_start.tolist() == [0.0, 1.0]


def test_refused_clients_come_again_as_often_as_they_may(lab) -> None:
    """Prefill 0-3 (10 tokens): refused at 1, 1.5 and 2; with a third retry served from 3."""
    draws = lab.draws([0.0, 1.0, 1.0], [10, 2, 2], [1, 1, 1])
    clients = Clients(max_queue=0, retries=2, retry_delay=0.5)
    log = lab.run(lab.system(), draws, clients=clients).log
    assert log.status.tolist() == [FINISHED, REJECTED, REJECTED]
    assert log.left.tolist()[1:] == [2.0, 2.0]
    more = Clients(max_queue=0, retries=4, retry_delay=0.5)
    log = lab.run(lab.system(), draws, clients=more).log
    assert log.prefill_start[1] == 3.0
    assert log.status.tolist() == [FINISHED, FINISHED, REJECTED]
    assert log.retries.tolist() == [0, 4, 4]


def test_loads_are_taken_back(lab) -> None:
    """Replica 0 is busy till 5.5 with a queue that times out: then it counts 20 tokens only."""
    draws = lab.draws([0.0, 0.0, 0.1, 0.2, 3.0], [20, 21, 19, 1, 1], [1] * 5)
    s = lab.system(dispatch="least_loaded")
    log = lab.run(s, draws, (2, 1), clients=Clients(timeout=1.0)).log
    assert log.status.tolist() == [FINISHED, FINISHED, TIMED_OUT, TIMED_OUT, TIMED_OUT]
    endless = lab.run(s, draws, (2, 1), clients=Clients(timeout=100.0)).log
    assert endless.prefill_replica.tolist() == [0, 1, 0, 1, 1]


def test_littles_law_counts_those_who_left(lab) -> None:
    clients = Clients(timeout=1.5, max_queue=4, retries=1, retry_delay=1.0)
    log = lab.simulate(queue(lab, 0.9), 8000, 2, clients=clients).log
    assert {FINISHED, TIMED_OUT} <= set(log.status.tolist())
    assert abs(littles_law(log)[2]) < 0.02
