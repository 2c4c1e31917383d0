"""Several periods: a fleet for each, with starts and stops between them."""

from pdalloc.allocation.periods.problem import Costs, Period, PeriodsProblem, Schedule
from pdalloc.allocation.periods.search import solve_periods

__all__ = ["Costs", "Period", "PeriodsProblem", "Schedule", "solve_periods"]
