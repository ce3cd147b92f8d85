"""Policies compared on other processes: the same rows, wherever they are played."""

import threading

import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError
from evenhand.parallel import Pool

from ..conftest import mentions

pytestmark = pytest.mark.xdist_group("ray")

POLICIES = ["whittle", "random", "never-act", "fair-index", "oldest-first"]


def rows_of(backend=None):
    problem = eh.problems.machine_replacement(num_arms=4)
    asked = {"num_episodes": 20, "horizon": 30, "method": "monte-carlo"}
    found = eh.compare(problem, POLICIES, "gini:2", backend=backend, **asked)
    return [(row.policy, row.evaluation.welfare, row.evaluation.values.tobytes()) for row in found.rows]


@pytest.fixture(params=["processes", "ray"])
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("small_ray")
    with Pool("processes:2") if request.param == "processes" else Pool("ray", num_workers=2) as opened:
        yield opened


@pytest.mark.slow
def test_the_same_rows_wherever_they_are_played(executor):
    assert rows_of(executor) == rows_of()


def test_a_policy_that_cannot_be_sent_is_reported():
    problem = eh.problems.machine_replacement(num_arms=3)

    class Mine:
        def __init__(self):
            self.lock = threading.Lock()

        def act(self, states, rng):
            return states * 0

    with pytest.raises(InvalidInputError, check=mentions("backend")):
        eh.compare(problem, {"mine": Mine()}, num_episodes=2, horizon=3, backend="processes:1")
