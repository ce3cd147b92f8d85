"""The likelihood of moves, beside a sum over all paths."""

from itertools import product

import numpy as np
import pytest

from evenhand.fitting import count_moves, log_likelihood
from tests.fitting.flat import read_log


@pytest.mark.parametrize("carry", [False, True])
def test_missed_states_are_summed_over_all_paths(carry: bool) -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"a": arm, "t": int(time), "s": int(rng.integers(3)), "x": str(rng.integers(2)), "k": f"k{arm % 2}"}
        for arm in range(6)
        for time in np.sort(rng.choice(9, size=5, replace=False))
    ]
    rows += [{"a": 6, "t": time, "s": time, "x": "0", "k": "k0"} for time in range(3)]  # all states, steps of one
    log = read_log(rows, arm="a", time="t", state="s", action="x", type="k")
    transitions = rng.dirichlet(np.ones(3), size=(2, 3, 2))
    expected = 0.0
    for i in np.flatnonzero(~log.is_last):
        t, steps = log.type_of[log.arm[i]], round(log.time[i + 1] - log.time[i])
        later = log.action[i] if carry else 0
        total = 0.0
        for between in product(range(3), repeat=steps - 1):
            path = [log.state[i], *between, log.state[i + 1]]
            actions = [log.action[i]] + [later] * (steps - 1)
            total += np.prod([transitions[t, path[k], actions[k], path[k + 1]] for k in range(steps)])
        expected += np.log(total)
    moves = count_moves(log, carry)
    assert moves.gaps.number.sum() > 5
    assert log_likelihood(moves, transitions) == pytest.approx(expected, rel=1e-12)
