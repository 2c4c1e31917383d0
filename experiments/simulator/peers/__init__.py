"""The fast simulator beside public ones: an adapter per file of the folder ``adapters``.

PDALLOC_PEERS names a folder with checkouts, called as in their adapters' FOLDER and at their
``commit``: ``DistServe``, ``splitwise-sim``, ``vidur`` and ``inference-sim`` (BLIS; in it,
``go build -o blis main.go``). PDALLOC_PEERS_PYTHON names a Python with their packages:

    pip install ciw simpy vllm-sr-sim pandas scikit-learn wandb plotly_express kaleido ddsketch
    pip install matplotlib seaborn fasteners hydra-core omegaconf networkx requests

A peer that is missing is a row that says so. Nothing is fetched here, and no code of theirs is
kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments.results import Row
from experiments.simulator.peers.peer import Peer, Places, row

ADAPTERS = Path(__file__).parent / "adapters"


def discovered() -> list[Peer]:
    """The ``PEER`` of every adapter, by file name."""
    names = sorted(path.stem for path in ADAPTERS.glob("*.py"))
    return [import_module(f"{__name__}.adapters.{name}").PEER for name in names]


def rows(places: Places | None = None, peers: Sequence[Peer] | None = None) -> list[Row]:
    """A row per peer; by default all of them, where the environment says that they are."""
    at = Places.from_environment() if places is None else places
    return [row(peer, at) for peer in (discovered() if peers is None else peers)]
