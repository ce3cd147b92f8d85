"""Arms that can have no value, under alpha < 1: the optimum of the others, and nothing else."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicable, OutOfDomain
from evenhand.evaluation.kinks import welfare_error
from evenhand.model.objective import Objective
from evenhand.planning.relaxed import relax
from evenhand.solvers.service import empty_blocks


def arm(rewards, seed=0):
    rows = np.random.default_rng(seed).dirichlet(np.ones(2), (2, 2))
    return eh.Arm(rows, np.array(rewards, dtype=float), [[0], [1]], [0.5, 0.5])


def chain(moves, rewards, first=0):
    """An arm of certain moves: (state, action) where they lead."""
    return eh.Arm(
        np.eye(len(moves))[np.array(moves)], np.array(rewards, dtype=float), [[0], [1]], np.eye(len(moves))[first]
    )


ONE, OTHER, NOTHING = arm([[1, 2], [0.3, 1.5]]), arm([[2, 1], [0.3, 2.5]], 3), arm(np.zeros((2, 2)), 1)


def both(alpha, method, criterion, counts=(1, 1, 2), **more):
    """Solutions with the arms that have nothing, and without them; and what the second says of the first."""
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, counts, **more)
    rest = eh.CoupledMDP([ONE, OTHER], [1], 0.9, counts[:2])
    welfare = f"alpha:{alpha}"
    found, known = (eh.solve(problem, welfare, method, criterion=criterion) for problem in (whole, rest))
    share = rest.num_arms / whole.num_arms
    return found, known, share ** (1 / (1 - alpha))


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize(("alpha", "method"), [(0.5, "joint"), (0.9, "counts"), (0.1, "auto")])
def test_the_others_get_what_they_get_among_themselves(alpha, method, criterion):
    found, known, factor = both(alpha, method, criterion)
    assert found.welfare == pytest.approx(factor * known.welfare, rel=1e-6)
    assert found.welfare <= found.upper_bound <= factor * known.upper_bound * (1 + 1e-5)
    assert found.upper_bound >= factor * known.welfare * (1 - 1e-12)
    assert found.objective.welfare(found.values) == pytest.approx(found.welfare, rel=1e-12)
    assert found.values[2:].tolist() == [0, 0]
    assert "2 of the arms can have no value" in found.reason


def test_the_policy_is_one_of_the_problem_itself(tmp_path):
    found, _, _ = both(0.5, "joint", "discounted")
    eh.save_solution(found, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", found.problem)
    assert eh.evaluate(again, found.problem, "alpha:0.5").welfare == pytest.approx(found.welfare, rel=1e-9)


@pytest.mark.slow
def test_plans_by_playing(tmp_path):
    found, known, factor = both(0.5, "fluid", "discounted", counts=(3, 3, 2))
    assert found.welfare == pytest.approx(factor * known.upper_bound, rel=0.1)
    assert found.upper_bound >= found.welfare - 5 * found.welfare_stderr
    assert found.values[-2:].tolist() == [0, 0]


def test_groups_without_value():
    groups = ("a", "a", "b")
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, (1, 1, 2), groups=groups, over="groups")
    mean = eh.solve(eh.CoupledMDP([ONE, OTHER], [1], 0.9), "utilitarian").welfare
    assert eh.solve(whole, "alpha:0.5").welfare == pytest.approx(mean / 4, rel=1e-6)
    mixed = eh.CoupledMDP([ONE, NOTHING], [1], 0.9, groups=("a", "a"), over="groups")
    assert "can have no value" not in eh.solve(mixed, "alpha:0.5").reason


def test_nobody_can_have_anything():
    found = eh.solve(eh.CoupledMDP([NOTHING], [1], 0.9, [2]), "alpha:0.5")
    assert (found.welfare, found.values.tolist()) == (0.0, [0.0, 0.0])
    assert found.upper_bound < 1e-6


def test_rewards_where_an_arm_never_gets_do_not_count():
    stays = eh.Arm([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[0, 0], [5, 5]], [[0], [1]], [1, 0])
    found = eh.solve(eh.CoupledMDP([ONE, stays], [1], 0.9), "alpha:0.5")
    assert found.values[1] == 0
    assert found.welfare == pytest.approx(found.values[0] / 4, rel=1e-6)


def test_what_stays_refused():
    with pytest.raises(OutOfDomain):  # the logarithm of 0
        eh.solve(eh.CoupledMDP([ONE, NOTHING], [1], 0.9), "nash")


@pytest.mark.parametrize("method", ["joint", "fluid"])
@pytest.mark.parametrize(
    ("rewards", "more", "told"),
    [
        ([[-1, -1], [-1, -1]], {}, "type 1 has at most -10 whatever is done"),
        ([[-1, -2], [-1, -1]], {"groups": ["a", "b"], "over": "groups"}, "b has at most -10 whatever is done"),
    ],
)
def test_a_refusal_says_who_and_does_not_ask_for_what_is_not_needed(rewards, more, told, method):
    """With alpha below 1 values of 0 are in order: that positive ones were missing was said, and untrue."""
    with pytest.raises(OutOfDomain) as refusal:
        eh.solve(eh.CoupledMDP([ONE, arm(rewards)], [1], 0.9, **more), "alpha:0.5", method)
    assert str(refusal.value).startswith(f"alpha:0.5 is for values of at least 0, and {told}")


# Arms that have 0 at best, and less by some of what may be done

BELOW, SERVED = arm([[0, -1], [0, -2]], 1), arm([[-1, 0], [-0.5, 0]], 1)


def losses(policy, problem, kind, episodes=50):
    """What arms of a type have in episodes, all of them together."""
    returns = eh.simulate(problem, policy, episodes, 60, rng=0).returns
    return np.abs(returns[:, problem.type_of_arm == kind]).sum()


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize("method", ["joint", "counts", "auto", "fluid"])
def test_an_arm_that_needs_nothing_to_stay_at_0_takes_nothing_from_the_others(method, criterion):
    whole = eh.CoupledMDP([ONE, OTHER, BELOW], [1], 0.9)
    found = eh.solve(whole, "alpha:0.5", method, criterion=criterion, seconds=0.3 if method == "fluid" else None)
    known = eh.solve(eh.CoupledMDP([ONE, OTHER], [1], 0.9), "alpha:0.5", "joint", criterion=criterion)
    assert found.values[2] == 0
    assert found.upper_bound >= known.welfare * 4 / 9 * (1 - 1e-9)
    assert found.welfare == pytest.approx(known.welfare * 4 / 9, rel=0.05 if method == "fluid" else 1e-6)
    assert losses(found.policy, whole, 2) == 0
    assert "1 of the arms are kept at 0, the most they can have" in found.reason
    assert found.digits >= 10


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:3"])
@pytest.mark.parametrize("method", ["joint", "counts", "auto"])
def test_an_arm_that_must_be_served_to_stay_at_0_is_served(method, criterion, tmp_path):
    """With a budget for one of them it gets all of it, and the others get what they get without a budget."""
    whole = eh.CoupledMDP([ONE, OTHER, SERVED], [1], 0.9)
    found = eh.solve(whole, "alpha:0.5", method, criterion=criterion)
    known = eh.solve(eh.CoupledMDP([ONE, OTHER], [0], 0.9), "alpha:0.5", "joint", criterion=criterion)
    assert found.values[2] == 0
    assert found.welfare == pytest.approx(known.welfare * 4 / 9, rel=1e-6)
    assert found.welfare <= found.upper_bound <= found.welfare * (1 + 1e-6)
    eh.save_solution(found, tmp_path / "plan.zip")
    assert losses(eh.load_policy(tmp_path / "plan.zip", whole), whole, 2) == 0


def test_who_is_left_with_nothing_by_that_counts_as_0():
    found = eh.solve(eh.CoupledMDP([ONE, SERVED, arm([[0, 1], [0, 1]], 2)], [1], 0.9), "alpha:0.5")
    alone = eh.solve(eh.CoupledMDP([ONE], [0], 0.9), "utilitarian").welfare
    assert found.welfare == pytest.approx(alone / 9, rel=1e-6)
    assert "1 of the arms are left with nothing by that" in found.reason


@pytest.mark.parametrize("steps", [1, 2])
def test_so_does_who_would_have_something_only_after_the_last_step(steps):
    """Served at once it has something at the second step, and else at the third: it was refused."""
    late = chain([[1, 2], [2, 2], [2, 2]], [[0, 0], [0, 0], [1, 1]], first=0 if steps == 2 else 1)
    found = eh.solve(eh.CoupledMDP([ONE, SERVED, late], [1], 0.9), "alpha:0.5", criterion=f"finite:{steps}")
    alone = eh.solve(eh.CoupledMDP([ONE], [0], 0.9), "utilitarian", criterion=f"finite:{steps}").welfare
    assert found.welfare == pytest.approx(alone / 9, rel=1e-6)
    assert found.values[2] == 0


def test_arms_that_cannot_all_be_kept_at_0_are_told():
    with pytest.raises(OutOfDomain, match="no plan keeps all who have 0 at best there: what they need for it is more"):
        eh.solve(eh.CoupledMDP([SERVED, SERVED, ONE], [1], 0.9), "alpha:0.5")


@pytest.mark.parametrize("method", ["fluid", "whittle"])
def test_methods_that_list_nothing_refuse_to_keep_arms_at_0_by_service(method):
    with pytest.raises(NotApplicable, match=f"some arms have 0 at best, and {method} cannot keep them there"):
        eh.solve(eh.CoupledMDP([ONE, SERVED], [1], 0.9), "alpha:0.5", method)


@pytest.mark.parametrize("method", ["joint", "counts"])
def test_what_keeps_an_arm_at_0_may_change_from_step_to_step(method):
    """Going astray costs something a step later, so it is free at the last step, and only there."""
    astray = eh.Arm([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[-0.5, 0], [-1, -1]], [[0], [1]], [1, 0])
    whole = eh.CoupledMDP([ONE, astray], [1], 0.9).under("finite:1")
    found = eh.solve(whole, "alpha:0.5", method)
    served = eh.solve(eh.CoupledMDP([ONE], [0], 0.9), "utilitarian", criterion="finite:1").welfare
    assert found.welfare == pytest.approx(served / 4, rel=1e-6)
    with pytest.raises(OutOfDomain, match=r"type 1 has at most -0\.5 whatever is done"):
        eh.solve(whole, "alpha:0.5", method, criterion="finite:2")
    stays = eh.Arm([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[0, 0], [-1, -1]], [[0], [1]], [1, 0])
    for steps in (1, 2, 4):
        found = eh.solve(eh.CoupledMDP([ONE, stays], [1], 0.9), "alpha:0.5", method, criterion=f"finite:{steps}")
        alone = eh.solve(eh.CoupledMDP([ONE], [1], 0.9), "utilitarian", criterion=f"finite:{steps}").welfare
        assert found.welfare == pytest.approx(alone / 4, rel=1e-6)


def test_gains_and_losses_that_balance_in_a_group():
    """One arm has a third a step and two have a sixth less than nothing: each must be at its best."""
    third = eh.Arm(ONE.transitions, np.full((2, 2), 1 / 3), [[0], [1]])
    sixth = eh.Arm(ONE.transitions, [[-1 / 6, -1], [-1 / 6, -1 / 2]], [[0], [1]])
    more = {"groups": ["live", "both", "both"], "over": "groups"}
    found = eh.solve(eh.CoupledMDP([ONE, third, sixth], [1], 0.9, [1, 1, 2], **more), "alpha:0.5")
    alone = eh.solve(eh.CoupledMDP([ONE], [1], 0.9), "utilitarian").welfare
    assert found.welfare == pytest.approx(alone / 4, rel=1e-6)
    assert found.values[1:] == pytest.approx([10 / 3, -5 / 3, -5 / 3])
    assert found.digits >= 10
    assert eh.evaluate(found.policy, found.problem, "alpha:0.5").welfare == pytest.approx(found.welfare, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_had_and_is_paid_back_is_0_but_for_rounding(seed):
    """As the plan says, so does an exact evaluation of it: what rounding leaves is not below 0."""
    rng = np.random.default_rng(seed)
    moves, worth = rng.dirichlet(np.ones(3), (3, 2)), rng.normal(size=3)
    rewards = (worth - worth.mean())[:, None] - 0.9 * moves @ (worth - worth.mean())
    loan = eh.Arm(moves, rewards - [0.0, 0.25], [[0], [1]])
    whole = eh.CoupledMDP([ONE, loan], [1], 0.9)
    found = eh.solve(whole, "alpha:0.5")
    alone = eh.solve(eh.CoupledMDP([ONE], [1], 0.9), "utilitarian").welfare
    assert found.welfare == pytest.approx(alone / 4, rel=1e-6)
    assert eh.evaluate(found.policy, whole, "alpha:0.5").welfare == pytest.approx(found.welfare, rel=1e-9)


def test_an_arm_that_idles_by_another_action_than_the_first():
    """Its first action uses nothing and costs something; the second uses nothing and costs nothing."""
    rows = np.random.default_rng(5).dirichlet(np.ones(2), (2, 3))
    odd = eh.Arm(rows, [[-1, 0, -1], [-1, 0, 0]], [[0], [0], [1]], [0.5, 0.5])
    whole = eh.CoupledMDP([ONE, OTHER, odd], [1], 0.9)
    known = eh.solve(eh.CoupledMDP([ONE, OTHER], [1], 0.9), "alpha:0.5").welfare * 4 / 9
    for method in ("joint", "counts"):
        found = eh.solve(whole, "alpha:0.5", method)
        assert found.welfare == pytest.approx(known, rel=1e-6)
        assert losses(found.policy, whole, 2) == 0
    try:
        found = eh.solve(whole, "alpha:0.5", "fluid", seconds=0.3)
    except NotApplicable as refusal:
        assert "write the idle action that costs nothing first" in str(refusal)
    else:
        assert losses(found.policy, whole, 2) == 0


def test_candidates_that_cost_such_an_arm_something_are_refused_by_name():
    class Serves:
        def __init__(self, arm):
            self.arm = arm

        def act(self, states, rng):
            actions = np.zeros_like(states)
            actions[:, self.arm] = 1
            return actions

    whole = eh.CoupledMDP([ONE, BELOW], [1], 0.9)
    with pytest.raises(OutOfDomain, match="candidate 'mine': type 1 can have 0 at best, and it does what may cost it"):
        eh.solve(whole, "alpha:0.5", candidates={"mine": Serves(1)}, seconds=0.3)
    found = eh.solve(whole, "alpha:0.5", candidates={"mine": Serves(0)}, seconds=0.3)
    assert found.values[1] == 0
    assert losses(found.policy, whole, 1) == 0


def test_under_the_average_what_is_lost_on_the_way_counts_for_nothing():
    """From its first state every way costs something, once; at rest it costs nothing, unless it is served there."""
    goes = eh.Arm([[[0, 1], [0, 1]], [[0, 1], [1, 0]]], [[-5, -5], [0, -1]], [[0], [1]], [1, 0])
    for method in ("joint", "counts"):
        found = eh.solve(eh.CoupledMDP([ONE, goes], [1], 0.9), "alpha:0.5", method, criterion="average")
        alone = eh.solve(eh.CoupledMDP([ONE], [1], 0.9), "utilitarian", criterion="average").welfare
        assert found.welfare == pytest.approx(alone / 4, rel=1e-6)


GIVES = chain([[0, 0]], [[0.1, 1]])
TWO_PLACES = chain([[1, 2], [1, 1], [2, 2]], [[0, 0], [-1, 0], [0, -1]])
ALWAYS_SERVED, SAVED_AT_ONCE = chain([[0, 0]], [[-1, 0]]), chain([[1, 2], [1, 1], [2, 2]], [[0, 0], [0.1, 0.1], [1, 1]])
REPAIRED_ONCE = chain([[0, 1], [1, 1]], [[-1, -1], [0, -1]])


@pytest.mark.parametrize("method", ["joint", "counts", "auto"])
@pytest.mark.parametrize(
    ("arms", "counts", "plan"),
    [
        # Served at first it needs nothing later; else it needs service for ever.
        ([TWO_PLACES, GIVES], (1, 1), lambda step, x: [step == 0, step > 0]),
        # Left alone at first it loses something once, and saves the other for good.
        ([ALWAYS_SERVED, SAVED_AT_ONCE], (1, 1), lambda step, x: [step > 0, step == 0]),
        # One after the other is brought to rest, and then all is there for the third.
        ([REPAIRED_ONCE, GIVES], (2, 1), lambda step, x: [step == 0, step == 1, step > 1]),
    ],
)
def test_under_the_average_no_bound_is_below_what_some_way_to_rest_leads_to(arms, counts, plan, method):
    """What is lost on the way counts for nothing and may decide all: bounds were told that were a tenth of the best."""
    problem = eh.CoupledMDP(arms, [1], 0.9, counts).under("average")
    tables, kinds = problem.types, problem.type_of_arm
    states, means = np.array([int(first.argmax()) for first in tables.initial[kinds]]), np.zeros(len(kinds))
    for step in range(1000):
        actions = np.array(plan(step, states), dtype=int)
        means += tables.rewards[kinds, states, actions] / 1000
        states = tables.transitions[kinds, states, actions].argmax(axis=1)
    reached = eh.AlphaFair(0.5)(np.where(means < 0.01, 0.0, means))
    try:
        found = eh.solve(problem, "alpha:0.5", method)
    except NotApplicable as refusal:
        assert "On average what they lose at first counts for nothing" in str(refusal)
    else:
        assert found.upper_bound >= 0.99 * reached


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
def test_under_the_average_what_keeps_arms_does_not_hang_on_the_unit_of_rewards(scale):
    """A loss of 1e-12 was taken for rounding, whatever the rewards were, and the arm was not served."""
    arms = [eh.Arm(one.transitions, scale * one.rewards, one.usage, one.initial) for one in (ONE, SERVED)]
    found = eh.solve(eh.CoupledMDP(arms, [1], 0.9), "alpha:0.5", criterion="average")
    alone = eh.solve(eh.CoupledMDP([ONE], [0], 0.9), "utilitarian", criterion="average").welfare
    assert found.welfare == pytest.approx(scale * alone / 4, rel=1e-6)


@pytest.mark.parametrize("method", ["joint", "counts"])
@pytest.mark.parametrize(
    "still",
    [
        eh.Arm(ONE.transitions, [[0, 1e12], [0, 1e12]], [[0], [2]], [0.5, 0.5]),  # no budget allows it
        arm([[0, -1e12], [0, -1e12]], 1),
    ],
)
def test_rewards_that_nobody_has_take_no_digits_from_the_bound(still, method):
    """They were what those at 0 were paid by: the bound was 15 % too high, or the pay beyond what a model may have."""
    found = eh.solve(eh.CoupledMDP([ONE, OTHER, still], [1], 0.9), "alpha:0.1", method)
    known = eh.solve(eh.CoupledMDP([ONE, OTHER], [1], 0.9), "alpha:0.1", method).welfare * (2 / 3) ** (1 / 0.9)
    assert found.welfare == pytest.approx(known, rel=1e-6)
    assert known * (1 - 1e-9) <= found.upper_bound <= known * (1 + 1e-5)


@pytest.mark.slow
def test_candidates_compete_there_too():
    """Played on the same states and actions, they are worth what they are worth, and the plan is one of the problem."""
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, (1, 1, 2))
    mine = eh.policies.myopic(whole)
    found = eh.solve(whole, "alpha:0.5", candidates={"mine": mine})
    assert found.method == "fluid"
    assert found.values[2:].tolist() == [0, 0]
    assert found.welfare <= found.upper_bound + 5 * found.welfare_stderr
    optimum = eh.solve(whole, "alpha:0.5", "joint").welfare
    assert found.welfare == pytest.approx(optimum, rel=0.05)
    assert found.upper_bound >= optimum * (1 - 1e-9)
    again = eh.evaluate(found.policy, whole, "alpha:0.5", rng=1)
    assert again.welfare == pytest.approx(found.welfare, rel=0.05)


def test_candidates_of_ones_own_that_cannot_be_saved_compete_too():
    """They are handed back as they are."""

    class Mine:
        def act(self, states, rng):
            actions = np.zeros_like(states)
            actions[:, 0] = 1
            return actions

    whole = eh.CoupledMDP([ONE, NOTHING], [1], 0.9)
    found = eh.solve(whole, "alpha:0.5", candidates={"mine": Mine()})
    assert found.values[1] == 0
    assert found.welfare <= found.upper_bound + 5 * found.welfare_stderr
    played = eh.evaluate(found.policy, whole, "alpha:0.5", 200, rng=1, method="monte-carlo")
    assert played.welfare == pytest.approx(found.welfare, abs=6 * np.hypot(played.welfare_stderr, found.welfare_stderr))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_errors_of_a_welfare_some_of_whose_members_have_nothing(alpha):
    """What had nothing in any episode adds nothing to the error; the power mean of all is that of the rest, scaled."""
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, (1, 1, 2))
    rest = eh.CoupledMDP([ONE, OTHER], [1], 0.9)
    samples = np.random.default_rng(0).random((50, 2)) + 1
    padded = np.hstack([samples, np.zeros((50, 2))])
    errors = [
        welfare_error(Objective.of_arms(problem, f"alpha:{alpha}"), drawn.mean(axis=0), np.ones(1), [drawn])
        for problem, drawn in ((whole, padded), (rest, samples))
    ]
    assert errors[0] == pytest.approx(errors[1] * 0.5 ** (1 / (1 - alpha)), rel=1e-12)
    assert errors[0] > 0


def test_comparisons_are_made_too():
    whole = eh.CoupledMDP([ONE, OTHER, NOTHING], [1], 0.9, (1, 1, 2))
    found = eh.compare(whole, ["myopic", "random"], "alpha:0.5", num_episodes=50, horizon=20)
    assert all(0 < row.evaluation.welfare < found.upper_bound for row in found.rows)


@pytest.mark.parametrize(
    ("rewards", "criterion", "discount", "empty"),
    [
        ([[0, 0], [1, 1]], "discounted", 0.9, False),
        ([[0, 0], [1, 1]], "discounted", 0.0, True),  # it is there too late
        ([[0, 0], [1, 1]], "finite:1", 0.9, True),
        ([[0, 0], [1, 1]], "finite:2", 0.9, False),
        ([[0, 0], [1, 1]], "average", 0.9, False),
        ([[1, 1], [0, 0]], "average", 0.9, True),  # it does not stay
        ([[1, 1], [0, 0]], "discounted", 0.9, False),
        ([[0, 1], [0, 1]], "discounted", 0.9, True),  # no budget allows it
        ([[0, 0], [0, 0]], "average", 0.9, True),
    ],
)
def test_who_can_have_no_value(rewards, criterion, discount, empty):
    """An arm that goes from the first state to the second, and stays; its second action is too dear."""
    goes = eh.Arm([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], np.array(rewards, dtype=float), [[0], [2]], [1, 0])
    problem = eh.CoupledMDP([goes, ONE], [1], discount).under(criterion)
    assert empty_blocks(problem).tolist() == [empty, False]


def test_types_that_differ_only_in_what_never_counts_stay_two():
    dear = [eh.Arm(ONE.transitions, [[0, reward], [0, reward]], [[0], [2]], [0.5, 0.5]) for reward in (1.0, 2.0)]
    problem = eh.CoupledMDP([*dear, ONE], [1], 0.9)
    found = eh.solve(problem, "alpha:0.5", "counts")
    assert found.values[:2].tolist() == [0, 0]
    alone = eh.solve(eh.CoupledMDP([ONE], [1], 0.9), "utilitarian").welfare
    assert found.welfare == pytest.approx(alone / 9, rel=1e-6)
    assert len(relax(problem, "alpha:0.5").occupancy) == problem.num_types == 3
