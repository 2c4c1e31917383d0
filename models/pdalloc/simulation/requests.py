"""One request on its way through the reference simulators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pdalloc.records import RequestLog
from pdalloc.simulation.traffic import RequestStream

if TYPE_CHECKING:
    from pdalloc.simulation.decode_replica import DecodeReplica
    from pdalloc.simulation.prefill_replica import PrefillReplica


@dataclass(slots=True, eq=False)
class Request:
    """What is left to do, where it is, and when each stage happened (s).

    ``left`` tokens are still to be decoded; ``context`` is prompt plus tokens that exist;
    ``at`` tokens of the prompt are in the KV cache while it is prefilled; ``held`` tokens of
    KV memory are its own at ``home``. ``deadline`` and ``due``: when it gives up waiting and
    when its transfer ends, None when neither is to come. ``tokens``: when each output token
    came, None when nobody asks.
    """

    index: int
    arrival: float
    prompt: int
    cached: float
    left: int
    context: int
    output: int
    prefills: list[PrefillReplica] = field(default_factory=list)
    decodes: list[DecodeReplica] = field(default_factory=list)
    home: DecodeReplica | None = None
    at: float = 0.0
    held: int = 0
    deadline: float | None = None
    due: float | None = None
    prefill_dispatches: int = 0
    decode_dispatches: int = 0
    retries: int = 0
    recomputes: int = 0
    status: int | None = None
    gone: float | None = None
    tokens: list[float] | None = None
    prefill_replica: int = -1
    decode_replica: int = -1
    prefill_start: float | None = None
    prefill_end: float | None = None
    transfer_start: float | None = None
    transfer_end: float | None = None
    decode_start: float | None = None
    first_token: float | None = None
    finish: float | None = None

    def gain(self, now: float, tokens: int = 1) -> None:
        """The user sees ``tokens`` more tokens, the first ones perhaps."""
        if self.first_token is None:
            self.first_token = now
        if self.tokens is not None:
            self.tokens += [now] * tokens


def requests_of(
    stream: RequestStream, steps: list[int], made_by_prefill: int, keep_tokens: bool
) -> list[Request]:
    """The requests of ``stream``; ``steps`` tokens each to decode after ``made_by_prefill``."""
    columns = (stream.arrival, stream.prompt, stream.cached, stream.output)
    rows = zip(*(column.tolist() for column in columns), steps, strict=True)
    return [
        Request(
            index=i,
            arrival=arrival,
            prompt=prompt,
            cached=cached,
            left=left,
            context=prompt + made_by_prefill,
            output=output,
            at=cached,
            tokens=[] if keep_tokens else None,
        )
        for i, (arrival, prompt, cached, output, left) in enumerate(rows)
    ]


def log_of(stream: RequestStream, rows: list[Request], plain: bool) -> RequestLog:
    """The log of a run that is over; the optional columns are left out of a ``plain`` one."""

    def times(name: str) -> np.ndarray:
        return np.array([getattr(r, name) for r in rows], float)

    def counts(name: str) -> np.ndarray:
        return np.array([getattr(r, name) for r in rows], np.int64)

    return RequestLog(
        arrival=stream.arrival,
        prefill_start=times("prefill_start"),
        prefill_end=times("prefill_end"),
        transfer_end=times("transfer_end"),
        decode_start=times("decode_start"),
        first_token=times("first_token"),
        finish=times("finish"),
        prompt_tokens=stream.prompt,
        output_tokens=stream.output,
        traffic_class=stream.traffic_class,
        prefill_replica=counts("prefill_replica"),
        decode_replica=counts("decode_replica"),
        status=None if plain else counts("status"),
        retries=None if plain else counts("retries"),
        recomputes=None if plain else counts("recomputes"),
        left=None if plain else times("gone"),
        transfer_start=None if plain else times("transfer_start"),
    )
