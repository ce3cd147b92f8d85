"""The paper's Vanilla-DRL as Stable-Baselines3 sees it: raw joint states in, arms to serve out.

    observation   the state of every arm, s / (S - 1): N numbers in [0, 1]
    action        for each of the b units of the budget, the arm that gets it: a softmax over arms each
    reward        the mean reward of the arms (the utilitarian objective, as in the paper)

An arm that is drawn twice is served once. As in the paper no output stands for idling, and the budget is always
spent; with `idling` the softmax has one entry more, which serves no arm.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from evenhand.checks import check_positive_int
from evenhand.kernels.randomness import bits_at, draw_keys
from evenhand.learning.environments import SharedCopies
from evenhand.learning.worlds import sampled
from evenhand.model.coupled import CoupledMDP
from evenhand.policies.network import num_draws, observe_arms, serve_chosen
from evenhand.typing import Array, Bools, Floats, Indices, Singles


class BatchedJoint(SharedCopies):
    """Many copies of a problem, every arm of which is followed."""

    def __init__(
        self, problem: CoupledMDP, num_copies: int, horizon: int, rng: int | np.random.Generator, idling: bool = False
    ) -> None:
        """Prepare the copies.

        Args:
            problem: identical arms with two actions and one resource.
            num_copies: copies to step together.
            horizon: steps until an episode is cut off.
            rng: seed or generator.
            idling: whether a unit of the budget may be left.
        """
        check_positive_int(num_copies, "num_copies")
        check_positive_int(horizon, "horizon")
        self.problem, self.horizon, self.draws = problem, horizon, num_draws(problem)
        self.simulator = sampled(problem)
        self.idle = problem.types.idle[0]
        self.key, self.time = draw_keys(np.random.default_rng(rng), 1)[0], 0
        self.states = np.zeros((num_copies, problem.num_arms), dtype=np.int32)
        self.age = np.zeros(num_copies, dtype=np.int64)
        self.chosen: Array = np.zeros(0, dtype=np.int64)
        arms = problem.num_arms
        self.choices = arms + 1 if idling else arms
        super().__init__(num_copies, Box(0.0, 1.0, (arms,), np.float32), MultiDiscrete([self.choices] * self.draws))

    def _rng(self) -> np.random.Generator:
        self.time += 1
        return np.random.default_rng(int(bits_at(self.key, np.array(self.time, dtype=np.uint64))))

    def _restart(self, which: Bools) -> None:
        number = int(which.sum())
        first = self.simulator.begin(number * self.problem.num_arms, self._rng())
        self.states[which] = first.reshape(number, -1)
        self.age[which] = 0

    def _observe(self) -> Singles:
        return observe_arms(self.states, len(self.idle))

    def reset(self) -> Singles:
        """Begin an episode in every copy."""
        if self._seeds[0] is not None:
            self.key, self.time = draw_keys(np.random.default_rng(self._seeds[0]), 1)[0], 0
            self._reset_seeds()
        self._restart(np.ones(self.num_envs, dtype=np.bool_))
        self.age = np.arange(self.num_envs) * self.horizon // self.num_envs
        return self._observe()

    def step_async(self, actions: Array) -> None:
        """Keep the arms to serve for `step_wait`."""
        self.chosen = np.asarray(actions, dtype=np.int64)

    def _move(self, chosen: Array) -> tuple[Indices, Floats]:
        """(copy, arm) actions and rewards of one step."""
        actions = serve_chosen(self.states, chosen, self.idle)
        following, rewards = self.simulator.step(self.states.reshape(-1), actions.reshape(-1), self._rng())
        self.states = following.reshape(self.states.shape)
        return actions, rewards.reshape(self.states.shape)

    def step_wait(self) -> tuple[Singles, Singles, Bools, list[dict[str, Any]]]:
        """Step every copy; those that reach the horizon begin anew."""
        actions, rewards = self._move(self.chosen)
        self.age += 1
        observations = self._observe()
        infos: list[dict[str, Any]] = [{"actions": a, "arm_rewards": r} for a, r in zip(actions, rewards, strict=True)]
        over = self.age >= self.horizon
        if over.any():
            for copy in np.flatnonzero(over):
                infos[copy] |= {"TimeLimit.truncated": True, "terminal_observation": observations[copy]}
            self._restart(over)
            observations = self._observe()
        return observations, rewards.mean(axis=1).astype(np.float32), over, infos

    def random_moments(self, rng: np.random.Generator) -> tuple[float, float]:
        """Step by random choices: the mean of single arms' rewards, and of their squares."""
        _, rewards = self._move(rng.integers(0, self.choices, (self.num_envs, self.draws)))
        return float(rewards.mean()), float((rewards**2).mean())
