"""Numbers in words, as every table and sentence writes them."""

from __future__ import annotations

import math

from pdalloc.planning.margins import MOST


def digits_of(half_width: float) -> int:
    """Decimals that show a half-width to its second digit, six at most.

    >>> digits_of(0.0123), digits_of(12.3), digits_of(0.0)
    (3, 0, 2)
    """
    if half_width <= 1e-9:
        return 2
    return min(max(1 - math.floor(math.log10(half_width)), 0), 6)


def percent(change: float | None) -> str:
    """``+4.0 %``; ``at least +300 %`` at the end of the range searched.

    >>> percent(0.0402), percent(3.0)
    ('+4.0 %', 'at least +300 %')
    """
    if change is None:
        return "-"
    if change >= MOST:
        return f"at least {MOST:+.0%}".replace("%", " %")
    return f"{100.0 * (0.0 if abs(change) < 5e-4 else change):+.1f} %"


def seconds(value: float) -> str:
    """Milliseconds below 10 s, four digits.

    >>> seconds(0.77678), seconds(2.0), seconds(12.34)
    ('776.8 ms', '2000 ms', '12.34 s')
    """
    scaled, unit = (1e3 * value, "ms") if value < 9.9995 else (value, "s")
    digits = 0 if scaled >= 999.95 else 1 if scaled >= 99.995 else 2
    text = f"{scaled:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def usd(value: float | None) -> str:
    """Two decimals and thousands separators.

    >>> usd(1234.5)
    '1,234.50'
    """
    return number(value, ",.2f")


def number(value: float | None, form: str) -> str:
    """``value`` in a format; ``-`` when there is none."""
    return "-" if value is None else format(value, form)


def tokens_per_minute(value: float) -> str:
    """``5 Mtoken/min``, or ktoken/min below 100,000.

    >>> tokens_per_minute(5e6), tokens_per_minute(5200983.0)
    ('5 Mtoken/min', '5.201 Mtoken/min')
    """
    if value >= 1e5:
        return f"{value / 1e6:.4g} Mtoken/min"
    return f"{value / 1e3:.4g} ktoken/min"


def share(value: float) -> str:
    """A share with as many digits as show what is missing from it, to the second.

    >>> share(0.9942), share(0.99997), share(1.0)
    ('99.42 %', '99.9970 %', '100.00 %')
    >>> share(0.9999999999)
    '99.999999990 %'
    """
    missing = 100.0 * (1.0 - value)
    digits = max(1 - math.floor(math.log10(missing)), 0) if missing > 1e-11 else 2
    return f"{100.0 * value:.{digits}f} %"


def interval(value: float, half_width: float, plus_minus: str, scale: float, unit: str) -> str:
    """``777 ± 12 ms``: both, times ``scale``, to the second digit of the half-width."""
    half = half_width * scale
    digits = digits_of(half)
    return f"{value * scale:.{digits}f} {plus_minus} {half:.{digits}f}{unit}"


def time_interval(value: float, half_width: float, plus_minus: str) -> str:
    """The same of seconds: in ms below 10 s."""
    scale, unit = (1e3, " ms") if value < 9.9995 else (1.0, " s")
    return interval(value, half_width, plus_minus, scale, unit)
