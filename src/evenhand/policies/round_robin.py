"""EQR, equal resources: every arm is served once a round, whatever its state."""

import numpy as np

from evenhand.display import ShownPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.typing import Floats, Indices, Ints


class RoundRobin(ShownPolicy):
    """Serves the arms in turn; with unit usage and budget b, each arm once every N / b steps (the paper's EQR).

    The reading taken: each episode has its own random order of the arms, kept for all its rounds. A step serves the
    arms at the head of the order while the head fits the budget that is left; an arm that does not fit waits at the
    head for the next step, so nobody loses a turn. The served arm takes the action that uses the largest share of
    the budget among those that fit a whole step's budget in its present state (the first such action on a tie), and
    an arm for which nothing fits loses its turn. The policy has a memory, so it is started, not asked directly.
    """

    exchangeable = True

    def __init__(self, problem: CoupledMDP) -> None:
        self.problem = problem
        self.service = _largest_action(problem)

    def start(self, num_episodes: int, rng: np.random.Generator) -> "RoundRobinActor":
        """An actor at the first step of `num_episodes` episodes."""
        order = np.argsort(rng.random((num_episodes, self.problem.num_arms)), axis=1)
        return RoundRobinActor(self, order)


class RoundRobinActor:
    """The turn of each episode in a batch."""

    def __init__(self, policy: RoundRobin, order: Ints) -> None:
        self.policy = policy
        self.order = order
        self.head = np.zeros(len(order), dtype=np.int64)

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Serve the next arms of every episode."""
        problem, types = self.policy.problem, self.policy.problem.types
        actions = types.idle[problem.type_of_arm, states].copy()
        budget = np.repeat(problem.budget_limit[None], len(states), axis=0)
        episodes = np.arange(len(states))
        live = np.ones(len(states), dtype=np.bool_)
        for _ in range(problem.num_arms):
            arm = self.order[episodes, self.head]
            kind, state = problem.type_of_arm[arm], states[episodes, arm]
            action = self.policy.service[kind, state]
            need = types.usage[kind, state, action]
            live &= (need <= budget).all(axis=1)
            rows = episodes[live]
            if len(rows) == 0:
                break
            actions[rows, arm[rows]] = action[rows]
            budget[rows] -= need[rows]
            self.head[rows] = (self.head[rows] + 1) % problem.num_arms
        return actions


def _largest_action(problem: CoupledMDP) -> Indices:
    """(type, state) the action with the largest share of the budget that fits on its own."""
    types, budget = problem.types, problem.budget
    fits = (types.usage <= problem.budget_limit).all(axis=-1) & types.valid
    share: Floats = (types.usage / np.where(budget > 0, budget, 1.0)).max(axis=-1)
    return np.asarray(np.where(fits, share, -1.0).argmax(axis=-1), dtype=np.int32)
