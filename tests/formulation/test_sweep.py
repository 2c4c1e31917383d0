"""One problem at many demands: the same answers from one process, several, and a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from experiments.solvers.sweep import problem

from pdalloc.allocation.sweep import sweep
from pdalloc.errors import UnsupportedError

DEMANDS = [0.05 * i for i in range(1, 20)]


def costs(**options: Any) -> list[float | None]:
    return [answer.cost for answer in sweep(problem(64), DEMANDS, **options)]


def test_cost_never_falls_with_demand() -> None:
    """A fleet that serves more serves less: the least cost is monotone in demand."""
    answers = sweep(problem(64), DEMANDS)
    assert all(a.status == "optimal" and a.bound == a.cost for a in answers)
    found = [a.cost for a in answers if a.cost is not None]
    assert len(found) == len(DEMANDS) and found == sorted(found)


def test_processes_of_this_machine_give_the_same_answers_in_order() -> None:
    assert costs(jobs=2) == costs()


def test_a_real_cluster_gives_the_same_answers_in_order() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        assert costs(cluster=cluster.scheduler_address) == costs()


def test_a_missing_package_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("pdalloc.allocation.sweep.importlib.import_module", without)
    with pytest.raises(UnsupportedError, match=r"pip install 'pdalloc\[cluster\]'"):
        costs(cluster="tcp://127.0.0.1:1")
