"""What the documents promise: their scenario plans, their commands run, their links lead."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import pdalloc
from pdalloc.cli import app, main
from pdalloc.planning import Answer, plan
from pdalloc.planning.simulation_answer import SimulationAnswer
from pdalloc.scenario import load_scenario, scenario_from_mapping

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
INDENTED = re.compile(r"(?:^    .*\n|^\n)+", re.MULTILINE)


def blocks(start: str) -> list[str]:
    """The indented blocks of the README whose first line starts with ``start``."""
    found = [inspect.cleandoc(block.group()) for block in INDENTED.finditer(README)]
    return [block for block in found if block.startswith(start)]


def commands() -> list[str]:
    """Every ``pdalloc ...`` line of the README's blocks, without its comment."""
    lines = re.findall(r"^    (pdalloc .+)$", README, re.MULTILINE)
    return [re.split(r"\s+#", line)[0].strip() for line in lines]


def scenario_block() -> dict[str, Any]:
    (block,) = blocks("name:")
    read: dict[str, Any] = yaml.safe_load(block)
    return read


def test_there_is_something_to_check() -> None:
    assert len(commands()) >= 5 and len(blocks("from pdalloc")) == 1


def test_the_scenario_of_the_readme_plans() -> None:
    """As printed: 50 requests/s, three SLOs, two types, and a certified cheapest fleet."""
    scenario = scenario_from_mapping(scenario_block())
    assert scenario.demand == 50.0
    assert {slo.name for slo in scenario.slos} == {"ttft.mean", "ttft.p90", "tpot.mean"}
    assert list(scenario.system.replica_types) == ["a100x8", "h100x8"]
    # a tenth of the traffic: the same question, quicker to answer
    raw = scenario_block()
    raw["traffic"][0]["rate"] = "5 req/s"
    answer = plan(scenario_from_mapping(raw))
    assert answer.status == "optimal" and all(s.kept for s in answer.slos)


def test_the_python_of_the_readme_uses_what_there_is() -> None:
    (block,) = blocks("from pdalloc")
    imported = re.search(r"^from pdalloc import (.+)$", block, re.MULTILINE)
    assert imported is not None
    assert {name.strip() for name in imported.group(1).split(",")} <= set(pdalloc.__all__)
    used = set(re.findall(r"\banswer\.(\w+)", block))
    assert used and used <= set(Answer.model_fields) | set(SimulationAnswer.model_fields)
    compile(block, "README.md", "exec")


def test_every_arrival_process_and_option_of_the_rule_book_builds() -> None:
    """The example of docs/simulation.md, its alternatives, and co-located serving by itself."""
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    (block,) = [
        b.group() for b in INDENTED.finditer(text) if b.group().strip().startswith("traffic:")
    ]
    read = yaml.safe_load(inspect.cleandoc(block))
    arrivals = [yaml.safe_load(found) for found in re.findall(r"\{process: [^}]+\}", block)]
    assert {a["process"] for a in arrivals} == {"bursts", "profile", "trace", "sessions", "renewal"}
    raw = scenario_block()
    raw["traffic"][0] |= read["traffic"][0]
    together = read["simulation"].pop("colocated")
    for options in (read["simulation"], {"colocated": together}):
        scenario = scenario_from_mapping(raw | {"simulation": options})
        on = {name for name, value in vars(scenario.options).items() if value}
        assert len(on) == len(options)
    for process in arrivals:
        raw["traffic"][0]["arrivals"] = process
        (only,) = scenario_from_mapping(raw).system.workload.classes
        assert only.process.rate == pytest.approx(20.0)


def parse(line: str) -> Any:
    """Parse without running; the parameters by name."""
    _, name, *arguments = shlex.split(line)
    group: Any = typer.main.get_command(app)
    return group.commands[name].make_context(name, arguments).params


@pytest.mark.parametrize("line", commands())
def test_every_command_parses_and_its_scenario_loads(line: str) -> None:
    params = parse(line)
    scenario = params.get("scenario")
    if scenario is None or str(scenario).startswith("my_"):
        return
    assert (ROOT / scenario).is_file()
    loaded = load_scenario(ROOT / scenario, params.get("variant"), params.get("set_") or ())
    assert loaded.demand > 0
    if params.get("fleet"):
        assert pdalloc.evaluate(loaded, params["fleet"]).fleet is not None


@pytest.mark.parametrize("line", [c for c in commands() if c.split()[1] in ("catalog", "schema")])
def test_the_cheap_commands_run(
    line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    assert (end.value.code, err) == (0, "") and out.strip()


def test_check_accepts_the_readmes_scenario_as_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (line,) = [c for c in commands() if c.split()[1] == "check"]
    file = tmp_path / line.split()[2]
    file.write_text(yaml.safe_dump(scenario_block()), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    assert (end.value.code, err) == (0, "") and "ok" in out


def test_every_command_of_the_tool_is_shown() -> None:
    group: Any = typer.main.get_command(app)
    assert set(group.commands) == {line.split()[1] for line in commands()}


def targets(page: Path) -> list[str]:
    """Link targets of a page that lie in the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return [t.split("#")[0] for t in found if "://" not in t and not t.startswith(("#", "mailto:"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [t for t in targets(page) if not (page.parent / t).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_in_code_marks_exist(page: Path) -> None:
    """`tests/contract/test_house.py`; patterns with <name> or * name a place: its folder exists."""
    text = page.read_text(encoding="utf-8")
    marked = re.findall(r"`((?:models|tests|docs|experiments|paper|notebooks)/[^`\s]*)`", text)
    planned = {"tests/docs/", "models/pdalloc/readers/"}  # named as places for what may come
    for path in marked:
        fixed = re.split(r"[<*]", path)[0]
        folder = fixed if fixed == path else fixed.rpartition("/")[0] + "/"
        assert folder in planned or (ROOT / folder).exists(), path


def stages(text: str) -> list[str]:
    """The words of a page's data flow, ``scenario -> ... -> report``."""
    flow = re.search(r"scenario\s*->[^.`]*?->\s*report", text)
    assert flow is not None
    plain = re.sub(r"\([^)]*\)", "", flow.group())
    return [word.strip() for word in re.split(r"->|,", plain)]


def test_the_datas_way_is_the_folders() -> None:
    """Each stage is a folder or a module of the package, `certify` one of allocation's."""
    way = stages(README)
    assert way[0] == "scenario" and way[-1] == "report" and len(way) >= 8
    package = ROOT / "models" / "pdalloc"
    for stage in way:
        places = [package / stage, package / f"{stage}.py", package / "allocation" / f"{stage}.py"]
        assert any(place.exists() for place in places), stage


def test_both_pages_tell_the_same_way() -> None:
    assert stages(README) == stages((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_make_targets_that_are_named_exist() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
        assert set(named) <= made, page.name
