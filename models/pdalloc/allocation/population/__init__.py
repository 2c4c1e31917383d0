"""SLOs over all requests of a class: fast pools may make up for slow ones."""

from pdalloc.allocation.population.burden import Burdens, below, burdens
from pdalloc.allocation.population.search import cheapest_counts, solve_population
from pdalloc.allocation.population.split import Split, best_split
from pdalloc.allocation.population.verdict import (
    certify_population,
    population_traffic,
    population_values,
)

__all__ = [
    "Burdens",
    "Split",
    "below",
    "best_split",
    "burdens",
    "certify_population",
    "cheapest_counts",
    "population_traffic",
    "population_values",
    "solve_population",
]
