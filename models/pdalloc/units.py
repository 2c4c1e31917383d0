"""Quantities as users write them ("20 ms", "5 Mtoken/min", "141 GB") to plain SI numbers.

Everything inside the package is seconds, tokens, bytes, requests per second and USD per
hour. A quantity without a unit, or with one of another dimension, is refused here, at the
edge. pint does the parsing; it is imported when the first quantity is read.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pdalloc.errors import UnitError

if TYPE_CHECKING:
    from pint import UnitRegistry

DIMENSIONS: dict[str, tuple[str, str]] = {
    "time": ("second", "20 ms"),
    "tokens": ("token", "6144 tokens"),
    "bytes": ("byte", "141 GB"),
    "bandwidth": ("byte/second", "25 GB/s"),
    "flops": ("flop/second", "989 TFLOP/s"),
    "requests_rate": ("request/second", "50 req/s"),
    "tokens_rate": ("token/second", "5 Mtoken/min"),
    "time_per_token": ("second/token", "0.2 ms/token"),
    "time_per_token_sq": ("second/token**2", "2 ns/token**2"),
    "time_per_request": ("second/request", "0.3 ms/request"),
    "money": ("USD", "5 USD"),
    "price": ("USD/gpu/hour", "2.21 USD/GPU/hour"),
    "price_per_request": ("USD/request", "0.5 USD/krequest"),
}
"""Dimension -> (unit used inside, an example for error messages)."""

DEFINITIONS = (
    "token = [token] = tok = tokens",
    "request = [request] = req = requests",
    "USD = [currency] = usd = dollar",
    "gpu = [gpu] = GPU = GPUs = gpus",
    "flop = [flop] = FLOP",
)
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@lru_cache(maxsize=1)
def _registry() -> UnitRegistry[Any]:
    import pint

    registry: UnitRegistry[Any] = pint.UnitRegistry(cache_folder=None)
    for line in DEFINITIONS:
        registry.define(line)
    return registry


def parse_quantity(value: object, dimension: str, where: str) -> float:
    """``value`` such as "20 ms" in the SI unit of ``dimension`` (a key of DIMENSIONS).

    ``where`` names the field in the message. Raises UnitError for a bare number, an unknown
    unit, a unit of another dimension, or a value that is not finite.

    >>> parse_quantity("20 ms", "time", "slo")
    0.02
    """
    values = parse_quantities(value, dimension, where)
    if len(values) > 1:
        raise UnitError(f"{where}: {value!r} holds {len(values)} numbers, give one")
    return values[0]


def parse_quantities(value: object, dimension: str, where: str) -> list[float]:
    """Like :func:`parse_quantity` for "12.8 16.4 18.8 ms": numbers, then their one unit.

    >>> parse_quantities("10 20 ms", "time", "curve")
    [0.01, 0.02]
    """
    unit, example = DIMENSIONS[dimension]
    words = [word.rstrip(",") for word in str(value).split()]
    numbers = []
    while words and NUMBER.fullmatch(words[0]):
        numbers.append(float(words.pop(0)))
    if not numbers and words:  # "20ms": number and unit written together
        match = NUMBER.match(words[0])
        if match and match.end() < len(words[0]):
            numbers = [float(match.group())]
            words[0] = words[0][match.end() :]
    if not numbers or not words or words[0].startswith(","):
        raise UnitError(f"{where}: {value!r} needs a number and a unit, e.g. {example!r}")
    factor = _factor(" ".join(words), unit, f"{where}: {value!r}", example)
    values = [number * factor for number in numbers]
    if not all(math.isfinite(v) for v in values):
        raise UnitError(f"{where}: {value!r} is not finite")
    return values


@lru_cache(maxsize=256)
def _factor(written: str, unit: str, what: str, example: str) -> float:
    import pint

    try:
        return float(_registry().Quantity(1.0, written).to(unit).magnitude)
    except pint.UndefinedUnitError as error:
        raise UnitError(
            f"{what}: unknown unit {error.unit_names}; write e.g. {example!r}"
        ) from None
    except pint.DimensionalityError:
        raise UnitError(f"{what} does not fit here; write e.g. {example!r}") from None
    except Exception as error:  # pint's parser raises several kinds on malformed text
        raise UnitError(f"{what}: cannot read the unit ({error}); write e.g. {example!r}") from None
