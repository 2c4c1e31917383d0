r"""Counts of one role: the paper's, M/M/1 under a mean or a percentile, decode under TPOT.

Reference: arXiv 2603.04716 (Li, Li, Gong, Zhang), called "the paper". Throughput in tokens/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdalloc.closed_forms.checks import not_negative, positive, probability
from pdalloc.errors import InfeasibleError


def effective_prefill_throughput(peak: float, prompt: float, ttft: float, overhead: float) -> float:
    """Tokens/s one M/M/1 prefill replica admits under a mean TTFT (the paper, eq. 5).

    ``peak`` tokens/s, ``prompt`` tokens, ``ttft`` and ``overhead`` s:
    peak - prompt/(ttft - overhead). Raises InfeasibleError when an idle replica is too slow.

    >>> round(effective_prefill_throughput(28309, 6144, 2.0, 0.1))
    25075
    """
    positive(peak=peak, prompt=prompt, ttft=ttft)
    not_negative(overhead=overhead)
    floor = prompt / peak + overhead
    if ttft <= floor:
        raise InfeasibleError(
            f"mean TTFT {ttft:.4g} s is at or below the {floor:.4g} s of an unloaded request"
        )
    return peak - prompt / (ttft - overhead)


def mm1_count(rate: float, service_rate: float, sojourn: float) -> float:
    """Replicas n = lambda/(mu - 1/tau) so that a mean M/M/1 sojourn is ``sojourn`` s.

    >>> round(mm1_count(12.52, 28309 / 6144, 1.9), 3)
    3.068
    """
    positive(rate=rate, service_rate=service_rate, sojourn=sojourn)
    if sojourn * service_rate <= 1.0:
        raise InfeasibleError(
            f"mean sojourn {sojourn:.4g} s is at or below one service, {1 / service_rate:.4g} s"
        )
    return rate / (service_rate - 1.0 / sojourn)


def mm1_count_percentile(rate: float, service_rate: float, sojourn: float, p: float) -> float:
    """Replicas so that P(M/M/1 sojourn <= ``sojourn``) = p: lambda/(mu - ln(1/(1-p))/tau)."""
    probability(p=p)
    return mm1_count(rate, service_rate, sojourn / math.log(1.0 / (1.0 - p)))


def mm1_count_wait_percentile(rate: float, service_rate: float, wait: float, p: float) -> float:
    r"""Replicas so that P(M/M/1 wait <= ``wait``) = p; ``wait`` = t may be 0.

    Solves (x/mu) exp(-(mu - x) t) = 1 - p for the load x = lambda/n of a replica:
    x = omega(ln((1-p) mu t) + mu t)/t with Wright's omega (Corless and Jeffrey 2002), and
    x = (1-p) mu at t = 0.

    >>> round(mm1_count_wait_percentile(12.52, 28309 / 6144, 1.9, 0.9), 3)
    3.542
    """
    from scipy.special import wrightomega

    positive(rate=rate, service_rate=service_rate)
    not_negative(wait=wait)
    probability(p=p)
    room = service_rate * wait
    if room == 0.0:
        return rate / ((1.0 - p) * service_rate)
    load = float(wrightomega(math.log((1.0 - p) * room) + room).real) / wait
    return rate / load


def decode_count(rate: float, steps: float, base: float, per_request: float, tpot: float) -> float:
    """Replicas under a mean TPOT with t = a + b k: lambda L b / (1 - (a + b)/tau).

    ``steps`` = E[L] tokens, ``base`` = a and ``per_request`` = b in s, ``tpot`` = tau in s;
    no batch limit (the batch law's negative binomial).
    """
    positive(rate=rate, steps=steps, per_request=per_request, tpot=tpot)
    not_negative(base=base)
    if tpot <= base + per_request:
        raise InfeasibleError(
            f"mean TPOT {tpot:.4g} s is at or below the {base + per_request:.4g} s of one request"
        )
    return rate * steps * per_request / (1.0 - (base + per_request) / tpot)


@dataclass(frozen=True)
class PaperCounts:
    """The paper's answer: fractional counts, and its rounding to the nearest integer."""

    prefill_throughput: float
    decode_throughput: float
    prefill: float
    decode: float

    @property
    def ratio(self) -> float:
        """Prefill over decode replicas."""
        return self.prefill / self.decode

    @property
    def rounded(self) -> tuple[int, int]:
        """What the paper deploys: nearest integers (3.07 becomes 3), at least one."""
        return max(round(self.prefill), 1), max(round(self.decode), 1)


def paper_counts(
    rate: float,
    prompt: float,
    output: float,
    prefill_throughput: float,
    decode_throughput: float,
) -> PaperCounts:
    """N_P = lambda L_in / TP_P and N_D = lambda L_out / TP_D (the paper, eqs. 1 and 2).

    ``rate`` requests/s; lengths in tokens; throughputs in tokens/s per replica.

    >>> paper_counts(12.52, 6144, 512, 25075, 1714).rounded
    (3, 4)
    """
    positive(rate=rate, prompt=prompt, output=output)
    positive(prefill_throughput=prefill_throughput, decode_throughput=decode_throughput)
    return PaperCounts(
        prefill_throughput,
        decode_throughput,
        rate * prompt / prefill_throughput,
        rate * output / decode_throughput,
    )
