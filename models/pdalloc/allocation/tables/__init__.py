"""The uncoupled problem on capacity tables, solved to proven optimality."""

from pdalloc.allocation.tables.build import solve_by_tables
from pdalloc.allocation.tables.data import Tables, tables
from pdalloc.allocation.tables.tree import Proof, cheapest

__all__ = ["Proof", "Tables", "cheapest", "solve_by_tables", "tables"]
