"""Stages with measured times: Llama 2 70B on A100 and H100 at CoreWeave's prices of 2023."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdalloc.catalog.loader import entry, profile_latency, usd_per_gpu_hour
from pdalloc.closed_forms import Stage

PROMPT, STEPS = 2048, 256
"""Tokens of a prompt and of an answer."""


def price(replica: str) -> float:
    """USD/h of a replica such as ``h100-tp8``."""
    gpu, _, gpus = replica.partition("-tp")
    return int(gpus) * usd_per_gpu_hour("coreweave-2023", gpu, "test")


def prefill_stage(replica: str) -> Stage:
    latency = profile_latency(entry("profiles", f"splitwise/llama2-70b/{replica}", "test"))
    seconds = float(latency.prefill_seconds(np.array([float(PROMPT)]), np.zeros(1))[0])
    return Stage.mm1(price(replica), 1.0 / seconds)


def decode_stage(replica: str) -> Stage:
    """Contexts half way through the answer; b from the second request of a batch."""
    latency = profile_latency(entry("profiles", f"splitwise/llama2-70b/{replica}", "test"))
    batch = np.array([1.0, 2.0])
    one, two = map(float, latency.step_seconds(batch, batch * (PROMPT + STEPS / 2)))
    return Stage.batch(price(replica), STEPS, 2 * one - two, two - one)


@pytest.fixture(scope="session")
def prefill_of() -> Callable[[str], Stage]:
    return prefill_stage


@pytest.fixture(scope="session")
def decode_of() -> Callable[[str], Stage]:
    return decode_stage
