"""One clear line for whatever the schema finds wrong with a scenario."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from pdalloc.errors import InputError
from pdalloc.scenario.schema import ScenarioSpec

Detail = Any
"""One entry of pydantic's ``ValidationError.errors()``."""


def validated(raw: dict[str, Any], origin: str) -> ScenarioSpec:
    """The scenario as the schema reads it; InputError with one line, naming ``origin``."""
    try:
        return ScenarioSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{origin}: {_sentence(_worst(error.errors()))}") from None


def _worst(details: Sequence[Detail]) -> Detail:
    """The most telling of pydantic's findings: deepest, choices before shapes.

    A value that may have several shapes is reported once per shape; the deepest finding is
    about the shape that was meant.
    """
    top = str(details[0]["loc"][:1])
    same = [d for d in details if str(d["loc"][:1]) == top]
    rank = {"extra_forbidden": 0, "missing": 1, "literal_error": 2}

    def key(detail: Detail) -> tuple[bool, int, int]:
        order = rank.get(detail["type"], len(rank))
        return order > rank["missing"], -len(_path(detail)), order

    return min(same, key=key)


def _path(detail: Detail) -> list[str]:
    """The keys that lead to a finding, without pydantic's names for the shapes it tried."""
    parts = [str(part) for part in detail["loc"]]
    shapes = ("str", "float", "int", "[key]")
    return [p for p in parts if p not in shapes and "[" not in p and not p.endswith("Spec")]


def _sentence(detail: Detail) -> str:
    path, kind, got = ".".join(_path(detail)), detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(detail["loc"][:-1])
        return f"{path}: unknown key; {_nearest(path.rpartition('.')[2], known)}"
    if kind == "missing":
        return f"{path}: this key is missing; add it"
    if kind == "literal_error":
        return f"{path}: must be {detail['ctx']['expected']}, got {got!r}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        known = _known_keys(detail["loc"])
        keys = f" of keys ({', '.join(known)})" if known else " of keys"
        return f"{path}: must be a block{keys}, got {got!r}"
    if kind == "list_type":
        return f"{path}: must be a list, got {got!r}"
    if kind in ("string_type", "float_type") and "within" in path and isinstance(got, dict):
        return (
            f"{path}: one request has no {' or '.join(map(str, got)) or 'mean'}; give the seconds "
            f'that it should keep, e.g. "1 s", got {got!r}'
        )
    if kind in ("string_type", "float_type"):
        return f'{path}: must be a number, or text such as "20 ms" with its unit, got {got!r}'
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"{path}: {message.replace('input should', 'must')}, got {got!r}"


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"


def _known_keys(location: Sequence[int | str]) -> list[str]:
    """Field names of the block at ``location`` in the schema; empty where it is no block."""
    model: type[BaseModel] | None = ScenarioSpec
    for part in location:
        if model is None:
            return []
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if field is not None:
            model = _block(field.annotation)
    return [f.alias or name for name, f in model.model_fields.items()] if model else []


def _block(annotation: Any) -> type[BaseModel] | None:
    """The block in a field's type, alone or in a list, a mapping or a choice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_block(part) for part in get_args(annotation))
    return next((block for block in found if block is not None), None)
