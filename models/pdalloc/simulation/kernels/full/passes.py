"""How long a prefill pass takes."""

from __future__ import annotations

from pdalloc.simulation.kernels.compile import kernel, part
from pdalloc.simulation.kernels.full.state import State


@kernel
def pass_seconds(s: State, k: int, tokens: float, squares: float) -> float:
    """Mean seconds of a pass of server ``k`` (``Latency.pass_seconds``)."""
    server = s.servers[k]
    if server.to_knot > server.from_knot:
        return float(server.pass_factor * curve(s, k, tokens))
    time = server.pass_base + server.per_token * tokens + server.per_token_sq * squares
    return float(server.pass_factor * max(time, server.floor))


@part
def curve(s: State, k: int, x: float) -> float:
    """The measured curve of server ``k`` at ``x`` tokens, as ``measured.Curve`` reads it."""
    low, last = s.servers[k].from_knot, s.servers[k].to_knot - 1
    if x <= s.knots[0, low]:
        return float(s.knots[1, low])
    if x >= s.knots[0, last]:
        return float(s.knots[1, last] + s.servers[k].tail * (x - s.knots[0, last]))
    high = last
    while high - low > 1:
        middle = (low + high) >> 1
        if s.knots[0, middle] <= x:
            low = middle
        else:
            high = middle
    x0, y0 = s.knots[0, low], s.knots[1, low]
    slope = (s.knots[1, high] - y0) / (s.knots[0, high] - x0)
    return float(slope * (x - x0) + y0)
