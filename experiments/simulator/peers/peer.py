"""A simulator that others published: how to run it, and what it cost.

A peer is run in a process of its own, twice: the CPU time of a run of a tenth of the requests
is taken off, and with it starting up and reading profiles.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.results import Row
from experiments.simulator.speed import Case, fastest

FOLDER = "PDALLOC_PEERS"
"""Environment variable: the folder with a checkout per peer, each under its own name."""
PYTHON = "PDALLOC_PEERS_PYTHON"
"""Environment variable: the Python that has what the peers need; by default this one."""
TIMEOUT_S = 600.0
PDALLOC_REQUESTS = 300_000


class PeerError(Exception):
    """A peer that is there but does not run; one line."""


@dataclass(frozen=True)
class Places:
    """Where peers are: their checkouts, if any, and the Python that runs them."""

    checkouts: Path | None
    python: str

    @classmethod
    def from_environment(cls) -> Places:
        """As the two variables say."""
        folder = os.environ.get(FOLDER)
        return cls(Path(folder) if folder else None, os.environ.get(PYTHON, sys.executable))


@dataclass(frozen=True)
class Peer:
    """One peer.

    ``source``: where to get it; ``models``: what it simulates (``P/D``, ``co-located`` or
    ``queue``); ``case``: what it is asked; ``same``: that case for the fast simulator;
    ``requests`` in its longer run. It is either a checkout, ``folder`` at ``commit``, or a
    ``distribution`` of its Python. ``command(places, work, requests)`` prepares the folder
    ``work`` and says what to run; ``finished(output, work)`` how many requests were done.
    """

    name: str
    source: str
    models: str
    case: str
    same: Callable[[], Case]
    requests: int
    command: Callable[[Places, Path, int], Command]
    finished: Callable[[str, Path], int]
    folder: str = ""
    commit: str = ""
    distribution: str = ""


@dataclass(frozen=True)
class Command:
    """``words`` to run in the folder ``cwd`` with ``environment`` on top of this process's."""

    words: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]


def row(peer: Peer, places: Places) -> Row:
    """One row of the table; a peer that is not there or does not run says so in ``status``."""
    found: dict[str, float | int | None] = {"requests": None, "cpu_s": None, "rate": None}
    version = version_of(peer, places)
    status = "absent" if version is None else "run"
    if version is not None:
        try:
            requests, seconds = measured(peer, places)
            found = {"requests": requests, "cpu_s": seconds, "rate": requests / seconds}
        except PeerError as error:
            status = f"failed: {error}"
    own = pdalloc_rate(peer) if found["rate"] else None
    return {
        "peer": peer.name,
        "version": version,
        "source": peer.source,
        "models": peer.models,
        "case": peer.case,
        "status": status,
        "requests": found["requests"],
        "cpu_s": found["cpu_s"],
        "requests_per_cpu_s": found["rate"],
        "pdalloc_requests_per_cpu_s": own,
        "ratio": own / found["rate"] if own and found["rate"] else None,
    }


def version_of(peer: Peer, places: Places) -> str | None:
    """Which version is there, None where the peer is absent."""
    if peer.folder:
        here = places.checkouts is not None and (places.checkouts / peer.folder).is_dir()
        return peer.commit if here else None
    asked = f"import importlib.metadata; print(importlib.metadata.version({peer.distribution!r}))"
    try:
        done = subprocess.run(
            [places.python, "-c", asked], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def measured(peer: Peer, places: Places) -> tuple[int, float]:
    """(requests, CPU seconds) of the longer run beyond those of the shorter one."""
    (few, short), (many, long) = (
        once(peer, places, n) for n in (max(peer.requests // 10, 1), peer.requests)
    )
    if many <= few or long <= short:
        raise PeerError("its longer run did not take longer")
    return many - few, long - short


def once(peer: Peer, places: Places, requests: int) -> tuple[int, float]:
    """(requests that finished, CPU seconds) of one run of the peer."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        command = peer.command(places, work, requests)
        before = child_cpu_seconds()
        try:
            done = subprocess.run(
                command.words,
                cwd=command.cwd,
                env={**os.environ, **command.environment},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerError(str(error)) from None
        seconds = child_cpu_seconds() - before
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise PeerError(f"exit {done.returncode}, {said[-1]}")
        return peer.finished(done.stdout, work), seconds


def child_cpu_seconds() -> float:
    """User and system time of all child processes that have ended, s."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def pdalloc_rate(peer: Peer) -> float:
    """Requests per CPU-second of the fast simulator on the peer's case, with all percentiles."""
    return PDALLOC_REQUESTS / fastest(peer.same(), PDALLOC_REQUESTS).all_cpu_s
