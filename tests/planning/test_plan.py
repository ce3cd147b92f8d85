"""Plans: what they say to do is what their policy does, for any table of arms; and the reasons are true."""

import io
import json
import re
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from evenhand import solve
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError, TableError
from evenhand.evaluation import evaluate
from evenhand.model import Arm, CoupledMDP, MixturePolicy, TimeVaryingPolicy
from evenhand.planning import Plan, build_policy, load_plan, load_policy, plan_of, relax, save_policy, save_solution
from evenhand.policies import (
    CountNetworkPolicy,
    ExchangeablePriority,
    JointNetworkPolicy,
    Network,
    OccupancyPriority,
    RoundRobin,
    look_ahead,
    random_feasible,
    whittle,
)
from evenhand.policies.deadlines import DeadlinePolicy
from evenhand.problems import machine_replacement

from ..conftest import mentions
from .test_network_files import network

STATES, ACTIONS = ["good", "worn", "bad"], ["run", "mend", "renew"]


def van(name, wear, loss):
    moves, rewards = np.zeros((3, 3, 3)), np.zeros((3, 3))
    for state in range(3):
        for action, (place, chance) in enumerate([(min(state + 1, 2), wear), (max(state - 1, 0), 0.7)]):
            moves[state, action, place] += chance
            moves[state, action, state] += 1 - chance
        moves[state, 2, 0] += 1
        rewards[state] = 1 - loss * state / 2 - np.array([0, 0.1, 0.2])
    usage = [[0, 0], [0, 1], [1, 2]]
    return Arm(moves, rewards, usage, [1, 0, 0], name=name, states=STATES, actions=ACTIONS)


def fleet(counts=(2, 2), budget=(1, 2), **more):
    makes = [van("Ford", 0.3, 0.8), van("Opel", 0.5, 1.0)]
    return CoupledMDP(makes, budget, 0.9, counts, resources=["bays", "technicians"], **more)


TABLE = [
    {"arm": "v4", "type": "Opel", "state": "worn"},
    {"arm": "v1", "type": "Ford", "state": "bad"},
    {"arm": "v3", "type": "Opel", "state": "bad"},
    {"arm": "v2", "type": "Ford", "state": "good"},
]
MACHINES = machine_replacement(num_arms=4, budget=1)
MACHINE_TABLE = [{"arm": f"m{i}", "state": state} for i, state in enumerate([2, 0, 1, 2])]


@cache
def relaxed():
    return relax(fleet(), "gini:1.5")


@cache
def mixture():
    parts = [build_policy(fleet(), relaxed(), name) for name in ("fair-index", "occupancy-priority", "re-solving")]
    return MixturePolicy(parts, [0.2, 0.5, 0.3])


POLICIES = {
    "fair-index": (fleet, lambda: build_policy(fleet(), relaxed(), "fair-index")),
    "occupancy-priority": (fleet, lambda: build_policy(fleet(), relaxed(), "occupancy-priority")),
    "re-solving": (fleet, lambda: build_policy(fleet(), relaxed(), "re-solving")),
    "mixture": (fleet, mixture),
    "typed": (fleet, lambda: solve(fleet(), "gini:1.5", "counts").policy),
    "round-robin": (fleet, lambda: RoundRobin(fleet())),
    "random": (fleet, lambda: random_feasible(fleet())),
    "whittle": (lambda: MACHINES, lambda: whittle(MACHINES)),
    "by-steps": (lambda: MACHINES.with_criterion("finite:5"), lambda: whittle(MACHINES.with_criterion("finite:5"))),
    "choices": (lambda: MACHINES, lambda: solve(MACHINES).policy),
    "joint": (lambda: MACHINES, lambda: solve(MACHINES, "gini:2", "joint").policy),
    "network": (lambda: MACHINES, lambda: CountNetworkPolicy(MACHINES, network([4, 8, 6]))),
    "sampling": (
        lambda: MACHINES,
        lambda: CountNetworkPolicy(MACHINES, network([4, 8, 7], squash=True), "priority-sampling"),
    ),
    "joint-network": (lambda: MACHINES, lambda: JointNetworkPolicy(MACHINES, network([4, 8, 4]))),
}
ANY_NUMBER = {"fair-index", "occupancy-priority", "re-solving", "mixture", "round-robin", "random"}
ANY_NUMBER |= {"whittle", "by-steps", "network", "sampling"}


@pytest.fixture(params=POLICIES)
def kind(request):
    return request.param


@cache
def saved(kind):
    build, make = POLICIES[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.zip"
        save_policy(build(), make(), path, {"method": kind})
        return load_plan(path)


@pytest.fixture
def plan(kind):
    return saved(kind)


def table_of(plan):
    return TABLE if plan.problem.num_types == 2 else MACHINE_TABLE


def actions(decisions):
    return {row.arm: row.action for row in decisions.rows}


def used_by(problem, decisions):
    """What the actions of the rows use, from the model."""
    total = np.zeros(problem.num_resources)
    for row in decisions.rows:
        kind = [label[0] for label in problem.types.labels].index(row.type)
        _, states, acts = problem.types.labels[kind]
        total += problem.types.usage[kind, states.index(row.state), acts.index(row.action)]
    return total


class TestEveryKind:
    def test_carries_its_problem(self, kind, plan):
        assert plan.problem == POLICIES[kind][0]()

    def test_actions_within_the_budget_have_reasons(self, plan):
        for seed in range(3):
            found = plan.act(table_of(plan), seed)
            assert [row.arm for row in found.rows] == [row["arm"] for row in table_of(plan)]
            assert np.allclose(list(found.used.values()), used_by(plan.problem, found))
            assert (used_by(plan.problem, found) <= plan.problem.budget).all()
            assert all(row.reason for row in found.rows)

    def test_the_order_of_the_table_does_not_matter(self, plan):
        rows = table_of(plan)
        assert actions(plan.act(rows, 5)) == actions(plan.act(rows[::-1], 5)) == actions(plan.act(rows, 5))

    def test_json(self, plan):
        told = json.loads(json.dumps(plan.act(table_of(plan)).to_dict()))
        assert list(told)[:2] == ["actions", "used"]
        assert list(told["actions"][0]) == ["arm", "type", "state", "action", "reason"]
        assert set(told["used"]) == set(plan.problem.resource_names)

    def test_other_numbers(self, kind, plan):
        rows = [*table_of(plan), table_of(plan)[0] | {"arm": "new"}]
        if kind in ANY_NUMBER:
            found = plan.act(rows)
            assert len(found.rows) == 5
            assert "planned for" in found.note
            assert (used_by(plan.problem, found) <= plan.problem.budget).all()
            return
        with pytest.raises(NotApplicableError) as caught:
            plan.act(rows)
        assert re.search(r"planned for \d+", str(caught.value))

    def test_a_type_that_is_gone(self, kind, plan):
        if kind not in ANY_NUMBER or plan.problem.num_types != 2:
            pytest.skip("a plan for these numbers of arms, or for one type")
        found = plan.act(TABLE[:1])
        assert [row.arm for row in found.rows] == ["v4"]

    def test_another_budget(self, kind, plan):
        nothing = [0.0] * plan.problem.num_resources
        if kind in ANY_NUMBER:
            found = plan.act(table_of(plan), budget=nothing)
            assert not any(row.served for row in found.rows)
            return
        with pytest.raises(NotApplicableError):
            plan.act(table_of(plan), budget=nothing)


def test_plans_of_deterministic_policies_act_alike(tmp_path):
    """Where nothing is drawn, what an arm gets is what its policy gives it."""
    for kind in ("choices", "whittle", "network"):
        problem, policy = POLICIES[kind][0](), POLICIES[kind][1]()
        states = np.array([2, 0, 1, 0])  # one worn out: no lots
        wanted = policy.act(states[None].astype(np.int32), np.random.default_rng(0))[0]
        found = Plan(policy, problem).act([{"arm": f"m{i}", "state": s} for i, s in enumerate(states.tolist())])
        assert [row.served for row in found.rows] == (wanted > 0).tolist()


class TestReasonsOfRanks:
    """Against a plain replay of who is served when."""

    def test_are_true(self):
        rng, seen = np.random.default_rng(0), set()
        for trial in range(60):
            problem = fleet(counts=(4, 3), budget=(1, 3))
            scores = rng.integers(-1, 4, size=(2, 3, 3)).astype(float)
            policy = ExchangeablePriority(problem, scores, threshold=0.0)
            states = rng.integers(0, 3, 7)
            found = Plan(policy, problem).act(states.tolist(), trial)
            for arm, row in enumerate(found.rows):
                seen.add(self.check(problem, policy, states, found, arm, row))
        assert seen == {"never", "first choice", "another", "higher", "lot"}

    def check(self, problem, policy, states, found, arm, row):
        kinds = problem.type_of_arm
        ranks = policy.ranks[kinds[arm], states[arm]]
        able = [action for action in (1, 2) if ranks[action] >= 0]
        given = [ACTIONS.index(each.action) for each in found.rows]
        if not able:
            assert mentions("never")(row.reason)
            return "never"
        best = min(able, key=lambda action: (ranks[action], action))
        levels = policy.ranks.max() + 1
        if given[arm]:
            assert f"; priority {ranks[given[arm]] + 1} of {levels}" in row.reason
            assert ("its first choice" in row.reason) == (ranks[given[arm]] > ranks[best])
            if ranks[given[arm]] == ranks[best]:
                return "first choice"
        else:
            assert row.reason.startswith(f"{ACTIONS[best]} has priority {ranks[best] + 1} of {levels}, but ")
        before = problem.budget.copy()
        for other, action in enumerate(given):
            if action and policy.ranks[kinds[other], states[other], action] < ranks[best]:
                before -= problem.types.usage[0, 0, action]
        short = problem.types.usage[0, 0, best] > before
        assert (mentions("higher")(row.reason)) == short.any()
        for name, lacking in zip(("bays", "technicians"), short, strict=True):
            assert not short.any() or (name in row.reason) == lacking
        assert ("enough for" in row.reason) or short.any()
        assert not mentions("lot")(row.reason)
        assert not mentions("drawn")(row.reason)
        return "another" if given[arm] else "higher" if short.any() else "lot"

    def test_do_not_blame_others_where_there_is_too_little_for_anyone(self):
        problem = fleet(counts=(2, 1), budget=(1, 1))  # renewing takes two technicians
        scores = np.zeros((2, 3, 3))
        scores[1, 1, 1], scores[0, 2, 2] = 2.0, 1.0
        found = Plan(ExchangeablePriority(problem, scores, threshold=0.0), problem).act([2, 2, 1])
        assert [row.served for row in found.rows] == [False, False, True]
        assert "others" not in found.rows[0].reason

    def test_say_why_a_condition_is_never_served(self):
        good = [{"arm": "m", "state": "age 1"}, *({"arm": f"m{i}", "state": 1} for i in range(3))]
        found = Plan(whittle(MACHINES), MACHINES, {"method": "whittle"}).act(good)
        assert found.rows[0].reason.startswith("its index is not positive: idling is as good here")

    def test_of_tables_count_arms_alike(self):
        found = Plan(solve(MACHINES).policy, MACHINES).act([{"arm": f"m{i}", "state": 2} for i in range(4)])
        assert [row.served for row in found.rows].count(True) == 1
        served = next(row for row in found.rows if row.served)
        wanted = "the plan gives replace to 1 of the 4 machine in age 3"
        assert mentions(wanted)(served.reason)

    def test_of_a_network_are_those_of_its_scores(self):
        """Scores that put the oldest first, and idling before replacing the youngest."""
        layer = np.zeros((4, 6), dtype=np.float32), np.array([1, 0, 0, 2, 0, 3], dtype=np.float32)
        policy = CountNetworkPolicy(MACHINES, Network([layer[0]], [layer[1]]))
        found = {row.state: row.reason for row in Plan(policy, MACHINES).act(MACHINE_TABLE).rows if not row.served}
        told = ", by the network's scores with the arms as they are"
        assert found["age 1"] == "the network puts idling first in this condition, with the arms as they are"
        assert mentions("priority 2", 2, told)(found["age 2"])
        assert mentions("2 arms")(found["age 3"])

    def test_of_draws_name_the_rest_of_the_budget(self):
        """One is drawn to idle and waits for what is left; that goes to who ranks higher."""
        laws, scores = np.zeros((1, 3, 2)), np.zeros((1, 3, 2))
        laws[0, :, 0], scores[0, :, 1] = 1.0, [0.0, 1.0, 2.0]
        policy = OccupancyPriority(MACHINES, laws, scores)
        rows = [*MACHINE_TABLE[:3], MACHINE_TABLE[1] | {"arm": "x"}]
        found = {row.arm: row.reason for row in Plan(policy, MACHINES).act(rows).rows}
        meant, place = "the plan gives operate to every arm in this condition", "of 2 for what is left of the budget"
        assert mentions("priority 1", meant, place)(found["m0"])
        assert found["m1"] == meant
        assert mentions("priority 2", "resource 0", place)(found["m2"])

    def test_of_draws_name_rank_and_lot(self):
        laws, scores = np.zeros((1, 3, 2)), np.zeros((1, 3, 2))
        laws[0, :2, 0], laws[0, 2, 1], scores[0, :, 1] = 1.0, 1.0, [0.0, 1.0, 2.0]
        policy = OccupancyPriority(MACHINES, laws, scores)
        found = Plan(policy, MACHINES).act(MACHINE_TABLE).rows
        (won,) = (row.reason for row in found if row.served)
        assert mentions("priority 1")(won)
        assert mentions("2 arms")(won)


class TestTablesElsewhere:
    """A table plays the arms that it was made for, wherever they start, and with more than it needs."""

    def test_it_is_the_same_table_from_other_states(self):
        problem = fleet(counts=(2, 1))
        plan = plan_of(solve(problem, "utilitarian"))
        rows = [{"arm": "c", "type": "Opel", "state": "bad"}, {"arm": "a", "type": "Ford", "state": "worn"}]
        there = problem.with_initial_states([*rows, {"arm": "b", "type": "Ford", "state": "good"}])
        assert there.num_types == 3  # the Fords start differently
        found = evaluate(there, plan.fitted(there), "utilitarian", rng=0, num_episodes=4000)
        best = solve(there, "utilitarian").welfare  # a plan for the sum is the best one from everywhere
        assert found.welfare == pytest.approx(best, abs=5 * found.welfare_stderr)
        assert found.welfare_stderr < 0.01 * best

    def test_is_refused_for_what_is_true(self):
        problem = fleet(counts=(2, 1))
        plan = plan_of(solve(problem, "utilitarian"))
        with pytest.raises(NotApplicableError):
            plan.fitted(problem.with_budget([1, 1]))
        with pytest.raises(NotApplicableError, check=mentions("3 arms", 4)):
            plan.fitted(fleet())
        with pytest.raises(NotApplicableError):
            plan.fitted(fleet(counts=(1, 2)))

    def test_act_leaves_unused_what_a_table_does_not_need(self):
        plan = plan_of(solve(fleet(), "utilitarian"))
        found = plan.act(TABLE, budget={"bays": 4})
        assert found.rows == plan.act(TABLE).rows
        assert found.budget == {"bays": 4, "technicians": 2}
        assert mentions("4 bays", "bays", 1)(found.note)


def test_many_arms_take_no_time():
    """Seats are found by sorting: a table of thousands is no matter of minutes."""
    number = 3000
    rows = [{"arm": f"m{i}", "state": i % 3} for i in range(number)]
    started = MACHINES.with_initial_states(rows)
    found = Plan(whittle(started), started).act(rows[::-1], budget=[50])
    assert [row.arm for row in found.rows] == [row["arm"] for row in rows[::-1]]
    assert sum(row.served for row in found.rows) == 50
    assert all(row.state == "age 3" for row in found.rows if row.served)


class TestMixtures:
    def test_the_seed_draws_the_part_and_keeps_it(self):
        plan, other = Plan(mixture(), fleet()), [row | {"state": "worn"} for row in TABLE]
        drawn = [plan.act(TABLE, seed).part for seed in range(100)]
        assert drawn[:10] == [plan.act(other, seed).part for seed in range(10)]
        shares = [sum(part.number == number for part in drawn) / 100 for number in (1, 2, 3)]
        assert np.allclose(shares, [0.5, 0.3, 0.2], atol=0.12)
        assert {(part.number, part.share) for part in drawn} == {(1, 0.5), (2, 0.3), (3, 0.2)}

    def test_a_part_may_be_requested(self):
        plan = Plan(mixture(), fleet())
        assert [plan.act(TABLE, part=number).part.share for number in (1, 2, 3)] == [0.5, 0.3, 0.2]
        for wrong in (0, 4, "1", True):
            with pytest.raises(InvalidInputError, check=mentions(1, 3)):
                plan.act(TABLE, part=wrong)
        with pytest.raises(InvalidInputError, check=lambda error: error.argument == "part"):
            Plan(whittle(MACHINES), MACHINES).act(MACHINE_TABLE, part=1)

    def test_names_of_parts_follow_the_shares(self):
        parts = [{"policy": name, "share": share} for name, share in (("b", 0.5), ("c", 0.3), ("a", 0.2))]
        plan = Plan(mixture(), fleet(), {"parts": parts})
        assert [plan.act(TABLE, part=number).part.name for number in (1, 2, 3)] == ["b", "c", "a"]
        assert [part.name for part in sorted(plan.parts, key=lambda part: part.place)] == ["a", "b", "c"]

    def test_parts_are_redrawn(self):
        plan = Plan(mixture().with_redraw_every(4), fleet())
        parts = [plan.act(TABLE, 1, step=step).part.number for step in range(24)]
        assert all(len(set(parts[start : start + 4])) == 1 for start in range(0, 24, 4))
        assert len(set(parts)) > 1
        assert plan.act(TABLE, 1).step == 0

    def test_lots_are_drawn_from_the_table_too(self):
        """No arm is unlucky every week: where others have moved, the lot falls anew."""
        plan = Plan(whittle(MACHINES), MACHINES)
        winners = set()
        for state in (0, 1):
            for names in ("abcd", "efgh", "ijkl", "mnop"):
                rows = [{"arm": name, "state": 2} for name in names[:3]] + [{"arm": names[3], "state": state}]
                winners.add(next(i for i, row in enumerate(plan.act(rows).rows) if row.served))
        assert len(winners) > 1


class TestSteps:
    def test_each_step_has_its_own_part(self):
        first, second = (ExchangeablePriority(MACHINES, np.full((1, 3, 2), x), threshold=0.0) for x in (1.0, -1.0))
        plan = Plan(TimeVaryingPolicy([first, second]), MACHINES.with_criterion("finite:2"))
        assert [sum(row.served for row in plan.act(MACHINE_TABLE, step=step).rows) for step in (0, 1, 2)] == [1, 0, 1]
        assert plan.act(MACHINE_TABLE, step=1).step == 1

    def test_turns_go_on(self):
        plan = Plan(RoundRobin(MACHINES), MACHINES)
        served = [next(row.arm for row in plan.act(MACHINE_TABLE, step=step).rows if row.served) for step in range(4)]
        assert sorted(served) == ["m0", "m1", "m2", "m3"]  # everyone once a round
        with pytest.raises(InvalidInputError, check=mentions("step")):
            plan.act(MACHINE_TABLE, step=-1)

    def test_custom_stateful_policies_are_played_up_to_the_step(self):
        class Turns:
            """Serve one arm after the other; its actor has no `skip_to`."""

            problem = MACHINES

            def start(self, num_episodes, rng=None):
                turn = iter(range(10**6))

                class Turn:
                    def act(self, states, rng):
                        return (np.arange(states.shape[1]) == next(turn) % states.shape[1]).astype(np.int32)[None]

                return Turn()

            def act(self, states, rng):
                return self.start(1).act(states, rng)

        plan = Plan(Turns(), MACHINES)
        served = [next(row.arm for row in plan.act(MACHINE_TABLE, step=step).rows if row.served) for step in range(4)]
        assert served == ["m0", "m1", "m2", "m3"]
        with pytest.raises(InvalidInputError, check=mentions("step")):
            plan.act(MACHINE_TABLE, step=10**9)

    def test_the_next_arm_of_a_round_is_served_in_any_state(self):
        plan, moved = Plan(RoundRobin(MACHINES), MACHINES), [row | {"state": 0} for row in MACHINE_TABLE]
        for step in range(4):
            following = [row.arm for row in plan.act(MACHINE_TABLE, step=step).rows if row.reason == "it is next"]
            assert following == [row.arm for row in plan.act(moved, step=step + 1).rows if row.served]


class TestFiles:
    def test_a_solution_is_a_plan(self, tmp_path):
        solution = solve(fleet(), "gini:1.5", "counts")
        save_solution(solution, tmp_path / "plan.zip", ["vans.toml", "--welfare", "gini:1.5"])
        plan = load_plan(tmp_path / "plan.zip")
        assert plan.about["prices"] == solution.prices
        assert (plan.about["by"], plan.about["values"]) == ("type", solution.unit_values.tolist())
        assert actions(plan.act(TABLE)) == actions(plan_of(solution).act(TABLE))
        with pytest.raises(NotApplicableError, check=mentions(2)):
            plan.act(TABLE[:2], budget=[2, 2.5])

    def test_arms_known_by_name(self, tmp_path):
        started = fleet().with_initial_states(TABLE)
        save_policy(started, build_policy(started, relax(started, "gini:1.5"), "fair-index"), tmp_path / "plan.zip")
        plan = load_plan(tmp_path / "plan.zip")
        assert plan.problem == started
        assert plan.problem.arm_names == ("v2", "v1", "v4", "v3")
        found = plan.act([{"arm": name, "state": "worn"} for name in ("v3", "v2", "v1", "v4")])
        assert [row.type for row in found.rows] == ["Opel", "Ford", "Ford", "Opel"]
        assert not found.note

    def test_without_a_model_are_refused(self, tmp_path):
        path = tmp_path / "old.zip"
        save_policy(MACHINES, whittle(MACHINES), path)
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in file.namelist() if name != "model.npz"}
        manifest = json.loads(parts["manifest.json"])
        manifest["sha256"].pop("model.npz")
        with zipfile.ZipFile(path, "w") as file:
            for name, body in (parts | {"manifest.json": json.dumps(manifest).encode()}).items():
                file.writestr(name, body)
        assert load_policy(path, MACHINES)
        with pytest.raises(PolicyError, check=mentions("old.zip", "load_policy")):
            load_plan(path)

    def test_as_bytes_and_streams(self):
        solution, stream = solve(MACHINES), io.BytesIO()
        save_solution(solution, stream)
        for source in (stream.getvalue(), io.BytesIO(stream.getvalue())):
            assert load_plan(source).problem == MACHINES
            assert isinstance(load_policy(source, MACHINES), type(solution.policy))
        with pytest.raises(PolicyError, check=mentions("plan")):
            load_plan(stream.getvalue()[:100])

    @pytest.mark.parametrize("hashes", [[], {"other": "x"}, {"model.npz": "0" * 64}], ids=str)
    def test_with_wrong_hashes_are_refused(self, hashes, tmp_path):
        path = tmp_path / "plan.zip"
        save_policy(MACHINES, whittle(MACHINES), path)
        with zipfile.ZipFile(path) as file:
            parts = {name: file.read(name) for name in file.namelist()}
        manifest = json.loads(parts["manifest.json"]) | {"sha256": hashes}
        with zipfile.ZipFile(path, "w") as file:
            for name, body in (parts | {"manifest.json": json.dumps(manifest).encode()}).items():
                file.writestr(name, body)
        with pytest.raises(PolicyError, check=mentions("plan.zip", "manifest")):
            load_plan(path)

    def test_whose_model_would_fill_the_memory_is_not_unpacked(self, tmp_path, monkeypatch):
        path = tmp_path / "plan.zip"
        save_policy(MACHINES, whittle(MACHINES), path)
        data = path.read_bytes()
        with zipfile.ZipFile(path) as file:
            size = file.getinfo("model.npz").file_size.to_bytes(4, "little")
        at = data.rindex(size, 0, data.rindex(b"model.npz"))  # in the directory at the end
        path.write_bytes(data[:at] + (2**32 - 2).to_bytes(4, "little") + data[at + 4 :])
        monkeypatch.setattr("evenhand.checks.available_memory", lambda: 1e9)
        with pytest.raises(PolicyError, check=mentions("GB")):
            load_plan(path)


def test_faults_of_the_table_come_first():
    with pytest.raises(TableError, check=mentions("1 fault")):
        Plan(whittle(MACHINES), MACHINES).act([{"arm": "a", "state": "gone"}])
    with pytest.raises(InvalidInputError, check=mentions("budget")):
        Plan(whittle(MACHINES), MACHINES).act(MACHINE_TABLE, budget=[1, 2])


class TestLateSteps:
    """The decision of a late step is that of acting step by step."""

    def test_of_a_round(self):
        plan = Plan(RoundRobin(fleet()), fleet())
        for step in (0, 1, 7, 100):
            actor = plan.policy.start(1, np.random.default_rng([0, 2]))
            rows = sorted(TABLE, key=lambda row: (row["type"], row["arm"]))
            states = np.array([[STATES.index(row["state"]) for row in rows]])
            for _ in range(step + 1):
                actions = actor.act(states, np.random.default_rng(0))[0]
            told = {row.arm: row.action for row in plan.act(TABLE, 0, step=step).rows}
            assert [told[row["arm"]] for row in rows] == [ACTIONS[action] for action in actions]
        with pytest.raises(InvalidInputError):
            plan.act(TABLE, 0, step=10**15)

    def test_of_a_mixture_that_is_redrawn(self):
        plan = Plan(with_redraw(mixture(), 3), fleet())
        draws = np.random.default_rng([0, 0]).random(5)
        parts = np.searchsorted(np.cumsum(mixture().shares), draws, side="right")
        assert [plan.act(TABLE, 0, step=3 * k).part.number for k in range(5)] == [
            [own.place for own in plan.parts].index(part) + 1 for part in parts
        ]
        assert plan.act(TABLE, 0, step=10**15).part is not None


def with_redraw(policy, redraw_every):
    return MixturePolicy(policy.parts, policy.shares, redraw_every)


def test_summary_is_by_priority_and_json_in_the_order_of_the_table():
    """Opels in a bad state come first, then Fords; the table begins with a Ford."""
    problem = fleet(budget=(3, 9))
    scores = np.zeros(problem.types.valid.shape)
    scores[1, 2, 2], scores[0, 2, 2] = 2.0, 1.0
    plan = Plan(ExchangeablePriority(problem, scores, threshold=0.0), problem)
    table = [
        {"arm": arm, "type": make, "state": "bad"} for arm, make in (("f1", "Ford"), ("o1", "Opel"), ("f2", "Ford"))
    ]
    found = plan.act([*table, {"arm": "o2", "type": "Opel", "state": "good"}])
    assert (
        [row["arm"] for row in found.to_dict()["actions"]]
        == [row.arm for row in found.rows]
        == ["f1", "o1", "f2", "o2"]
    )
    assert [row.arm for row in found.by_priority] == ["o1", "f1", "f2", "o2"]
    assert found.priority == (2, 1, 2, None)
    turns = Plan(RoundRobin(problem), problem).act(TABLE)  # it has no order of conditions: as in the table
    served = [row.arm for row in turns.rows if row.served]
    assert [row.arm for row in turns.by_priority][: len(served)] == served


def test_reasons_of_re_solving_have_no_tail():
    for row in saved("re-solving").act(TABLE).rows:
        assert "prices" not in row.reason


@pytest.mark.parametrize("promised", [False, True])
def test_next_in_line_of_a_plan_by_programs_are_waiting_arms_by_their_gain(promised):
    problem = machine_replacement(num_arms=6, budget=2)
    relaxed = relax(problem, "utilitarian")
    policy = look_ahead(problem, relaxed.weights, relaxed.prices, steps=5)
    if promised:
        problem = problem.with_max_wait({"age 3": 4})
        policy = DeadlinePolicy(problem, policy)
    rows = {"arm": list("abcdef"), "state": ["age 3"] * 4 + ["age 2", "age 1"]}
    found = Plan(policy, problem).act(rows)
    places = {row.arm: place for row, place in zip(found.rows, found.line, strict=True)}
    assert sum(row.served for row in found.rows) == 2
    assert all(places[row.arm] is None for row in found.rows if row.served)
    waiting = [row.arm for row in found.rows if not row.served and row.state == "age 3"]
    assert [places[arm] for arm in waiting] == [1, 1]
    assert places["e"] is None or places["e"] == 3
    assert found.priority == (None,) * 6
