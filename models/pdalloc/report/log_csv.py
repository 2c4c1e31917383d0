"""A run's requests as CSV: one row each, every stage's time in seconds."""

from __future__ import annotations

import io

import pandas as pd

from pdalloc.records import STATUSES, RequestLog
from pdalloc.scenario import Scenario

SECONDS = (
    "arrival",
    "prefill_start",
    "prefill_end",
    "transfer_start",
    "transfer_end",
    "decode_start",
    "first_token",
    "finish",
    "left",
)


def log_as_csv(scenario: Scenario, log: RequestLog) -> str:
    """``log`` with units in its headers; stages that a request never reached are empty."""
    classes = [c.name for c in scenario.system.workload.classes]
    columns: dict[str, object] = {
        "traffic_class": [classes[q] for q in log.traffic_class],
        "prompt_tokens": log.prompt_tokens,
        "output_tokens": log.output_tokens,
        "prefill_replica": log.prefill_replica,
        "decode_replica": log.decode_replica,
    }
    if log.status is not None:
        columns |= {"status": [STATUSES[s] for s in log.status]}
        columns |= {"retries": log.retries, "recomputes": log.recomputes}
    for name in SECONDS:
        times = getattr(log, name)
        if times is not None:
            columns[f"{name}_s"] = times
    columns |= {"ttft_s": log.ttft, "tpot_s": log.tpot, "e2e_s": log.e2e}
    buffer = io.StringIO()
    pd.DataFrame(columns).to_csv(
        buffer, index_label="request", float_format="%.9g", lineterminator="\n"
    )
    return buffer.getvalue()
