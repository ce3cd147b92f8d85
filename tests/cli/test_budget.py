"""--budget: another budget than the model's, on every command that takes a MODEL; and tables of several."""

from dataclasses import replace

import pytest

from evenhand.cli import application, print_summary
from evenhand.evaluation import evaluate as evaluate_policy
from evenhand.planning import BudgetComparison, BudgetSweep, Comparison, Row, Step
from evenhand.policies import whittle
from evenhand.problems import machine_replacement
from evenhand.report import left_out_notes, summarise

from ..conftest import mentions

CREW = ["crew-maintenance", "-p", "num_arms=3", "-p", "num_states=2", "-p", "num_types=2"]
MACHINES = ["machine-replacement", "-p", "num_arms=3"]

TAKE_A_MODEL = sorted(
    name
    for name in application.list_commands(None)
    if any(parameter.name == "model" for parameter in application.get_command(None, name).params)
)


@pytest.mark.parametrize("name", TAKE_A_MODEL)
def test_every_command_that_takes_a_model_takes_a_budget(name):
    options = {option for parameter in application.get_command(None, name).params for option in parameter.opts}
    assert "--budget" in options


@pytest.mark.parametrize("budget", ["2", "resource 0=2"])
def test_it_is_the_same_as_the_parameter(budget, evenhand, timeless):
    one, other = ["--budget", budget, "--json"], ["-p", "budget=2", "--json"]
    for command, *rest in (["solve"], ["compare", "--policies", "whittle,random"], ["evaluate", "whittle"]):
        first, second = (evenhand(command, *MACHINES, *rest, *budget).json for budget in (one, other))
        assert timeless(first) == timeless(second), command
    assert evenhand("solve", *MACHINES, *one).json["budget"] == {"resource 0": 2.0}


def test_names_leave_the_others_as_they_are(evenhand):
    assert evenhand("solve", *CREW, "--budget", "parts=5", "--json").json["budget"] == {"crew hours": 2, "parts": 5}


def test_titles_and_commands_tell_it(evenhand, folder):
    shown = evenhand("solve", *MACHINES, "--budget", "2", "--out", "best.zip").out
    assert mentions("gini:2", "budget 2")(shown)
    command = shown[shown.index("evenhand evaluate") :].rstrip(")\n").split()[1:]
    assert "--budget" in command
    assert "budget 2" in evenhand(*command).out
    assert evenhand("evaluate", *MACHINES, "best.zip").code == 2


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["4"], "expected 2 numbers (crew hours, parts), got 1"),
        (["4,x"], "parts: expected a number"),
        (["4,"], "parts: expected a number"),
        (["crew_hour=2"], "did you mean crew hours?"),
        (["parts=2,parts=3"], "each name once"),
        (["parts=2,3"], "NAME=NUMBER"),
        (["1,-1"], "parts: expected a number"),
    ],
    ids=str,
)
def test_faults(typed, told, evenhand):
    refusal = evenhand("solve", *CREW, *(word for text in typed for word in ("--budget", text))).refusal
    assert told in refusal
    assert "--budget" in refusal


def test_it_is_given_once(evenhand):
    assert "-p budget" in evenhand("solve", *MACHINES, "-p", "budget=2", "--budget", "2").refusal
    assert "-p parts" in evenhand("solve", *CREW, "-p", "parts=4", "--budget", "2,2").refusal
    twice = ["--budget", "1", "--budget", "2"]
    assert "--budget: expected one" in evenhand("evaluate", *MACHINES, "random", *twice).refusal
    assert "--budget: expected one" in evenhand("indices", *MACHINES, *twice).refusal
    for options in (["--out", "x.zip"], ["--candidate", "whittle"]):
        assert mentions("--budget", options[0])(evenhand("solve", *MACHINES, *twice, *options).refusal)
    assert "--report" in evenhand("compare", *MACHINES, *twice, "--report", "x.html").refusal


def test_several_budgets_are_a_table(evenhand):
    several = ["--budget", "1", "--budget", "2", "--budget", "0"]
    found = evenhand("solve", *MACHINES, *several, "--json").json
    rows = found["budgets"]
    assert found["welfare"] == "gini:2"
    assert [row["budget"] for row in rows] == [{"resource 0": 1}, {"resource 0": 2}, {"resource 0": 0}]
    assert (rows[0]["step"], rows[0]["step_stderr"]) == (None, None)
    assert rows[1]["step"] == pytest.approx(rows[1]["welfare"]["value"] - rows[0]["welfare"]["value"])
    assert (rows[1]["step_stderr"], rows[1]["step_from"]) == (0, {"resource 0": 1})
    assert (rows[2]["step"], rows[2]["step_from"]) == (None, None)
    alone = evenhand("solve", *MACHINES, "--budget", "2", "--json").json
    assert rows[1]["welfare"] == alone["welfare"]
    shown = evenhand("solve", *MACHINES, *several).out
    assert "budgets, welfare gini:2" in shown
    assert f"{rows[1]['step']:+.4f}" in shown
    assert "step from" in shown  # the third row has none, so it is not always the row before
    assert "step from" not in evenhand("solve", *MACHINES, *several[:4]).out


def test_compare_under_several_budgets(evenhand):
    several = ["--budget", "1", "--budget", "2", "--policies", "whittle,random"]
    found = evenhand("compare", *MACHINES, *several, "--json").json["budgets"]
    assert [row["best"]["policy"] for row in found] == ["whittle", "whittle"]
    assert found[1]["step"] == pytest.approx(found[1]["best"]["welfare"] - found[0]["best"]["welfare"])
    assert {"upper_bound", "rows", "budget"} <= set(found[0])
    shown = evenhand("compare", *MACHINES, *several).out
    for piece in ("best policy", "welfare of every policy", "at 1", "at 2", "random", f"{found[1]['step']:+.4f}"):
        assert piece in shown


def test_a_step_that_is_not_more_than_its_error_is_called_so(evenhand):
    """More calls than people are of no use."""
    asked = ("solve", *MACHINES, "--budget", "5", "--budget", "6")
    found = evenhand(*asked, "--json").json["budgets"]
    assert [row["step_measurable"] for row in found] == [None, False]
    assert "no measurable difference" in evenhand(*asked).out
    found = evenhand("solve", *MACHINES, "--budget", "1", "--budget", "2", "--json").json["budgets"]
    assert found[1]["step_measurable"] is True


def test_a_saved_plan_competes_under_every_budget(folder, evenhand):
    """Found in haste, a plan for its own budget or a larger one would be worse."""
    today = evenhand("solve", *CREW, "--method", "joint", "--out", "today.zip", "--json").json
    asked = ["--method", "fluid", "--seconds", "0.001", "--candidate", "today.zip", "--json"]
    budgets = ["--budget", "parts=3", "--budget", "parts=5"]
    own = today["budget"]["parts"]
    found = evenhand("solve", *CREW, *budgets, "--budget", f"parts={own}", *asked).json["budgets"]
    for row in found:
        assert row["budget"]["parts"] < own or row["welfare"]["value"] >= today["welfare"]["value"]
    assert found[-1]["welfare"]["value"] == today["welfare"]["value"]


def test_an_estimate_above_the_bound_is_a_tie_with_it(capsys):
    """Shown at the bound, and so are the steps from and to it."""
    machines = machine_replacement(num_arms=2)
    played = evaluate_policy(machines, whittle(machines), "utilitarian", 20, 20, 0, "monte-carlo")
    rows = []
    for budget, welfare, bound, step in (
        (1.0, 9.0, 10.0, None),
        (2.0, 12.0, 11.0, Step(3.0, 0.2, {"resource 0": 1.0}, True)),
    ):
        found = replace(played, welfare=welfare, welfare_stderr=0.1)
        table = Comparison(found.objective.welfare, (Row("whittle", found),), {}, bound, "fluid bound", machines)
        rows.append(BudgetComparison({"resource 0": budget}, table, "whittle", found, step))
    print_summary(summarise(BudgetSweep("utilitarian", tuple(rows))))
    shown = capsys.readouterr().out
    assert "12.0000   " not in shown
    assert mentions("11.0000", "0.1000", "+2.0000")(shown)
    assert mentions(2, "bound", "12.0000", "0.1000")(shown)


def test_a_missing_bound_is_not_a_missing_policy():
    machines = machine_replacement(num_arms=2)
    found = evaluate_policy(machines, whittle(machines))
    left = {"upper bound": "it is too large", "cp-drl": "it is for others"}
    table = Comparison(found.objective.welfare, (Row("whittle", found),), left, None, "", machines)
    assert left_out_notes(table) == ["left out: cp-drl: it is for others", "no upper bound: it is too large"]
