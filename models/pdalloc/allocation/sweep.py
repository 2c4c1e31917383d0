"""One problem at many demands, over processes of this machine or of a cluster."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace

from pdalloc.allocation.problem import Allocation, AllocationProblem
from pdalloc.errors import UnsupportedError

CHUNKS_PER_JOB = 4


def sweep(
    problem: AllocationProblem,
    demands: Sequence[float],
    solver: str = "exact",
    jobs: int = 1,
    cluster: str | None = None,
) -> tuple[Allocation, ...]:
    """The answer at each of ``demands`` (requests/s), in their order.

    ``jobs`` processes of this machine, or the workers of the dask.distributed scheduler at
    ``cluster``. Raises UnsupportedError when that package is missing.
    """
    if cluster is not None:
        return _on_cluster(problem, demands, solver, cluster)
    if jobs == 1:
        return solved(problem, demands, solver)
    from joblib import Parallel, delayed

    chunks = _chunks(demands, jobs * CHUNKS_PER_JOB)
    found = Parallel(n_jobs=jobs)(delayed(solved)(problem, chunk, solver) for chunk in chunks)
    return tuple(answer for part in found for answer in part)


def solved(
    problem: AllocationProblem, demands: Sequence[float], solver: str
) -> tuple[Allocation, ...]:
    """The answers at ``demands`` (requests/s), one after the other."""
    from pdalloc.allocation.solvers import solver_named

    chosen = solver_named(solver)
    return tuple(chosen.solve(replace(problem, demand=demand)) for demand in demands)


def _on_cluster(
    problem: AllocationProblem, demands: Sequence[float], solver: str, address: str
) -> tuple[Allocation, ...]:
    try:
        client_of = importlib.import_module("distributed").Client
    except ImportError:
        raise UnsupportedError(
            "a cluster needs the package distributed: pip install 'pdalloc[cluster]'"
        ) from None
    with client_of(address) as client:
        workers = max(len(client.scheduler_info()["workers"]), 1)
        chunks = _chunks(demands, workers * CHUNKS_PER_JOB)
        tasks = [client.submit(solved, problem, chunk, solver) for chunk in chunks]
        return tuple(answer for part in client.gather(tasks) for answer in part)


def _chunks(demands: Sequence[float], count: int) -> list[list[float]]:
    """``demands`` in at most ``count`` runs of neighbours, as even as can be."""
    size = max(-(-len(demands) // count), 1)
    return [list(demands[i : i + size]) for i in range(0, len(demands), size)]
