"""A law in another unit of time: service at c times the speed."""

from __future__ import annotations

from dataclasses import dataclass

from pdalloc.laws import Array, Law, StopLossLaw


@dataclass(frozen=True)
class Stretched(Law):
    """``factor`` > 0 times any delay ``law``, seconds."""

    law: Law
    factor: float

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.factor * self.law.mean

    def _horizon_guess(self) -> float:
        return self.factor * self.law._horizon_guess()

    def lattice(self, step: float, points: int) -> Array:
        """That of ``law`` at a step ``factor`` times as fine."""
        return self.law.lattice(step / self.factor, points)


@dataclass(frozen=True)
class Scaled(Stretched, StopLossLaw):
    """``factor`` times a delay ``law`` known by its stop-loss transform."""

    law: StopLossLaw

    def quantile(self, p: float) -> float:
        """That of ``law``, stretched; InputError unless 0 < p < 1."""
        return self.factor * self.law.quantile(p)

    def stop_loss(self, x: Array) -> Array:
        """f E[(T - x/f)+]."""
        return self.factor * self.law.stop_loss(x / self.factor)

    def excess_square(self, x: Array) -> Array:
        """f^2 E[((T - x/f)+)^2]."""
        return self.factor**2 * self.law.excess_square(x / self.factor)
