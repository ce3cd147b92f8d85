"""The world as Gymnasium and Stable-Baselines3 see it: their own checkers, the contract of a VecEnv, and exact laws."""

import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as stable_baselines3_check

from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.learning import (
    ENV_ID,
    ArmWorld,
    BatchedCounts,
    BatchedJoint,
    CountEnv,
    CountWorld,
    Tasks,
    assign_arms,
    sampled,
)
from evenhand.model import CoupledMDP, Simulator
from evenhand.policies import CountNetworkPolicy, Network, observe
from evenhand.problems import crew_maintenance, machine_replacement

from ..conftest import mentions, random_arm, two_types

BY_STATE = [[[0, 0], [1, 0.5], [0, 2]], [[0, 0], [2, 0], [1, 1]], [[1, 1], [0, 0], [0.5, 2.5]]]


def two_resources(num_arms=6):
    return CoupledMDP([random_arm(5, 3, BY_STATE)], budget=[3.0, 2.5], discount=0.8, counts=[num_arms])


def own_simulator():
    """Two states, a reward of noise: nothing that a matrix says."""
    return Simulator(
        lambda s, a, rng: (np.where(rng.random(len(s)) < 0.3, 1 - s, s), s + a + rng.normal(size=len(s))),
        lambda number, rng: rng.integers(0, 2, number),
        [[0.0], [1.0]],
        num_states=2,
        num_arms=5,
        budget=[2],
        discount=0.9,
    )


PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=4, budget=2),
    "crew": lambda: crew_maintenance(num_arms=5, num_types=1),
    "usage by state": two_resources,
    "simulator": own_simulator,
}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]()


@pytest.fixture(params=["greedy", "priority-sampling"])
def allocation(request):
    return request.param


class TestCheckers:
    def test_gymnasium_is_content(self, problem, allocation):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gymnasium_check(CountEnv(problem, 20, allocation), skip_render_check=True)

    def test_gymnasium_is_content_with_what_it_makes_and_shows(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = gymnasium.make("evenhand/CountEnv-v0", problem=machine_replacement(num_arms=4), horizon=5)
            gymnasium_check(made.unwrapped)

    def test_stable_baselines3_is_content(self, problem, allocation):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stable_baselines3_check(CountEnv(problem, 20, allocation))


class TestRendering:
    def env(self, mode, num_arms=12):
        problem = machine_replacement(num_arms=num_arms, budget=3)
        return gymnasium.make("evenhand/CountEnv-v0", problem=problem, horizon=20, render_mode=mode)

    def test_text_shows_states_and_actions(self):
        env = self.env("ansi")
        env.reset(seed=0)
        lines = env.render().splitlines()
        assert mentions("step 0", 20, "12 arms")(lines[0]) and lines[1].split()[:2] == ["age", "1"]
        assert "before" not in env.render()
        env.action_space.seed(1)
        _, reward, _, _, info = env.step(env.action_space.sample())
        lines = env.render().splitlines()
        assert lines[0] == f"step 1 of 20, 12 arms, reward {reward:.4g}"
        counts = np.bincount(info["states"], minlength=3)
        for line, count, (operated, replaced) in zip(lines[1:], counts, info["allocation"], strict=True):
            told = ", ".join(f"{n} {k}" for n, k in (("operate", operated), ("replace", replaced)) if k)
            assert line.rstrip().endswith(f"{count}   before: {told}" if told else str(count))
            assert line.count("█") == count

    def test_a_picture_is_colours_that_change_with_the_arms(self):
        env = self.env("rgb_array")
        env.reset(seed=0)
        before = env.render()
        env.step(env.action_space.sample())
        after = env.render()
        assert before.dtype == np.uint8 and before.ndim == 3 and before.shape == after.shape and before.shape[2] == 3
        assert not np.array_equal(before, after)

    def test_a_simulator_has_numbers_for_names(self):
        env = CountEnv(own_simulator(), 5, render_mode="ansi")
        env.reset(seed=0)
        assert env.render().splitlines()[1].startswith("state 0  ")

    def test_without_a_mode_nothing_is_shown_and_other_modes_are_refused(self):
        env = CountEnv(machine_replacement(num_arms=2))
        env.reset(seed=0)
        assert env.render() is None
        with pytest.raises(InvalidInputError, check=mentions("ansi", "rgb_array")):
            CountEnv(machine_replacement(num_arms=2), render_mode="human")

    def test_the_id_with_its_module_needs_no_import(self, monkeypatch):
        monkeypatch.delitem(gymnasium.registry, ENV_ID)
        monkeypatch.delitem(sys.modules, "evenhand.learning.environments")
        machines = machine_replacement(num_arms=2)
        with pytest.raises(gymnasium.error.NamespaceNotFound):
            gymnasium.make(ENV_ID, problem=machines)
        env = gymnasium.make(f"evenhand.learning.environments:{ENV_ID}", problem=machines)
        assert env.reset(seed=0)[0].shape == (4,)


class TestCountEnv:
    def test_per_arm_facts_add_up(self, problem, allocation):
        env = CountEnv(problem, 15, allocation)
        observation, info = env.reset(seed=4)
        env.action_space.seed(0)
        returns, before = np.zeros(problem.num_arms), info["states"]
        for t in range(15):
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            returns += problem.discount**t * info["arm_rewards"]
            assert isinstance(reward, float) and reward == pytest.approx(info["arm_rewards"].mean())
            assert np.allclose(info["arm_returns"], returns)
            states = len(info["allocation"])
            assert np.array_equal(info["allocation"].sum(axis=1), np.bincount(before, minlength=states))
            usage = env.world.usage
            assert (np.einsum("sa,sak->k", info["allocation"], usage) <= problem.budget * (1 + 1e-8)).all()
            before = info["states"]
            assert np.allclose(observation[:states], np.bincount(before, minlength=states) / problem.num_arms)
            assert not terminated and truncated == (t == 14)
            assert observation in env.observation_space

    def test_facts_of_a_step_do_not_change_later(self, problem):
        env = CountEnv(problem, 15)
        env.reset(seed=1)
        env.action_space.seed(0)
        info = env.step(env.action_space.sample())[4]
        kept = {name: value.copy() for name, value in info.items()}
        for _ in range(5):
            env.step(env.action_space.sample())
        assert all(np.array_equal(info[name], kept[name]) for name in kept)

    def test_the_same_seed_is_the_same_episode(self, problem, allocation):
        def play(env, seed):
            env.action_space.seed(3)
            first = env.reset(seed=seed)[0]
            return [first, *(env.step(env.action_space.sample())[0] for _ in range(10))]

        env, other = CountEnv(problem, 20, allocation), CountEnv(problem, 20, allocation)
        one, again, two = play(env, 1), play(other, 1), play(env, 2)
        assert np.array_equal(one, again) and not np.array_equal(one, two)

    def test_episodes_differ_without_a_seed(self):
        env = CountEnv(machine_replacement(num_arms=30), 5)
        firsts = {env.reset(seed=1)[0].tobytes(), *(env.reset()[0].tobytes() for _ in range(5))}
        assert len(firsts) > 3

    def test_arms_that_are_not_alike_are_refused(self):
        for env in (CountEnv, BatchedCounts):
            with pytest.raises(NotApplicableError, check=mentions("2 types")):
                env(two_types())

    @pytest.mark.parametrize("horizon", [0, 2.5, -1])
    def test_a_horizon_is_a_number_of_steps(self, horizon):
        for env in (CountEnv, BatchedCounts):
            with pytest.raises(InvalidInputError, check=mentions("horizon")):
                env(machine_replacement(num_arms=2), horizon=horizon)


def random_steps(env, number, seed=0):
    """Results of random outputs."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        outputs = rng.uniform(-1, 1, (env.num_envs, *env.action_space.shape)).astype(np.float32)
        yield env.step(outputs)


class TestBatchedCounts:
    def test_the_contract_of_a_vec_env(self, problem, allocation):
        env = BatchedCounts(problem, 8, 12, allocation, rng=0)
        observations = env.reset()
        assert observations.shape == (8, *env.observation_space.shape) and observations.dtype == np.float32
        ended = np.zeros(8, dtype=int)
        for observations, rewards, dones, infos in random_steps(env, 36):
            assert observations.shape == (8, *env.observation_space.shape) and observations.dtype == np.float32
            assert rewards.shape == dones.shape == (8,) and rewards.dtype == np.float32 and dones.dtype == np.bool_
            assert all(observation in env.observation_space for observation in observations)
            assert len(infos) == 8
            for copy, info in enumerate(infos):
                assert info.get("TimeLimit.truncated", False) == dones[copy]  # cut off, never terminated
                assert ("terminal_observation" in info) == dones[copy]
                if dones[copy]:
                    assert info["terminal_observation"] in env.observation_space
            ended += dones
        assert (ended == 3).all()
        assert env.get_attr("horizon") == [12] * 8 and env.get_attr("horizon", [1, 2]) == [12, 12]
        assert env.env_is_wrapped(object) == [False] * 8

    def test_copies_are_cut_off_at_different_steps_and_then_every_horizon(self):
        env = BatchedCounts(machine_replacement(num_arms=2), 6, 12, rng=0)
        env.reset()
        dones = np.array([dones for _, _, dones, _ in random_steps(env, 48)])
        firsts = dones.argmax(axis=0)
        assert len(set(firsts.tolist())) == 6 and firsts.max() == 11
        for copy in range(6):
            assert (np.diff(np.flatnonzero(dones[:, copy])) == 12).all()

    def test_the_terminal_observation_is_where_the_old_episode_stood(self):
        """Machines that never move tell the old episode from the new one, whose number of arms is another."""
        still = Simulator(
            lambda s, a, rng: (s, s * 1.0), lambda n, rng: np.arange(n) % 2, [[0], [1]], 2, 4, [1], discount=0.5
        )
        env = BatchedCounts(still, 4, 3, tasks=Tasks((1, 50), ((1, 9),)), rng=3)
        before = env.reset()
        for observations, _, dones, infos in random_steps(env, 9):
            for copy in range(4):
                if dones[copy]:
                    assert np.array_equal(infos[copy]["terminal_observation"], before[copy])
                else:
                    assert np.array_equal(observations[copy], before[copy])
            before = observations

    def test_an_episode_is_reported_with_its_steps(self):
        """Also the first ones, which are shorter: r is a sum over l steps."""
        one = Simulator(
            lambda s, a, rng: (s, np.ones(len(s))), lambda n, rng: np.zeros(n, int), [[0], [1]], 1, 2, [1], 0.5
        )
        env = BatchedCounts(one, 4, 8, rng=0)
        env.reset()
        told = [info["episode"] for *_, infos in random_steps(env, 20) for info in infos if "episode" in info]
        assert len(told) == 10
        for episode in told:
            assert episode["r"] == pytest.approx(episode["l"])
            assert episode["discounted"] == pytest.approx((1 - 0.5 ** episode["l"]) / 0.5)

    def test_the_same_seed_is_the_same_future(self, problem, allocation):
        def play(rng=None, seed=None):
            env = BatchedCounts(problem, 5, 6, allocation, rng=rng)
            if seed is not None:
                env.seed(seed)
            return np.concatenate([env.reset(), *(step[0] for step in random_steps(env, 14))])

        assert np.array_equal(play(rng=1), play(rng=1)) and not np.array_equal(play(rng=1), play(rng=2))
        assert np.array_equal(play(seed=1), play(rng=9, seed=1)) and not np.array_equal(play(seed=1), play(seed=2))

    def test_the_mean_reward_is_that_of_the_allocation(self, allocation):
        problem = two_resources()
        env = BatchedCounts(problem, 6, 9, allocation, Tasks((2, 20), ((0, 4), (0.5, 5))), rng=0)
        env.reset()
        rewards = problem.types.rewards[0]
        for _, earned, _, infos in random_steps(env, 25):
            for reward, info in zip(earned, infos, strict=True):
                assert reward == pytest.approx((info["allocation"] * rewards).sum() / info["allocation"].sum(), 1e-5)

    def test_the_observation_is_that_of_the_policy(self, problem):
        """Trained and played on the same numbers."""
        env = BatchedCounts(problem, 5, 9, rng=0)
        env.reset()
        shape = env.observation_space.shape[0], env.action_space.shape[0]
        copying = Network([np.eye(*shape, dtype=np.float32)], [np.zeros(shape[1], np.float32)])
        policy = CountNetworkPolicy(problem, copying)
        for observations, *_ in random_steps(env, 5):
            assert np.array_equal(policy.outputs(env.world.counts)[:, : shape[0]], observations)


class TestTasks:
    def test_each_episode_has_its_own_within_the_ranges(self, problem):
        resources = len(problem.budget)
        tasks = Tasks((2, 6), ((1, 3),) * (resources - 1) + ((0.25, 1.75),))
        env = BatchedCounts(problem, 40, 3, tasks=tasks, rng=1)
        env.reset()
        sizes, budgets = [], []
        for *_, dones, _ in random_steps(env, 30):
            sizes.append(env.world.num_arms.copy()), budgets.append(env.world.budget.copy())
            assert np.array_equal(env.world.counts.sum(axis=1), env.world.num_arms)
            assert len(sizes) < 2 or np.array_equal(sizes[-1][~dones], sizes[-2][~dones])
        assert set(np.unique(sizes)) == {2, 3, 4, 5, 6}
        last, others = np.array(budgets)[..., -1], np.array(budgets)[..., :-1]
        assert last.min() >= 0.25 and last.max() <= 1.75 and len(np.unique(last)) > 100
        assert set(np.unique(others)) <= {1.0, 2.0, 3.0}
        numbers = np.bincount(np.array(sizes)[::3].reshape(-1), minlength=7)[2:]
        assert (np.abs(numbers / numbers.sum() - 0.2) < 0.1).all()

    def test_a_single_copy_too(self):
        env = CountEnv(machine_replacement(num_arms=2), 5, tasks=Tasks((2, 5), ((0, 3),)))
        sizes = {len(env.reset(seed=seed)[1]["states"]) for seed in range(30)}
        assert sizes == {2, 3, 4, 5}

    @pytest.mark.parametrize(
        ("arms", "budget"),
        [((0, 3), (1, 1)), ((3, 2), (1, 1)), ((1, 2), (-1, 1)), ((1, 2), (2, 1)), ((1, 2), (0, np.inf))],
    )
    def test_invalid_ranges_are_refused(self, arms, budget):
        with pytest.raises(InvalidInputError, check=mentions("range")):
            Tasks(arms, (budget,))

    def test_one_range_per_resource(self):
        with pytest.raises(InvalidInputError, check=mentions("1 ranges", "2 resources")):
            BatchedCounts(two_resources(), 2, tasks=Tasks((1, 2), ((1, 1),)))

    def test_a_spread_goes_from_end_to_end(self):
        """Of the arms and of the budget: a judge that sees one budget only cannot tell policies apart elsewhere."""
        spread = Tasks((2, 5), ((0, 3),)).spread()
        assert {arms for arms, _ in spread} == {2, 3, 4, 5}
        assert max(budget[0] for _, budget in spread) == 3
        assert all(0 <= budget[0] <= 3 and float(budget[0]).is_integer() for _, budget in spread)

    def test_a_spread_of_one_task_is_that_task(self):
        ((arms, budget),) = Tasks((4, 4), ((2.5, 2.5), (1, 1))).spread()
        assert arms == 4 and budget.tolist() == [2.5, 1]


class TestDistributions:
    def test_counts_have_the_distribution_of_followed_arms(self, allocation):
        """The same outputs, two worlds: means and second moments of counts and rewards after some steps."""
        problem = two_resources(num_arms=7)
        outputs = np.random.default_rng(2).uniform(-1, 1, (6, 1, 11 if allocation != "greedy" else 9))
        worlds = CountWorld(problem, 6000, allocation, rng=1), ArmWorld(sampled(problem), 6000, allocation, rng=2)
        for world in worlds:
            world.restart(np.ones(6000, dtype=bool))
        for each in outputs:
            seen = []
            for world in worlds:
                step = world.step(np.repeat(each, 6000, axis=0).astype(np.float32))
                numbers = np.column_stack([world.counts, step.rewards, step.facts["allocation"].reshape(6000, -1)])
                seen.append(np.hstack([numbers, numbers**2]))
            error = np.sqrt((seen[0].var(axis=0) + seen[1].var(axis=0)) / 6000)
            assert (np.abs(seen[0].mean(axis=0) - seen[1].mean(axis=0)) <= 4.8 * error + 1e-12).all()

    def test_first_counts_have_the_initial_distribution(self):
        problem = two_resources(num_arms=7)
        initial = problem.types.initial[0]
        for world in (CountWorld(problem, 8000, rng=1), ArmWorld(sampled(problem), 8000, rng=1)):
            world.restart(np.ones(8000, dtype=bool))
            error = 4.5 * np.sqrt(7 * initial * (1 - initial) / 8000)
            assert (np.abs(world.counts.mean(axis=0) - 7 * initial) < error).all()
            assert np.allclose(world.counts.var(axis=0), 7 * initial * (1 - initial), rtol=0.1)

    def test_arms_that_get_an_action_are_drawn_uniformly(self, chi_square):
        copy_of_arm = np.repeat(np.arange(3000), 4)
        states = np.tile([0, 1, 0, 0], 3000).astype(np.int32)
        allocation = np.repeat([[[1, 2], [0, 1]]], 3000, axis=0)
        actions = assign_arms(copy_of_arm, states, allocation, np.random.default_rng(0)).reshape(3000, 4)
        assert (actions[:, 1] == 1).all() and (actions[:, [0, 2, 3]].sum(axis=1) == 2).all()
        idle = (actions[:, [0, 2, 3]] == 0).argmax(axis=1)
        assert chi_square(np.bincount(idle), np.full(3, 1 / 3)) > 1e-5

    def test_moments_are_those_of_single_arms(self):
        problem = two_resources(num_arms=7)
        rng = np.random.default_rng(0)
        outputs = rng.uniform(-1, 1, (4000, 9)).astype(np.float32)
        for world in (CountWorld(problem, 4000, rng=1), ArmWorld(sampled(problem), 4000, rng=1)):
            world.restart(np.ones(4000, dtype=bool))
            step = world.step(outputs)
            flat, rewards = step.facts["allocation"].sum(axis=0).reshape(-1), problem.types.rewards[0].reshape(-1)
            each = np.repeat(rewards, flat)
            assert step.moments == pytest.approx((each.mean(), (each**2).mean()))


def joint(seed):
    return BatchedJoint(machine_replacement(num_arms=4, budget=2), 5, 7, seed)


BATCHES = {
    "counts": lambda seed: BatchedCounts(two_resources(), 5, 7, rng=seed),
    "counts, sampling": lambda seed: BatchedCounts(two_resources(), 5, 7, "priority-sampling", rng=seed),
    "tasks": lambda seed: BatchedCounts(machine_replacement(), 5, 7, tasks=Tasks((2, 9), ((0, 3),)), rng=seed),
    "arms": lambda seed: BatchedCounts(own_simulator(), 5, 7, tasks=Tasks((2, 9), ((0, 3),)), rng=seed),
    "joint": joint,
}


def future(env, number, seed):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        if isinstance(env, BatchedJoint):
            yield env.step(rng.integers(0, 4, (5, 2)))
        else:
            yield env.step(rng.uniform(-1, 1, (5, *env.action_space.shape)).astype(np.float32))


class TestBatchedJoint:
    def test_the_contract(self):
        env = joint(0)
        observations = env.reset()
        assert observations.shape == (5, 4) and observations.dtype == np.float32
        assert set(np.unique(observations)) <= {0.0, 0.5, 1.0}
        ended = 0
        for observations, rewards, dones, infos in future(env, 21, 0):
            assert rewards.dtype == np.float32 and dones.dtype == np.bool_
            for copy, info in enumerate(infos):
                assert rewards[copy] == pytest.approx(info["arm_rewards"].mean())
                assert info["actions"].sum() in (1, 2)  # an arm drawn twice is served once
                assert info.get("TimeLimit.truncated", False) == dones[copy] == ("terminal_observation" in info)
            assert all(observation in env.observation_space for observation in observations)
            ended += dones.sum()
        assert ended == 15

    def test_the_chosen_are_served(self):
        env = joint(0)
        env.reset()
        before = env.world.states.copy()
        *_, infos = env.step(np.array([[0, 1], [2, 3], [1, 1], [3, 0], [2, 1]]))
        assert [info["actions"].tolist() for info in infos] == [
            [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1], [0, 1, 1, 0],
        ]  # fmt: skip
        rewards = machine_replacement(num_arms=4, budget=2).types.rewards[0]
        for copy, info in enumerate(infos):
            assert np.allclose(info["arm_rewards"], rewards[before[copy], info["actions"]])


def test_observations_are_those_of_the_policies():
    """The observation of a copy is the formula of the policies, with the copy's own task."""
    env = BatchedCounts(two_resources(), 9, 7, tasks=Tasks((2, 9), ((0, 3), (0.5, 4))), rng=0)
    seen = env.reset()
    world = env.world
    assert np.array_equal(seen, observe(world.counts, world.num_arms, world.budget, world.usage))
    share = np.minimum(1, world.budget / (world.num_arms[:, None] * np.array(BY_STATE).max(axis=(0, 1))))
    assert np.allclose(seen[:, 3:], share) and np.allclose(seen[:, :3], world.counts / world.num_arms[:, None])


def test_invalid_actions_are_refused():
    env = CountEnv(machine_replacement(num_arms=2), horizon=3)
    size = env.action_space.shape[0]
    with pytest.raises(InvalidInputError, check=mentions("reset()")):
        env.step(np.zeros(size))
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, check=mentions("action", 6, 7)):
        env.step(np.zeros(size + 1))
    with pytest.raises(InvalidInputError, check=mentions("action", "nan")):
        env.step(np.where(np.arange(size) == 5, np.nan, 0.0))
    with pytest.raises(InvalidInputError, check=mentions("action")):
        env.step("up")
