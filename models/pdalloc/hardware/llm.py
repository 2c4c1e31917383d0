"""A large language model as planning sees it: weights, KV bytes, context window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Llm:
    """One model.

    ``parameters`` (count), ``kv_bytes_per_token`` in bytes over all layers,
    ``context_window`` in tokens (prompt plus output), ``active_parameters`` per token for
    mixture-of-experts models (equal to ``parameters`` for dense ones).
    """

    name: str
    title: str
    parameters: float
    kv_bytes_per_token: float
    context_window: float
    active_parameters: float

    def kv_bytes(self, tokens: float) -> float:
        """KV cache of ``tokens`` context tokens, in bytes."""
        return self.kv_bytes_per_token * tokens
