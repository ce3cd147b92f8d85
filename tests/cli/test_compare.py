"""`evenhand compare`: the table, the JSON, and what is refused."""

import re

import pytest

from evenhand.planning import REGISTRY
from evenhand.problems import catalog

from ..conftest import mentions

KEYS = {"upper_bound", "rows"}
ROW_KEYS = {"policy", "welfare", "welfare_stderr", "mean", "worst", "gini_coefficient", "budget_used", "seconds"}

PAPER = ["machine-replacement", "-p", "num_arms=5", "-p", "operating_cost=exponential", "--episodes", "1000"]
QUICK = ["--episodes", 20, "--horizon", 20]

STILL = "[[arms]]\ntransitions = [[[1.0], [1.0]]]\nrewards = [[{0}, {0}]]\nusage = [[0], [1]]\n"
"""An arm whose reward is the same whatever is done."""


def by_policy(found):
    return {row["policy"]: row for row in found["rows"]}


@pytest.mark.parametrize(
    "options", [[], ["--monte-carlo", "--policies", "random,oldest-first"]], ids=["exact", "monte-carlo"]
)
def test_the_paper_s_problem(options, evenhand):
    found = evenhand("compare", *PAPER, *options, "--json").json
    assert set(found) >= KEYS
    assert all(set(row) >= ROW_KEYS for row in found["rows"])
    rows = by_policy(found)
    assert rows["random"]["mean"] == pytest.approx(9.43, abs=0.05)
    assert rows["oldest-first"]["mean"] == pytest.approx(13.43, abs=0.03)
    assert rows["random"]["exact"] == rows["oldest-first"]["exact"] == (not options)
    assert (rows["random"]["welfare_stderr"] == 0) == (not options)


def test_exact_figures_do_not_depend_on_the_seed(small, evenhand, timeless):
    found = [evenhand("compare", small, *QUICK, "--seed", seed, "--json").json for seed in (0, 1)]
    exact = [[row for row in timeless(each)["rows"] if row["exact"]] for each in found]
    assert exact[0]
    assert exact[0] == exact[1]


def test_the_json_is_complete_and_in_order(small, evenhand):
    found = evenhand("compare", small, *QUICK, "--json").json
    assert {entry.name for entry in REGISTRY} <= set(by_policy(found)) | set(found["left_out"])
    welfare = [row["welfare"] for row in found["rows"]]
    assert welfare == pytest.approx(sorted(welfare, reverse=True), abs=1e-8)
    if found["upper_bound"] is not None:
        assert all(row["welfare"] <= found["upper_bound"] + 4 * row["welfare_stderr"] + 1e-6 for row in found["rows"])
    for row in found["rows"]:
        assert row["worst"] <= row["welfare"] + 1e-9
        assert row["welfare"] <= row["mean"] + 1e-9
        assert len(row["budget_used"]) == 1
        assert row["seconds"] >= 0


@pytest.mark.parametrize("name", catalog.names())
def test_every_problem_can_be_compared(name, evenhand):
    known = {parameter.name for parameter in catalog.find(name).parameters}
    few = ["-p", "num_arms=4"] if "num_arms" in known else []
    steps = [] if name in ("equitable", "bayesian-bandit") else QUICK  # a finite horizon has its own steps
    found = evenhand("compare", name, *few, *steps, "--policies", "random,myopic", "--json").json
    assert {"random", "myopic"} <= set(by_policy(found))


def test_the_table_has_every_policy(small, evenhand):
    shown = evenhand("compare", small, *QUICK)
    assert (shown.code, shown.err) == (0, "")
    for row in evenhand("compare", small, *QUICK, "--json").json["rows"]:
        (line,) = (line for line in shown.out.splitlines() if line.split()[:1] == [row["policy"]])
        assert f"{row['welfare']:.4f}" in line
        assert f"{row['worst']:.4f}" in line


def test_chosen_policies_by_either_name(small, evenhand):
    rows = by_policy(evenhand("compare", small, *QUICK, "--policies", " RDM, oldest-first,", "--json").json)
    assert {"random", "oldest-first"} <= set(rows)
    assert not {"myopic", "equal-resources", "never-act"} & set(rows)


def test_welfare_decides_the_order(small, evenhand):
    found = evenhand("compare", small, *QUICK, "--welfare", "maximin", "--json").json
    for row in found["rows"]:
        assert row["welfare"] == pytest.approx(row["worst"])
    worst = [row["worst"] for row in found["rows"]]
    assert worst == sorted(worst, reverse=True)


def test_undefined_figures_are_null_in_json_and_dashes_in_tables(folder, evenhand):
    """The Gini coefficient of the values 2 and -2, and the spread of a single episode, do not exist."""
    (folder / "zero.toml").write_text(f"discount = 0.5\nbudget = [1]\n{STILL.format(1)}{STILL.format(-1)}")
    command = ["compare", "zero.toml", "--policies", "random", "--monte-carlo", "--episodes", 1]
    row = by_policy(evenhand(*command, "--json").json)["random"]
    assert row["mean"] == 0
    assert row["gini_coefficient"] is None
    assert row["welfare_stderr"] is None
    (line,) = (line for line in evenhand(*command).out.splitlines() if line.split()[:1] == ["random"])
    assert line.split().count("–") >= 2


def test_faults_of_parameters_come_all_at_once(evenhand):
    told = evenhand(
        "compare", "machine-replacement",
        "-p", "num_arm=3", "-p", "operating-cost=exponentil", "-p", "budget=-1", "-p", "discount=2", "-p", "seed=x",
    ).refusal  # fmt: skip
    assert "5 faults" in told
    assert "num_arm: " in told
    assert mentions("num_arms?", "exponential?", "budget: ", "got -1", "discount: ", "got 2", "seed: ", "got 'x'")(told)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        (["num_arms"], "expected KEY=VALUE, got 'num_arms'"),
        (["a", "b"], "'a', 'b'"),
        (["num_arms=3", "num_arms=4"], "given twice: num_arms"),
        (["num_arms=3", "num-arms=4"], "given twice: num_arms"),
        (["num_arms=1e12"], "num_arms: expected at most"),
        (["num_arms=1e300"], "num_arms: expected"),
        (["num_arms=nan"], "num_arms: expected"),
        (["num_arms="], "num_arms: expected"),
        (["budget=inf"], "budget: expected"),
        (["=3"], "no such parameter"),
    ],
    ids=str,
)
def test_unreadable_parameters_are_reported(parameters, told, evenhand):
    options = [part for parameter in parameters for part in ("-p", parameter)]
    assert told in evenhand("compare", "machine-replacement", *options).refusal


def test_parameters_are_for_built_in_problems(small, evenhand):
    assert "-p" in evenhand("compare", small, "-p", "num_arms=3").refusal


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("machine-replacment", "Did you mean 'machine-replacement'?"),
        ("nonsense", "unknown problem 'nonsense'"),
        ("missing.toml", "missing.toml: cannot be read"),
        ("nowhere/missing.json", "nowhere/missing.json: cannot be read: there is no folder nowhere"),
        (".", ".toml, .json, .npz"),
    ],
)
def test_an_unknown_model_is_reported(model, told, folder, evenhand):
    assert told in evenhand("compare", model, "--json").refusal


def test_an_unknown_policy_is_reported(small, evenhand):
    told = evenhand("compare", small, "--policies", "random,oldst-first").refusal
    assert "'oldst-first'" in told
    assert "'oldest-first'?" in told


def test_unknown_policies_are_reported_all_at_once(small, evenhand):
    told = evenhand("compare", small, "--policies", "radnom,oldst-first").refusal
    assert "'radnom'" in told
    assert "'oldst-first'" in told


@pytest.mark.parametrize("policies", ["", ",", " "])
def test_a_comparison_of_no_policy_is_refused(policies, small, evenhand):
    assert "--policies" in evenhand("compare", small, "--policies", policies).refusal


@pytest.mark.parametrize(
    ("welfare", "told"),
    [
        ("gni:2", "Did you mean 'gini'?"),
        ("gini:-1", "gini:-1"),
        ("gini:nan", "gini:nan"),
        ("gini:0.5,0.5", "for 2 arms, but there are 3"),
        ("gini:0.2,0.3,0.5", "gini:0.2,0.3,0.5"),
        ("alpha:x", "'x'"),
        ("alpha:-1", "alpha:-1"),
        ("maximin:x", "maximin:x"),
        ("utilitarian:1", "utilitarian:1"),
        ("", "unknown welfare ''"),
    ],
)
def test_a_bad_welfare_is_reported(welfare, told, small, evenhand):
    assert told in evenhand("compare", small, "--welfare", welfare, "--json").refusal


def test_a_welfare_outside_its_domain_is_reported(folder, evenhand):
    """Proportional fairness is a mean of logarithms, and an arm that earns nothing has none."""
    (folder / "nothing.toml").write_text(f"discount = 0.5\nbudget = [1]\n{STILL.format(0)}")
    assert "positive" in evenhand("compare", "nothing.toml", "--welfare", "nash").refusal


def test_what_would_not_fit_fails_in_words(small, evenhand):
    failed = evenhand("compare", small, "--monte-carlo", "--episodes", 10**13, "--horizon", 1)
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("error: ")
    assert "Use fewer episodes" in failed.err


@pytest.mark.slow
def test_the_same_seed_gives_the_same_json_whatever_the_threads(launch, timeless):
    """Two million arm-steps and more are compiled and run on all threads."""
    model = ["heterogeneous-machine-replacement", "-p", "num_arms=40"]
    play = ["--policies", "random", "--monte-carlo", "--episodes", 7000, "--horizon", 8, "--seed", 7, "--json"]
    one, two = (timeless(launch("compare", *model, *play, NUMBA_NUM_THREADS=threads).json) for threads in "12")
    assert one == two


def test_another_seed_gives_other_figures(small, evenhand):
    play = ["--policies", "random", "--monte-carlo", *QUICK, "--json"]
    first, other = (evenhand("compare", small, *play, "--seed", seed).json for seed in (0, 1))
    assert by_policy(first)["random"]["mean"] != by_policy(other)["random"]["mean"]


def test_only_requested_files_are_written(small, evenhand, files):
    assert evenhand("compare", small, *QUICK).code == 0
    assert files() == [small.name]


TWO_RESOURCES = ["crew-maintenance", "-p", "num_arms=3", *QUICK]
"""Whittle indices are for one resource, and count proportions for identical arms."""


def test_a_named_policy_that_does_not_apply_is_left_out_with_its_reason(evenhand):
    command = ["compare", *TWO_RESOURCES, "--policies", "whittle,random"]
    found = evenhand(*command, "--json").json
    assert list(by_policy(found)) == ["random"]
    assert list(found["left_out"]) == ["whittle"]
    assert f"left out: whittle: {found['left_out']['whittle']}" in evenhand(*command).out


def test_so_is_one_beside_a_saved_policy(evenhand, folder):
    assert evenhand("solve", *TWO_RESOURCES[:3], "--out", "plan.zip").code == 0
    found = evenhand("compare", *TWO_RESOURCES, "--policies", "plan.zip,WIP,RDM", "--json").json
    assert set(by_policy(found)) == {"plan.zip", "random"}
    assert list(found["left_out"]) == ["whittle"]


def test_where_none_applies_all_reasons_are_reported(evenhand):
    told = evenhand("compare", *TWO_RESOURCES, "--policies", "whittle,cp-drl", "--json")
    assert told.refusal
    assert [fault["place"] for fault in told.failure["faults"]] == ["whittle", "cp-drl"]
    assert "one resource" in evenhand("compare", *TWO_RESOURCES, "--policies", "whittle").refusal


LUCKY = [
    "machine-replacement",
    "-p",
    "num_arms=2",
    "--policies",
    "whittle,optimal",
    "--monte-carlo",
    "--episodes",
    30,
    "--seed",
    3,
]
"""With this seed both are estimated above the optimum that both attain."""


def test_an_estimate_above_the_optimum_is_a_tie_with_it(evenhand, folder):
    found = evenhand("compare", *LUCKY, "--json").json
    rows, optimum = by_policy(found), found["upper_bound"]
    above = [name for name, row in rows.items() if row["welfare"] > optimum]
    assert above, "choose another seed"
    assert [name for name, row in rows.items() if row["above_bound"]] == above
    shown = evenhand("compare", *LUCKY, "--report", "page.html").out
    for name in above:
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [name])
        assert line.split()[1] == f"{optimum:.4f}"
        assert line.split()[3] == "100.0"
        played = f"{rows[name]['welfare']:.4f} ± {rows[name]['welfare_stderr']:.4f}"
        assert mentions(f"tie: {name}", played)(shown)
    page = (folder / "page.html").read_text()
    assert "only by chance" in page
    assert "100.0" in page
    assert not re.findall(r"10\d\.[1-9]\d\u2009?%|100\.[0-9]*[1-9]", page)


def test_an_exact_value_is_not_a_tie(evenhand):
    found = evenhand("compare", "machine-replacement", "-p", "num_arms=2", "--policies", "whittle,optimal", "--json")
    assert [row["above_bound"] for row in found.json["rows"]] == [False, False]


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_a_horizon_without_use_is_reported(command, small, evenhand):
    policy = ["random"] if command == "evaluate" else ["--policies", "random"]
    shown = evenhand(command, small, *policy, "--horizon", 20)
    assert mentions("not used", "over all time", "--monte-carlo", 20)(shown.out)
    long_run = evenhand(command, small, *policy, "--horizon", 20, "--criterion", "average").out
    assert mentions("not used", "long run")(long_run)
    for settings in ([], ["--horizon", 20, "--monte-carlo"], ["--criterion", "finite:5", "--horizon", 5]):
        assert "not used" not in evenhand(command, small, *policy, *settings).out
    assert "20" in evenhand(command, small, *policy, "--horizon", 20, "--criterion", "finite:5").refusal


@pytest.mark.parametrize(("settings", "horizon"), [([], None), (["--monte-carlo"], 7)], ids=["exact", "played"])
def test_the_json_shows_what_was_played(settings, horizon, small, evenhand):
    found = evenhand("evaluate", small, "random", "--horizon", 7, "--episodes", 5, *settings, "--json").json
    assert (found["horizon"], found["episodes"]) == (horizon, None if horizon is None else 5)
