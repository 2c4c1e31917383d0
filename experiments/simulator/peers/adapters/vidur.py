"""Vidur (Agrawal et al., MLSys 2024): co-located replicas; it has no separate prefill."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.simulator.peers.cases import OUTPUT, PROMPT, fleet_case
from experiments.simulator.peers.peer import Command, Peer, Places

from pdalloc.latency.affine import AffineDecode
from pdalloc.simulation.options import Colocated, SimulationOptions

RATE = 12.0
"""Requests/s on two replicas."""
FOLDER = "vidur"
SHARED = SimulationOptions(colocated=Colocated("prefill_first"))
DRIVER = """
import sys

from vidur import config
from vidur.execution_time_predictor import execution_time_predictor_registry as known
from vidur.execution_time_predictor.base_execution_time_predictor import (
    BaseExecutionTimePredictor,
)
from vidur.simulator import Simulator
from vidur.types import ExecutionTimePredictorType

requests, rate = int(sys.argv[1]), float(sys.argv[2])
prompt, output, folder = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]


def step_ms(self, batch):
    '''10 ms, 0.2 ms a request and 0.1 ms a prompt token, shared out over the layers.'''
    whole = 10.0 + 0.2 * len(batch.requests) + 0.1 * batch.num_prefill_tokens
    return whole / self._num_layers_per_pipeline_stage


parts = dict.fromkeys(BaseExecutionTimePredictor.__abstractmethods__, lambda self, batch: 0.0)
parts["_get_mlp_layer_up_proj_execution_time"] = step_ms
kind = ExecutionTimePredictorType.RANDOM_FORREST
known.ExecutionTimePredictorRegistry.unregister(kind)
known.ExecutionTimePredictorRegistry.register(
    kind, type("Formula", (BaseExecutionTimePredictor,), parts)
)
Simulator(
    config.SimulationConfig(
        cluster_config=config.ClusterConfig(
            num_replicas=2,
            replica_config=config.ReplicaConfig(model_name="meta-llama/Meta-Llama-3-8B"),
            replica_scheduler_config=config.VllmSchedulerConfig(batch_size_cap=256),
        ),
        request_generator_config=config.SyntheticRequestGeneratorConfig(
            num_requests=requests,
            length_generator_config=config.FixedRequestLengthGeneratorConfig(
                prefill_tokens=prompt, decode_tokens=output
            ),
            interval_generator_config=config.PoissonRequestIntervalGeneratorConfig(qps=rate),
        ),
        metrics_config=config.MetricsConfig(
            output_dir=folder, enable_chrome_trace=False, store_plots=False
        ),
    )
).run()
"""


def command(places: Places, work: Path, requests: int) -> Command:
    """The driver on its packages, without its profiles and without plots."""
    assert places.checkouts is not None
    words = ("-c", DRIVER, requests, RATE, PROMPT, OUTPUT, work / "out")
    environment = {"PYTHONPATH": str(places.checkouts / FOLDER), "WANDB_MODE": "disabled"}
    return Command((places.python, *map(str, words)), work, environment)


def finished(output: str, work: Path) -> int:
    """Rows of its table of requests, in the one folder that it made."""
    (table,) = (work / "out").glob("*/request_metrics.csv")
    with table.open(encoding="utf-8") as lines:
        return sum(1 for _ in csv.DictReader(lines))


PEER = Peer(
    name="Vidur",
    source="GitHub: microsoft/vidur",
    models="co-located",
    case=f"2 replicas, prefill first, {PROMPT} + {OUTPUT} tokens, {RATE:g} requests/s",
    same=lambda: fleet_case(2, 2, RATE, 0.1126, AffineDecode(0.010, 2e-4), SHARED),
    requests=4000,
    command=command,
    finished=finished,
    folder=FOLDER,
    commit="7d475133",
)
