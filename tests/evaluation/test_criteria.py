"""Values under every criterion, over groups and beside floors: against the joint chain pushed on step by step."""

import numpy as np
import pytest

import evenhand as eh
from evenhand import evaluate
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.evaluation import LongRunLimits, evaluate_within, exact_values, simulate
from evenhand.model import Arm, Average, CoupledMDP, Finite, Gini, MixturePolicy, TimeVaryingPolicy
from evenhand.policies import PriorityPolicy, RoundRobin, myopic, never_act, random_feasible, worst_first
from evenhand.problems import machine_replacement
from evenhand.solvers import Counts, Joint

from ..conftest import crossed, mentions

CRITERIA = ["discounted", "average", "finite:1", "finite:7"]
LONG = 4000
"""Steps after which the chains of these tests stand still, or turn in circles of two."""


def by_pushing(oracle, criterion, *laws):
    """(arm,) values, (resource,) weighted usage and (arm,) shares of time served; one law a step, over and over again.

    Plain power iteration of the joint chain. An average is Cesaro's: the mean over the second half of a long time,
    which has an even number of steps, so that chains of period two are averaged rightly.
    """
    problem, steps = oracle.problem, []
    for law in laws:
        matrix = np.zeros((len(oracle.states), len(oracle.states)))
        gains = np.zeros((len(oracle.states), 2 * len(oracle.arms) + problem.num_resources))
        for i, state in enumerate(oracle.states):
            for actions, chance in law(state).items():
                used = [arm.usage[s, a] for arm, s, a in zip(oracle.arms, state, actions, strict=True)]
                served = [float(amount.any()) for amount in used]
                matrix[i] += chance * oracle.row(state, actions)
                gains[i] += chance * np.concatenate([oracle.rewards(state, actions), served, sum(used)])
        steps.append((matrix, gains))
    if criterion.startswith("finite:"):
        weights = problem.discount ** np.arange(int(criterion[7:]))
    elif criterion == "average":
        weights = np.repeat([0.0, 2 / LONG], LONG // 2)
    else:
        weights = problem.discount ** np.arange(LONG)
    law, sums = oracle.initial, 0.0
    for t, weight in enumerate(weights):
        matrix, gains = steps[t % len(steps)]
        sums = sums + weight * (law @ gains)
        law = law @ matrix
    number = len(oracle.arms)
    return sums[:number], sums[2 * number :], sums[number : 2 * number] / weights.sum()


def law_of_table(space, probabilities):
    """Distribution of actions in each joint state, by a table over the product space."""

    def law(state):
        pairs = np.flatnonzero((space.states[space.mdp.state_of_pair] == state).all(axis=1))
        return {tuple(space.actions[pair]): probabilities[pair] for pair in pairs if probabilities[pair] > 0}

    return law


def random_table(mdp, seed):
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    return weights / np.repeat(np.add.reduceat(weights, mdp.offsets[:-1]), np.diff(mdp.offsets))


def agree(found, problem, values, used, served):
    kinds = problem.type_of_arm if found.by_type else slice(None)
    np.testing.assert_allclose(found.values[kinds], values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.used, used, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.served[kinds], served, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("criterion", CRITERIA)
class TestExact:
    def test_values_of_a_distribution_are_those_of_its_chain(self, criterion, small_problem, brute_force):
        oracle = brute_force(small_problem)
        expected = by_pushing(oracle, criterion, oracle.greedy(lambda *_: 0.0, stop=True))
        problem = small_problem.with_criterion(criterion)
        agree(exact_values(problem, random_feasible(small_problem)), problem, *expected)

    def test_values_of_tables_for_another_criterion_are_those_of_their_chain(self, criterion, problems, brute_force):
        problem = problems["all different"]()
        space = Joint(problem)
        table = random_table(space.mdp, 0)
        expected = by_pushing(brute_force(problem), criterion, law_of_table(space, table))
        agree(exact_values(problem.with_criterion(criterion), space.lift(table)), problem, *expected)

    def test_a_count_table_and_its_distribution_have_the_same_values(self, criterion, small_problem):
        space = Counts(small_problem)
        policy = space.lift(random_table(space.mdp, 0))

        class Shy:
            """The law and nothing else, so that it must be tabulated."""

            act, allocate, allocation_distribution = policy.act, policy.allocate, policy.allocation_distribution

        table, law = (exact_values(small_problem.with_criterion(criterion), each) for each in (policy, Shy()))
        for name in ("values", "used", "served"):
            np.testing.assert_allclose(getattr(table, name), getattr(law, name), rtol=1e-9, atol=1e-12)

    def test_a_mixture_has_the_mixed_values_of_its_parts(self, criterion, problems, brute_force):
        """One part has values by type, the other by arm: both are reported by arm."""
        problem = problems["two types"]()
        oracle, space = brute_force(problem), Joint(problem)
        table = random_table(space.mdp, 3)
        parts = [random_feasible(problem), space.lift(table)]
        laws = [oracle.greedy(lambda *_: 0.0, stop=True), law_of_table(space, table)]
        each = [by_pushing(oracle, criterion, law) for law in laws]
        found = exact_values(problem.with_criterion(criterion), MixturePolicy(parts, [0.25, 0.75]))
        assert not found.by_type
        agree(found, problem, *(0.25 * one + 0.75 * other for one, other in zip(*each, strict=True)))


class TestBySteps:
    @pytest.mark.parametrize("criterion", ["finite:1", "finite:2", "finite:7"])
    def test_tables_by_steps(self, criterion, problems, brute_force):
        """Two steps, played for one, for both, and again from the first."""
        problem = problems["all different"]()
        space = Joint(problem)
        tables = [random_table(space.mdp, seed) for seed in (1, 2)]
        expected = by_pushing(brute_force(problem), criterion, *(law_of_table(space, table) for table in tables))
        policy = TimeVaryingPolicy([space.lift(table) for table in tables])
        agree(exact_values(problem.with_criterion(criterion), policy), problem, *expected)

    def test_distributions_by_steps(self, problems, brute_force):
        problem = problems["two types"]()
        oracle = brute_force(problem)
        served = oracle.greedy(lambda *_: 0.0, stop=True)
        idle = oracle.greedy(lambda *_: None)
        policy = TimeVaryingPolicy([random_feasible(problem), never_act(problem), never_act(problem)])
        expected = by_pushing(oracle, "finite:5", served, idle, idle)
        agree(exact_values(problem.with_criterion("finite:5"), policy), problem, *expected)

    def test_steps_over_different_spaces_are_simulated(self, problems):
        problem = problems["two types"]().with_criterion("finite:2")
        space = Joint(problem)
        policy = TimeVaryingPolicy([random_feasible(problem), space.lift(random_table(space.mdp, 0))])
        with pytest.raises(NotApplicableError, check=mentions("steps", "spaces")):
            exact_values(problem, policy)
        assert not evaluate(problem, policy, num_episodes=5, rng=0).exact

    @pytest.mark.parametrize("criterion", ["discounted", "average"])
    def test_for_ever_they_are_simulated(self, criterion, problems):
        problem = problems["machines"]()
        policy = TimeVaryingPolicy([worst_first(problem), never_act(problem)])
        with pytest.raises(NotApplicableError, match=f"only be simulated under the criterion {criterion}"):
            evaluate(problem, policy, method="exact", criterion=criterion)
        found = evaluate(problem, policy, num_episodes=3, horizon=8, rng=0, criterion=criterion)
        # Every second step is served: 1, gamma^2, ... of 1, gamma, ...; in the long run half of the time.
        share = 0.5 if criterion == "average" else 1 / (1 + problem.discount)
        assert found.budget_used == pytest.approx([share])

    def test_the_limit_on_count_states_is_over_all_distinct_steps(self):
        made_for = machine_replacement(num_arms=5)  # 21 count states
        problem, steps = (
            made_for.with_criterion("finite:3"),
            [make(made_for) for make in (worst_first, never_act, myopic)],
        )
        assert exact_values(problem, steps[0], most_states=50).by_type
        with pytest.raises(NotApplicableError, check=mentions(63, "3 steps", 50)):
            exact_values(problem, TimeVaryingPolicy(steps), most_states=50)


class TestLongRun:
    def alternating(self, initial):
        """Two states that follow each other for ever, worth 1 and 0, and a third that stays, worth 5."""
        rows = np.zeros((3, 2, 3))
        rows[0, :, 1] = rows[1, :, 0] = rows[2, :, 2] = 1.0
        arm = Arm(rows, [[1, 1], [0, 0], [5, 5]], usage=[[0], [1]], initial=initial)
        return CoupledMDP([arm], budget=[1], discount=1.0, counts=[2], criterion="average")

    def test_a_periodic_chain_has_the_mean_of_its_period(self):
        problem = self.alternating([1.0, 0.0, 0.0])
        assert exact_values(problem, never_act(problem)).values == pytest.approx([0.5])
        played = evaluate(problem, never_act(problem), method="monte-carlo", num_episodes=3, horizon=400, rng=0)
        assert played.values == pytest.approx([0.5, 0.5])

    def test_the_long_run_depends_on_the_start_if_there_are_several_classes(self):
        problem = self.alternating([0.25, 0.25, 0.5])
        assert exact_values(problem, never_act(problem)).values == pytest.approx([0.5 * 0.5 + 0.5 * 5])

    def test_the_average_is_the_limit_of_the_discounted_value(self):
        near = machine_replacement(num_arms=3, discount=1 - 1e-6)
        policy = worst_first(near)
        average = evaluate(near, policy, criterion="average").values
        assert 1e-6 * evaluate(near, policy).values == pytest.approx(average, abs=1e-4)
        assert evaluate(near, policy, criterion="finite:3000").values / 3000 == pytest.approx(average, abs=2e-3)


@pytest.mark.parametrize("criterion", CRITERIA)
class TestMonteCarlo:
    @pytest.mark.parametrize(("by_counts", "name"), crossed([False, True], ["two types", "machines"]))
    def test_agrees_with_exact_values(self, criterion, name, by_counts, problems):
        problem = problems[name]().with_criterion(criterion)
        policy = random_feasible(problem)
        exact = evaluate(problem, policy)
        horizon = {"discounted": 100, "average": 200}.get(criterion)
        limits = LongRunLimits(thorough=True, followed_arm_steps=0 if by_counts else np.inf)
        steps = horizon or problem.criterion.num_steps
        played = evaluate_within(problem, policy, None, 600, steps, 2, limits)
        assert exact.exact and not played.exact and (played.plug_in_welfare is None) == by_counts
        cut = played.truncation_bound or 0.0
        assert (np.abs(played.unit_values - exact.unit_values) <= 4.5 * played.unit_stderr + cut).all()
        assert abs(played.welfare - exact.welfare) <= 4.5 * played.welfare_stderr + cut
        share_cut = problem.discount**100 if criterion == "discounted" else 0.0
        assert (np.abs(played.served - exact.served) <= 4.5 * played.unit_served_stderr + share_cut).all()
        assert played.budget_used == pytest.approx(exact.budget_used, abs=0.03)

    def test_a_mixture_agrees_too(self, criterion, problems):
        problem = problems["machines"]().with_criterion(criterion)
        policy = MixturePolicy([worst_first(problem), never_act(problem)], [0.3, 0.7])
        exact = evaluate(problem, policy)
        horizon = {"discounted": 100, "average": 200}.get(criterion)
        played = evaluate(problem, policy, method="monte-carlo", num_episodes=600, horizon=horizon, rng=2)
        assert exact.exact and exact.served == pytest.approx([0.3 / 3])
        assert abs(played.mean - exact.mean) <= 4.5 * played.mean_stderr + (played.truncation_bound or 0.0)

    def test_horizon_and_truncation_bound(self, criterion, problems):
        problem = problems["machines"]()
        found = evaluate(problem, random_feasible(problem), method="monte-carlo", num_episodes=4, criterion=criterion)
        assert found.criterion == criterion and found.over == "arms" and found.groups == {}
        assert found.horizon == {"discounted": 300, "average": 1000, "finite:1": 1, "finite:7": 7}[criterion]
        if criterion == "average":
            assert found.truncation_bound is None
        elif criterion == "discounted":
            assert found.truncation_bound == pytest.approx(0.95**300 / 0.05 * np.abs(problem.types.rewards).max())
        else:
            assert found.truncation_bound == 0
        assert found.problem == problem.with_criterion(criterion)


def towns(build_arm, **options):
    """Three blocks of two kinds in two groups; equal blocks lie in different groups."""
    one, two = (build_arm(seed, 2, [[0], [1]]) for seed in (0, 1))
    options = {"discount": 0.8, "counts": [2, 1, 3], "groups": ["north", "north", "south"]} | options
    return CoupledMDP([one, two, one], budget=[2], **options)


NORTH, SOUTH = [0, 1, 2], [3, 4, 5]
"""The arms of each group."""


class TestGroups:
    def test_exact_values_of_groups_are_means_over_their_arms(self, build_arm):
        problem = towns(build_arm, over="groups")
        found = evaluate(problem, random_feasible(problem), "gini:2")
        values = found.values
        means = np.array([values[NORTH].mean(), values[SOUTH].mean()])
        assert found.groups == pytest.approx({"north": means[0], "south": means[1]})
        assert found.welfare == pytest.approx(np.sort(means) @ [2 / 3, 1 / 3])
        assert found.worst == pytest.approx(means.min()) and found.mean == pytest.approx(means.mean())
        assert found.gini_coefficient == pytest.approx(abs(means[0] - means[1]) / (2 * means.sum()))
        assert found.lorenz[0] == pytest.approx([0, 0.5, 1])
        assert not found.member_stderr.any()

    def test_weights_are_for_groups(self, build_arm):
        problem = towns(build_arm, over="groups")
        found = evaluate(problem, random_feasible(problem), Gini([0.9, 0.1]))
        assert found.welfare == pytest.approx(np.sort(list(found.groups.values())) @ [0.9, 0.1])
        with pytest.raises(InvalidInputError, check=mentions("gini:0.5,0.3,0.2", 3, 2)):
            evaluate(problem, random_feasible(problem), "gini:0.5,0.3,0.2")

    @pytest.mark.parametrize("welfare", ["gini:2", "nash", "utilitarian"])
    @pytest.mark.parametrize("pooled", [True, False])
    def test_errors_are_those_of_weighted_returns(self, build_arm, pooled, welfare):
        """The delta method by hand: a step along each group's mean, from finite differences of the welfare."""
        problem = towns(build_arm, over="groups")
        policy = random_feasible(problem) if pooled else PriorityPolicy(problem, np.zeros(problem.types.valid.shape))
        found = evaluate(problem, policy, welfare, method="monte-carlo", num_episodes=80, horizon=30, rng=3)
        groups = np.stack([found.returns[:, NORTH].mean(axis=1), found.returns[:, SOUTH].mean(axis=1)], axis=1)
        means = groups.mean(axis=0)
        assert found.by_type == pooled
        assert list(found.groups.values()) == pytest.approx(means)
        assert found.member_stderr == pytest.approx(groups.std(axis=0, ddof=1) / np.sqrt(80))
        weigh = found.objective.welfare
        slopes = [(weigh(means + 1e-6 * axis) - weigh(means - 1e-6 * axis)) / 2e-6 for axis in np.eye(2)]
        spread = (groups @ slopes).std(ddof=1) / np.sqrt(80)
        assert found.welfare_stderr == pytest.approx(spread, rel=1e-6)
        assert found.plug_in_welfare == pytest.approx(found.welfare)

    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    def test_a_policy_made_without_groups_is_evaluated_over_groups(self, build_arm, method):
        """Its types reach across groups, so the arms of one have one value in both."""
        problem = towns(build_arm)
        options = {"method": method, "num_episodes": 60, "horizon": 20, "rng": 1}
        found = evaluate(problem.with_criterion(over="groups"), random_feasible(problem), **options)
        plain = evaluate(problem, random_feasible(problem), **options)
        assert found.by_type and found.problem.num_types == 3
        assert found.values == pytest.approx(plain.values) and found.values[0] == found.values[3]
        assert found.groups == pytest.approx({"north": plain.values[NORTH].mean(), "south": plain.values[SOUTH].mean()})

    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    def test_a_policy_made_for_groups_is_evaluated_over_arms(self, build_arm, method):
        """It may prefer a group, so equal arms are reported one by one."""
        problem = towns(build_arm)
        cut = problem.with_criterion(over="groups")
        scores = np.zeros(cut.types.valid.shape)
        scores[2] = 1.0  # the south first
        policy = type(random_feasible(cut))(cut, scores)
        options = {"method": method, "num_episodes": 400, "horizon": 40, "rng": 1}
        found, grouped = evaluate(problem, policy, **options), evaluate(cut, policy, **options)
        assert not found.by_type and found.over == "arms" and len(found.unit_values) == 6
        assert found.values == pytest.approx(grouped.values)
        assert found.values[0] == found.values[1] != found.values[3]

    def test_over_is_arms_or_groups(self, build_arm):
        with pytest.raises(InvalidInputError, check=mentions("over", "'group'")):
            eh.evaluate(towns(build_arm), "never-act", over="group")


class Every:
    """Serves the first arm at every `every`-th step; one actor an episode batch."""

    def __init__(self, every):
        self.every = every

    def start(self, num_episodes, rng):
        return _EveryActor(self.every)


class _EveryActor:
    def __init__(self, every):
        self.every, self.step = every, -1

    def act(self, states, rng):
        self.step += 1
        actions = np.zeros_like(states)
        actions[:, 0] = self.step % self.every == 0
        return actions


class TestServed:
    @pytest.mark.parametrize("criterion", CRITERIA)
    def test_shares_of_time_by_hand(self, criterion):
        problem = machine_replacement(num_arms=3, discount=0.9).with_criterion(criterion)
        found = evaluate(problem, Every(3), num_episodes=4, horizon=None if "finite" in criterion else 120, rng=0)
        steps = {"finite:1": [0], "finite:7": range(7), "average": range(30, 120)}.get(criterion, range(120))
        weights = {t: 1.0 if criterion == "average" else 0.9**t for t in steps}
        share = sum(weight for t, weight in weights.items() if t % 3 == 0) / sum(weights.values())
        assert found.unit_served == pytest.approx([share, 0, 0])
        assert found.served == pytest.approx([share / 3])
        assert found.budget_used == pytest.approx([share])

    def test_an_action_that_uses_nothing_serves_no_arm(self, problems):
        problem = problems["two free actions"]()  # the third action is free
        space = Counts(problem)
        free = (space.allocations[..., 1].sum(axis=(1, 2)) == 0) & (space.allocations[..., 0].sum(axis=(1, 2)) == 0)
        found = evaluate(problem, space.lift(free.astype(float)))
        assert found.exact and not found.served.any()

    def test_usage_of_any_resource_serves(self, problems):
        """An arm that uses only the second resource is served too."""
        problem = problems["two types"]()

        class Third:
            def act(self, states, rng):
                return np.where(states == 0, 2, 0) * np.array([1, 0, 0], dtype=np.int32)

        found = evaluate(problem, Third(), num_episodes=200, horizon=1, rng=0)
        share = problem.types.initial[0, 0]
        assert found.unit_served[0] == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 200))


class TestFloors:
    def problem(self, floor, **options):
        arm = machine_replacement(num_arms=1).arms[0]
        return CoupledMDP([arm, arm], budget=[1], discount=0.9, counts=[2, 1], floors=[floor, 0.0], **options)

    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    @pytest.mark.parametrize("criterion", CRITERIA)
    def test_arms_that_are_never_served_are_reported(self, criterion, method):
        problem = self.problem(0.1)
        found = evaluate(problem, never_act(problem), method=method, num_episodes=5, rng=0, criterion=criterion)
        assert [tuple(missed) for missed in found.floors_missed] == [(0, 0.1, 0.0)]
        free = self.problem(0.0)
        assert not evaluate(free, never_act(free), method=method, num_episodes=5, criterion=criterion).floors_missed

    def test_a_floor_is_missed_only_beyond_chance(self):
        """Any arm is served a third of the time: a floor just above is missed, and a few episodes cannot tell."""
        policy = worst_first
        near, far = self.problem(0.334), self.problem(0.5)
        options = {"method": "monte-carlo", "num_episodes": 20, "horizon": 100, "rng": 0}
        found = evaluate(near, policy(near), **options)
        assert found.unit_served_stderr[0] > 0.0003 and not found.floors_missed
        assert evaluate(far, policy(far), **options).floors_missed
        low = self.problem(0.2)
        assert evaluate(near, policy(near)).floors_missed and not evaluate(low, policy(low)).floors_missed

    def test_floors_are_those_of_each_arm(self):
        problem = self.problem(0.3)
        found = evaluate(problem, Every(1), num_episodes=5, horizon=20, rng=0)
        assert not found.by_type and [missed.unit for missed in found.floors_missed] == [1]

    def test_a_policy_made_with_floors_is_simulated_without_them(self):
        """It distinguishes arms of equal tables by their floors: it can be simulated by arms, not by types."""
        with_floors, without = self.problem(0.3), self.problem(0.0)
        policy = worst_first(with_floors)
        with pytest.raises(NotApplicableError, check=mentions("types")):
            evaluate(without, policy, method="exact")
        found = evaluate(without, policy, num_episodes=20, horizon=20, rng=0)
        assert not found.exact and not found.by_type and found.budget_used == pytest.approx([1.0])

    def test_a_single_episode_misses_no_floor(self):
        problem = self.problem(0.9)
        found = evaluate(problem, worst_first(problem), method="monte-carlo", num_episodes=1, rng=0)
        assert not found.floors_missed


class TestDeterminism:
    @pytest.mark.parametrize("criterion", ["average", "finite:9"])
    def test_batch_size_does_not_change_a_deterministic_policy(self, criterion, problems):
        problem = problems["two types"]().with_criterion(criterion)
        first = PriorityPolicy(problem, np.zeros(problem.types.valid.shape))
        for policy in (
            first,
            TimeVaryingPolicy([first, PriorityPolicy(problem, np.zeros(problem.types.valid.shape), np.inf)]),
        ):
            options = {"num_episodes": 11, "horizon": None if "finite" in criterion else 40, "rng": 5}
            whole, parts = (simulate(problem, policy, **options, batch_size=size) for size in (10**6, 7))
            assert np.array_equal(whole.returns, parts.returns)
            assert np.array_equal(whole.served, parts.served)


class TestArguments:
    problem = machine_replacement(num_arms=2)

    def test_another_horizon_than_the_finite_one_is_refused(self):
        policy = worst_first(self.problem)
        with pytest.raises(InvalidInputError, check=mentions("horizon", "finite:5", 300)):
            evaluate(self.problem, policy, horizon=300, criterion="finite:5")
        assert evaluate(self.problem, policy, horizon=5, criterion="finite:5").exact

    def test_criteria_are_text_or_objects(self):
        policy = worst_first(self.problem)
        by_text, by_object = (evaluate(self.problem, policy, criterion=c) for c in ("finite:4", Finite(4, 0.95)))
        assert by_text.welfare == by_object.welfare
        assert evaluate(self.problem, policy, criterion=Average()).criterion == "average"
        assert evaluate(self.problem.with_criterion("finite:4"), policy).welfare == by_text.welfare

    @pytest.mark.parametrize(
        ("criterion", "told"),
        [
            ("averge", "Did you mean 'average'"),
            ("finite", "finite:50"),
            ("finite:0", "finite:0"),
            ("average:3", "takes no number"),
            (3, "expected text such as 'average'"),
        ],
    )
    def test_invalid_criteria_are_refused(self, criterion, told):
        with pytest.raises(InvalidInputError, match=told):
            evaluate(self.problem, worst_first(self.problem), criterion=criterion)

    def test_a_discount_of_one_is_refused_under_discounted(self):
        endless = CoupledMDP(self.problem.arms, [1], 1.0, self.problem.counts, criterion="average")
        with pytest.raises(InvalidInputError, check=mentions("discounted", 1)):
            evaluate(endless, worst_first(self.problem), criterion="discounted")

    def test_a_stateful_policy_is_simulated_under_every_criterion(self):
        for criterion in CRITERIA:
            found = evaluate(self.problem, RoundRobin(self.problem), num_episodes=3, rng=0, criterion=criterion)
            assert not found.exact and found.budget_used == pytest.approx([1.0])
