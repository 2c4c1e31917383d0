"""plan and evaluate: from a scenario to a certified answer."""

from pdalloc.planning.answer import Answer
from pdalloc.planning.plan import evaluate, plan

__all__ = ["Answer", "evaluate", "plan"]
