"""Quantities at the edge: SI values by hand, and one clear line for whatever does not fit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdalloc.errors import InputError, UnitError
from pdalloc.units import DIMENSIONS, parse_quantities, parse_quantity

VALUES = [  # text, dimension, SI value
    ("20 ms", "time", 0.02),
    ("20ms", "time", 0.02),
    ("20 msec", "time", 0.02),
    ("2 s", "time", 2.0),
    ("1.5 min", "time", 90.0),
    (".5 s", "time", 0.5),
    ("1e-3 s", "time", 1e-3),
    ("+3 us", "time", 3e-6),
    ("-1 ms", "time", -1e-3),
    ("  7   ms ", "time", 7e-3),
    ("6144 tokens", "tokens", 6144.0),
    ("8 ktoken", "tokens", 8000.0),
    ("141 GB", "bytes", 141e9),
    ("1 GiB", "bytes", 2.0**30),
    ("25 GB/s", "bandwidth", 25e9),
    ("200 Gbit/s", "bandwidth", 25e9),
    ("989 TFLOP/s", "flops", 989e12),
    ("50 req/s", "requests_rate", 50.0),
    ("120 requests/min", "requests_rate", 2.0),
    ("5 Mtoken/min", "tokens_rate", 5e6 / 60),
    ("28309 token/s", "tokens_rate", 28309.0),
    ("0.2 ms/token", "time_per_token", 2e-4),
    ("2 ns/token**2", "time_per_token_sq", 2e-9),
    ("0.3 ms/request", "time_per_request", 3e-4),
    ("2.21 USD/GPU/hour", "price", 2.21),
    ("0.05 USD/GPU/min", "price", 3.0),
]


@pytest.mark.parametrize(("text", "dimension", "value"), VALUES)
def test_value_in_si(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension, "here") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_example_parses_as_its_own_dimension_only(dimension: str) -> None:
    example = DIMENSIONS[dimension][1]
    assert parse_quantity(example, dimension, "here") > 0
    for other in DIMENSIONS.keys() - {dimension}:
        with pytest.raises(UnitError, match="does not fit"):
            parse_quantity(example, other, "here")


REFUSED = [  # value, dimension
    ("20 tokens", "time"),
    ("20", "time"),
    (20, "time"),
    (0.02, "time"),
    (True, "time"),
    (None, "time"),
    (math.nan, "time"),
    (math.inf, "time"),
    ("", "time"),
    ("ms", "time"),
    ("nan ms", "time"),
    ("inf ms", "time"),
    ("1e400 ms", "time"),
    ("twenty ms", "time"),
    ("20 mss", "time"),
    ("20 ms ms", "time"),
    ("20 ms/", "time"),
    ("20 (ms", "time"),
    ("20 ms; 30 ms", "time"),
    ("0x10 ms", "time"),
    ("٣ foo", "time"),
    ("5 1/s", "requests_rate"),
    ("5 Hz", "requests_rate"),
    ("5 req", "requests_rate"),
    ("5 Mtoken/min", "requests_rate"),
    ("25 GB", "bandwidth"),
    ("2 USD", "price"),
    ("2 USD/hour", "price"),
    ("2 EUR/GPU/hour", "price"),
    (["20 ms"], "time"),
    ({"ms": 20}, "time"),
]


@pytest.mark.parametrize(("value", "dimension"), REFUSED)
def test_refused_in_one_line_naming_place_and_mend(value: object, dimension: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(value, dimension, "traffic.0.rate")
    message = str(caught.value)
    assert message.startswith("traffic.0.rate: ")
    assert "\n" not in message
    assert "e.g." in message or "not finite" in message
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("5,000 req/s", "requests_rate"),
        ("6,144 tokens", "tokens"),
        ("1,5 s", "time"),
        ("10 20 ms", "time"),
        ("1000 2000 tokens", "tokens"),
    ],
)
def test_several_numbers_are_never_read_as_the_first(text: str, dimension: str) -> None:
    """5,000 req/s is 5000 or an error - never 5."""
    with pytest.raises(UnitError):
        parse_quantity(text, dimension, "here")


def test_lists_share_their_unit() -> None:
    text = "12.8 16.4 18.8 ms"
    assert parse_quantities(text, "time", "step") == pytest.approx([0.0128, 0.0164, 0.0188])
    assert parse_quantities("1, 2, 3 s", "time", "step") == [1.0, 2.0, 3.0]
    assert parse_quantities("512 tokens", "tokens", "prompt") == [512.0]


@pytest.mark.parametrize("text", ["1 2 nan ms", "1 2 x ms", "1 2", "1 ms 2 ms", "1 2 tokens", ""])
def test_broken_lists_are_refused(text: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantities(text, "time", "step")
    assert str(caught.value).startswith("step: ")
    assert "\n" not in str(caught.value)


@given(st.floats(1e-6, 1e6, allow_nan=False), st.sampled_from(["ms", "s", "min", "us"]))
def test_numbers_survive_text(number: float, unit: str) -> None:
    """value = number x the unit's definition."""
    scale = {"ms": 1e-3, "s": 1.0, "min": 60.0, "us": 1e-6}[unit]
    assert parse_quantity(f"{number!r} {unit}", "time", "t") == pytest.approx(number * scale)


@given(st.one_of(st.text(max_size=20), st.text(max_size=12).map(lambda unit: f"3 {unit}")))
def test_no_text_escapes_the_error_family(text: str) -> None:
    """Any text is a finite number of seconds or one line of InputError, never a traceback."""
    try:
        assert math.isfinite(parse_quantity(text, "time", "t"))
    except InputError as error:
        assert len(str(error).splitlines()) == 1
