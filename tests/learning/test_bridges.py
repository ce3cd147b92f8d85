"""A model of Stable-Baselines3 as a policy: it plays as the model does in the environment."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.learning import BatchedCounts, CountEnv, from_stable_baselines3
from evenhand.problems import crew_maintenance, machine_replacement

from ..conftest import mentions


def small():
    """Settings of a small model; afresh each time, for models write into them."""
    return {"policy_kwargs": {"net_arch": [8]}, "seed": 3, "device": "cpu"}


@pytest.fixture(scope="module")
def machines():
    return machine_replacement(num_arms=4, budget=2)


def models(problem):
    env = CountEnv(problem, 10)
    yield PPO("MlpPolicy", env, n_steps=8, batch_size=8, **small())
    yield SAC("MlpPolicy", env, **small())
    yield TD3("MlpPolicy", env, **small())
    yield PPO("MlpPolicy", CountEnv(problem, 10, "priority-sampling"), n_steps=8, batch_size=8, **small())


def test_the_policy_does_what_the_model_does_in_the_environment(machines):
    for model in models(machines):
        rule = "greedy" if model.action_space.shape == (6,) else "priority-sampling"
        policy = from_stable_baselines3(model, machines)
        assert policy.rule == rule
        if rule != "greedy":  # drawn, so only its law could be compared
            eh.check_policy(machines, policy)
            continue
        env = CountEnv(machines, 10)
        observation, info = env.reset(seed=5)
        for _ in range(5):
            counts = np.bincount(info["states"], minlength=3)
            expected = policy.allocate(counts[None, None], np.random.default_rng(0))[0, 0]
            observation, _, _, _, info = env.step(model.predict(observation, deterministic=True)[0])
            assert np.array_equal(info["allocation"], expected)


def test_it_is_compared_and_evaluated_like_any_other(machines):
    policy = from_stable_baselines3(next(models(machines)), machines)
    exact = eh.evaluate(machines, policy)
    played = eh.evaluate(machines, policy, num_episodes=60, horizon=100, rng=0, method="monte-carlo")
    assert exact.exact and abs(exact.welfare - played.welfare) < 5 * played.welfare_stderr + 0.1
    table = eh.compare(machines, {"mine": policy, "none": eh.policies.never_act(machines)}, rng=0)
    assert {row.policy for row in table.rows} == {"mine", "none"}
    assert mentions("CountNetworkPolicy(for", "4 arms", "PPO(4", 6)(repr(policy))
    assert "CountNetworkPolicy" in policy._repr_html_()


def test_a_model_learns_from_many_copies_and_plays_at_another_size(machines):
    copies = BatchedCounts(machines, num_copies=4, horizon=20, rng=0)
    model = PPO("MlpPolicy", copies, n_steps=8, batch_size=8, **small())
    model.learn(64)
    larger = machine_replacement(num_arms=40, budget=20)
    eh.check_policy(larger, from_stable_baselines3(model, larger))


def test_observations_are_normalised_as_in_training(machines):
    env = VecNormalize(DummyVecEnv([lambda: CountEnv(machines, 10)]), norm_reward=False)
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, **small())
    model.learn(32)
    seen = np.array([[0.5, 0.25, 0.25, 0.5]], dtype=np.float32)
    expected = model.predict(env.normalize_obs(seen), deterministic=True)[0]
    network = from_stable_baselines3(model, machines).network
    assert np.array_equal(network(seen), expected)
    assert not np.array_equal(expected, model.predict(seen, deterministic=True)[0])


def test_sizes_that_do_not_fit_are_refused(machines, tmp_path):
    model = next(models(machines))
    with pytest.raises(PolicyError, check=mentions("4 inputs", "6 outputs")):
        from_stable_baselines3(model, crew_maintenance(num_arms=3, num_types=1))
    with pytest.raises(NotApplicableError, check=mentions("3 types")):
        from_stable_baselines3(model, crew_maintenance(num_arms=3))
    with pytest.raises(InvalidInputError, check=mentions("CountEnv", "BatchedCounts")):
        from_stable_baselines3("PPO", machines)
    with pytest.raises(NotApplicableError, check=mentions("PPO")):
        eh.save_policy(machines, from_stable_baselines3(model, machines), tmp_path / "policy.zip")
