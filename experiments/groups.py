"""An experiment in groups of tables that can be made apart: each keeps what made it.

The manifest holds, for each group, the commit and the seconds of the run that made it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.manifest import commit, write_manifest
from experiments.results import Row, write_csv

from pdalloc.errors import InputError

Tables = Mapping[str, Sequence[Row]]
Groups = Mapping[str, tuple[Callable[[], Tables], str]]
"""By name: what makes the group's tables, and the variable that it needs ("" for none)."""


def run_groups(folder: Path, seed: int, groups: Groups, chosen: Sequence[str] = ()) -> None:
    """Write the tables of the ``chosen`` groups (all, by default) and the manifest.

    A group whose variable is not set is left as it is. Raises InputError for an unknown one.
    """
    unknown = sorted(set(chosen) - set(groups))
    if unknown:
        raise InputError(f"no group {unknown[0]!r}; known: {', '.join(groups)}")
    started, made = time.perf_counter(), _made_before(folder)
    for name, (make, variable) in groups.items():
        if chosen and name not in chosen:
            continue
        if variable and variable not in os.environ:
            print(f"{name}: left as it is (needs {variable})")
            continue
        begun = time.perf_counter()
        for table, rows in make().items():
            print(write_csv(folder / f"{table}.csv", list(rows)).name)
        made[name] = {**commit(), "seconds": round(time.perf_counter() - begun, 1)}
        write_manifest(folder, seed, started, {"groups": made})


def _made_before(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")).get("groups", {})
    return found
