"""Policies compared on other processes: the same rows on every backend."""

import threading

import pytest

import evenhand as eh
from evenhand.errors import InvalidInput
from evenhand.parallel import Pool

pytestmark = pytest.mark.xdist_group("ray")

POLICIES = ["whittle", "random", "never-act", "fair-index", "oldest-first"]


def rows_of(backend=None):
    problem = eh.problems.machine_replacement(num_arms=4)
    asked = {"num_episodes": 20, "horizon": 30, "method": "monte-carlo", "solve_up_to": 0}
    found = eh.compare(problem, POLICIES, "gini:2", backend=backend, **asked)
    return [(row.policy, row.evaluation.welfare, row.evaluation.values.tobytes()) for row in found.rows]


@pytest.fixture(params=["processes", "ray"])
def pool(request):
    if request.param == "ray":
        request.getfixturevalue("small_ray")
    with Pool("processes:2") if request.param == "processes" else Pool("ray", num_workers=2) as opened:
        yield opened


def test_the_same_rows_on_every_backend(pool):
    assert rows_of(pool) == rows_of()


def test_a_policy_that_cannot_be_pickled_is_refused():
    problem = eh.problems.machine_replacement(num_arms=3)

    class Mine:
        def __init__(self):
            self.lock = threading.Lock()

        def act(self, states, rng):
            return states * 0

    with pytest.raises(InvalidInput, match="policy mine"):
        eh.compare(problem, {"mine": Mine()}, num_episodes=2, horizon=3, backend="processes:1")
