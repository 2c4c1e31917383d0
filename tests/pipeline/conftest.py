"""Small made-up scenarios, for the tests of simulating, repairing and reporting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdalloc.cli import main
from pdalloc.fleet import DECODE, PREFILL, Fleet
from pdalloc.planning import Effort, Simulation, simulate
from pdalloc.planning.simulation_answer import EstimateAnswer
from pdalloc.scenario import Scenario, scenario_from_mapping

Case = tuple[Scenario, Simulation]
"""A scenario, and a fleet of it simulated."""


class Made:
    """Scenarios of made-up replicas of 8 GPUs, whose formulas are known."""

    MU = 10.0
    """Requests/s that one prefill replica can do: 1000 tokens at 10,000 a second."""
    STEP, PER_REQUEST = 10e-3, 0.5e-3
    """Decode step: seconds, and seconds more for each request in the batch."""
    BURSTS = {"process": "bursts", "levels": [1, 2], "lasts": "20 s"}  # noqa: RUF012
    EFFORT = Effort(1500, 3)
    TOGETHER = {"colocated": {"policy": "prefill_first"}}  # noqa: RUF012

    @staticmethod
    def replica(name: str = "r", noise: str = "exponential", **more: Any) -> dict[str, Any]:
        service = {
            "source": "made up",
            "prefill": {"throughput": f"{1000 * Made.MU} token/s", "noise": noise},
            "decode": {"base": f"{Made.STEP} s", "per_request": f"{Made.PER_REQUEST} s/request"},
        }
        block = {"name": name, "gpu": "h100", "gpus": 8, "service": service}
        return block | {"calibration": {"source": "made up"}} | more

    @staticmethod
    def chat(**keys: Any) -> dict[str, Any]:
        """A class of 7 req/s: prompts of 1000 tokens, answers of one."""
        block = {"rate": "7 req/s", "prompt": "1000 tokens", "output": "1 token"}
        return block | {"slo": {"ttft": {"mean": "1 s"}}} | keys

    @staticmethod
    def question(*replicas: dict[str, Any], **keys: Any) -> Scenario:
        """An M/M/1 prefill whose first token is seen at once, unless ``keys`` say otherwise."""
        raw: dict[str, Any] = {
            "name": "q",
            "llm": "llama2-70b",
            "traffic": [Made.chat()],
            "replicas": list(replicas) or [Made.replica()],
            "prices": {"h100": "2 USD/GPU/hour", "a100": "1 USD/GPU/hour"},
            "first_token": "prefill",
        }
        return scenario_from_mapping(raw | keys)

    @staticmethod
    def pair(**keys: Any) -> Scenario:
        """Two types for both roles, answers of 20 tokens; ``b`` is half as dear."""
        answers = {"traffic": [Made.chat(output="20 tokens")]}
        return Made.question(Made.replica("a"), Made.replica("b", gpu="a100"), **answers | keys)

    @staticmethod
    def sheddable(usd: float, most: float = 1.0, **keys: Any) -> dict[str, Any]:
        """A class of 47 req/s that may be shed at ``usd`` a request.

        A prefill replica takes 9 of them in 1 s on average: 1/(10 - 9) (M/M/1).
        """
        slo = {"ttft": {"mean": "1 s"}, "tpot": {"mean": "40 ms"}}
        shed = {"price": f"{usd!r} USD/request", "most": most}
        common = {"rate": "47 req/s", "output": "20 tokens", "slo": slo, "shed": shed}
        return Made.chat(**(common | keys))

    @staticmethod
    def fleet(prefills: int = 1, decodes: int = 1) -> Fleet:
        return Fleet.of({(PREFILL, "r"): prefills, (DECODE, "r"): decodes})

    @staticmethod
    def confirm(estimate: EstimateAnswer, expected: float, width: float = 0.1) -> None:
        """The theory lies within two half-widths, which are narrow enough to see a fault."""
        assert estimate.half_width < width * expected
        assert estimate.value == pytest.approx(expected, abs=2.0 * estimate.half_width)


@pytest.fixture(scope="session")
def made() -> type[Made]:
    return Made


@pytest.fixture(scope="session")
def plain(made) -> Case:
    """A class with a bound of every kind; 2P1D, of which decode breaks one."""
    slo = {
        "ttft": {"mean": "0.3 s", "p99": "4 s"},
        "tpot": {"p90": "5 ms"},
        "itl": {"p99": "50 ms"},
        "e2e": {"mean": "3 s"},
    }
    scenario = made.question(traffic=[made.chat(output="20 tokens", slo=slo)])
    return scenario, simulate(scenario, "2P1D", Made.EFFORT)


@pytest.fixture(scope="session")
def busy(made) -> Case:
    """Two classes, and clients that give up, are refused and come again."""
    classes = [
        made.chat(name="chat", rate="12 req/s", output="20 tokens", slo={"ttft": {"p90": "2 s"}}),
        made.chat(name="code", rate="2 req/s", output="60 tokens", slo={"e2e": {"mean": "9 s"}}),
    ]
    clients = {"timeout": "0.3 s", "max_queue": 4, "retries": 1, "retry_delay": "100 ms"}
    noise = {"law": "gamma", "scv": 0.5}
    options = {"clients": clients, "step_noise": noise}
    scenario = made.question(traffic=classes, simulation=options, title="[b]two[/b] classes")
    return scenario, simulate(scenario, "1P1D", Made.EFFORT)


@pytest.fixture(scope="session")
def together(made) -> Case:
    scenario = made.question(traffic=[made.chat(output="20 tokens")], simulation=made.TOGETHER)
    return scenario, simulate(scenario, "2", Made.EFFORT)


@pytest.fixture(params=["plain", "busy", "together"])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.getfixturevalue(request.param)
    return found


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Done]:
    """The command in this process, in an empty folder; whatever libraries print is seen too."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["pdalloc", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run
