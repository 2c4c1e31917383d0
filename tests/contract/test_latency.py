"""Service times of one replica: tables, coefficients, datasheets, calibration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdalloc.errors import InputError
from pdalloc.hardware.gpu import Gpu
from pdalloc.hardware.link import Link
from pdalloc.hardware.llm import Llm
from pdalloc.latency.affine import AffineDecode, AffinePrefill
from pdalloc.latency.measured import Curve, MeasuredDecode, MeasuredPrefill
from pdalloc.latency.roofline import kv_tokens, roofline
from pdalloc.latency.service import Calibration, Latency

Array = NDArray[np.float64]


def column(*values: float) -> Array:
    return np.array(values, float)


def curve(x: Array, seconds: Array) -> Curve:
    return Curve("decode of r", x, seconds)


BATCH, STEP = column(10, 20, 40), column(0.010, 0.014, 0.018)


def test_measured_points_and_the_lines_between_them() -> None:
    """Linear between points: at 15 halfway, at 30 halfway."""
    read = curve(BATCH, STEP)(column(10, 15, 20, 30, 40))
    assert read == pytest.approx([0.010, 0.012, 0.014, 0.016, 0.018], rel=1e-14)


def test_below_the_table_time_is_flat() -> None:
    """Never faster than anything measured."""
    assert curve(BATCH, STEP)(column(0, 1, 9.99)).tolist() == [0.010] * 3


def test_above_the_table_the_last_slope_goes_on() -> None:
    """0.018 + (0.004/20) (x - 40)."""
    assert curve(BATCH, STEP)(column(60, 140)) == pytest.approx([0.022, 0.038], rel=1e-14)


def test_a_table_that_falls_is_made_monotone() -> None:
    """Pool adjacent violators: 14, 12 both become 13, and the sum is kept."""
    table = curve(column(1, 2, 3, 4), column(0.010, 0.014, 0.012, 0.020))
    assert table.monotone == pytest.approx([0.010, 0.013, 0.013, 0.020], rel=1e-14)
    assert table.monotone.sum() == pytest.approx(table.seconds.sum(), rel=1e-14)


def test_a_table_that_ends_level_still_slows_down_beyond_it() -> None:
    """One level pair at the end (noise, or a fall made monotone) must not promise that any
    batch, however large, takes no longer: the throughput beyond the table would be unlimited."""
    for tail in (column(0.010, 0.014, 0.014), column(0.010, 0.014, 0.0139)):
        table = curve(BATCH, tail)
        assert table(column(4000.0))[0] > table(BATCH)[-1]


points = st.lists(
    st.tuples(st.floats(0.1, 50.0), st.floats(1e-4, 1.0)), min_size=2, max_size=12
).map(lambda rows: (np.cumsum([x for x, _ in rows]), np.array([y for _, y in rows])))


@given(points)
def test_any_table_is_nondecreasing_positive_and_bounded_by_its_times(
    table: tuple[Array, Array],
) -> None:
    x, seconds = table
    at = np.linspace(0.0, 2 * x[-1], 200)
    read = curve(x, seconds)(at)
    assert np.all(np.diff(read) >= -1e-12)
    assert read.min() >= seconds.min() - 1e-12
    assert curve(x, seconds)(x).max() <= seconds.max() + 1e-12


CURVES = [  # x, seconds, what the message names
    (column(), column(), "at least 2 points"),
    (column(1), column(1), "at least 2 points"),
    (column(1, 2, 3), column(1, 2), "3 points but 2 times"),
    (column(1, 2), column(1, 2, 3), "2 points but 3 times"),
    (column(2, 1), column(1, 2), "increasing"),
    (column(1, 1), column(1, 2), "increasing"),
    (column(0, 1), column(1, 2), "positive"),
    (column(-1, 1), column(1, 2), "positive"),
    (column(1, math.nan), column(1, 2), "finite"),
    (column(1, 2), column(1, math.nan), "finite"),
    (column(1, math.inf), column(1, 2), "finite"),
    (column(1, 2), column(1, math.inf), "finite"),
    (column(1, 2), column(0, 2), "positive"),
    (column(1, 2), column(-1, 2), "positive"),
]


@pytest.mark.parametrize(("x", "seconds", "names"), CURVES)
def test_unusable_curves(x: Array, seconds: Array, names: str) -> None:
    with pytest.raises(InputError, match=names) as caught:
        curve(x, seconds)
    assert str(caught.value).startswith("decode of r: ")


def test_measured_prefill_reads_the_uncached_part() -> None:
    prefill = MeasuredPrefill(curve(column(100, 1000), column(0.1, 1.0)))
    assert prefill.seconds(column(800, 800), column(0, 300)) == pytest.approx([0.8, 0.5])
    assert prefill.range_tokens == (100.0, 1000.0)


def test_measured_decode_ignores_context() -> None:
    decode = MeasuredDecode(curve(BATCH, STEP))
    assert decode.seconds(column(20, 20), column(0, 1e6)) == pytest.approx([0.014, 0.014])
    assert decode.range_batch == (10.0, 40.0)


def test_affine_prefill_by_hand() -> None:
    """a + b (n - h) + c (n^2 - h^2), never below the floor; at 90 % hit the quadratic part is
    19 % of the whole prompt's (design 3.1)."""
    prefill = AffinePrefill(0.01, 1e-4, 1e-8, floor=0.05)
    read = prefill.seconds(column(1000, 1000, 100), column(0, 900, 0))
    assert read == pytest.approx([0.01 + 0.1 + 0.01, 0.05, 0.05], rel=1e-12)
    quadratic = AffinePrefill(0.0, 0.0, 1e-8).seconds(column(1000, 1000), column(0, 900))
    assert quadratic[1] / quadratic[0] == pytest.approx(0.19, rel=1e-12)


def test_affine_decode_by_hand() -> None:
    decode = AffineDecode(0.02, 1e-4, 1e-7)
    read = decode.seconds(column(1, 50), column(1000, 50_000))
    assert read == pytest.approx([0.02 + 1e-4 + 1e-4, 0.02 + 5e-3 + 5e-3], rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-9])
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_affine_coefficients_must_be_finite_and_not_negative(which: int, bad: float) -> None:
    names = ("base", "per_token", "per_token_sq", "floor")
    values = [0.1, 0.1, 0.1, 0.1]
    values[which] = bad
    with pytest.raises(InputError, match=f"affine prefill: {names[which]}"):
        AffinePrefill(values[0], values[1], values[2], values[3])
    if which < 3:
        names = ("base", "per_request", "per_context_token", "")
        with pytest.raises(InputError, match=f"affine decode: {names[which]}"):
            AffineDecode(values[0], values[1], values[2])


def test_free_service_is_refused() -> None:
    with pytest.raises(InputError, match="zero"):
        AffinePrefill(0.0, 0.0)
    with pytest.raises(InputError, match="zero"):
        AffineDecode(0.0, 0.0, 1e-7)


def test_calibration_multiplies_the_curves() -> None:
    latency = Latency(AffinePrefill(0.0, 1e-4), AffineDecode(0.02, 1e-4))
    slow = latency.slowed(prefill=1.5, decode=1.1).slowed(decode=2.0)
    assert slow.prefill_seconds(column(1000), column(0)) == pytest.approx([0.15])
    assert slow.step_seconds(column(1), column(0)) == pytest.approx([0.0201 * 2.2])
    assert slow.calibration.source == latency.calibration.source


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_unusable_calibration(role: str, factor: float) -> None:
    with pytest.raises(InputError, match=f"calibration factor of {role}"):
        Calibration(**{role: factor})  # type: ignore[arg-type]


GPU = Gpu("g", "Toy", memory_bytes=80e9, memory_bandwidth=2e12, flops=1e15)
LLM = Llm("m", "Toy", parameters=70e9, kv_bytes_per_token=3e5, context_window=1e5,
          active_parameters=35e9)  # fmt: skip


def test_roofline_by_hand() -> None:
    """4 GPUs at half their FLOP/s and 0.6 of their bandwidth. Prefill: 2 P n / (0.5 F k).
    Decode: (2 bytes x all weights + KV bytes of the context) / (0.6 M k) + the FLOP of B."""
    latency = roofline(GPU, 4, LLM)
    flops, bandwidth = 0.5 * 1e15 * 4, 0.6 * 2e12 * 4
    long = latency.prefill_seconds(column(8000), column(0))
    assert long == pytest.approx([2 * 35e9 * 8000 / flops], rel=1e-12)
    read_weights = 2 * 70e9 / bandwidth
    assert latency.prefill_seconds(column(1), column(0)) == pytest.approx([read_weights])
    step = latency.step_seconds(column(16), column(16 * 2000))
    compute = 2 * 35e9 * 16 / flops
    exact = read_weights + 3e5 * 32_000 / bandwidth + compute
    assert step == pytest.approx([exact], rel=1e-12)


def test_roofline_is_marked_as_an_estimate() -> None:
    latency = roofline(GPU, 1, LLM)
    assert latency.estimates == ("prefill times", "decode step times", "kv_tokens")
    assert "datasheet" in latency.source


def test_kv_estimate_is_what_weights_leave() -> None:
    """0.9 x memory - 2 bytes x parameters, over the KV bytes of a token; never negative."""
    gpu = replace(GPU, memory_bytes=80e9)
    left = 0.9 * 8 * 80e9 - 2.0 * LLM.parameters
    assert kv_tokens(gpu, 8, LLM) == pytest.approx(left / LLM.kv_bytes_per_token)
    huge = replace(LLM, parameters=671e9)
    with pytest.raises(InputError, match="use more GPUs per replica"):
        kv_tokens(gpu, 8, huge)
    with pytest.raises(InputError, match="memory"):
        kv_tokens(replace(GPU, memory_bytes=None), 8, LLM)


def test_roofline_scales_with_gpus() -> None:
    one, eight = roofline(GPU, 1, LLM), roofline(GPU, 8, LLM)
    for batch in (1.0, 100.0):
        ratio = one.step_seconds(column(batch), column(1e5)) / eight.step_seconds(
            column(batch), column(1e5)
        )
        assert ratio == pytest.approx([8.0])


@pytest.mark.parametrize("missing", ["flops", "memory_bandwidth"])
def test_roofline_needs_the_datasheet(missing: str) -> None:
    sheet = {"flops": 1e15, "memory_bandwidth": 2e12} | {missing: None}
    with pytest.raises(InputError, match="no roofline for g"):
        roofline(Gpu("g", "Toy", **sheet), 1, LLM)  # type: ignore[arg-type]


def test_transfer_time() -> None:
    """latency + bytes / bandwidth; an unlimited link costs its latency."""
    assert Link(0.1, 25e9).transfer_time(5e9) == pytest.approx(0.3, rel=1e-14)
    assert Link(0.1).transfer_time(column(0, 1e12)).tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    ("latency", "bandwidth", "names"),
    [
        (-1.0, 1.0, "latency"),
        (math.nan, 1.0, "latency"),
        (math.inf, 1.0, "latency"),
        (0.0, 0.0, "bandwidth"),
        (0.0, -1.0, "bandwidth"),
        (0.0, math.nan, "bandwidth"),
    ],
)
def test_unusable_links(latency: float, bandwidth: float, names: str) -> None:
    with pytest.raises(InputError, match=f"network {names}"):
        Link(latency, bandwidth)
