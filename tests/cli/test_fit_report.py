"""`evenhand fit` tells what the records say: on the terminal, as JSON, as a page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from evenhand.cli import application

from ..fitting.diagnostics.simulated import WEAR, by_state, simulated


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    log = simulated(np.stack([WEAR, WEAR]), 40, 15, 0, by_state([0.05, 0.2, 0.7]), types=("Ford", "VW"))
    rows = zip(log.arm, log.time, log.state, log.action, strict=True)
    lines = [f"{a},{t:.0f},{log.states[s]},{log.actions[d]},{log.types[log.type_of[a]]}" for a, t, s, d in rows]
    path = tmp_path_factory.mktemp("fit") / "log.csv"
    path.write_text("\n".join(["van,week,condition,action,make", *lines]) + "\n")
    columns = "--arm van --time week --state condition --action action --type make --rewards good=1,fair=0.6,poor=0"
    return ["fit", str(path), *columns.split(), "--quiet"]


def test_the_terminal_has_a_block_and_a_table(asked: list[str]) -> None:
    output = CliRunner().invoke(application, asked).stdout
    block = output.split("What the records say\n")[1]
    assert re.search(r"  memory  .*\+0\.", block)
    assert "  choice  " in block
    assert "effect of an action" in block
    assert "serve    poor (VW)" in block


def test_json_and_page(asked: list[str], tmp_path: Path) -> None:
    report = tmp_path / "fit.html"
    result = CliRunner().invoke(application, [*asked, "--json", "--report", str(report)])
    found = json.loads(result.stdout)["diagnostics"]
    assert found["num_tests"] == 4
    assert found["choices"]["worth"][0] < found["choices"]["worth"][1]
    assert "Effects of actions" in report.read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_refused_first(asked: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(application, [*asked, "--report", str(tmp_path / "no" / "fit.html")])
    assert result.exit_code != 0
    assert not list(tmp_path.iterdir())
