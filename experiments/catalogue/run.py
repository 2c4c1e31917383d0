"""Regenerate the measured part of the catalogue: profiles/*.yaml and lengths/*.yaml.

Reads the CSV tables under the directory named by PDALLOC_REFERENCE_DATA (DATA_SOURCES.md says
where each comes from) and writes the same bytes every time:

    PDALLOC_REFERENCE_DATA=path/to/data python experiments/catalogue/run.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.catalogue import aiconfigurator, splitwise
from experiments.catalogue.documents import write
from experiments.catalogue.lengths import AZURE, lengths_table

from pdalloc.errors import PdallocError

CATALOG = Path(__file__).resolve().parents[2] / "models" / "pdalloc" / "catalog"
VARIABLE = "PDALLOC_REFERENCE_DATA"


def regenerate(root: Path, catalog: Path) -> list[Path]:
    """Write every profile and length table made from ``root`` under ``catalog``."""
    profiles = [splitwise.profile(root, target) for target in splitwise.TARGETS]
    profiles += [aiconfigurator.profile(root, target) for target in aiconfigurator.TARGETS]
    lengths = [lengths_table(root, trace) for trace in AZURE]
    written = [
        write(catalog / "profiles" / f"{profile['name'].replace('/', '-')}.yaml", profile)
        for profile in profiles
    ]
    return written + [
        write(catalog / "lengths" / f"{law['name']}.yaml", law, rows) for law, rows in lengths
    ]


def main(environ: Mapping[str, str], catalog: Path = CATALOG) -> int:
    """Regenerate into ``catalog``; exit status 2 with one line on stderr when that fails."""
    named = environ.get(VARIABLE)
    if not named:
        print(f"{VARIABLE} is not set: name the folder of the reference tables", file=sys.stderr)
        return 2
    try:
        written = regenerate(Path(named), catalog)
    except (PdallocError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for path in written:
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
