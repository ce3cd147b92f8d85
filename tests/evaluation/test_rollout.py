"""Playing arm by arm: the sums, the shared world, and the rules."""

import numpy as np
import pytest

from evenhand.errors import InvalidInputError, PolicyError, TooLargeError
from evenhand.evaluation import exact_values, simulate
from evenhand.model import CoupledMDP, MixturePolicy, TimeVaryingPolicy
from evenhand.policies import ExchangeablePriority, PriorityPolicy, RoundRobin, never_act, random_feasible, worst_first
from evenhand.problems import machine_replacement

from ..conftest import PROBLEMS, crossed, mentions
from ..oracles.stepping import StepByStep


class Scripted:
    """Gives the same actions at every step, and notes what it saw."""

    def __init__(self, actions):
        self.actions = np.asarray(actions)
        self.seen = []

    def act(self, states, rng):
        self.seen.append(states.copy())
        return np.broadcast_to(self.actions, states.shape).astype(np.int32)


class Broken:
    """Acts like another policy up to a step, and then returns a given result."""

    def __init__(self, step, result):
        self.step, self.result, self.now = step, result, -1

    def act(self, states, rng):
        self.now += 1
        return np.zeros_like(states) if self.now < self.step else self.result(states)


def first_come(problem):
    return PriorityPolicy(problem, np.zeros(problem.types.valid.shape))


class TestReturns:
    def test_are_the_discounted_rewards_of_the_states_seen(self, small_problem):
        idle = [arm.usage[0].sum(axis=-1).argmin() for arm in small_problem.types]
        policy = Scripted([idle[kind] for kind in small_problem.type_of_arm])
        played = simulate(small_problem, policy, 20, 15, rng=0)
        kinds = small_problem.type_of_arm
        rewards = [small_problem.types.rewards[kinds, states, policy.actions] for states in policy.seen]
        expected = sum(small_problem.discount**t * reward for t, reward in enumerate(rewards))
        np.testing.assert_allclose(played.returns, expected, rtol=1e-12)
        assert played.horizon == 15 and not played.used.any()

    def test_estimate_the_exact_value(self, small_problem):
        policy = random_feasible(small_problem)
        exact = exact_values(small_problem, policy)
        horizon = int(np.ceil(np.log(1e-3) / np.log(small_problem.discount)))
        played = simulate(small_problem, policy, 1000, horizon, rng=4)
        means, errors = played.returns.mean(axis=0), played.returns.std(axis=0) / np.sqrt(1000)
        bound = 1e-3 / (1 - small_problem.discount) * np.abs(small_problem.types.rewards).max()
        assert (np.abs(means - exact.values[small_problem.type_of_arm]) <= 4.5 * errors + bound).all()

    def test_no_discount_counts_the_first_step_only(self):
        problem = machine_replacement(num_arms=2, discount=0.0)
        policy = Scripted([0, 0])
        played = simulate(problem, policy, 50, 3, rng=0)
        assert np.array_equal(played.returns, problem.types.rewards[0, policy.seen[0], 0])

    def test_used_is_the_share_of_the_budget(self):
        problem = machine_replacement(num_arms=4, budget=3)
        assert simulate(problem, Scripted([1, 0, 1, 0]), 3, 7, rng=0).used == pytest.approx(np.full((3, 1), 2 / 3))
        assert simulate(problem, Scripted([1, 1, 1, 0]), 3, 7, rng=0).used == pytest.approx(np.ones((3, 1)))

    def test_no_budget_is_a_share_of_zero(self):
        problem = machine_replacement(num_arms=2, budget=0)
        assert not simulate(problem, never_act(problem), 2, 3, rng=0).used.any()


class TestCriteria:
    problem = machine_replacement(num_arms=3, budget=2)

    @pytest.mark.parametrize(
        ("criterion", "horizon", "weights"),
        [
            ("discounted", 9, 0.95 ** np.arange(9)),
            ("average", 9, np.repeat([0, 1 / 7], [2, 7])),  # a quarter of nine steps is two
            ("average", 3, np.full(3, 1 / 3)),
            ("finite:9", None, 0.95 ** np.arange(9)),
        ],
    )
    def test_steps_have_the_weights_of_the_criterion(self, criterion, horizon, weights):
        policy = Scripted([1, 0, 0])
        played = simulate(self.problem.with_criterion(criterion), policy, 20, horizon, rng=0)
        rewards = [self.problem.types.rewards[0, states, policy.actions] for states in policy.seen]
        np.testing.assert_allclose(played.returns, np.tensordot(weights, rewards, axes=1), rtol=1e-12)
        assert played.horizon == len(weights)
        assert played.used == pytest.approx(np.full((20, 1), 1 / 2))
        assert played.served == pytest.approx(np.tile([1.0, 0.0, 0.0], (20, 1)))

    def test_usual_horizons(self):
        cases = (self.problem, self.problem.with_criterion("average"))
        lengths = [simulate(case, Scripted([0, 0, 0]), 1).horizon for case in cases]
        assert lengths == [300, 1000]

    def test_a_time_varying_policy_restarts_after_its_last_step(self):
        scripts = [Scripted([1, 0, 0]), Scripted([0, 1, 0]), Scripted([0, 0, 1])]
        played = simulate(self.problem, TimeVaryingPolicy(scripts), 4, 7, rng=0)
        assert [len(script.seen) for script in scripts] == [3, 2, 2]
        weights = 0.95 ** np.arange(7)
        shares = [weights[step::3].sum() / weights.sum() for step in range(3)]
        assert played.served == pytest.approx(np.tile(shares, (4, 1)))

    def test_a_mixture_keeps_its_part_through_an_episode(self):
        policy = MixturePolicy([Scripted([1, 0, 0]), Scripted([0, 0, 1])], [0.3, 0.7])
        played = simulate(self.problem, policy, 400, 5, rng=0)
        first = played.served[:, 0]
        assert set(first) == {0.0, 1.0} and np.array_equal(played.served[:, 2], 1 - first)
        assert first.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 400))

    def test_another_horizon_than_the_finite_one_is_refused(self):
        with pytest.raises(InvalidInputError, check=mentions("horizon", "criterion", "finite:4", "4 steps", 5)):
            simulate(self.problem.with_criterion("finite:4"), Scripted([0, 0, 0]), 2, 5)


class TestWorld:
    def test_seeds_reproduce_and_differ(self, small_problem):
        policy = random_feasible(small_problem)
        first, again = (simulate(small_problem, policy, 20, 10, rng=7) for _ in range(2))
        generator = simulate(small_problem, policy, 20, 10, rng=np.random.default_rng(7))
        assert np.array_equal(first.returns, again.returns) and np.array_equal(first.used, again.used)
        assert np.array_equal(first.returns, generator.returns)
        if small_problem.types.rewards.shape[1] > 1:
            assert not np.array_equal(first.returns, simulate(small_problem, policy, 20, 10, rng=8).returns)

    def test_an_arm_treated_alike_moves_alike(self):
        """Policies that differ in arm 2 only: the others' states and returns are the same, number by number."""
        problem = machine_replacement(num_arms=3, budget=2)
        one, two = Scripted([1, 0, 0]), Scripted([1, 0, 1])
        left, right = (simulate(problem, policy, 50, 20, rng=3) for policy in (one, two))
        assert np.array_equal(left.returns[:, :2], right.returns[:, :2])
        assert not np.array_equal(left.returns[:, 2], right.returns[:, 2])
        for ours, theirs in zip(one.seen, two.seen, strict=True):
            assert np.array_equal(ours[:, :2], theirs[:, :2])

    def test_draws_of_a_policy_do_not_change_the_moves(self):
        class Wasteful(Scripted):
            def act(self, states, rng):
                rng.random(1000)
                return super().act(states, rng)

        problem = machine_replacement(num_arms=3)
        plain, wasteful = (simulate(problem, kind([0, 1, 0]), 20, 10, rng=3) for kind in (Scripted, Wasteful))
        assert np.array_equal(plain.returns, wasteful.returns)

    def test_more_episodes_begin_with_the_same_ones(self):
        problem = machine_replacement(num_arms=3)
        few, many = (simulate(problem, first_come(problem), size, 10, rng=2) for size in (5, 50))
        assert np.array_equal(few.returns, many.returns[:5])

    @pytest.mark.parametrize(("small_problem", "batch"), crossed(PROBLEMS, [1, 3, 10, 64]), indirect=["small_problem"])
    def test_batch_size_does_not_change_a_deterministic_policy(self, small_problem, batch):
        whole = simulate(small_problem, first_come(small_problem), 21, 8, rng=5)
        parts = simulate(small_problem, first_come(small_problem), 21, 8, rng=5, batch_size=batch)
        assert np.array_equal(whole.returns, parts.returns) and np.array_equal(whole.used, parts.used)

    def test_compiled_episodes_equal_single_steps(self, small_problem):
        batch = 20 * small_problem.num_arms
        policy = ExchangeablePriority(small_problem, np.zeros(small_problem.types.valid.shape))
        slow = simulate(small_problem, StepByStep(policy), 30, 6, rng=5, batch_size=batch)
        fast = simulate(small_problem, policy, 30, 6, rng=5, batch_size=batch)
        assert np.array_equal(slow.returns, fast.returns) and np.array_equal(slow.served, fast.served)
        np.testing.assert_allclose(slow.used, fast.used, rtol=1e-13)

    def test_each_batch_starts_its_own_actor(self):
        problem = machine_replacement(num_arms=3)
        played = simulate(problem, RoundRobin(problem), 9, 12, rng=1, batch_size=6)
        assert played.used == pytest.approx(np.ones((9, 1)))

    def test_a_policy_may_store_the_states(self):
        class Keeping(Scripted):
            def act(self, states, rng):
                self.seen.append(states)
                return np.zeros_like(states)

        problem = machine_replacement(num_arms=3)
        keeping, copying = Keeping([]), Scripted([0, 0, 0])
        for policy in (keeping, copying):
            simulate(problem, policy, 10, 6, rng=0)
        assert all(np.array_equal(*pair) for pair in zip(keeping.seen, copying.seen, strict=True))

    def test_a_policy_cannot_change_the_world(self):
        class Cheat:
            def act(self, states, rng):
                states[:] = 0
                return np.zeros_like(states)

        problem = machine_replacement(num_arms=3)
        honest = simulate(problem, never_act(problem), 10, 50, rng=0)
        try:
            cheated = simulate(problem, Cheat(), 10, 50, rng=0)
        except (PolicyError, ValueError):
            return
        assert np.array_equal(cheated.returns, honest.returns)


class TestRules:
    problem = machine_replacement(num_arms=3, budget=1)

    def play(self, step, result, **options):
        return simulate(self.problem, Broken(step, result), 4, 10, rng=0, **options)

    @pytest.mark.parametrize("result", [lambda s: np.zeros((4, 2), int), lambda s: np.zeros(4, int), lambda s: 0])
    def test_a_wrong_shape_is_named(self, result):
        with pytest.raises(PolicyError, check=mentions("episode=4", "arm=3")):
            self.play(3, result)

    @pytest.mark.parametrize("kind", [np.float64, "U1", object])
    def test_a_wrong_kind_is_named(self, kind):
        with pytest.raises(PolicyError, check=mentions("step 3", "episode=4", "arm=3")):
            self.play(3, lambda states: np.zeros(states.shape, dtype=kind))

    @pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64, bool])
    def test_integers_of_any_width_and_masks_are_accepted(self, kind):
        played = self.play(0, lambda states: np.zeros(states.shape, dtype=kind))
        honest = simulate(self.problem, never_act(self.problem), 4, 10, rng=0)
        assert np.array_equal(played.returns, honest.returns)

    def test_a_list_will_do(self):
        assert self.play(0, lambda states: np.zeros(states.shape, dtype=int).tolist()).returns.shape == (4, 3)

    @pytest.mark.parametrize("action", [-1, 2, 100])
    def test_an_action_that_does_not_exist_is_placed(self, action):
        with pytest.raises(PolicyError, check=mentions("step 3")):
            self.play(3, lambda states: np.full(states.shape, action))

    def test_an_action_of_another_type_does_not_exist(self, problems):
        problem = problems["two types"]()
        with pytest.raises(PolicyError, check=mentions("step 0")):
            simulate(problem, Scripted([0, 0, 2]), 2, 2, rng=0)

    def test_a_number_too_large_for_an_action_does_not_exist(self):
        with pytest.raises(PolicyError, check=mentions("step 0", "episode 0", "arm 0", 2**31 - 1)):
            self.play(0, lambda states: np.full(states.shape, 2**32))

    def test_an_action_that_does_not_exist_is_named(self):
        def second_arm_of_third_episode(states):
            actions = np.zeros_like(states)
            actions[2, 1] = 7
            return actions

        with pytest.raises(PolicyError, check=mentions("step 3", "episode 2", "arm 1", "action 7")):
            self.play(3, second_arm_of_third_episode)

    def test_overspending_is_placed_and_measured(self):
        def third_episode(states):
            actions = np.zeros_like(states)
            actions[2] = 1
            return actions

        message = "step 5, episode 2: the policy used 3 of resource 0, whose budget is 1"
        with pytest.raises(PolicyError, match=message):
            self.play(5, third_episode)

    def test_overspending_in_a_later_batch_names_its_episode(self):
        with pytest.raises(PolicyError, check=mentions("step 0", "episode 2")):
            self.play(10, np.ones_like, batch_size=6)  # two episodes per batch, ten steps each

    def test_three_tenths_fit_a_budget_of_three_tenths(self, problems):
        problem = problems["tenths"]()
        assert simulate(problem, Scripted([1, 1, 1, 0]), 2, 3, rng=0).used == pytest.approx(np.ones((2, 1)))
        with pytest.raises(PolicyError, check=mentions(0.4, "resource 0", 0.3)):
            simulate(problem, Scripted([1, 1, 1, 1]), 2, 3, rng=0)

    def test_budgets_in_small_units_are_respected(self, build_arm):
        problem = CoupledMDP([build_arm(0, 1, [[0.0], [1e-9]])], budget=[1e-9], discount=0.5, counts=[3])
        assert simulate(problem, worst_first(problem), 2, 3, rng=0).used == pytest.approx(np.ones((2, 1)))

    def test_errors_of_a_policy_are_passed_on(self):
        with pytest.raises(ZeroDivisionError):
            self.play(2, lambda states: 1 // 0)

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3"])
    def test_sizes_must_be_positive_whole_numbers(self, bad):
        for name in ("num_episodes", "horizon"):
            with pytest.raises(InvalidInputError, match=name):
                simulate(self.problem, never_act(self.problem), **{name: bad})

    def test_sizes_that_do_not_fit_are_refused(self):
        problem = machine_replacement(num_arms=10**6)
        with pytest.raises(TooLargeError, check=mentions(1000000)):
            simulate(problem, worst_first(problem), 10**6, 1)

    def test_progress_rises_within_0_and_1(self):
        shares = []
        simulate(self.problem, never_act(self.problem), 6, 40, 0, lambda _, share: shares.append(share), batch_size=6)
        assert shares == sorted(shares) and shares[0] >= 0 and 0.5 < shares[-1] <= 1 and len(shares) >= 3
