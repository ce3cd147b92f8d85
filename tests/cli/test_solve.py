"""`evenhand solve`: what is printed, what is written, and the exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from evenhand.cli import run
from evenhand.evaluation import evaluate
from evenhand.model import CoupledMDP, save
from evenhand.planning import load_policy
from evenhand.planning import solve as planning
from evenhand.problems import machine_replacement

from ..conftest import crossed, mentions
from ..theorems.product_space import ProductSpace, best_concave, best_gini, best_leximin, random_arm

Evenhand = Callable[..., Any]

MACHINES = ["machine-replacement", "-p", "num_arms=3", "-p", "operating_cost=exponential", "-p", "budget=1"]


@pytest.fixture
def forty_arms(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path / "forty.json"
    save(CoupledMDP([random_arm(rng, 3, 2, 1) for _ in range(40)], [4.0], 0.9), path)
    return str(path)


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", *MACHINES, "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert len(printed.out.strip().splitlines()) == 1
    assert {"method", "welfare", "values", "seconds", "policy"} <= set(answer)
    assert set(answer["welfare"]) == {"name", "value", "upper_bound", "gap", "stderr", "interval"}
    assert answer["method"] == "counts"
    assert answer["welfare"]["name"] == "gini:2"
    assert answer["welfare"]["value"] == pytest.approx(14.0793, abs=1e-4)
    assert answer["values"] == pytest.approx([answer["welfare"]["value"]] * 3)
    assert set(answer["seconds"]) == {"build", "solve"}
    assert answer["policy"] is None


def test_text_has_the_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", *MACHINES, "--welfare", "maximin", "--method", "joint"]) == 0
    out = capsys.readouterr().out
    for piece in ("welfare maximin", "14.079", "upper bound", "gap", "joint:", "values by arm"):
        assert piece in out


def test_the_saved_policy_is_the_one_that_was_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "best.policy"
    assert run(["solve", *MACHINES, "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["policy"] == str(out)
    problem = machine_replacement(num_arms=3, operating_cost="exponential", budget=1)
    played = evaluate(problem, load_policy(out, problem), method="exact")
    assert played.welfare == pytest.approx(answer["welfare"]["value"], rel=1e-7)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("options", [["--quiet"], []])
def test_progress_never_reaches_standard_output(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", *MACHINES, "--method", "joint", "--json", *options]) == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert options == [] or printed.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--method", "jont"], 2, "Did you mean 'joint'?"),
        (["--welfare", "gnii:2"], 2, "Did you mean 'gini'?"),
        (["--welfare", "alpha:2", "--method", "joint-lp"], 2, "joint-lp is for Gini-like welfare"),
        (["--tolerance", "0"], 2, "tolerance: expected a number between 0 and 1"),
        (["--tolerance", "much"], 2, "not a valid float"),
        (["--out", "no/such/folder/x.policy"], 2, "does not exist"),
        (["--frobnicate"], 2, "--frobnicate"),
    ],
)
def test_bad_input(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["solve", *MACHINES, *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["joint", "joint-lp", "counts"])
def test_too_large_is_refused_with_the_size(
    method: str, forty_arms: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "never.policy"
    assert run(["solve", forty_arms, "--method", method, "--out", str(out), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit_code"] == 1
    assert "about 10^19" in printed.err
    assert "Use fewer arms" in printed.err
    assert not out.exists()


def test_every_fault_of_a_model_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "bad.toml"
    model.write_text(
        "discount = 1.5\nbudget = [-1]\n"
        "[[arms]]\ntransitions = [[[0.5], [1.0]]]\nrewards = [[0, 1]]\nusage = [[0], [1]]\n"
    )
    assert run(["solve", str(model), "--out", str(tmp_path / "x.policy")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for piece in ("discount", "budget", "probabilities sum to 0.5, not 1"):
        assert piece in printed.err
    assert not (tmp_path / "x.policy").exists()


def test_out_of_domain_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    arms = [random_arm(rng, 2, 2, 1) for _ in range(2)]
    arms = [type(arm)(arm.transitions, arm.rewards - 2, arm.usage, arm.initial) for arm in arms]
    model = tmp_path / "costs.json"
    save(CoupledMDP(arms, [1.0], 0.9), model)
    assert run(["solve", str(model), "--welfare", "nash"]) == 2
    assert mentions("Gini", "rewards")(capsys.readouterr().err)


def test_interrupted_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "solve", interrupt)
    assert run(["solve", *MACHINES, "--out", str(tmp_path / "x.policy")]) == 130
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_out_may_not_be_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", *MACHINES, "--out", str(tmp_path)]) == 2
    assert "--out: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_takes_a_seed_like_every_command() -> None:
    assert run(["solve", *MACHINES, "--seed", "0", "--json"]) == 0


@pytest.mark.parametrize("method", ["whittle", "fluid"])
def test_methods_of_the_contract(method: str) -> None:
    assert run(["solve", *MACHINES, "--method", method, "--json"]) == 0


FLEETS = {
    "all different": lambda rng: CoupledMDP([random_arm(rng, 2, 2, 1) for _ in range(3)], [1.0], 0.9),
    "two types": lambda rng: CoupledMDP([random_arm(rng, 2, 2, 1), random_arm(rng, 3, 2, 1)], [2.0], 0.9, [2, 1]),
    "three actions, two resources": lambda rng: CoupledMDP(
        [random_arm(rng, 2, 3, 2) for _ in range(2)], [2.0, 1.0], 0.9
    ),
}


@pytest.mark.parametrize(("suffix", "fleet"), crossed([".toml", ".json", ".npz"], FLEETS))
def test_a_model_file_is_solved_to_the_brute_force_optimum(
    fleet: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against programs on the enumerated product space: linear ones, and cvxpy's for proportional fairness."""
    problem = FLEETS[fleet](np.random.default_rng(7))
    path = tmp_path / f"fleet{suffix}"
    save(problem, path)
    space = ProductSpace(problem)
    halves = 0.5 ** np.arange(1, space.num_arms + 1)
    least = np.eye(space.num_arms)[0]
    ladder = best_leximin(space)
    expected = {
        "gini:2": best_gini(space, halves / halves.sum()),
        "maximin": best_gini(space, least),
        "leximin": ladder[0],
        "alpha:2": best_concave(space, lambda v: cp.harmonic_mean(v)),
    }
    for welfare, optimum in expected.items():
        assert run(["solve", str(path), "--welfare", welfare, "--json", "--quiet"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["welfare"]["value"] == pytest.approx(optimum, abs=1e-6)
        assert answer["welfare"]["upper_bound"] == pytest.approx(optimum, abs=1e-6)
        if welfare == "leximin":
            assert sorted(answer["values"]) == pytest.approx(ladder, abs=1e-5)


FLOORS = """
discount = 0.9
budget = [1]
[[arms]]
name = "machine"
floor = 0.1
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.5], [0.0, 0.5]]
usage = [[0], [1]]
[[arms]]
name = "pump"
count = 2
floor = 0.25
transitions = [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.2], [0.1, 0.2]]
usage = [[0], [1]]
"""


def test_with_floors_the_shares_of_time_served_are_reported(folder: Path, evenhand: Evenhand) -> None:
    (folder / "floors.toml").write_text(FLOORS)
    found = evenhand("solve", "floors.toml", "--out", "plan.zip", "--json").json
    assert found["served"][0] >= 0.1 - 1e-6
    assert found["served"][1] == found["served"][2] >= 0.25 - 1e-6
    played = evenhand("evaluate", "floors.toml", "plan.zip", "--json").json
    assert [found["served"][0], found["served"][2]] == pytest.approx(played["served_by_type"])
    shown = evenhand("solve", "floors.toml").out
    for name, share in zip(("0 machine", "1 pump"), (found["served"][0], found["served"][2]), strict=True):
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(name))
        assert line.rstrip().endswith(f"{100 * share:.1f} %")
    assert "served" not in evenhand("solve", *MACHINES, "--json").json


def test_quiet_still_says_how_to_play_what_was_saved(folder: Path, evenhand: Evenhand) -> None:
    shown = evenhand("solve", *MACHINES, "--out", "plan.zip", "--quiet")
    assert shown.err == ""
    assert "evaluate machine-replacement plan.zip" in shown.out


def test_simulated_values_have_errors(evenhand: Evenhand, effort) -> None:
    effort(exact_states=0, report_steps=1e5)
    solve = ["solve", "machine-replacement", "-p", "num_arms=3", "--method", "whittle"]
    found = evenhand(*solve, "--json").json
    assert len(found["values_stderr"]) == 3
    assert found["values_stderr"][0] == pytest.approx(found["welfare"]["stderr"])  # of one type, welfare is the value
    (line,) = (line for line in evenhand(*solve).out.splitlines() if "0 machine" in line)
    assert line.split()[-1] == f"{found['values_stderr'][0]:.4f}"
    assert "values_stderr" not in evenhand("solve", *MACHINES, "--json").json
