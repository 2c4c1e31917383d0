"""Types that every block of a scenario file is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[float, Field(strict=True)]
Quantity = Annotated[str | Number, Field(description='a number and a unit, e.g. "20 ms"')]
Count = Annotated[int, Field(strict=True)]
RoleName = Literal["prefill", "decode"]
DispatchName = Literal["random", "round_robin", "least_loaded", "central_queue"]


class Spec(BaseModel):
    """Base of every block: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
