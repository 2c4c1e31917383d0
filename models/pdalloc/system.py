"""The system under study: what prediction and simulation both read, and nothing else.

A :class:`System` is the workload, the replica types with their service times, the link, the
dispatch rule and the meaning of "first token". Neither queueing nor SLOs live here, so the
simulator can judge the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pdalloc.errors import InputError
from pdalloc.fleet import DECODE, PREFILL, ROLES, Dispatch, Role
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.service import Latency
from pdalloc.workload.traffic import RequestMix, Workload

FirstToken = Literal["prefill", "transfer", "decode"]
"""When the user sees the first token.

``prefill``: the prefill replica sends it. ``transfer``: it is sent when the KV cache has
arrived (the reference paper's "prefill + overhead"). ``decode``: the decode replica sends
it, after a slot wait and its first step (vLLM and SGLang proxies).
"""


@dataclass(frozen=True)
class ReplicaType:
    """A GPU type times a parallelism, its roles, its speed and its price.

    ``gpus`` per replica; ``usd_per_hour`` per replica; ``kv_tokens`` its KV capacity in
    tokens; ``max_batch`` the engine's limit on decoding requests; inf where unlimited.
    """

    name: str
    gpu: Gpu
    gpus: int
    roles: tuple[Role, ...]
    latency: Latency
    usd_per_hour: float
    kv_tokens: float = math.inf
    max_batch: float = math.inf

    def __post_init__(self) -> None:
        where = f"replica type {self.name!r}"
        if self.gpus < 1:
            raise InputError(f"{where}: gpus must be at least 1, got {self.gpus}")
        if not math.isfinite(self.usd_per_hour) or self.usd_per_hour < 0:
            raise InputError(f"{where}: price must be finite and not negative")
        if math.isnan(self.kv_tokens) or self.kv_tokens <= 0:
            raise InputError(f"{where}: kv_tokens must be positive")
        if math.isnan(self.max_batch) or self.max_batch < 1:
            raise InputError(f"{where}: max_batch must be at least 1")

    def batch_limit(self, context: float) -> float:
        """K = min(max_batch, floor(kv_tokens / context)) for ``context`` tokens a request.

        Raises InputError when not even one request's KV fits.
        """
        slots = self.max_batch
        if math.isfinite(self.kv_tokens):
            slots = min(slots, math.floor(self.kv_tokens / context))
        if slots < 1:
            raise InputError(
                f"replica type {self.name!r}: {self.kv_tokens:g} KV tokens do not hold one "
                f"request of {context:g} tokens; use more GPUs per replica"
            )
        return slots


@dataclass(frozen=True)
class System:
    """Workload, replica types by name, link, dispatch per role, first-token rule."""

    llm: Llm
    workload: Workload
    replica_types: Mapping[str, ReplicaType]
    link: Link
    dispatch: Mapping[Role, Dispatch]
    first_token: FirstToken

    def types_for(self, role: Role) -> list[ReplicaType]:
        """The replica types that may serve ``role``, in scenario order."""
        return [r for r in self.replica_types.values() if role in r.roles]

    @property
    def type_names(self) -> dict[Role, list[str]]:
        """``{role: [replica type name, ...]}``."""
        return {role: [r.name for r in self.types_for(role)] for role in ROLES}

    def decode_steps(self, mix: RequestMix) -> np.ndarray:
        """Decode iterations per request: L, or L - 1 when prefill makes the first token."""
        made_by_prefill = 0.0 if self.first_token == "decode" else 1.0
        steps: np.ndarray = np.maximum(mix.output - made_by_prefill, 0.0)
        return steps

    @property
    def mean_context(self) -> float:
        """Tokens a decoding request holds at a random step: E[P L + L^2/2] / E[L], L its steps.

        The K of a batch limit set by KV memory goes by it, in formulas and in the simulator.
        """
        mix = self.workload.mix()
        steps = self.decode_steps(mix)
        if not steps.any():
            return float(mix.weight @ mix.prompt)
        return float(mix.weight @ (mix.prompt * steps + 0.5 * steps**2) / (mix.weight @ steps))

    def transfer_seconds(self, mix: RequestMix) -> np.ndarray:
        """KV transfer time of each point of ``mix``, seconds, shape (n,)."""
        size: np.ndarray = self.llm.kv_bytes_per_token * mix.prompt
        return self.link.transfer_time(size)

    def with_workload(self, workload: Workload) -> System:
        """The same system under other traffic."""
        return replace(self, workload=workload)

    def slowed(self, prefill: float = 1.0, decode: float = 1.0) -> System:
        """The same system with every replica's prefill or decode times multiplied."""
        types = {
            name: replace(r, latency=r.latency.slowed(prefill, decode))
            for name, r in self.replica_types.items()
        }
        return replace(self, replica_types=types)


__all__ = ["DECODE", "PREFILL", "FirstToken", "ReplicaType", "System"]
