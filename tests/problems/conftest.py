"""An independent oracle: the product of all arms, solved by value iteration on plain Python enumeration."""

from collections.abc import Callable
from functools import reduce
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from evenhand.model import CoupledMDP

Choose = Callable[[tuple[int, ...], list[tuple[int, ...]]], tuple[int, ...]]


class Joint:
    """The product problem of a few arms, with their mean reward, and possibly with one action left out."""

    def __init__(self, problem: CoupledMDP, banned: int = -1) -> None:
        self.arms = [problem.arms[i] for i, count in enumerate(problem.counts) for _ in range(count)]
        self.discount = problem.discount
        self.states = list(product(*(range(arm.num_states) for arm in self.arms)))
        self.initial = reduce(np.kron, [arm.initial for arm in self.arms])
        actions = ([a for a in range(arm.num_actions) if a != banned] for arm in self.arms)
        joint_actions = list(product(*actions))
        self.feasible = [
            [action for action in joint_actions if (self.usage(state, action) <= problem.budget).all()]
            for state in self.states
        ]
        self.rewards = [[self.reward(s, a) for a in self.feasible[i]] for i, s in enumerate(self.states)]
        self.rows = [np.array([self.row(s, a) for a in self.feasible[i]]) for i, s in enumerate(self.states)]

    def usage(self, state: tuple[int, ...], action: tuple[int, ...]) -> np.ndarray:
        return sum(arm.usage[s, a] for arm, s, a in zip(self.arms, state, action, strict=True))

    def reward(self, state: tuple[int, ...], action: tuple[int, ...]) -> float:
        return float(np.mean([arm.rewards[s, a] for arm, s, a in zip(self.arms, state, action, strict=True)]))

    def row(self, state: tuple[int, ...], action: tuple[int, ...]) -> np.ndarray:
        rows = [arm.transitions[s, a] for arm, s, a in zip(self.arms, state, action, strict=True)]
        return reduce(np.kron, rows)

    def optimum(self) -> float:
        values = np.zeros(len(self.states))
        while True:
            better = np.array(
                [
                    max(reward + self.discount * (rows @ values))
                    for reward, rows in zip(map(np.array, self.rewards), self.rows, strict=True)
                ]
            )
            if np.abs(better - values).max() < 1e-9:
                return float(self.initial @ better)
            values = better

    def value_of(self, choose: Choose) -> float:
        """The value of the policy that takes `choose(state, feasible joint actions)`."""
        taken = [self.feasible[i].index(choose(s, self.feasible[i])) for i, s in enumerate(self.states)]
        rewards = np.array([self.rewards[i][a] for i, a in enumerate(taken)])
        matrix = np.array([self.rows[i][a] for i, a in enumerate(taken)])
        return float(self.initial @ np.linalg.solve(np.eye(len(matrix)) - self.discount * matrix, rewards))


@pytest.fixture(scope="session")
def joint() -> type[Joint]:
    return Joint


def _fluid_prices(problem: CoupledMDP) -> np.ndarray:
    """(resource,) what one more unit is worth when budgets hold on average: duals of the relaxed program."""
    blocks = list(zip(problem.arms, problem.counts, strict=True))
    objective = np.concatenate([-count * arm.rewards.ravel() for arm, count in blocks])
    usage = np.hstack([count * arm.usage.reshape(-1, problem.num_resources).T for arm, count in blocks])
    flows = []
    for arm, _ in blocks:
        leaving = np.kron(np.eye(arm.num_states), np.ones(arm.num_actions))
        arriving = arm.transitions.reshape(-1, arm.num_states).T
        flows.append(leaving - problem.discount * arriving)
    equal = np.zeros((sum(len(flow) for flow in flows), len(objective)))
    row = column = 0
    for flow in flows:
        equal[row : row + flow.shape[0], column : column + flow.shape[1]] = flow
        row, column = row + flow.shape[0], column + flow.shape[1]
    start = (1 - problem.discount) * np.concatenate([arm.initial for arm, _ in blocks])
    solved = linprog(objective, A_ub=usage, b_ub=problem.budget, A_eq=equal, b_eq=start)
    assert solved.status == 0
    return -solved.ineqlin.marginals


@pytest.fixture(scope="session")
def fluid_prices() -> Callable[[CoupledMDP], np.ndarray]:
    return _fluid_prices
