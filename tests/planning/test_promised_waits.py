"""Promised waits: extended states against brute force, the deadline rule, bounds, refusals, files and decisions."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.errors import InfeasibleError, ModelError, NotApplicableError, TableError
from evenhand.planning import promises
from evenhand.planning.promises import check_promises, share_broken
from evenhand.policies.deadlines import DeadlinePolicy, Deadlines, count_broken, extend, keep_promises, without_promises


def _random_problem(rng, num_arms=2, num_states=3, num_actions=2, num_resources=1, budget=1, limits=None, counts=None):
    arms = []
    for _ in range(num_arms):
        usage = np.zeros((num_actions, num_resources))
        for action in range(1, num_actions):
            usage[action, (action - 1) % num_resources] = 1
        transitions = rng.dirichlet(np.ones(num_states), size=(num_states, num_actions))
        arms.append(eh.Arm(transitions, rng.random((num_states, num_actions)), usage))
    amounts = [budget] * num_resources if np.isscalar(budget) else budget
    return eh.CoupledMDP(arms, amounts, 0.9, counts=counts, max_waits=limits)


# -- an independent road: joint states and waiting times as dictionaries -----------------------------------------------


def _brute_force(problem, weights):
    """The best weighted sum of values among policies that surely keep the promises; None if there is none."""
    kinds = problem.type_of_arm.tolist()
    types, limits = problem.types, problem.type_max_waits
    arms = range(len(kinds))

    def local(kind):
        return [(s, w) for s in range(types.num_states[kind]) for w in range(max(int(limits[kind, s]), 0) + 1)]

    def moves(kind, cell, action):
        (s, w), found = cell, {}
        served = (types.usage[kind, s, action] > 0).any()
        for new in range(types.num_states[kind]):
            wait = 0 if served or limits[kind, s] < 0 or limits[kind, new] < 0 else min(w + 1, limits[kind, new])
            found[new, int(wait)] = found.get((new, int(wait)), 0.0) + types.transitions[kind, s, action, new]
        return found

    table = {}
    for joint in product(*(local(kind) for kind in kinds)):
        table[joint] = []
        for actions in product(*(range(types.num_actions[kind]) for kind in kinds)):
            use = sum(types.usage[kinds[n], joint[n][0], actions[n]] for n in arms)
            due = [limits[kinds[n], joint[n][0]] == joint[n][1] for n in arms]
            idle = [not types.served[kinds[n], joint[n][0], actions[n]] for n in arms]
            if (use > problem.budget + 1e-9).any() or any(d and i for d, i in zip(due, idle, strict=True)):
                continue
            nexts = {(): 1.0}
            for n in arms:
                step = moves(kinds[n], joint[n], actions[n])
                nexts = {(*head, cell): p * q for head, p in nexts.items() for cell, q in step.items() if p * q > 0}
            reward = np.array([types.rewards[kinds[n], joint[n][0], actions[n]] for n in arms])
            table[joint].append((reward, nexts))
    while True:  # states from which every action may lead out are not safe
        safe = {joint for joint, rows in table.items() if rows}
        pruned = {j: [row for row in rows if all(other in safe for other in row[1])] for j, rows in table.items()}
        if sum(map(len, pruned.values())) == sum(map(len, table.values())):
            break
        table = pruned
    starts = {
        tuple((s, 0) for s in states): float(np.prod([types.initial[kinds[n], states[n]] for n in arms]))
        for states in product(*(range(types.num_states[kind]) for kind in kinds))
    }
    if any(p > 0 and not table[joint] for joint, p in starts.items()):
        return None
    # Occupancy measures of the pairs; maximise the least of the values, or a weighted sum of them.
    names = [joint for joint, rows in table.items() if rows]
    number = {joint: i for i, joint in enumerate(names)}
    pairs = [(number[joint], *row) for joint in names for row in table[joint]]
    flow = np.zeros((len(names), len(pairs)))
    for column, (own, _, nexts) in enumerate(pairs):
        flow[own, column] += 1
        for joint, p in nexts.items():
            flow[number[joint], column] -= problem.discount * p
    right = np.zeros(len(names))
    for joint, p in starts.items():
        if p > 0:
            right[number[joint]] = p
    values = np.array([reward for _, reward, _ in pairs]).T
    if weights is not None:
        return -linprog(-(weights @ values), A_eq=flow, b_eq=right).fun
    upper = np.column_stack([-values, np.ones(len(values))])
    cost = np.append(np.zeros(len(pairs)), -1.0)
    bounds = [(0, None)] * len(pairs) + [(None, None)]
    equal = np.column_stack([flow, np.zeros(len(names))])
    return -linprog(cost, upper, np.zeros(len(values)), equal, right, bounds=bounds).fun


@pytest.mark.parametrize("seed", range(4))
def test_extended_states_have_the_optimum_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    limits = [{"0": 1, "1": 2}, {"0": 2}] if seed % 2 else {"2": 1}
    problem = _random_problem(rng, limits=limits)
    weights = np.full(2, 0.5)
    for welfare, best in (("utilitarian", _brute_force(problem, weights)), ("maximin", _brute_force(problem, None))):
        found = eh.solve(problem, welfare, "joint")
        assert found.welfare == pytest.approx(best, rel=1e-6)
        assert found.promise.sure and found.promise.cost >= -1e-7
        assert eh.bound(problem, welfare).upper_bound >= best - 1e-6
        assert eh.bound(problem, welfare).upper_bound <= eh.bound(without_promises(problem), welfare).upper_bound + 1e-4


def test_counts_agree_with_brute_force_and_the_policy_plays_them():
    rng = np.random.default_rng(7)
    problem = _random_problem(rng, num_arms=1, counts=[3], limits={"0": 2})
    best = _brute_force(problem, np.full(3, 1 / 3))
    found = eh.solve(problem, "gini:2")
    assert found.method == "counts" and found.promise.by == "extended states"
    assert found.welfare == pytest.approx(best, rel=1e-6)
    played = eh.evaluate(problem, found.policy, "utilitarian", num_episodes=2000, rng=1)
    assert abs(played.welfare - best) < 4 * played.welfare_stderr
    assert share_broken(problem, found.policy, 0, 4e6)[0] == 0


def test_a_promise_that_binds_costs_welfare():
    # Service of the bad state is worth nothing: only the promise asks for it.
    arm = eh.Arm([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 0.0], [1, 0.5]], [[0], [1]], initial=[0, 1])
    free = eh.CoupledMDP([arm], [1], 0.9, counts=[2])
    problem = free.with_max_wait({"1": 1})
    found = eh.solve(problem, "utilitarian")
    # Two arms take turns, each is served at every other step: one from step 0, as both are due at step 1.
    exact = 10 - 0.5 * (1 / (1 - 0.9**2) + 0.9 / (1 - 0.9**2)) / 2
    assert found.welfare == pytest.approx(exact, rel=1e-6)
    assert found.promise.cost == pytest.approx(10 - exact, rel=1e-6)


# -- the deadline rule -------------------------------------------------------------------------------------------------


def _broken(problem, policy, episodes=30, steps=80):
    """Count broken promises arm by arm, as the definition says."""
    run, kinds, number = eh.simulate(problem, policy, episodes, steps, 3, keep_paths=True), problem.type_of_arm, 0
    limits, served = problem.type_max_waits, problem.types.served
    for episode, arm in product(range(episodes), range(problem.num_arms)):
        wait = 0
        for state, action in zip(run.states[episode, :, arm], run.actions[episode, :, arm], strict=True):
            limit, busy = limits[kinds[arm], state], served[kinds[arm], state, action]
            wait = wait if limit >= 0 else 0
            number += limit >= 0 and wait >= limit and not busy
            wait = wait + 1 if limit >= 0 and not busy else 0
    assert number == count_broken(problem, run.states, run.actions)[0].sum()
    return number


@pytest.mark.parametrize("seed", range(6))
def test_no_promise_is_broken_when_the_rule_is_sure(seed):
    rng = np.random.default_rng(seed)
    resources, budget = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    counts = [int(rng.integers(1, 4)), int(rng.integers(1, 4))]
    free = _random_problem(rng, 2, 3, resources + 1, resources, budget, counts=counts)
    need = -(-sum(counts) // (budget * resources))
    limits = {"0": need - 1 + int(rng.integers(0, 3)), "2": need - 1 + int(rng.integers(0, 3))}
    # Waits that end sooner in another state shorten the slack of the first.
    problem = free.with_max_wait({state: max(limits.values()) for state in limits})
    assert Deadlines(problem).is_sure
    for policy in (eh.policies.never_act(free), eh.policies.random_feasible(free), eh.policies.RoundRobin(free)):
        assert _broken(problem, keep_promises(problem, policy)) == 0
    mixed = free.with_max_wait(limits)
    if Deadlines(mixed).is_sure:
        assert _broken(mixed, keep_promises(mixed, eh.policies.never_act(free))) == 0
    assert _broken(problem, eh.policies.never_act(free)) > 0


def test_the_rule_leaves_a_plan_alone_that_keeps_the_promise():
    problem = eh.problems.machine_replacement(num_arms=3).with_max_wait({"age 3": 20})
    free = without_promises(problem)
    plan = eh.solve(free, "gini:2").policy
    one, other = (eh.simulate(free, each, 20, 100, 0) for each in (plan, keep_promises(problem, plan)))
    assert np.array_equal(one.returns, other.returns)


def test_the_rule_leaves_planned_actions_that_use_nothing():
    """Advice is free and not the idle action: arms that the rule does not serve are advised as planned."""
    arm = eh.Arm(np.ones((1, 3, 1)), [[0.0, 1.0, 0.0]], [[0], [0], [1]])
    deadlines = Deadlines(eh.CoupledMDP([arm], [1], 0.9, counts=[3], max_waits=[{"0": 2}]))
    planned = np.ones((1, 3), dtype=np.int32)
    actions, forced = deadlines.enforce(
        np.zeros_like(planned), np.array([[0, 2, 0]]), planned, None, np.random.default_rng(0)
    )
    assert actions.tolist() == [[1, 2, 1]]
    assert forced.tolist() == [[False, True, False]]


def test_services_of_two_resources_that_every_arm_can_get_add_up():
    # Three visits and two calls: five arms can be served per step, whichever they are.
    usage = [[0, 0], [1, 0], [0, 1]]
    arm = eh.Arm(np.full((2, 3, 2), 0.5), [[0, 0, 0], [1, 1, 1]], usage)
    problem = eh.CoupledMDP([arm], [3, 2], 0.9, counts=[15], max_waits={"0": 2, "1": 2})
    assert (Deadlines(problem).capacity, Deadlines(problem).is_sure) == (5, True)
    assert _broken(problem, keep_promises(problem, eh.policies.never_act(problem)), 10, 40) == 0


def test_an_actor_continues_from_its_memory():
    free = eh.problems.machine_replacement(num_arms=4, budget=2)
    problem = free.with_max_wait({"age 3": 1, "age 2": 1})
    policy = keep_promises(problem, eh.policies.RoundRobin(free))
    actor, states = policy.start(2, 0), np.array([[0, 1, 2, 1], [2, 2, 1, 1]])
    actor.act(states, np.random.default_rng(0))
    again = policy.resume({name: array.tolist() for name, array in actor.memory().items()})
    for _ in range(3):
        seeds = [np.random.default_rng(5) for _ in range(2)]
        assert np.array_equal(actor.act(states, seeds[0]), again.act(states, seeds[1]))


def test_large_problems_get_the_rule_and_its_cost():
    problem = eh.problems.machine_replacement(num_arms=12, budget=3).with_max_wait({"age 3": 2, "age 2": 5})
    with eh.planning.limited_effort(arm_steps=2e4, report_steps=1e5):
        found = eh.solve(problem, "gini:2", "fluid")
    assert found.promise.by == "deadline rule" and found.promise.most_at_once == 9 and not found.promise.sure
    assert found.welfare <= found.upper_bound + 4 * found.welfare_stderr
    free = found.to_dict()["promise"]["cost"] + found.welfare
    assert free <= found.upper_bound + 1e-6 and found.promise.upper_bound <= found.upper_bound


# -- refusals ----------------------------------------------------------------------------------------------------------


def _always(number, budget=1):
    arm = eh.Arm([[[1.0], [1.0]]], [[0.0, 0.0]], [[0], [1]], states=["here"])
    return eh.CoupledMDP([arm], [budget], 0.95, counts=[number])


def test_impossible_promises_are_refused_with_the_shortest_wait():
    with pytest.raises(InfeasibleError) as error:
        eh.solve(_always(10).with_max_wait({"here": 4}))
    assert error.value.code == "promise-infeasible" and "9 steps" in str(error.value)
    assert check_promises(_always(10).with_max_wait({"here": 9})).is_sure
    with pytest.raises(InfeasibleError):
        check_promises(_always(10).with_max_wait({"here": 8}))
    assert [note.kind for note in eh.check(_always(10).with_max_wait({"here": 4})).notes][-1] == "promises"
    # Two resources: each alone would do for its half, both together are too little.
    arm = eh.Arm([[[1.0]] * 3], [[0.0] * 3], [[0, 0], [1, 0], [0, 1]], states=["here"])
    both = eh.CoupledMDP([arm], [2, 1], 0.95, counts=[10], max_waits={"here": 2})
    with pytest.raises(InfeasibleError):
        check_promises(both)
    assert check_promises(both.with_max_wait({"here": 3})).is_sure


@pytest.mark.parametrize("counts", [[40, 30, 30], [4 * 10**6, 3 * 10**6, 3 * 10**6]])
def test_the_shortest_wait_does_not_depend_on_the_number_of_arms(counts):
    # Everyone is always in a promised state: a service each every wait + 1 steps, and 100 arms per service.
    problem = _random_problem(np.random.default_rng(0), 3, budget=sum(counts) // 100, counts=counts)
    with pytest.raises(InfeasibleError) as error:
        check_promises(replace(problem, max_waits=np.full((3, 3), 2)))
    assert "allows is 99 steps" in str(error.value)


def test_a_shortest_wait_that_is_not_known_is_bounded_by_the_sure_one(monkeypatch):
    # As many types as arms: too much to extend them all by long waits.
    monkeypatch.setattr(promises, "_is_possible", partial(promises._is_possible, most_cells=1e5))
    problem = _random_problem(np.random.default_rng(0), 30, budget=1)
    with pytest.raises(InfeasibleError) as error:
        check_promises(replace(problem, max_waits=np.full((30, 3), 2)))
    assert "at most 29 steps" in str(error.value)


def test_a_state_that_no_service_reaches_cannot_be_promised():
    arm = eh.Arm([[[1.0], [1.0]]], [[0.0, 0.0]], [[0], [5]], states=["here"])
    with pytest.raises(InfeasibleError):
        check_promises(eh.CoupledMDP([arm], [1], 0.9, max_waits={"here": 3}))


def test_no_policy_can_promise_what_only_chance_allows():
    # Both arms may be due at once; nothing is impossible in the long run.
    problem = eh.problems.machine_replacement(num_arms=3).with_max_wait({"age 3": 0})
    with pytest.raises(InfeasibleError):
        eh.solve(problem, method="joint")
    found = eh.solve(problem, "gini:2")
    assert found.promise.by == "deadline rule" and 0 < found.promise.broken < 1


def test_methods_that_know_no_promises_refuse():
    problem = eh.problems.machine_replacement(num_arms=2).with_max_wait({"age 3": 3})
    for method in ("count-lp", "joint-lp"):
        with pytest.raises(NotApplicableError):
            eh.solve(problem, method=method)
    with pytest.raises(NotApplicableError):
        eh.train(problem, steps=10)


# -- models and files --------------------------------------------------------------------------------------------------

TOML = """
discount = 0.9
budget = [1]
max_wait = {bad = 2}

[[arms]]
name = "pump"
count = 2
states = ["good", "bad"]
transitions = [[[0.7, 0.3], [1, 0]], [[0, 1], [1, 0]]]
rewards = [[1, 0.5], [0, -0.5]]
usage = [[0], [1]]

[[arms]]
name = "fan"
group = "roof"
states = ["good", "bad"]
max_wait = {good = 7, bad = 5}
transitions = [[[0.7, 0.3], [1, 0]], [[0, 1], [1, 0]]]
rewards = [[1, 0.5], [0, -0.5]]
usage = [[0], [1]]
"""


def test_promises_are_read_written_and_changed(tmp_path):
    (tmp_path / "m.toml").write_text(TOML)
    problem = eh.load(tmp_path / "m.toml")
    assert problem.max_waits.tolist() == [[-1, 2], [7, 5]]
    assert problem.num_types == 2  # the same numbers, under other promises
    for name in ("a.toml", "a.json", "a.npz"):
        eh.save(problem, tmp_path / name)
        assert eh.load(tmp_path / name) == problem
    with pytest.raises(NotApplicableError):
        eh.save(problem, tmp_path / "a.parquet")
    assert problem.with_max_wait({"bad": 1}, type="pump").max_waits.tolist() == [[-1, 1], [7, 5]]
    assert problem.with_max_wait({"bad": None}, group="roof").max_waits.tolist() == [[-1, 2], [7, -1]]
    assert not problem.with_max_wait({"bad": None, "good": None}).has_max_wait
    table = {"arm": ["x", "y", "z"], "type": ["pump", "pump", "fan"], "state": ["good", "bad", "bad"]}
    assert problem.with_initial_states(table).max_waits.tolist() == [[-1, 2], [-1, 2], [7, 5]]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("{bad = 2}", "{badd = 2}", "max_wait.badd"),
        ("{bad = 2}", "{bad = -2}", "max_wait.bad"),
        ("{bad = 2}", "3", "max_wait"),
        ("{good = 7, bad = 5}", "{good = 1.5, bad = 5}", "arms[1].max_wait.good"),
        ("{good = 7, bad = 5}", "{worse = 5}", "arms[1].max_wait.worse"),
    ],
)
def test_wrong_promises_are_faults_with_their_places(tmp_path, old, new, place):
    (tmp_path / "m.toml").write_text(TOML.replace(old, new))
    with pytest.raises(ModelError) as error:
        eh.load(tmp_path / "m.toml")
    assert place in [fault.place for fault in error.value.faults]


@pytest.mark.parametrize("method", ["auto", "fluid"])
def test_saved_plans_know_the_waiting_times_of_a_table(tmp_path, method):
    problem = eh.problems.machine_replacement(num_arms=4, budget=2).with_max_wait({"age 2": 2, "age 3": 2})
    with eh.planning.limited_effort(arm_steps=2e4, report_steps=1e5):
        found = eh.solve(problem, "gini:2", method)
    eh.save_solution(found, tmp_path / "plan.zip")
    plan = eh.load_plan(tmp_path / "plan.zip")
    assert plan.about["promise"]["sure"] and "age 2" in plan.show()
    rows = {"arm": list("abcd"), "state": ["age 2", "age 2", "age 3", "age 3"], "waiting": [2, 2, 0, ""]}
    decided = plan.act(rows)
    assert [row.arm for row in decided.rows if row.served] == ["a", "b"]
    assert all("promised" in row.reason for row in decided.rows[:2])
    # After services that were missed, more arms are due than the budget serves.
    late = plan.act(rows | {"waiting": [2, 2, 2, 2]})
    assert sum(row.served for row in late.rows) == 2
    assert all("more arms are due" in row.reason for row in late.rows if not row.served)
    lost = [row.reason for row in decided.rows if row.reason.startswith("waits")]
    assert all("the promise to a (at most 2 steps, waited 2) and 1 more goes first" in reason for reason in lost)
    unknown = plan.act({key: rows[key] for key in ("arm", "state")})
    assert [row.arm for row in unknown.rows if row.served] == ["c", "d"]
    with pytest.raises(TableError):
        plan.act(rows | {"waiting": ["soon", 1, 1, 1]})


def test_extended_states_are_an_ordinary_problem():
    problem = eh.problems.machine_replacement(num_arms=2).with_max_wait({"age 2": 3})
    extended = extend(problem)
    assert extended.types.num_states.tolist() == [6] and not extended.has_max_wait
    # Without the promise, waiting times change nothing.
    assert eh.solve(extended).welfare == pytest.approx(eh.solve(without_promises(problem)).welfare, rel=1e-7)


def test_compare_plays_every_policy_within_the_promise():
    problem = eh.problems.machine_replacement(num_arms=3).with_max_wait({"age 3": 2})
    found = eh.compare(problem, ["never-act", "whittle"], "gini:2", num_episodes=50)
    assert {row.policy: row.evaluation.broken_promises[0] for row in found.rows} == {"never-act": 0, "whittle": 0}
    assert found.bound_name == "optimum"


def test_a_turn_is_lost_only_to_a_promise_that_is_near():
    """Reasons after arms of one state exchanged their actions, by waits: one names whose promise went first."""
    problem = eh.problems.machine_replacement(num_arms=6, budget=2)
    policy = eh.solve(problem, "gini:2", "whittle").policy
    promised = problem.with_max_wait({"age 1": 6})
    plan = eh.Plan(DeadlinePolicy(promised, policy), promised)
    rows = {"arm": list("abcdef"), "state": ["age 1"] * 3 + ["age 2"] * 3}
    for waits in ([0, 1, 2], [4, 1, 2], [1, 3, 0]):
        early = plan.act(rows | {"waiting": [*waits, 0, 0, 0]}, waits=np.array([[*waits, 2, 0, 1]]).T)
        assert not any("goes first" in row.reason for row in early.rows)
    late = plan.act(rows | {"waiting": [2, 6, 0, 0, 0, 0]}, waits=np.array([[2, 6, 0, 1, 2, 0]]).T)
    assert late.rows[1].served and "waited 6 steps" in late.rows[1].reason
    (lost,) = [row.reason for row in late.rows if "goes first" in row.reason]
    assert lost == "waits: the promise to b (at most 6 steps, waited 6) goes first"
