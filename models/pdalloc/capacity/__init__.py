"""Greatest admissible rates and routing: the only place where laws and SLOs are inverted."""

from pdalloc.capacity.rates import greatest_rate
from pdalloc.capacity.routing import Capacity, demand_limit

__all__ = ["Capacity", "demand_limit", "greatest_rate"]
