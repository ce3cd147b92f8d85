"""Frontiers by the sweep over charges of the Whittle solver and by the sweep over weights of the fluid relaxation."""

import numpy as np
import pytest

from evenhand.problems import random_coupled

from ..oracles.activity_frontiers import value_frontiers
from ..oracles.fluid_lp import discounted_model


@pytest.mark.parametrize("seed", range(5))
def test_the_value_of_a_use_is_the_same(seed):
    problem = random_coupled(num_arms=6, num_types=6, num_states=4, seed=seed, integer_usage=True)
    types, discount = problem.types, problem.discount
    unit = (types.usage > 0).astype(float)
    arms = type(types)(
        transitions=types.transitions,
        rewards=types.rewards,
        usage=unit,
        initial=types.initial,
        num_states=types.num_states,
        num_actions=types.num_actions,
    )
    by_charge = value_frontiers(types.transitions, types.rewards, discount, types.initial)
    model = discounted_model(arms, problem.type_counts, np.array([1e9]), discount)
    by_weight = model.trace(np.ones(1))
    for arm in range(6):
        mine = slice(by_weight.starts[arm], by_weight.starts[arm + 1])
        theirs = by_charge.vertices(arm)
        uses, values = by_charge.uses[theirs][::-1], by_charge.values[theirs][::-1]
        assert np.interp(by_weight.uses[mine, 0], uses, values) == pytest.approx(by_weight.values[mine], abs=1e-9)
