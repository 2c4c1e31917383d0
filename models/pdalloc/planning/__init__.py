"""plan, evaluate, compare, frontier, explain, schedule, simulate: from a scenario to an answer."""

from pdalloc.planning.answer import Answer
from pdalloc.planning.compare import compare
from pdalloc.planning.effort import Effort
from pdalloc.planning.explain import explain
from pdalloc.planning.frontier import frontier
from pdalloc.planning.plan import evaluate, plan
from pdalloc.planning.schedule import schedule
from pdalloc.planning.simulation import Simulation, simulate

__all__ = [
    "Answer",
    "Effort",
    "Simulation",
    "compare",
    "evaluate",
    "explain",
    "frontier",
    "plan",
    "schedule",
    "simulate",
]
