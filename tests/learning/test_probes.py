"""Learners face tiny problems first, whose answers are known.

The network at the end is tested, not the best one of the run: an untrained network may be right by chance. One
that is right by chance where acting pays is wrong where it does not, and both are asked of every learner.
"""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from evenhand import solve
from evenhand.learning import PPOLearner, SACLearner, TD3Learner, train
from evenhand.model import Arm, CoupledMDP

PPO = PPOLearner(num_copies=16, rollout=16, batch=64, learning_rate=5e-3)
LEARNERS = {
    "ppo": (PPO, 3_072),
    "sac": (SACLearner(num_copies=4, batch=64, first_steps=400, learning_rate=3e-3), 2_400),
    "td3": (TD3Learner(num_copies=4, batch=64, first_steps=400, learning_rate=3e-3), 2_400),
}


def one_state(gain):
    """Acting is worth `gain`, idling nothing; all arms can be served."""
    return CoupledMDP([Arm([[[1.0], [1.0]]], [[0.0, gain]], [[0], [1]])], budget=[3], discount=0.5, counts=[3])


def two_states(better):
    """States come at random; serving an arm is worth 1 in the better one and 0.2 in the other; one can be served."""
    rows = np.full((2, 2, 2), 0.5)
    rewards = np.array([[0.0, 0.2], [0.0, 0.2]])
    rewards[better, 1] = 1.0
    return CoupledMDP([Arm(rows, rewards, [[0], [1]])], budget=[1], discount=0.5, counts=[3])


def later():
    """Serving an arm in state 0 costs 0.2 at once and brings 1 in the next step: a myopic policy idles."""
    rows = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
    return CoupledMDP([Arm(rows, [[0.0, -0.2], [1.0, 0.5]], [[0], [1]])], budget=[2], discount=0.8, counts=[2])


def two_resources():
    """Three actions, two resources: the dear action for the one that can have it, the cheap one for two others."""
    usage = [[0, 0], [1, 0], [1, 2]]
    arm = Arm(np.ones((1, 3, 1)), [[0.0, 0.4, 1.0]], usage)
    return CoupledMDP([arm], budget=[3, 2], discount=0.5, counts=[4])


PROBES = {
    "acting is better": lambda: one_state(1.0),
    "acting is worse": lambda: one_state(-1.0),
    "the first state first": lambda: two_states(0),
    "the second state first": lambda: two_states(1),
    "what comes later": later,
    "two resources": two_resources,
}


def test_the_probes_are_not_trivial():
    """Each has a policy that is clearly worse than the best; the one of tomorrow is lost by looking at today."""
    assert solve(one_state(1.0)).welfare == pytest.approx(2)
    assert solve(one_state(-1.0)).welfare == pytest.approx(0, abs=1e-12)
    assert solve(later()).welfare > 1.5 * 1.0 / 2
    assert solve(two_resources()).welfare == pytest.approx(2 * (1.0 + 2 * 0.4) / 4)
    for better in (0, 1):
        present = 1 - 0.5**3
        assert solve(two_states(better)).welfare == pytest.approx(2 * (present + 0.2 * (1 - present)) / 3)


ACTING = ("acting is better", "acting is worse")
"""The two that no untrained network solves both: the least that is asked of a learner."""


def ask(probe, *learner):
    """A learner on a probe: the quick one on the two by default, all on all in the long run."""
    always = probe in ACTING and learner == ("ppo",)
    return pytest.param(*learner, probe, marks=() if always else pytest.mark.slow)


@pytest.mark.parametrize(
    ("algorithm", "probe"),
    [ask(probe, name) for name in LEARNERS for probe in PROBES],
)
def test_it_learns_the_answer(algorithm, probe):
    problem = PROBES[probe]()
    learner, steps = LEARNERS[algorithm]
    steps = steps * 2 // 3 if probe in ACTING else steps
    training = train(problem, learner, steps, horizon=30, hidden=(32, 32), evaluations=4, seed=1)
    assert training.exact
    assert training.curve[-1][1] >= solve(problem).welfare - 0.02
    assert training.score >= training.curve[-1][1]


@pytest.mark.parametrize("probe", [ask(probe) for probe in PROBES])
def test_priority_sampling_learns_most_of_it(probe):
    """Its allocation is drawn, and priorities are at least 1/1000: near the answer is all it can be."""
    problem = PROBES[probe]()
    training = train(
        problem,
        PPO,
        5_120,
        allocation="priority-sampling",
        horizon=30,
        hidden=(32, 32),
        evaluations=4,
        seed=1,
    )
    assert training.exact
    assert training.curve[-1][1] >= solve(problem).welfare - 0.1
