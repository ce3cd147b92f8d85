"""What a notebook shows: HTML that is whole, escaped and short, and the figures of the report."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.learning import Training
from evenhand.model import MixturePolicy, TimeVaryingPolicy
from evenhand.planning import Row
from evenhand.policies import CountNetworkPolicy, Network
from evenhand.report import MOST_ROWS, cell

from ..conftest import mentions, random_arm, two_types

VOID = {"meta", "br", "img"}
EVIL = '<script>alert("x")</script>'


class Balance(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def read(html):
    parser = Balance()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return " ".join(" ".join(parser.texts).split())


def trained(problem):
    sizes = [(4, 8), (8, 6)]
    network = Network([np.zeros(s, np.float32) for s in sizes], [np.zeros(s[1], np.float32) for s in sizes])
    policy = CountNetworkPolicy(problem, network)
    curve = [(0, 1.0), (1000, 3.0), (2000, 2.5)]
    return Training(policy, 3.0, True, curve, 2000, 1.5, {"algorithm": "ppo", "seed": 4}, problem)


@pytest.fixture(scope="module")
def machines():
    return eh.problems.machine_replacement(num_arms=3)


@pytest.fixture(scope="module")
def compared(machines):
    return eh.compare(machines, ["random", "whittle", "never-act"], rng=0)


THINGS = {
    "problem": (lambda m: m, "3 arms all identical budget 1 per step"),
    "arm": (lambda m: m.arms[0], "machine 3 states, 2 actions, 1 resource"),
    "check": (lambda m: eh.check(m.with_budget([3])), "this budget never binds"),
    "solution": (lambda m: eh.solve(m), "upper bound 14.079306"),
    "evaluation": (lambda m: eh.evaluate(m, eh.policies.whittle(m)), "Evaluation, welfare gini:2 computed exactly"),
    "training": (trained, "welfare 3.0000 (exact; the best of 3 evaluations)"),
    "indices": (lambda m: eh.indices(m), "age 1: −0.6767, age 2: 0.2923"),
    "indices by step": (lambda m: eh.indices(m, "finite:5"), "Whittle indices, finite:5"),
    "index policy": (lambda m: eh.policies.whittle(m), "1 machine age 3 replace 5.011"),
    "network policy": (lambda m: trained(m).policy, "layer inputs outputs 0 4 8 1 8 6"),
    "round robin": (lambda m: eh.policies.RoundRobin(m), "act, with a memory"),
    "mixture": (lambda m: MixturePolicy([eh.policies.myopic(m)] * 2, [0.25, 0.75]), "25.0 %"),
    "by steps": (lambda m: TimeVaryingPolicy([eh.policies.myopic(m)] * 3), "2 ExchangeablePriority(for 3 arms)"),
    "simulator": (
        lambda m: eh.Simulator(max, min, [[0], [1]], num_states=3, num_arms=9, budget=[2], discount=0.9),
        "9 arms all identical, known by samples only",
    ),
    "simulator of an average": (
        lambda m: eh.Simulator(
            max, min, [[0], [1]], num_states=3, num_arms=9, budget=[2], discount=0.9, criterion="average"
        ),
        "value of an arm the expected reward per step in the long run",
    ),
}


@pytest.mark.parametrize("name", THINGS)
def test_html_says_what_matters(machines, name):
    make, expected = THINGS[name]
    assert expected in read(make(machines)._repr_html_())


def test_a_comparison_has_its_table(compared):
    text = read(compared._repr_html_())
    assert mentions("3 policies", "3 arms", "gini:2")(text)
    assert "optimum 14.0793" in text and mentions(14.0793)(text)
    assert "never-act" in read(compared.rows[-1]._repr_html_())


def test_an_estimate_above_the_bound_is_reported_as_a_tie(compared):
    row = compared.rows[0]
    lucky = replace(row.evaluation, welfare=compared.upper_bound + 0.5, welfare_stderr=0.25, exact=False)
    text = read(replace(compared, rows=(Row("lucky", lucky), *compared.rows[1:]))._repr_html_())
    assert f"tie: lucky with the optimum: it played {lucky.welfare:.4f} ± 0.2500, more only by chance" in text
    assert "tie: " not in read(compared._repr_html_())


def test_groups_floors_and_names_are_reported():
    problem = eh.CoupledMDP(
        [random_arm(1, 3, [[0], [1], [2]]), random_arm(2, 3, [[0], [1], [2]])],
        budget=[2],
        discount=0.9,
        groups=["north", "south"],
        floors=[0.1, 0],
        resources=["bays"],
        over="groups",
    )
    text = read(cell(problem))
    assert mentions("budget", "bays", "2 per")(text) and "north 10.0 %" in text and mentions("2 groups")(text)


def test_every_text_is_escaped():
    arm = eh.Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0], [1]], name=EVIL, states=[EVIL], actions=[EVIL, "b"])
    problem = eh.CoupledMDP([arm], budget=[1], discount=0.5, resources=[EVIL], counts=[2])
    mine = {EVIL: eh.policies.never_act(problem)}
    shown = [
        problem,
        arm,
        eh.check(problem),
        eh.solve(problem),
        eh.compare(problem, mine),
        eh.indices(problem),
        eh.policies.whittle(problem),
    ]
    for thing in shown:
        html = cell(thing)
        assert "<script" not in html
        read(html)
    assert all("&lt;script&gt;" in cell(thing) for thing in shown)


def test_tables_are_never_longer_than_a_screen():
    arms = [random_arm(seed, 2, [[0], [1]]) for seed in range(40)]
    problem = eh.CoupledMDP(arms, budget=[3], discount=0.5)
    html = cell(problem)
    assert mentions(20)(html) and html.count("<tr>") == MOST_ROWS + 1
    assert cell(eh.policies.myopic(problem)).count("<tr>") <= MOST_ROWS + 2
    assert (
        cell(eh.evaluate(problem, eh.policies.myopic(problem), num_episodes=2, horizon=2, rng=0)).count("<tr>")
        <= MOST_ROWS + 2
    )


def test_colours_are_the_notebooks_own(compared):
    style = compared._repr_html_().partition("<style>")[2].partition("</style>")[0]
    assert "#" not in style and "white" not in style.replace("white-space", "") and "currentColor" not in style
    assert all(line.startswith(".evenhand") for line in style.strip().splitlines())


class TestPictures:
    def test_every_kind_is_a_figure_that_a_notebook_shows(self, machines, compared):
        from matplotlib.figure import Figure

        typed = eh.compare(two_types(), ["random", "never-act"], rng=0)
        pictures = [compared.plot(), typed.plot("spread"), typed.plot("lorenz"), eh.solve(machines).plot()]
        pictures += [eh.indices(machines).plot(), eh.indices(machines, "finite:5").plot(), trained(machines).plot()]
        pictures += [typed.rows[0].evaluation.plot()]
        for picture in pictures:
            assert isinstance(picture, Figure) and picture.axes
        png, size = pictures[0]._repr_png_()
        assert png.startswith(b"\x89PNG") and size["width"] > 400

    def test_bars_are_the_figures_that_were_measured(self, compared):
        axes = compared.plot().axes[0]
        assert [bar.get_width() for bar in axes.patches] == [row.evaluation.welfare for row in compared.rows]
        assert [text.get_text() for text in axes.get_yticklabels()] == [row.policy for row in compared.rows]

    def test_indices_are_drawn_by_state(self, machines):
        line = eh.indices(machines).plot().axes[0].lines[0]
        assert np.array_equal(line.get_ydata(), eh.indices(machines).indices[0])

    def test_the_learning_curve_is_the_curve(self, machines):
        line = trained(machines).plot().axes[0].lines[0]
        assert line.get_xdata().tolist() == [0, 1000, 2000] and line.get_ydata().tolist() == [1.0, 3.0, 2.5]

    def test_many_arms_are_a_curve(self):
        arms = [random_arm(seed, 2, [[0], [1]]) for seed in range(30)]
        problem = eh.CoupledMDP(arms, budget=[3], discount=0.5)
        found = eh.evaluate(problem, eh.policies.myopic(problem), num_episodes=2, horizon=2, rng=0)
        axes = found.plot().axes[0]
        ends = [found.unit_values.min(), found.unit_values.max()]
        assert not axes.patches and np.array_equal(ends, axes.lines[0].get_xdata())

    def test_lorenz_curves_say_which_they_are_where_some_are_left_out(self):
        def title(*names):
            return eh.compare(two_types(), names, rng=0).plot("lorenz").axes[0].get_title(loc="left")

        assert title("random") == ""
        assert mentions("4 policies")(title("random", "never-act", "myopic", "equal-resources"))

    def test_arms_and_types_are_numbered_from_zero(self):
        typed = eh.compare(two_types(), ["random"], num_episodes=2, horizon=3, rng=0).rows[0].evaluation
        labels = [text.get_text() for text in typed.plot().axes[0].get_yticklabels()]
        assert labels == ["type 0", "type 1"]

    def test_the_users_own_style_is_left_alone(self, compared):
        import matplotlib as mpl

        with mpl.rc_context({"font.size": 31}):
            compared.plot()
            assert mpl.rcParams["font.size"] == 31

    def test_what_cannot_be_drawn_says_so(self, machines, compared):
        with pytest.raises(InvalidInputError, check=mentions("welfare", "spread", "lorenz")):
            compared.plot("pie")
        with pytest.raises(InvalidInputError, check=mentions("values", "trade")):
            eh.price_of_fairness(machines, ["maximin"]).plot("pie")


def test_the_report_is_written_from_python(compared, tmp_path):
    compared.report(tmp_path / "page.html", title="Mine & <yours>", seed=7)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Mine &amp; &lt;yours&gt;" in page and "the seed 7" in page and "<svg" in page


def test_a_plan_is_described_and_decisions_are_a_table(machines, tmp_path):
    eh.save_solution(eh.solve(machines), tmp_path / "plan.zip")
    plan = eh.load_plan(tmp_path / "plan.zip")
    assert mentions("Plan(CountChoices(for", "3 arms", "gini:2", 14.0793)(repr(plan))
    assert " ".join(plan.show().split()) == read(plan._repr_html_())
    table = [{"arm": f"press <{n}>", "type": "machine", "state": state} for n, state in enumerate([0, 1, 2])]
    now = plan.act(table)
    assert mentions("Decisions(3", "1 served", 1, "1 resource", "0 used")(repr(now))
    assert mentions("press", "<2>", "machine", "3 replace")(read(now._repr_html_()))
    assert now.to_frame("polars")["action"].to_list() == [row.action for row in now.rows]
