"""No simulated value may contradict a proof: welfare above its bound, or errors that do not cover the truth.

Arms are slowed down, P -> I + share (P - I), which changes neither what an arm by itself has in the long run nor the
bound of the relaxation, but how long it takes to forget its start: once, simulated averages showed the start instead.
"""

from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.errors import ContradictionError, EvenhandError, NotConvergedError
from evenhand.evaluation import LongRunLimits, play_long_run, simulate_events
from evenhand.planning import limited_effort

from ..conftest import slow_after, try_each
from ..oracles.problems import replaced, seeded_problem

CRITERIA = ("average", "average", "discounted", "finite:6")
WELFARES = ("utilitarian", "gini:2", "maximin", "alpha:0.5", "leximin")
SPEEDS = (1.0, 0.3, 0.03, 0.003)


def wearing(num_arms=50, budget=5, speed=1.0):
    """The arms of the report: a fault in 2000 steps, and little that helps; from all good to a quarter good."""
    good, bad = [[1 - 5e-4 * speed, 5e-4 * speed], [1, 0]], [[1e-4 * speed, 1 - 1e-4 * speed]]
    arm = eh.Arm([good, [*bad, [5e-4 * speed, 1 - 5e-4 * speed]]], [[1, 1], [0, 0]], usage=[[0], [1]], initial=[1, 0])
    return eh.CoupledMDP([arm], [budget], 1.0, [num_arms], criterion="average")


def slowed(problem, share):
    """The same arms, that move in a share of the steps only."""
    arms = []
    for block in range(len(problem.counts)):
        arm = problem.arms[block]
        stay = np.eye(arm.transitions.shape[0])[:, None, :]
        arms.append(eh.Arm(share * arm.transitions + (1 - share) * stay, arm.rewards, arm.usage, arm.initial))
    return replaced(problem, arms=arms)


# -- the cases of the report -----------------------------------------------------------------------------------------


def test_slow_arms_are_simulated_until_their_start_is_forgotten():
    found = eh.evaluate(wearing(), "never-act", "utilitarian", num_episodes=60, method="monte-carlo")
    assert found.welfare == pytest.approx(1 / 6, abs=max(4 * found.welfare_stderr, 1e-6))
    assert found.welfare_stderr < 0.01


def test_a_horizon_that_is_too_short_is_part_of_the_error():
    found = eh.evaluate(wearing(), "never-act", "utilitarian", 60, 1000, method="monte-carlo")
    assert found.horizon == 1000
    assert abs(found.welfare - 1 / 6) < 2 * found.welfare_stderr
    assert found.welfare_stderr > 0.1 and found.mean_stderr > 0.1 and found.unit_stderr.min() > 0.1


@pytest.mark.parametrize("method", ["whittle", "fluid"])
def test_no_plan_of_slow_arms_is_above_its_bound(method, effort):
    effort(exact_states=0)
    plan = eh.solve(wearing(5, 1), "utilitarian", method)
    assert plan.upper_bound == pytest.approx(1 / 3, rel=1e-4)
    # Both policies are optimal, or nearly so.
    assert plan.welfare == pytest.approx(1 / 3, abs=4 * plan.welfare_stderr + 0.005)
    assert 0 < plan.welfare_stderr < 0.02


def test_one_fault_a_year():
    """Daily steps: a fault in 365 days, repaired within days if a crew comes, in a season if not."""
    good, bad = [[364 / 365, 1 / 365], [364 / 365, 1 / 365]], [[1 / 90, 89 / 90], [0.4, 0.6]]
    arm = eh.Arm([good, bad], [[1, 1], [0, 0]], usage=[[0], [1]], initial=[1, 0])
    problem = eh.CoupledMDP([arm], [1], 1.0, [4], criterion="average")
    for policy in ("never-act", "random", "whittle"):
        exact = eh.evaluate(problem, policy, "utilitarian", method="exact").welfare
        found = eh.evaluate(problem, policy, "utilitarian", num_episodes=60, method="monte-carlo")
        assert abs(found.welfare - exact) <= 4 * found.welfare_stderr + 1e-9


def test_what_would_take_too_long_is_refused():
    """Quick moves within two pairs of states, and hardly any between them: no step can be skipped."""
    swap, rare = 0.5, 1e-9
    moves = [
        [1 - swap - rare, swap, rare, 0],
        [swap, 1 - swap, 0, 0],
        [rare, 0, 1 - swap - rare, swap],
        [0, 0, swap, 1 - swap],
    ]
    arm = eh.Arm([[row] * 2 for row in moves], [[1, 1], [1, 1], [0, 0], [0, 0]], [[0], [1]], [1, 0, 0, 0])
    problem = eh.CoupledMDP([arm], [1], 1.0, [2], criterion="average")
    with pytest.raises(NotConvergedError):
        eh.evaluate(problem, "random", "utilitarian", num_episodes=10, method="monte-carlo")


# -- from change to change -------------------------------------------------------------------------------------------


def test_playing_from_change_to_change_has_the_means_of_playing_step_by_step():
    problem = slowed(seeded_problem(5, most_pairs=64, floors=False, groups=False), 0.05).with_criterion("average")
    policy = eh.make_policy(problem, "random")
    steps, changes = eh.simulate(problem, policy, 300, 400, 1), simulate_events(problem, policy, 300, 400, 2)
    assert steps.visits is not None and changes.visits is not None
    for name in ("returns", "served", "used", "drift"):
        one, other = getattr(steps, name), getattr(changes, name)
        error = np.hypot(one.std(axis=0), other.std(axis=0)) / np.sqrt(300)
        assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) <= 4.5 * error + 1e-12).all(), name
    assert steps.visits.sum() == pytest.approx(changes.visits.sum()) == pytest.approx(300 * problem.num_arms)
    np.testing.assert_allclose(steps.visits, changes.visits, atol=0.1 * 300 * problem.num_arms)


def test_arms_with_several_closed_classes_depend_on_their_start():
    """Half of the arms begin where they earn 1 for ever, slowly reached from a third state; nothing mixes these."""
    arm = eh.Arm([[[1, 0, 0]], [[0, 1, 0]], [[0.01, 0.03, 0.96]]], [[1], [0], [0]], usage=[[0]], initial=[0.5, 0, 0.5])
    problem = eh.CoupledMDP([arm], [1], 1.0, [3], criterion="average")
    run = play_long_run(problem, eh.make_policy(problem, "never-act"), lambda steps: 2000, 0)
    means = run.estimates.mean(axis=1)
    assert abs(means.mean() - 0.625) <= 4 * means.std() / np.sqrt(len(means))


def test_arms_that_never_move_are_simulated_once():
    """Two states that are never left, and one that leads to them and is left at once: nothing is left to wait for."""
    arm = eh.Arm([[[1, 0, 0]], [[0, 1, 0]], [[0.5, 0.5, 0]]], [[1], [0], [0]], usage=[[0]], initial=[0, 0, 1])
    problem = eh.CoupledMDP([arm], [1], 1.0, [3], criterion="average")
    policy, limits = eh.make_policy(problem, "never-act"), LongRunLimits(usual=4)
    run = play_long_run(problem, policy, lambda steps: int(min(200, 1e6 / steps)), 0, limits=limits)
    assert set(np.unique(run.estimates)) <= {0.0, 1.0}


# -- honest errors ---------------------------------------------------------------------------------------------------


def two_kinds(mixing):
    """Three arms of two types that forget their start in about so many steps."""
    rate = 0.5 / mixing
    arms = [
        eh.Arm(
            [[[1 - often * rate, often * rate], [1, 0]], [[0.2 * rate, 1 - 0.2 * rate], [0.9 * rate, 1 - 0.9 * rate]]],
            [[1, 0.9], [0, -0.1]],
            usage=[[0], [1]],
            initial=[1, 0],
        )
        for often in (0.5, 1.0)
    ]
    return eh.CoupledMDP(arms, [1], 1.0, [2, 1], criterion="average")


def check_errors(mixing, policy, seeds):
    """Errors in standard errors over seeds: their mean is 0 and their variance 1, as far as chance allows."""
    problem = two_kinds(mixing)
    exact = eh.evaluate(problem, policy, "utilitarian", method="exact").welfare
    found = [
        eh.evaluate(problem, policy, "utilitarian", num_episodes=40, rng=seed, method="monte-carlo") for seed in seeds
    ]
    errors = np.array([(each.welfare - exact) / each.welfare_stderr for each in found])
    number = len(errors)
    assert abs(errors.mean()) <= 4 / np.sqrt(number), errors.mean()
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], number) / number
    # Spreads of 40 episodes are uncertain themselves: a t distribution of 39 degrees of freedom.
    assert low <= (errors**2).mean() <= high * 39 / 37, (errors**2).mean()


@pytest.mark.parametrize("mixing", [1, 1e5])
def test_standard_errors_are_honest(mixing):
    check_errors(mixing, "whittle", range(6))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["whittle", "random"])
@pytest.mark.parametrize("mixing", [1, 1e2, 1e4, 1e5])
def test_standard_errors_are_honest_over_many_seeds(mixing, policy):
    check_errors(mixing, policy, range(50))


# -- soundness -------------------------------------------------------------------------------------------------------


def case_of(seed):
    rng = np.random.default_rng([seed, 24])
    criterion, welfare, speed = (str(rng.choice(CRITERIA)), str(rng.choice(WELFARES)), float(rng.choice(SPEEDS)))
    return slowed(seeded_problem(seed, most_pairs=128, floors=False), speed).with_criterion(criterion), welfare


def check_policies(seed):
    """Policies played on one problem: none is above the bound of the relaxation."""
    problem, welfare = case_of(seed)
    names = ["random", "fair-index", "occupancy-priority", "never-act"]
    try:
        with limited_effort(optimum_states=0):
            found = eh.compare(problem, names, welfare, num_episodes=40, rng=seed, method="monte-carlo")
    except ContradictionError:
        raise
    except EvenhandError:  # a refusal in words
        return 0
    size = np.abs(problem.types.rewards).max() * problem.criterion.total
    for row in (row.evaluation for row in found.rows if found.upper_bound is not None):
        cut_off = row.truncation_bound or 0.0
        assert row.welfare <= found.upper_bound + 4 * row.welfare_stderr + 4 * cut_off + 1e-6 * size
    return len(found.rows)


def check_methods(seed):
    """Plans of the methods that play."""
    problem, welfare = case_of(seed)
    for method in ("fluid", "whittle"):
        try:
            found = eh.solve(problem, welfare, method, rng=seed)
        except ContradictionError:
            raise
        except EvenhandError:  # a refusal in words
            continue
        size = np.abs(problem.types.rewards).max() * problem.criterion.total
        assert found.welfare <= found.upper_bound + 4 * found.welfare_stderr + 1e-6 * size, method


@pytest.fixture
def simulated(effort):
    """Nothing is so small that it is evaluated exactly."""
    effort(exact_states=0)


@pytest.mark.parametrize("first", slow_after(1, range(0, 40, 10)))
def test_no_policy_is_above_the_bound(first):
    assert sum(map(check_policies, range(first, first + 10))) >= 20  # most are not refused


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 2000, 40))
def test_no_policy_is_above_the_bound_of_many_problems(first):
    assert sum(map(check_policies, range(first, first + 40))) >= 80


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 10))
def test_no_plan_is_above_its_bound_on_many_problems(first, simulated):
    try_each(check_methods, range(first, first + 10))


# -- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["counts", "fluid"])
def test_a_welfare_above_its_bound_is_an_error(method):
    """A wrong bound on purpose: no answer may come of it."""
    plan = eh.solve(eh.problems.machine_replacement(num_arms=3), "gini:2", method)
    lower = plan.welfare - 10 * plan.welfare_stderr - 1e-3 * abs(plan.welfare)
    with pytest.raises(ContradictionError):
        replace(plan, upper_bound=lower)
    nearly = replace(plan, upper_bound=plan.welfare - plan.welfare_stderr)
    assert nearly.gap == 0


@pytest.mark.parametrize("method", ["auto", "monte-carlo"])
def test_a_policy_above_the_bound_of_a_comparison_is_an_error(method, monkeypatch):
    problem = eh.problems.machine_replacement(num_arms=3)
    monkeypatch.setattr("evenhand.planning.compare.best_bound", lambda *_: (5.0, "optimum", None))
    with pytest.raises(ContradictionError):
        eh.compare(problem, ["random"], "gini:2", num_episodes=50, method=method)


def crew(num_arms, budget, fault, repair):
    """Faults that are not attended at once take long repairs: a crew that falls behind stays behind."""
    moves = np.zeros((3, 2, 3))
    moves[0, :] = [1 - fault, fault, 0]
    moves[1, 0], moves[1, 1] = [0, 0, 1], [1, 0, 0]
    moves[2, 0], moves[2, 1] = [0, 0, 1], [repair, 0, 1 - repair]
    arm = eh.Arm(moves, [[1, 1], [1, 1], [0, 0]], [[0], [1]], [1, 0, 0])
    return eh.CoupledMDP([arm], [budget], 1.0, [num_arms], criterion="average")


def test_arms_that_are_slow_only_together():
    problem = crew(10, 2, 0.015, 0.0225)
    policy = eh.policies.worst_first(problem)
    exact = eh.evaluate(problem, policy, "utilitarian", method="exact").welfare
    played = eh.evaluate(problem, policy, "utilitarian", num_episodes=100, method="monte-carlo")
    assert abs(played.welfare - exact) < 4 * played.welfare_stderr
    assert played.welfare_stderr < 0.1


@pytest.mark.parametrize("period", [2, 3, 7])
def test_the_error_of_periodic_arms_is_not_below_their_truncation(period):
    moves = np.roll(np.eye(period), 1, axis=1)[:, None]
    rewards = np.zeros((period, 1))
    rewards[0] = 1
    arm = eh.Arm(moves, rewards, [[0]], np.eye(period)[0])
    problem = eh.CoupledMDP([arm], [1], 1.0, [2], criterion="average")
    played = eh.evaluate(problem, "never-act", "utilitarian", num_episodes=20, method="monte-carlo")
    assert abs(played.welfare - 1 / period) <= played.welfare_stderr


def mortal(num_arms, rate):
    """Arms that wear out, and may then be lost for good."""
    arms = []
    for wear in np.linspace(0.2, 0.3, num_arms):
        moves = np.zeros((3, 2, 3))
        moves[0, :] = [1 - wear, wear, 0]
        moves[1, 0], moves[1, 1] = [0, 1 - rate, rate], [0.9, 0.1 - rate, rate]
        moves[2, :] = [0, 0, 1]
        arms.append(eh.Arm(moves, [[1, 1], [0.3, 0.3], [0, 0]], [[0], [1]], [1, 0, 0]))
    return eh.CoupledMDP(arms, [2], 1.0, criterion="average")


@pytest.mark.parametrize("seconds", [None, 3])
def test_an_absorbing_state_is_solved_or_refused_in_time(seconds):
    start = process_time()
    try:
        plan = eh.solve(mortal(8, 1e-3), "gini:2", eh.SolveMethod("fluid", seconds=seconds))
    except NotConvergedError:
        pass
    else:
        assert abs(plan.welfare) <= 4 * plan.welfare_stderr + 1e-9
    assert process_time() - start < (60 if seconds is None else 15)


def test_a_limit_on_the_work_refuses_with_the_steps_that_are_needed():
    problem = mortal(4, 1e-4)
    policy = eh.policies.worst_first(problem)
    with pytest.raises(NotConvergedError, match=r"\d steps per"):
        play_long_run(problem, policy, lambda _: 20, 0, limits=LongRunLimits(most_work=1.0))
