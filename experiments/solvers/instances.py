"""Seeded allocation problems: 8 GPU types x 3 parallelism options x 2 roles, shared stock.

Speeds spread over a factor of six, prices follow them with some noise, each role has its own
tilt per GPU type, and a replica of 2 or 4 GPUs is a little more or less than 2 or 4 times as
fast. The demand is 20 to 80 % of what the stock could carry, so stock binds. *pooled*: m
replicas admit what square-root staffing gives, m = a + b sqrt(a), b between 0.3 and 1.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.allocation.linear import COVERED, LinearData
from pdalloc.allocation.problem import Option
from pdalloc.allocation.tables import Tables, tables
from pdalloc.fleet import ROLES

Array = NDArray[np.float64]

GPU_TYPES, PARALLELISM, STOCK = 8, (1, 2, 4), 512
SEEDS = tuple(range(20))


@dataclass(frozen=True)
class Instance:
    """Options, the share of the demand that 0, 1, ... replicas of each admit, and the stock."""

    seed: int
    pooled: bool
    options: tuple[Option, ...]
    admits: tuple[Array, ...]
    stock: dict[str, int]

    def tables(self) -> Tables:
        """What the exact search works on."""
        return tables(self.options, self.admits, self.stock)

    def linear(self) -> LinearData:
        """What the MILP models are lowered from; one-hot sizes where pooled."""
        n = len(self.options)
        sizes = dict(enumerate(self.admits)) if self.pooled else {}
        return LinearData(
            self.options,
            share=np.array([row[1] for row in self.admits]),
            usd=np.array([o.usd_per_hour for o in self.options]),
            gpus=np.array([float(o.gpus) for o in self.options]),
            owned=np.zeros(n),
            most=np.full(n, math.inf),
            ceiling=np.array([float(len(row) - 1) for row in self.admits]),
            stock=self.stock,
            sizes=sizes,
        )


def instance(
    seed: int, pooled: bool = False, stock: int = STOCK, gpu_types: int = GPU_TYPES
) -> Instance:
    """The instance of ``seed``; ``stock`` GPUs of each type."""
    rng = np.random.default_rng(seed)
    speed = np.exp(rng.uniform(0.0, math.log(6.0), gpu_types))
    price = speed**0.9 * np.exp(rng.normal(0.0, 0.15, gpu_types))
    options, rates, bends = [], [], []
    for g in range(gpu_types):
        for role in ROLES:
            tilt = math.exp(rng.normal(0.0, 0.2))
            for k in PARALLELISM:
                options.append(Option(role, f"g{g}x{k}", f"g{g}", k, float(price[g] * k)))
                scaled = k ** rng.uniform(0.8, 1.05) * rng.uniform(0.9, 1.1)
                rates.append(float(speed[g] * tilt * scaled))
                bends.append(float(rng.uniform(0.3, 1.5)))
    demand = most_demand(options, rates, stock) * rng.uniform(0.2, 0.8)
    admits = []
    for o, rate, b in zip(options, rates, bends, strict=True):
        top = min(stock // o.gpus, math.ceil(1.3 * demand / rate) + 3)
        m = np.arange(top + 1, dtype=np.float64)
        load = (np.sqrt(m + b * b / 4.0) - b / 2.0) ** 2 if pooled else m
        load[0] = 0.0
        alone = int(np.searchsorted(load * rate / demand, COVERED))
        admits.append((load * rate / demand)[: alone + 1])
    held = {f"g{g}": stock for g in range(gpu_types)}
    return Instance(seed, pooled, tuple(options), tuple(admits), held)


def most_demand(options: list[Option], rates: list[float], stock: int) -> float:
    """The greatest demand that fractions of replicas within ``stock`` carry in both roles."""
    from scipy.optimize import linprog

    gpus = sorted({o.gpu for o in options})
    rows = np.zeros((len(ROLES) + len(gpus), len(options) + 1))
    for i, (o, rate) in enumerate(zip(options, rates, strict=True)):
        rows[ROLES.index(o.role), i] = -rate
        rows[len(ROLES) + gpus.index(o.gpu), i] = o.gpus
    rows[: len(ROLES), -1] = 1.0
    held = np.r_[np.zeros(len(ROLES)), np.full(len(gpus), stock)]
    target = np.zeros(len(options) + 1)
    target[-1] = -1.0
    return -float(linprog(target, rows, held).fun or 0.0)
