"""Rust's model of Harold Zurcher, and his nested fixed point: an estimator that shares no code with the library.

A bus in bin x of its engine's miles costs .001 theta x a month if it is kept and RC if the engine is replaced, after
which it moves on as from bin 0; each choice has a shock of its own, extreme-value distributed, that only he sees (Rust,
1987, equations 4.13, 5.1 and 5.2). With the chances p_j of moving up by j bins,

    EV(x) = sum_j p_j log( exp(-.001 theta y + beta EV(y)) + exp(-RC + beta EV(0)) ),       y = min(x + j, 89)
    P(keep | x) = 1 / (1 + exp( -RC + beta EV(0) + .001 theta x - beta EV(x) ))

EV is found by Newton's method, and (RC, theta) by maximising the likelihood of the choices, with p as it was counted.

Conventions of his programs (NFXP, STORDAT) that the published figures depend on: bin x
holds miles in (5000 x, 5000 (x + 1)]; a move is counted from bin to bin, from -1 to the new bin at a replacement, so
that the first bin after it is one step up; choices are those of the second to the last reading, and what was not known
yet at the last counts as keeping.
"""

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import optimize

BINS, WIDTH, BETA = 90, 5000, 0.9999
DATA = Path(__file__).resolve().parents[2] / "examples" / "bus-engines" / "buses.csv"


def read_buses(makes):
    """For each bus of some makes, in order of time, (engine miles, whether it was then replaced)."""
    buses = defaultdict(list)
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["make"] in makes:
                buses[row["bus"]].append((row["month"], int(row["engine_miles"]), row["action"] == "replace"))
    return {bus: [(miles, replaced) for _, miles, replaced in sorted(rows)] for bus, rows in buses.items()}


def bin_of(miles):
    return -(-miles // WIDTH) - 1


def count_moves(buses):
    """How often a bus moved up by 0, 1, 2 bins."""
    moves = [
        bin_of(after) - (-1 if replaced else bin_of(before))
        for rows in buses.values()
        for (before, replaced), (after, _) in pairwise(rows)
    ]
    return np.bincount(moves)


def chances_to_keep(cost, theta, moves):
    """(bin,) P(keep | x)."""
    running = 0.001 * theta * np.arange(BINS)
    up = np.zeros((BINS, BINS))
    for j, chance in enumerate(moves):
        np.add.at(up, (np.arange(BINS), np.minimum(np.arange(BINS) + j, BINS - 1)), chance)
    ahead = np.zeros(BINS)
    for _ in range(50):
        keep, replace = -running + BETA * ahead, -cost + BETA * ahead[0]
        stays = 1 / (1 + np.exp(replace - keep))
        slope = BETA * up * stays
        slope[:, 0] += BETA * (up @ (1 - stays))
        step = np.linalg.solve(np.eye(BINS) - slope, up @ np.logaddexp(keep, replace) - ahead)
        ahead = ahead + step
        if np.abs(step).max() < 1e-9:
            return stays
    raise AssertionError("no fixed point")


def estimate(makes):
    """(RC, theta, log-likelihood of choices and moves) by maximum likelihood, and the moves."""
    buses = read_buses(makes)
    counts = count_moves(buses)
    moves = counts / counts.sum()
    choices = [(bin_of(miles), replaced) for rows in buses.values() for miles, replaced in rows[1:]]
    bins, replaced = (np.array(column) for column in zip(*choices, strict=True))
    kept_in, replaced_in = (np.bincount(bins[chosen], minlength=BINS) for chosen in (~replaced, replaced))

    def against(point):
        stays = chances_to_keep(*point, moves)
        return -(kept_in @ np.log(stays) + replaced_in @ np.log1p(-stays))

    found = optimize.minimize(against, [9.0, 3.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    assert found.success
    return found.x[0], found.x[1], -found.fun + counts @ np.log(moves), counts
