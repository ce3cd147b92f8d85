"""Exact inner problems of an information relaxation, path by path, from the mathematics alone.

Small problems only: joint states and actions are enumerated. Lagrangian values come from value iteration.
"""

from itertools import product

import numpy as np


def inner_optima(problem, price, num_steps, uniforms):
    """(path,) the best penalised mean reward per arm of each path within the budget, at one price per resource.

    Discounted problems only. Beyond the last step the Lagrangian bound continues.
    """
    arms = [problem.arms[block] for block, count in enumerate(problem.counts) for _ in range(count)]
    factor, budget, number = problem.discount, np.asarray(problem.budget), len(arms)
    allowed = [(np.asarray(arm.usage) <= budget + 1e-9).all(axis=-1) for arm in arms]
    values = [lagrangian_values(arm, allowed[n], price, factor, number) for n, arm in enumerate(arms)]
    rent = float(price @ budget) / (1 - factor)
    return np.array([_inner_optimum(arms, allowed, values, rent, factor, budget, path, num_steps) for path in uniforms])


def lagrangian_values(arm, allowed, price, factor, number):
    """(state,) the best value of one arm at the prices, by value iteration."""
    gains = np.where(allowed, arm.rewards / number - arm.usage @ price, -np.inf)
    values = np.zeros(len(gains))
    for _ in range(int(np.ceil(np.log(1e-13) / np.log(factor)))):
        values = (gains + factor * arm.transitions @ values).max(axis=1)
    return values


def _next(row, uniform):
    """State of an inverse distribution function."""
    return min(int((np.cumsum(row) <= uniform).sum()), int(np.flatnonzero(row)[-1]))


def _inner_optimum(arms, allowed, values, rent, factor, budget, path, num_steps):
    number = len(arms)
    spaces = [range(len(arm.rewards)) for arm in arms]
    ahead = {joint: sum(v[s] for v, s in zip(values, joint, strict=True)) + rent for joint in product(*spaces)}
    for step in reversed(range(num_steps)):
        now = {}
        for joint in ahead:
            best = -np.inf
            for actions in product(*(np.flatnonzero(allowed[n][joint[n]]) for n in range(number))):
                if (sum(arms[n].usage[joint[n], actions[n]] for n in range(number)) > budget + 1e-9).any():
                    continue
                total, after = 0.0, []
                for n, arm in enumerate(arms):
                    row = arm.transitions[joint[n], actions[n]]
                    after.append(_next(row, path[n, step + 1]))
                    penalty = factor * (values[n][after[-1]] - row @ values[n])
                    total += arm.rewards[joint[n], actions[n]] / number - penalty
                best = max(best, total + factor * ahead[tuple(after)])
            now[joint] = best
        ahead = now
    first = tuple(_next(arm.initial, path[n, 0]) for n, arm in enumerate(arms))
    return ahead[first] - sum(values[n][first[n]] - arm.initial @ values[n] for n, arm in enumerate(arms))
