"""Kinds of event, in the order in which events of one instant happen.

Departures (a prefill pass, a decode step or recompute pass, a shared link's work ends), failures
and repairs, clients that give up, arrivals (at prefill, at decode), then step starts.
"""

(
    PREFILL_END,
    STEP_END,
    LINK_END,
    FAILURE,
    REPAIR,
    TIMEOUT,
    ARRIVAL,
    TRANSFER_END,
    STEP_START,
) = range(9)
