"""The scenario file as pydantic sees it: names, nesting and plain types.

Quantities stay text here ("20 ms"); :mod:`pdalloc.scenario.build` gives them their meaning.
Unknown keys are refused; ``pdalloc schema`` prints this as JSON Schema.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pdalloc.scenario.base import Count, DispatchName, Number, Quantity, RoleName, Spec
from pdalloc.scenario.periods import PeriodsSpec
from pdalloc.scenario.simulation_schema import ArrivalsSpec, SimulationSpec


class AttainmentSpec(Spec):
    """A joint SLO: a share of requests must keep several latencies at once."""

    share: Number = Field(description="share of requests, between 0 and 1, e.g. 0.99")
    within: dict[str, Quantity] = Field(
        description='metric -> seconds that a request keeps, e.g. {ttft: "2 s", tpot: "50 ms"}'
    )


class BestEffortSpec(Spec):
    """A best-effort SLO: it binds no fleet, but every late request has a price."""

    within: dict[str, Quantity] = Field(
        description="metric -> seconds, as in attainment; later in any of them is late"
    )
    price: Quantity = Field(description='of a late request, e.g. "0.5 USD/krequest"')


class TrafficSpec(Spec):
    """One traffic class: requests that share an SLO."""

    name: str = Field("all", description="name of the class")
    rate: Quantity = Field(description='"50 req/s", or prompt + output tokens: "5 Mtoken/min"')
    arrival_scv: Number | None = Field(
        None, description="SCV of the gaps between arrivals; 1, the default, is Poisson"
    )
    arrivals: ArrivalsSpec | None = Field(None, description="another process of the same rate")
    lengths: str | None = Field(None, description="name of a joint length table in the catalogue")
    prompt: Quantity | list[Quantity] | None = Field(
        None, description='"6144 tokens", or a list of equally likely lengths'
    )
    output: Quantity | list[Quantity] | None = Field(None, description="as prompt")
    prefix_hit_rate: Number = Field(0.0, description="share of each prompt already cached, 0..1")
    slo: dict[str, dict[str, Quantity]] = Field(
        default_factory=dict,
        description='metric -> statistic -> bound, e.g. {ttft: {mean: "2 s", p99: "4 s"}}',
    )
    attainment: list[AttainmentSpec] = Field(default=[], description="joint SLOs")
    best_effort: list[BestEffortSpec] = Field(
        default=[], description="SLOs that are paid for where they are missed"
    )


class PrefillSpec(Spec):
    """Prefill time of one replica: a peak throughput, a table, or coefficients."""

    throughput: Quantity | None = Field(None, description='"28309 token/s": time = prompt / it')
    prompt: Quantity | None = Field(None, description='table: "512 1024 2048 tokens"')
    time: Quantity | None = Field(None, description='table: "53 78 137 ms"')
    base: Quantity | None = Field(None, description='affine a: "10 ms"')
    per_token: Quantity | None = Field(None, description='affine b: "0.05 ms/token"')
    per_token_sq: Quantity | None = Field(None, description='affine c: "1 ns/token**2"')
    floor: Quantity | None = Field(None, description='least time: "20 ms"')
    noise: Literal["none", "exponential"] = Field(
        "none", description="spread around the curve; exponential makes a replica an M/M/1"
    )


class DecodeSpec(Spec):
    """Decode step time of one replica: a table over batch, or coefficients."""

    batch: list[Number] | None = Field(None, description="table: batch sizes")
    step: Quantity | None = Field(None, description='table: "12.8 16.4 18.8 ms"')
    base: Quantity | None = Field(None, description='affine a: "30 ms"')
    per_request: Quantity | None = Field(None, description='affine b: "0.3 ms/request"')
    per_context_token: Quantity | None = Field(None, description='affine c: "0.2 us/token"')


class ServiceSpec(Spec):
    """Service times given in the scenario itself."""

    prefill: PrefillSpec
    decode: DecodeSpec
    source: str = Field(description="where the numbers come from")


class CalibrationSpec(Spec):
    """Factors on the benchmark's times, fitted on a cluster's own measurements."""

    prefill: Number = 1.0
    decode: Number = 1.0
    source: str = ""


class ReplicaSpec(Spec):
    """A replica type: GPU type x GPUs per replica, its roles and its speed."""

    name: str | None = Field(None, description="default: <gpu>x<gpus>")
    gpu: str = Field(description="GPU of the catalogue, by name or alias")
    gpus: Count = Field(description="GPUs per replica (a MIG slice is 1 of its own GPU type)")
    roles: list[RoleName] = Field(default=["prefill", "decode"])
    profile: str | None = Field(None, description="measured profile of the catalogue")
    service: ServiceSpec | Literal["roofline"] | None = Field(
        None, description="own service times, or 'roofline' (an estimate from the datasheet)"
    )
    prefill_noise: Literal["none", "exponential"] | None = None
    calibration: CalibrationSpec = CalibrationSpec()
    kv_tokens: Number | None = Field(None, description="KV tokens one replica holds")
    max_batch: Count | None = Field(None, description="engine's limit on decoding requests")
    limits: dict[RoleName, Count] = Field(
        default_factory=dict, description="most replicas per role"
    )


class NetworkSpec(Spec):
    """The KV link of a prefill replica."""

    latency: Quantity = "0 s"
    bandwidth: Quantity | None = Field(default=None, description='"25 GB/s"; left out: infinite')


class VariantSpec(Spec):
    """A named set of overrides: dotted path -> value."""

    about: str = ""
    set: dict[str, Any] = Field(default_factory=dict)


class ScenarioSpec(Spec):
    """A whole scenario file."""

    name: str
    title: str = ""
    about: str = ""
    llm: str = Field(description="model of the catalogue")
    traffic: list[TrafficSpec]
    replicas: list[ReplicaSpec]
    prices: str | dict[str, Quantity] = Field(
        description='a price list of the catalogue, or {gpu: "2.21 USD/GPU/hour"}'
    )
    stock: dict[str, Count] = Field(
        default_factory=dict, description="GPUs that can be had beside owned ones, by GPU"
    )
    slo_scope: Literal["pool", "population"] = Field(
        "pool",
        description="pool: every pool keeps every SLO by itself; population: all requests of a "
        "class together do, and fast pools may make up for slow ones",
    )
    headroom: Number = Field(0.0, description="share of the demand to be served beside it: 0.2")
    redundancy: Count = Field(
        0, description="replicas of any one pool that may be lost while the SLOs are kept"
    )
    compatible: Literal["equal_gpus"] | list[tuple[str, str]] | None = Field(
        None,
        description="which prefill types fit which decode types: equal_gpus (as many GPUs per "
        "replica, e.g. equal TP) or pairs [[prefill, decode], ...]; left out: all do",
    )
    periods: PeriodsSpec | None = Field(None, description="how traffic changes over a day")
    network: NetworkSpec = NetworkSpec()
    dispatch: DispatchName | dict[RoleName, DispatchName] = "random"
    first_token: Literal["prefill", "transfer", "decode"] = "decode"
    simulation: SimulationSpec = SimulationSpec()
    variants: dict[str, VariantSpec] = Field(default_factory=dict)
