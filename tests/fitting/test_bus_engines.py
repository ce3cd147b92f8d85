"""The bus engines that ship: the published figures, counted by the library and estimated by an oracle."""

import csv
import hashlib

import numpy as np
import pytest

from evenhand.fitting import count_moves
from tests.fitting.flat import read_log

from ..oracles import zurcher

GROUPS = ("Grumman 870", "Chance RT50", "GMC T8H203", "GMC A5308 1975")
COLUMNS = {"arm": "bus", "time": "month", "state": "engine_miles", "action": "action", "type": "make"}


def read(**more):
    return read_log(str(zurcher.DATA), **COLUMNS, **more)


def test_what_ships_is_whole():
    with zurcher.DATA.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15_964 and len({row["bus"] for row in rows}) == 166
    assert sum(row["action"] == "replace" for row in rows) == 124
    assert hashlib.sha256(zurcher.DATA.read_bytes()).hexdigest() == DIGEST


DIGEST = "35d64a5a0d60b439a4eccf8065476475691f172abb8d530d9fdeab4d750a8fd3"


def test_increments_of_group_4_are_those_published():
    """1682 stay, 2522 go up one bin and 55 two; 33 replacements, which Rust counts as one step up."""
    log = read(bins=5000)
    moves = count_moves(log).counts[log.types.index("GMC A5308 1975")]
    up = [int(np.trace(moves[:, 0], k)) for k in range(-1, 4)]
    assert up == [0, 1682, 2522, 55, 0]
    assert moves[:, 1].sum() == moves[:, 1, 0].sum() == 33  # with us a replacement is an action, and leads to bin 0
    published = np.array([1682, 2522 + 33, 55])
    assert np.round(published / published.sum(), 4).tolist() == [0.3919, 0.5953, 0.0128]
    assert zurcher.count_moves(zurcher.read_buses({"GMC A5308 1975"})).tolist() == published.tolist()


def test_files_of_the_page_agree_with_it():
    """Costs of Table IX at the middle of bins of 25 000 miles; what cannot be; what nobody saw."""
    folder = zurcher.DATA.parent
    costs, cannot, replaced = (
        list(csv.DictReader((folder / f"{name}.csv").open(encoding="utf-8", newline="")))
        for name in ("costs", "cannot", "replaced")
    )
    log = read(bins=25_000)
    states = log.states
    assert len(costs) == 9 * 17 and {row["type"] for row in costs} == set(log.types)
    for row in costs:
        cost, theta = (11.7270, 4.8259) if row["type"] in GROUPS[:3] else (10.0750, 2.2930)
        middle = 5 * states.index(row["state"]) + 2 if row["state"] else 2
        expected = 0.001 * theta * middle + (cost if row["action"] == "replace" else 0)
        assert abs(float(row["cost"]) - expected) <= 5.1e-5
    left = {(s, a, z) for s in states for a in log.actions for z in states}
    for row in cannot:
        left -= {(s, row["action"], row["next_state"]) for s in (states if row["state"] == "*" else [row["state"]])}
    may = {(s, "replace", states[0]) for s in states} | {(s, "keep", s) for s in states}
    assert left == may | set(zip(states, ["keep"] * 15, states[1:], strict=False))
    seen = count_moves(log).counts.sum(axis=(0, 3))
    assert [row["state"] for row in replaced] == [state for state, n in zip(states, seen[:, 1], strict=True) if not n]


@pytest.mark.parametrize(
    ("makes", "cost", "theta", "likelihood", "stay", "one_up"),
    [
        (GROUPS[:3], 11.7270, 4.8259, -2708.366, 0.3010, 0.6884),
        (GROUPS[3:], 10.0750, 2.2930, -3304.155, 0.3919, 0.5953),
        (GROUPS, 9.7558, 2.6275, -6055.250, 0.3489, 0.6394),
    ],
)
def test_zurchers_costs_come_out_as_published(makes, cost, theta, likelihood, stay, one_up):
    """Table IX of Rust (1987), linear costs, 90 bins, beta = .9999: our own maximum of his likelihood."""
    found = zurcher.estimate(set(makes))
    assert abs(found[0] - cost) < 3e-4 and abs(found[1] - theta) < 3e-4
    assert abs(found[2] - likelihood) < 1e-3
    shares = found[3] / found[3].sum()
    assert abs(shares[0] - stay) < 1.5e-4 and abs(shares[1] - one_up) < 1.5e-4
