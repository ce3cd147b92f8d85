"""Service in turn within the budget, against the same rule in sets and sorted lists."""

import numpy as np
import pytest

from evenhand.kernels import serve_in_turn


def _oracle(kind, states, planned, must, turn, usage, serves, least, worth, unit, side_by_side, limit, idle):
    actions, left = list(idle), np.array(limit)
    order = sorted((t, n) for n, t in enumerate(turn) if np.isfinite(t))
    for place, (_, n) in enumerate(order):
        owed, cell = sum(must[m] for _, m in order[place + 1 :]), (kind[n], states[n])

        def leaves_enough(a, cell=cell, owed=owed, left=left):
            some = unit[~np.isnan(unit)]
            numbers = ((left - usage[(*cell, a)])[~np.isnan(unit)] // some).tolist()
            return (sum(numbers) if side_by_side else min(numbers)) >= owed

        can = [a for a in range(usage.shape[2]) if serves[(*cell, a)] and (usage[(*cell, a)] <= left).all()]
        can = can if must[n] else [a for a in can if a == planned[n]]
        if can:
            good = [a for a in can if least[(*cell, a)] or leaves_enough(a)] or can
            actions[n] = planned[n] if planned[n] in good else max(good, key=lambda a: (worth[(*cell, a)], a))
            left = left - usage[(*cell, actions[n])]
    return actions


@pytest.mark.parametrize("seed", range(30))
def test_arms_that_must_be_served_leave_enough_for_each_other(seed):
    rng = np.random.default_rng(seed)
    types, states, actions, resources, arms = 2, 3, 4, 1 + seed % 2, 7
    usage = rng.integers(0, 3, (types, states, actions, resources)).astype(float)
    serves, least = usage.any(axis=3), rng.random((types, states, actions)) < 0.3
    unit = np.where(rng.random(resources) < 0.3, np.nan, rng.integers(1, 3, resources).astype(float))
    unit[0] = 1.0
    kinds, now = rng.integers(0, types, arms), rng.integers(0, states, (5, arms))
    planned, must = rng.integers(0, actions, (5, arms)), rng.random((5, arms)) < 0.4
    turn = np.where(must | (rng.random((5, arms)) < 0.5), rng.random((5, arms)), np.inf)
    worth, limit = rng.random((types, states, actions)), rng.integers(2, 8, resources).astype(float)
    found = idle = np.zeros((5, arms), dtype=np.int64)
    side_by_side = bool(seed % 3) and not np.isnan(unit).any()
    rest = usage, serves, least, worth, unit, side_by_side, limit
    expected = [_oracle(kinds, *row, *rest, np.zeros(arms, int)) for row in zip(now, planned, must, turn, strict=True)]
    serve_in_turn(kinds, now, planned, must, turn, *rest, found)
    assert found is idle and found.tolist() == expected
