"""What produced a result: package version, solver, seed."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version; ``0+source`` when run from a source tree without metadata."""
    try:
        return metadata.version("pdalloc")
    except metadata.PackageNotFoundError:
        return "0+source"


def provenance(solver: str, seed: int) -> dict[str, str | int]:
    """Package version, solver and seed, for answers and manifests."""
    return {"package": "pdalloc", "version": version(), "solver": solver, "seed": seed}
