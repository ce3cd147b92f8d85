"""Programmes on both databases, and a small model to run them by."""

from dataclasses import replace

import pytest

from evenhand.model import Arm, CoupledMDP
from evenhand.planning import SolveMethod
from evenhand.planning.solve import solve
from evenhand.programme import Programme, cycle, refit

STATES = ("fine", "worn", "broken")
ACTIONS = ("run", "oil", "repair")


def pump(name, decay):
    """A pump that wears; oiling takes one hour, a repair two."""
    stays = 1 - decay
    return Arm(
        transitions=[
            [[stays, decay, 0.0], [1 - decay / 2, decay / 2, 0.0], [1.0, 0.0, 0.0]],
            [[0.0, stays, decay], [0.25, 0.65, 0.1], [0.9, 0.1, 0.0]],
            [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.8, 0.2, 0.0]],
        ],
        rewards=[[1.0, 1.0, 0.8], [0.6, 0.6, 0.4], [0.0, 0.0, 0.0]],
        usage=[[0.0], [1.0], [2.0]],
        initial=[1.0, 0.0, 0.0],
        name=name,
        states=STATES,
        actions=ACTIONS,
    )


@pytest.fixture(scope="session")
def pumps():
    """Big and small pumps; the small ones stand in two places."""
    return CoupledMDP(
        [pump("big", 0.3), pump("small", 0.2), pump("small", 0.2)],
        budget=[3.0],
        discount=0.9,
        counts=[1, 1, 1],
        resources=["hours"],
        groups=["", "hill", "valley"],
    )


ROSTER = [
    {"arm": "b1", "type": "big", "state": "fine"},
    {"arm": "b2", "type": "big", "state": "broken"},
    {"arm": "h1", "type": "small", "group": "hill", "state": "worn"},
    {"arm": "h2", "type": "small", "group": "hill", "state": "broken"},
    {"arm": "v1", "type": "small", "group": "valley", "state": "fine"},
]


@pytest.fixture(scope="session")
def roster():
    return ROSTER


@pytest.fixture(scope="session")
def solved_before():
    """Solutions of this session, by what was asked."""
    return {}


@pytest.fixture(autouse=True)
def solve_once(monkeypatch, solved_before):
    """The same problem is solved once in a session: what tests are about is what becomes of it."""

    def solving(problem, **asked):
        method = replace(SolveMethod.of(asked["method"]), seconds=0.3)
        if "budgets" in asked:  # a policy in use is improved
            return solve(problem, **asked | {"method": method})
        waits = problem.max_waits.tobytes()
        key = (problem.signature, waits, tuple(problem.counts), problem.welfare, method.name, asked["rng"])
        if key not in solved_before:
            solved_before[key] = solve(problem, **asked | {"method": method})
        return solved_before[key]

    monkeypatch.setattr(cycle, "solve", solving)
    monkeypatch.setattr(refit, "solve", solving)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    """Where a new programme may be, on each database in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "pumps.db")
    return request.getfixturevalue("postgresql").database()


@pytest.fixture
def programme(address, pumps):
    """A programme that has just begun."""
    with Programme.create(address, pumps, ROSTER, name="pumps") as made:
        yield made
