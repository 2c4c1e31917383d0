"""What made a folder of results: commit, seed, versions, machine, seconds, command.

Everything but the seconds and the machine repeats when a run is repeated at one commit.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pdalloc.errors import InputError
from pdalloc.version import version

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "scipy", "pydantic", "pint", "pandas", "highspy", "matplotlib")
"""Distributions whose versions may move a result."""


def write_manifest(
    folder: Path, seed: int, started: float, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write ``folder``/manifest.json for a run that began at ``started``.

    ``folder`` is the one the CSVs are in; ``started`` as ``time.perf_counter()`` gave it;
    ``extra`` adds keys of the experiment's own. Raises InputError when ``extra`` would hide a
    key of the manifest.
    """
    content = {
        "experiment": folder.parent.name,
        "command": _command(),
        "git": commit(),
        "seed": seed,
        "python": platform.python_version(),
        "versions": _versions(),
        "machine": {"cpu": _cpu(), "cpus": os.cpu_count(), "system": platform.system()},
        "seconds": round(time.perf_counter() - started, 1),
    }
    hidden = sorted(set(content) & set(extra or {}))
    if hidden:
        raise InputError(f"manifest: {', '.join(hidden)} is written already; rename it in extra")
    path = folder / "manifest.json"
    text = json.dumps({**content, **(extra or {})}, indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _command() -> list[str]:
    """The command line with the script's path from the repository's root."""
    script = Path(sys.argv[0]).resolve()
    inside = script.is_relative_to(ROOT)
    shown = script.relative_to(ROOT).as_posix() if inside else script.name
    return ["python", shown, *sys.argv[1:]]


def commit() -> dict[str, str | bool | None]:
    """Commit and whether any file but results differs from it; None outside a checkout."""
    head = _asked("rev-parse", "HEAD")
    changes = _asked("status", "--porcelain")
    if head is None or changes is None:
        return {"commit": None, "dirty": None}
    paths = [line[3:].strip('"') for line in changes.splitlines()]
    return {"commit": head, "dirty": any(not _is_result(path) for path in paths)}


def _is_result(path: str) -> bool:
    parts = path.rstrip("/").split("/")
    return parts[0] == "experiments" and parts[2:3] == ["results"]


def _asked(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n")


def _versions() -> dict[str, str]:
    """Version per distribution, those that are not installed left out."""
    found = {"pdalloc": version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
