"""Summaries of plans: the order of service of a policy, common conditions of parts, and the value of budget."""

import re

import numpy as np
import pytest

from evenhand import solve
from evenhand.model import Arm, CoupledMDP, Labels, MixturePolicy, TimeVaryingPolicy, amount_of, listed, one_more
from evenhand.planning import (
    Plan,
    levels_of,
    often,
    often_each,
    order_of,
    parts_of,
    picture,
    plan_facts,
    plan_of,
    short_words,
    worth_of_more,
)
from evenhand.policies import ExchangeablePriority, RoundRobin, never_act, random_feasible, whittle
from evenhand.problems import heterogeneous_machine_replacement
from evenhand.solvers import Counts

from ..conftest import mentions
from .test_plan import ACTIONS, MACHINES, POLICIES, fleet, saved

KINDS = sorted(POLICIES)


def ranked(*scores, problem=None):
    """A policy by scores of (type, state, action), given as rows of (type, state, action, score)."""
    problem = problem or fleet()
    table = np.zeros(problem.types.valid.shape)
    for kind, state, action, score in scores:
        table[kind, state, action] = score
    return ExchangeablePriority(problem, table, threshold=0.0)


class TestOrders:
    def test_order_by_ranks(self):
        policy = ranked((0, 2, 2, 5.0), (1, 2, 2, 4.0), (0, 2, 1, 3.0), (1, 1, 1, 3.0), (0, 1, 1, 3.0))
        rows = [(row.level, row.kind, row.state, row.action) for row in order_of(policy, fleet()).rows]
        assert rows == [(1, 0, 2, 2), (2, 1, 2, 2), (3, 0, 1, 1), (3, 1, 1, 1)]
        told = [("Ford in bad (renew)",), ("Opel in bad (renew)",), ("Ford and Opel in worn (mend)",)]
        assert levels_of(order_of(policy, fleet()), Labels(fleet())) == told

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_has_a_description(self, kind):
        text = saved(kind).show()
        assert text.endswith("\n")
        assert max(map(len, text.splitlines())) <= 130
        facts = plan_facts(saved(kind))
        assert sum(part["share"] for part in facts["parts"]) == pytest.approx(1)
        assert all(part["words"] for part in facts["parts"])

    def test_tables_are_described_by_frequencies(self):
        order = order_of(solve(MACHINES).policy, MACHINES)
        assert not order.ranked
        assert [(row.state, row.action) for row in order.rows] == [(2, 1), (1, 1)]  # the oldest most often
        shares = [row.share for row in order.rows]
        assert 1 >= shares[0] > shares[1] > 0

    def test_frequencies_of_a_table_follow_its_ranks(self):
        """Played, the Whittle policy serves what it ranks first most often."""
        by_rank = [row.state for row in order_of(whittle(MACHINES), MACHINES).rows]
        assert [row.state for row in order_of(solve(MACHINES).policy, MACHINES).rows] == by_rank

    def test_policies_without_an_order(self):
        for policy, told in (
            (RoundRobin(MACHINES), "every arm in turn"),
            (random_feasible(MACHINES), "at random"),
            (never_act(MACHINES), "no arm"),
        ):
            assert told in Plan(policy, MACHINES).show()

    def test_of_many_arms_by_counts(self):
        many = CoupledMDP(MACHINES.arms, [700.0], 0.95, [3000])
        order = order_of(POLICIES["network"][1]().__class__(many, POLICIES["network"][1]().network), many)
        assert order.rows

    def test_steps(self):
        plan = Plan(
            TimeVaryingPolicy([ranked((0, 2, 2, 1.0)), ranked((1, 2, 2, 1.0))]), fleet().with_criterion("finite:2")
        )
        assert "Who comes first at step 0" in plan.show()
        first, second = (picture(order_of(plan.policy, plan.problem, step), plan.problem) for step in (0, 1))
        assert "1 renew" in first[1] and "1 renew" in second[2]

    def test_tables_by_steps_are_simulated_as_a_whole(self):
        problem = MACHINES.with_criterion("finite:2")
        plan = plan_of(solve(problem))
        assert plan.show(0) == plan.show(1)

    def test_long_tables_are_simulated_for_their_first_steps(self):
        assert mentions("60 steps")(plan_of(solve(MACHINES.with_criterion("finite:70"))).show())

    def test_a_table_for_a_larger_budget_is_still_a_table(self):
        larger = MACHINES.with_budget(2)
        assert not order_of(plan_of(solve(MACHINES)).fitted(larger), larger).ranked

    def test_draws(self):
        order = order_of(POLICIES["occupancy-priority"][1](), fleet())
        shares = [row.share for row in order.rows]
        assert all(share is not None for share in shares)
        drawn = [share > 0 for share in shares]
        assert drawn == sorted(drawn, reverse=True)  # what the budget is filled with comes last

    def test_draws_mark_actions_that_fill_up_the_budget(self):
        plan = Plan(POLICIES["occupancy-priority"][1](), fleet())
        order = order_of(plan.policy, fleet())
        filled = next(row for row in order.rows if row.share == 0)
        shown = plan.show()
        assert f" {order.place(filled)} {ACTIONS[filled.action]}*" in shown

    @pytest.mark.parametrize("name", ["occupancy-priority", "fair-index"])
    def test_priorities_equal_those_of_act(self, name):
        plan = Plan(POLICIES[name][1](), fleet())
        order = order_of(plan.policy, fleet())
        places = {(Labels(fleet()).type(row.kind), row.state): order.place_text(row) for row in order.rows}
        told = 0
        for kind, state in places:
            arms = [{"arm": f"{k}{i}", "type": k, "state": 0} for k in ("Ford", "Opel") for i in range(2)]
            arms[0] = {"arm": "it", "type": kind, "state": int(state)}
            reason, place = plan.act(arms).rows[0].reason, places[kind, state]
            found = re.search(r"priority (\d+) of \d+( for what is left)?", reason)
            if found and "first choice" not in reason and bool(found[2]) == place.endswith("*"):
                told += 1  # else what was drawn here is another action than the one that comes first
                assert place.removesuffix("*") == found[1]
        assert told > 1

    def test_conditions_of_equal_rank(self):
        policy = ranked((0, 2, 2, 5.0), (1, 2, 1, 5.0), (0, 1, 1, 5.0), (1, 1, 2, 3.0), (0, 2, 1, 4.0))
        shown = Plan(policy, fleet()).show()
        assert mentions(1)(shown)
        assert mentions(3)(shown)  # 2 is what a Ford in bad gets if it cannot be renewed
        assert mentions("2 alike")(short_words(order_of(policy, fleet()), Labels(fleet())))


FORDS = [(0, 2, 2, 9.0), (0, 1, 2, 8.0), (1, 2, 2, 7.0), (1, 1, 2, 6.0)]
OPELS = [(1 - kind, state, action, score) for kind, state, action, score in FORDS]


def table_of(policy):
    """The same as a table over counts."""
    space = Counts(policy.problem)
    table = np.zeros(space.mdp.num_pairs)
    for state, counts in enumerate(space.states):
        allocations, chances = policy.allocation_distribution(counts)
        pairs = np.arange(space.mdp.offsets[state], space.mdp.offsets[state + 1])
        for allocation, chance in zip(allocations, chances, strict=True):
            table[pairs[(space.allocations[pairs] == allocation).all(axis=(1, 2, 3))]] += chance
    return space.lift(table)


class TestMixtures:
    def test_common_conditions_come_first(self):
        same = [(0, 2, 2, 9.0), (1, 2, 2, 8.0)]
        one, other = ranked(*same, (0, 1, 1, 7.0)), ranked(*same, (1, 1, 1, 7.0))
        parts, common = parts_of(Plan(MixturePolicy([one, other], [0.25, 0.75]), fleet()))
        assert common == ["Ford in bad (renew)", "Opel in bad (renew)"]
        assert [one.part[:2] for one in parts] == [(1, 0.75), (2, 0.25)]
        assert [part.words for part in parts] == [
            "Opel in worn (mend); by fixed ranks",
            "Ford in worn (mend); by fixed ranks",
        ]
        text = Plan(MixturePolicy([one, other], [0.25, 0.75]), fleet()).show()
        assert "all of them serve first Ford in bad (renew), Opel in bad (renew); then" in text
        assert mentions(1, 75, 100)(text)

    def test_parts_in_the_same_order_are_drawn_once(self):
        text = Plan(MixturePolicy([ranked((0, 2, 2, 9.0)), ranked((0, 2, 2, 5.0))], [0.5, 0.5]), fleet()).show()
        assert mentions("part 1")(text)

    def test_mixtures_of_tables_by_frequencies(self):
        one, other = (table_of(ranked(*scores)) for scores in (FORDS, OPELS))
        parts, common = parts_of(Plan(MixturePolicy([one, other], [0.4, 0.6]), fleet()))
        assert not common
        assert parts[0].words.startswith("Opel in ") and parts[1].words.startswith("Ford in ")


class TestPicture:
    def test_one_line_per_type_and_one_column_per_state(self):
        policy = ranked((0, 2, 2, 5.0), (1, 2, 1, 4.0), (0, 1, 1, 3.0))
        lines = [re.split(r"\s{2,}", line.strip()) for line in picture(order_of(policy, fleet()), fleet())]
        assert lines == [
            ["good", "worn", "bad"],
            ["Ford", "·", "▒ 3 mend", "█ 1 renew"],
            ["Opel", "·", "·", "▓ 2 mend"],
        ]

    def test_types_that_differ_in_initial_states_share_a_line(self):
        started = fleet().with_initial_states(
            [{"arm": name, "type": "Ford", "state": name} for name in ("good", "worn", "bad")]
        )
        scores = [(kind, 2, 2, 5.0 if kind else 6.0) for kind in range(3)]
        lines = picture(order_of(ranked(*scores, problem=started), started), started)
        assert [re.split(r"\s{2,}", line)[0] for line in lines[1:]] == ["Ford from good", "Ford from worn, bad"]

    def test_too_wide_is_a_list(self):
        wide = CoupledMDP(MACHINES.arms, [1.0], 0.9, [1])
        assert picture(order_of(whittle(wide), wide), wide)
        arm = Arm(np.full((9, 2, 9), 1 / 9), np.arange(18.0).reshape(9, 2), [[0], [1]])
        wide = CoupledMDP([arm], [1.0], 0.9, [2])
        assert not picture(order_of(whittle(wide), wide), wide)
        assert "1. " in Plan(whittle(wide), wide).show()


class TestWorth:
    def test_in_words(self):
        problem = fleet(budget=(3, 4))
        told = worth_of_more(problem, {"bays": 0.0, "technicians": 0.002}, 20.0)
        assert told == ["one more technician: the bound rises by at most 0.0020", "one more bay: nothing"]
        assert worth_of_more(problem, None, 20.0) == []
        assert worth_of_more(problem, {"bays": 3e-5}, 1.0) == ["one more bay: the bound rises by less than 0.0001"]

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("bays", "one more bay"),
            ("supplies", "one more supply"),
            ("boxes", "one more box"),
            ("benches", "one more bench"),
            ("resource 0", "one unit more of resource 0"),
            ("crew", "one unit more of crew"),
            ("glass", "one unit more of glass"),
        ],
    )
    def test_one_more(self, name, told):
        assert one_more(name) == told

    @pytest.mark.parametrize(
        ("name", "amount", "told"),
        [
            ("bays", 1, "1 bay"),
            ("bays", 3, "3 bays"),
            ("resource 0", 1, "1 unit of resource 0"),
            ("money", 2.5, "2.5 units of money"),
        ],
    )
    def test_amounts(self, name, amount, told):
        assert amount_of(name, amount) == told

    def test_lists_of_names_with_commas(self):
        assert listed(["Ford (serviced, always)", "Opel"]) == "Ford (serviced, always), Opel"
        problem = heterogeneous_machine_replacement(num_arms=12)
        title = " ".join(Plan(whittle(problem), problem).show().split())
        assert mentions("1 machine", "4 machine", "3 machine")(title)

    def test_how_often(self):
        shares = (0.0, 0.001, 0.86, 0.999)
        assert list(map(often, shares)) == ["if budget is left", "hardly ever", "86 of 100 times", "always"]


def test_the_whole():
    solution = solve(fleet(), "gini:1.5", "counts")
    text = plan_of(solution).show()
    assert mentions("4 arms", 2, "1 bay", "2 technicians", "gini:1.5")(text)
    assert mentions(f"{solution.welfare:.4f}", f"{solution.upper_bound:.4f}")(text)


def test_a_plan_may_gain_more_than_the_slope_of_the_bound():
    now, then = (solve(MACHINES.with_criterion("average").with_budget(budget)) for budget in (2, 3))
    assert "budget):\n  one unit more of resource 0: nothing" in plan_of(now).show()
    assert then.welfare > now.welfare * 1.001


@pytest.mark.parametrize(
    "strange", [None, "x", [], {}, [None, "y"], True, float("nan"), 10**400, {"bays": "much"}], ids=str
)
def test_invalid_facts_of_a_file_are_harmless(strange):
    """Facts in a file may have any value."""
    keys = ("value", "upper_bound", "gap", "stderr", "welfare", "values", "prices", "parts", "method", "score", "asked")
    for policy in (whittle(MACHINES), MixturePolicy([whittle(MACHINES), never_act(MACHINES)], [0.5, 0.5])):
        plan = Plan(policy, MACHINES, dict.fromkeys(keys, strange) | {"by": "type"})
        assert "Who comes first" in plan.show()
        assert plan_facts(plan)["parts"]
        assert plan.act([0, 1, 2, 2]).rows


class TestOftenEach:
    def test_hundredths_add_up(self):
        assert often_each([0.515, 0.455, 0.03]) == ["52 of 100 times", "45 of 100 times", "3 of 100 times"]
        assert often_each([1 / 3] * 3, "starts") == ["34 of 100 starts", "33 of 100 starts", "33 of 100 starts"]
        assert often_each([0.998, 0.002]) == ["always", "hardly ever"]
        assert often_each([1.0]) == ["always"]

    @pytest.mark.parametrize("seed", range(5))
    def test_of_any_shares(self, seed):
        shares = np.random.default_rng(seed).dirichlet(np.ones(6))
        told = [0 if text == "hardly ever" else int(text.split()[0]) for text in often_each(shares.tolist())]
        assert sum(told) == 100
        assert np.abs(np.array(told) - 100 * shares).max() < 1


def test_intervals_are_spelled_out():
    """A plus-minus is one standard error everywhere else: the interval is spelled out."""
    problem = fleet(budget=(3, 4))
    about = {"welfare": "gini:2", "value": 17.5, "upper_bound": 18.0, "gap": 0.03, "stderr": 0.01}
    text = Plan(never_act(problem), problem, about).show()
    assert mentions("welfare", "17.5000", 95, 17.4804, 17.5196)(text) and "±" not in text
