r"""Service times from a datasheet, for GPUs with no measurement: an estimate, marked as one.

Prefill is compute-bound, :math:`2 P n` FLOP for P active parameters and n tokens; a decode
step reads all weights and every context token's KV from memory and computes B tokens:

.. math:: t_p = \frac{2 P n}{e_f F k}, \qquad
          t_d = \frac{2 P_w}{e_b M k} + \frac{2 P B}{e_f F k} + \frac{\kappa S}{e_b M k},

with k GPUs of F FLOP/s and M bytes/s, efficiencies e_f and e_b, P_w weights of 2 bytes and
\kappa KV bytes per token. Source: Williams, Waterman, Patterson (2009), "Roofline".
"""

from __future__ import annotations

from pdalloc.errors import InputError
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.service import Latency

FLOP_EFFICIENCY = 0.5
"""Share of peak FLOP/s a prefill reaches: 0.4-0.6 on the measured A100/H100 curves."""
BANDWIDTH_EFFICIENCY = 0.6
"""Share of peak memory bandwidth a decode step reaches on the same curves."""
BYTES_PER_WEIGHT = 2.0
MEMORY_SHARE = 0.9
"""Share of device memory an engine takes for weights and KV (vLLM's default)."""


def roofline(gpu: Gpu, gpus: int, llm: Llm) -> Latency:
    """Estimated service times of ``llm`` on ``gpus`` x ``gpu``.

    Raises InputError when the datasheet lacks FLOP/s or bandwidth.
    """
    if gpu.flops is None or gpu.memory_bandwidth is None:
        raise InputError(f"no roofline for {gpu.name}: its datasheet lacks FLOP/s or bandwidth")
    flops = FLOP_EFFICIENCY * gpu.flops * gpus
    bandwidth = BANDWIDTH_EFFICIENCY * gpu.memory_bandwidth * gpus
    weights = BYTES_PER_WEIGHT * llm.parameters
    read_weights = weights / bandwidth
    return Latency(
        prefill=AffinePrefill(
            base=0.0, per_token=2.0 * llm.active_parameters / flops, floor=read_weights
        ),
        decode=AffineDecode(
            base=read_weights,
            per_request=2.0 * llm.active_parameters / flops,
            per_context_token=llm.kv_bytes_per_token / bandwidth,
        ),
        source=f"roofline of the {gpu.title} datasheet",
        estimates=("prefill times", "decode step times", "kv_tokens"),
    )


def kv_tokens(gpu: Gpu, gpus: int, llm: Llm) -> float:
    """Estimated KV tokens of one replica: memory left beside the weights / bytes per token.

    Raises InputError when the weights do not fit or the datasheet lacks the memory.
    """
    if gpu.memory_bytes is None:
        raise InputError(f"no KV estimate for {gpu.name}: its datasheet lacks the memory")
    left = MEMORY_SHARE * gpu.memory_bytes * gpus - BYTES_PER_WEIGHT * llm.parameters
    if left <= 0:
        raise InputError(
            f"{llm.name} needs {BYTES_PER_WEIGHT * llm.parameters / 1e9:.0f} GB for its weights, "
            f"{gpus} x {gpu.name} offer {MEMORY_SHARE * gpu.memory_bytes * gpus / 1e9:.0f} GB; "
            "use more GPUs per replica"
        )
    return left / llm.kv_bytes_per_token
