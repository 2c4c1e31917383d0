"""A GPU model: its datasheet and the labels by which clusters know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    """One GPU type.

    ``memory_bytes`` of device memory, ``memory_bandwidth`` in bytes/s, ``flops`` dense BF16
    FLOP/s; None where no source was found. ``node_label`` is the Kubernetes selector and
    ``aiconfigurator_system`` the name AIConfigurator uses.
    """

    name: str
    title: str
    memory_bytes: float | None = None
    memory_bandwidth: float | None = None
    flops: float | None = None
    aliases: tuple[str, ...] = ()
    node_label: Mapping[str, str] = field(default_factory=dict)
    aiconfigurator_system: str | None = None
