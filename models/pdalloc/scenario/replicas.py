"""A replica type from its block: GPU, price, service times, KV limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pdalloc.catalog import loader as catalog
from pdalloc.errors import InputError, located
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode, MeasuredPrefill
from pdalloc.latency.roofline import kv_tokens, roofline
from pdalloc.latency.service import Calibration, DecodeStep, Latency, PrefillTime
from pdalloc.scenario.schema import DecodeSpec, PrefillSpec, ReplicaSpec, ServiceSpec
from pdalloc.system import ReplicaType
from pdalloc.units import parse_quantities, parse_quantity


def build_replica_type(
    spec: ReplicaSpec, llm: Llm, prices: str | dict[str, Any], where: str
) -> ReplicaType:
    """The replica type that ``spec`` describes; ``where`` names its place in messages."""
    gpu = catalog.gpu(spec.gpu, f"{where}.gpu")
    if spec.gpus < 1:
        raise InputError(f"{where}.gpus: must be at least 1, got {spec.gpus}")
    latency, capacity = _latency(spec, gpu, llm, where)
    calibration = spec.calibration
    noise = spec.prefill_noise or latency.prefill_noise
    with located(where):
        given = ("kv_tokens",) if spec.kv_tokens is not None else ()
        latency = replace(
            latency,
            estimates=tuple(what for what in latency.estimates if what not in given),
            prefill_noise=noise,
            calibration=Calibration(calibration.prefill, calibration.decode, calibration.source),
        )
        return ReplicaType(
            name=spec.name or f"{gpu.name}x{spec.gpus}",
            gpu=gpu,
            gpus=spec.gpus,
            roles=tuple(spec.roles),
            latency=latency,
            usd_per_hour=spec.gpus * _price(gpu, prices, where),
            kv_tokens=capacity if spec.kv_tokens is None else spec.kv_tokens,
            max_batch=math.inf if spec.max_batch is None else spec.max_batch,
        )


def _price(gpu: Gpu, prices: str | dict[str, Any], where: str) -> float:
    if isinstance(prices, str):
        return catalog.usd_per_gpu_hour(prices, gpu.name, "prices")
    for name, price in prices.items():
        if catalog.gpu(name, "prices").name == gpu.name:
            value = parse_quantity(price, "price", f"prices.{name}")
            if value < 0:
                raise InputError(f"prices.{name}: must not be negative, got {price}")
            return value
    raise InputError(f"{where}: no price for {gpu.name}; add it to prices:")


def _latency(spec: ReplicaSpec, gpu: Gpu, llm: Llm, where: str) -> tuple[Latency, float]:
    """(service times, KV tokens of one replica; inf when unknown)."""
    if (spec.profile is None) == (spec.service is None):
        raise InputError(f"{where}: give either profile or service")
    if spec.profile is not None:
        found = catalog.entry("profiles", spec.profile, f"{where}.profile")
        if (found["llm"], found["gpu"], found["gpus"]) != (llm.name, gpu.name, spec.gpus):
            raise InputError(
                f"{where}.profile: {spec.profile} was measured for {found['llm']} on "
                f"{found['gpus']} x {found['gpu']}, not {llm.name} on {spec.gpus} x {gpu.name}"
            )
        return catalog.profile_latency(found), float(found["kv_tokens"])
    if spec.service == "roofline":
        with located(f"{where}.service"):
            return roofline(gpu, spec.gpus, llm), math.floor(kv_tokens(gpu, spec.gpus, llm))
    service = spec.service
    if not isinstance(service, ServiceSpec):  # for the type checker: the branches above cover it
        raise InputError(f"{where}.service: give prefill and decode, or roofline")
    with located(f"{where}.service.prefill"):
        prefill = _prefill(service.prefill, f"{where}.service.prefill")
    with located(f"{where}.service.decode"):
        decode = _decode(service.decode, f"{where}.service.decode")
    noise = service.prefill.noise
    return Latency(prefill, decode, noise, source=service.source), math.inf


def _one_way(spec: PrefillSpec | DecodeSpec, where: str, *ways: tuple[str, ...]) -> None:
    """Refuse a block that describes its times in more than one way."""
    used = [way for way in ways if any(getattr(spec, key) is not None for key in way)]
    if len(used) > 1:
        keys = " or ".join(", ".join(way) for way in used)
        raise InputError(f"{where}: give either {keys}, not both")


def _prefill(spec: PrefillSpec, where: str) -> PrefillTime:
    affine = ("base", "per_token", "per_token_sq", "floor")
    _one_way(spec, where, ("throughput",), ("prompt", "time"), affine)
    if spec.throughput is not None:
        peak = parse_quantity(spec.throughput, "tokens_rate", f"{where}.throughput")
        if peak <= 0:
            raise InputError(f"{where}.throughput: must be positive, got {spec.throughput}")
        return AffinePrefill(0.0, 1.0 / peak)
    if spec.prompt is not None and spec.time is not None:
        prompt = parse_quantities(spec.prompt, "tokens", f"{where}.prompt")
        seconds = parse_quantities(spec.time, "time", f"{where}.time")
        return MeasuredPrefill(Curve(where, np.array(prompt), np.array(seconds)))
    if spec.per_token is None:
        raise InputError(f"{where}: give throughput, or prompt and time, or per_token")
    return AffinePrefill(
        _optional(spec.base, "time", f"{where}.base"),
        parse_quantity(spec.per_token, "time_per_token", f"{where}.per_token"),
        _optional(spec.per_token_sq, "time_per_token_sq", f"{where}.per_token_sq"),
        _optional(spec.floor, "time", f"{where}.floor"),
    )


def _decode(spec: DecodeSpec, where: str) -> DecodeStep:
    _one_way(spec, where, ("batch", "step"), ("base", "per_request", "per_context_token"))
    if spec.batch is not None and spec.step is not None:
        if not spec.batch:
            raise InputError(f"{where}.batch: the curve is empty; give at least 2 points")
        seconds = parse_quantities(spec.step, "time", f"{where}.step")
        return MeasuredDecode(Curve(where, np.array(spec.batch, float), np.array(seconds)))
    if spec.base is None or spec.per_request is None:
        raise InputError(f"{where}: give batch and step, or base and per_request")
    return AffineDecode(
        parse_quantity(spec.base, "time", f"{where}.base"),
        parse_quantity(spec.per_request, "time_per_request", f"{where}.per_request"),
        _optional(spec.per_context_token, "time_per_token", f"{where}.per_context_token"),
    )


def _optional(value: Any, dimension: str, where: str) -> float:
    return 0.0 if value is None else parse_quantity(value, dimension, where)
