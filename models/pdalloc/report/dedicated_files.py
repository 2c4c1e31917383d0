"""Dedicated pools as files: one answer, and the figures of every part."""

from __future__ import annotations

import re
from pathlib import Path

from pdalloc.fleet import parse_fleet
from pdalloc.planning.dedicated import dedicated_problem, part_given
from pdalloc.planning.dedicated_answer import DedicatedAnswer
from pdalloc.report.files import ANSWER, FIGURES, KINDS, figure_files, fill_folder
from pdalloc.scenario import Scenario


def write_dedicated(scenario: Scenario, answer: DedicatedAnswer, out: Path) -> None:
    """answer.json and the figures of each part, as ``part1_chat_...``, in folder ``out``.

    A part's figures have the stock that the other parts leave it. Figures of parts that an
    earlier run had and this one has not go. Raises InputError when ``out`` cannot be written.
    """
    contents = {ANSWER: (answer.to_json() + "\n").encode()}
    if answer.parts:
        problem = dedicated_problem(scenario)
        names = [part.system.type_names for part in scenario.parts]
        fleets = [
            parse_fleet(part.answer.fleet or "", types)
            for part, types in zip(answer.parts, names, strict=True)
        ]
        for i, part in enumerate(answer.parts):
            if part.answer.margin is not None:
                given = part_given(scenario.parts[i], problem, i, fleets)
                drawn = figure_files(given, part.answer)
                start = f"part{i + 1}_{_plain(part.classes)}"
                contents |= {f"{start}_{name}": content for name, content in drawn.items()}
    fill_folder(out, contents)
    for name in FIGURES:
        for kind in KINDS:
            for old in out.glob(f"part*_{name}.{kind}"):
                if old.name not in contents:
                    old.unlink(missing_ok=True)


def _plain(classes: list[str]) -> str:
    """Class names in a file name: ``chat[<=2048]`` is ``chat_up_to_2048``.

    >>> _plain(["chat[<=2048]", "code[>8192]"])
    'chat_up_to_2048+code_over_8192'
    """
    words = (name.replace("[<=", "_up_to_").replace("[>", "_over_") for name in classes)
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", "+".join(words).replace("]", "").replace("[", "_"))
