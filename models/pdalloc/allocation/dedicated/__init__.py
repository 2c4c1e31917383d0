"""Pools per traffic class under one stock: parts that meet in GPUs, owned replicas and limits."""

from pdalloc.allocation.dedicated.problem import DedicatedAllocation, DedicatedProblem, Part
from pdalloc.allocation.dedicated.search import solve_dedicated

__all__ = ["DedicatedAllocation", "DedicatedProblem", "Part", "solve_dedicated"]
