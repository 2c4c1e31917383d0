"""Joint law of prompt and output lengths, as weighted points.

Whatever its source - fixed lengths, a quantile table of a trace, two independent laws - a
length law is a finite set of (prompt, output) pairs with weights, so every later stage can
sum over requests instead of assuming moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdalloc.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LengthLaw:
    """Points (prompt tokens, output tokens) with weights summing to 1; arrays (n,).

    Raises InputError for empty, non-finite or mismatched arrays, prompts or outputs below
    one token, or weights that are negative or do not sum to 1.
    """

    prompt: Array
    output: Array
    weight: Array

    def __post_init__(self) -> None:
        if not (len(self.prompt) == len(self.output) == len(self.weight)) or not len(self.prompt):
            raise InputError("a length law needs as many prompts, outputs and weights, at least 1")
        for name, values in (("prompt", self.prompt), ("output", self.output)):
            if not np.all(np.isfinite(values)) or np.any(values < 1):
                raise InputError(f"{name} lengths must be finite and at least 1 token")
        if not np.all(self.weight >= 0) or not abs(float(self.weight.sum()) - 1.0) <= 1e-9:
            raise InputError("length weights must be non-negative and sum to 1")

    def mean(self, values: Array) -> float:
        """Request mean of ``values`` given per point, shape (n,)."""
        return float(self.weight @ values)

    @property
    def mean_prompt(self) -> float:
        """E[prompt tokens]."""
        return self.mean(self.prompt)

    @property
    def mean_output(self) -> float:
        """E[output tokens]."""
        return self.mean(self.output)

    def scaled_output(self, factor: float) -> LengthLaw:
        """The same law with every output ``factor`` times as long (at least one token)."""
        return LengthLaw(self.prompt, np.maximum(self.output * factor, 1.0), self.weight)


def fixed(prompt: float, output: float) -> LengthLaw:
    """Every request has ``prompt`` and ``output`` tokens."""
    return LengthLaw(np.array([prompt], float), np.array([output], float), np.ones(1))


def joint_table(prompt: Array, output: Array, counts: Array) -> LengthLaw:
    """Points with non-negative ``counts`` (normalised here, zeros left out); arrays (n,)."""
    prompt, output, counts = (np.asarray(x, float) for x in (prompt, output, counts))
    if not np.all(np.isfinite(counts)) or np.any(counts < 0) or counts.sum() <= 0:
        raise InputError("a length table needs non-negative counts with a positive sum")
    some = counts > 0
    if some.shape == prompt.shape == output.shape:  # else LengthLaw says what does not fit
        prompt, output, counts = prompt[some], output[some], counts[some]
    return LengthLaw(prompt, output, counts / counts.sum())


def independent(prompt: Array, output: Array) -> LengthLaw:
    """Equally likely ``prompt`` and ``output`` values, drawn independently: their product."""
    p, o = np.meshgrid(np.asarray(prompt, float), np.asarray(output, float), indexing="ij")
    return LengthLaw(p.ravel(), o.ravel(), np.full(p.size, 1.0 / max(p.size, 1)))
