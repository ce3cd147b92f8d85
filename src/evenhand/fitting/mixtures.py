"""Mixtures of Markov chains by EM, several runs side by side.

Arm n is of type k with probability share[k], and then moves by the rows p[k]. What its records say is a row of counts
x[n, c], one for each cell c = (state, action, time in between; next state):

    p(records of n) = sum over k of share[k] prod over c of p[k, c]^x[n, c]

EM, with responsibilities r and a prior of one pseudo-count a row, shared by the K types and spread as all arms
together move (p̄):

    r[n, k] ∝ share[k] exp(x[n] · log p[k])
    share[k] = mean over n of r[n, k]
    p[k, c] = (sum over n of r[n, k] x[n, c] + p̄[c] / K) / (the same over its row)

Nothing is said of where arms begin, nor of what they are given: types are to differ in how they move, not in when
their records begin or in who was served. Arms with the same counts are one row with a weight, which makes a million
short histories a few hundred rows. Runs differ in their weights (folds of a cross-validation) and in where they begin
(restarts), and are iterated together, as columns of the same matrices.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from evenhand.checks import check_memory
from evenhand.fitting.log import Log
from evenhand.typing import Array, Floats, Ints

PRIOR = 1.0
"""Pseudo-counts a row, of all types together, spread as all arms move: types that are alike are then as good as one."""

SMOOTHING = 0.5
"""Counts that are added to each cell of the rows of all arms together, so that none is impossible."""

CLOSE = 1e-8
"""Relative gain of an iteration at which a run is done."""


@dataclass(frozen=True, eq=False)
class Histories:
    """Transition histories of arms, equal ones together."""

    counts: sparse.csr_array
    """(history, cell) how often each move was seen."""

    row_of: Ints
    """(cell,) the row that it is in: a state, an action and a time; never falls."""

    history_of: Ints
    """(arm,) which history it has."""

    @property
    def num_moves(self) -> Floats:
        """(history,) moves."""
        return np.asarray(self.counts.sum(axis=1), float).ravel()

    def weights(self, arms: Array | None = None) -> Floats:
        """(history,) how many arms have each.

        Args:
            arms: arms that count; all by default.
        """
        which = self.history_of if arms is None else self.history_of[arms]
        return np.bincount(which, minlength=self.counts.shape[0]).astype(np.float64)

    def only(self, arms: Ints) -> "Histories":
        """Those of some arms, in their order; the cells stay."""
        histories, position = np.unique(self.history_of[arms], return_inverse=True)
        return Histories(self.counts[histories], self.row_of, position.ravel().astype(np.int64))

    def pooled(self, weights: Floats) -> Floats:
        """(cell, run) the rows of all arms together.

        Args:
            weights: (history, run).
        """
        return self.shares(self.counts.T @ weights + SMOOTHING)

    def shares(self, counts: Floats) -> Floats:
        """(cell, ...) the same, divided by the sums of their rows."""
        shares: Floats = counts / self.sums(counts)[self.row_of]
        return shares

    def sums(self, cells: Floats) -> Floats:
        """(row, ...) sums over the cells of each row."""
        # Cells are sorted by their rows: each row is one stretch.
        starts = np.flatnonzero(np.diff(self.row_of, prepend=-1))
        sums: Floats = np.add.reduceat(cells, starts, axis=0) if len(starts) else cells
        return sums


def read_histories(log: Log) -> Histories:
    """The moves of each arm as counts.

    Args:
        log: sound records. Times in between are distinguished by powers of two of a step.
    """
    # A move is two rows of one arm, one after the other.
    first = np.flatnonzero(log.arm[1:] == log.arm[:-1])
    arm, state, action = log.arm[first], log.state[first].astype(np.int64), log.action[first]
    pause = (log.time[first + 1] - log.time[first]) / (1.0 if log.regular else log.step)
    # Times in between by powers of two: 50 minutes and an hour are one kind, a day is another.
    octave = np.rint(np.log2(pause)).astype(np.int64)
    octave -= octave.min(initial=0)
    width = int(octave.max(initial=0)) + 1
    # (state, action, octave) as one number, and with the next state a cell.
    row = (state * len(log.actions) + action) * width + octave
    cells, cell = np.unique(row * len(log.states) + log.state[first + 1], return_inverse=True)
    check_memory(64.0 * len(first), "the histories of the arms", "Give a sample of the arms.")
    table = sparse.coo_array((np.ones(len(first)), (arm, cell.ravel())), shape=(log.num_arms, len(cells))).tocsr()
    rows = np.unique(cells // len(log.states), return_inverse=True)[1].ravel()
    return _grouped(table, rows.astype(np.int64))


def _grouped(table: sparse.csr_array, row_of: Ints) -> Histories:
    """Arms with the same counts together, in the order in which they first come."""
    table.sum_duplicates()
    # A hash of each row; equal rows are summed in the same order.
    hashes = table @ np.random.default_rng(0).random(table.shape[1])
    _, begin, group = np.unique(hashes, return_index=True, return_inverse=True)
    if abs(table[begin][group.ravel()] - table).sum() != 0:  # two histories with one hash: about never
        return Histories(table, row_of, np.arange(table.shape[0]))
    # In the order in which histories first come, so that nothing hangs on the hash.
    order = np.argsort(begin)
    return Histories(table[begin[order]], row_of, np.argsort(order)[group.ravel()].astype(np.int64))


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Mixtures, one a run."""

    shares: Floats
    """(run, type) how many of the arms."""

    rows: Floats
    """(cell, run, type) probabilities."""

    objective: Floats
    """(run,) the log-likelihood with the prior."""

    def only(self, runs: Array) -> "Mixtures":
        """Some of the runs."""
        return Mixtures(self.shares[runs], self.rows[:, runs], self.objective[runs])

    def log_likelihoods(self, histories: Histories) -> Floats:
        """(history, run) of each."""
        return np.asarray(logsumexp(self.joint(histories), axis=2))

    def joint(self, histories: Histories) -> Floats:
        """(history, run, type) log-likelihoods, with the shares."""
        num_runs, number = self.shares.shape
        # All runs and types as columns of one product.
        logs = np.log(self.rows).reshape(len(self.rows), num_runs * number)
        with np.errstate(divide="ignore"):
            shares = np.log(self.shares)
        return np.asarray(histories.counts @ logs).reshape(-1, num_runs, number) + shares


def iterate(histories: Histories, weights: Floats, begin: Mixtures, iterations: int) -> Mixtures:
    """EM until no run gains any more.

    Args:
        histories: of the arms.
        weights: (history, run) how many arms have each.
        begin: one mixture a run.
        iterations: at most.
    """
    pooled = histories.pooled(weights)
    found = begin
    for _ in range(iterations):
        before, found = found, _em_step(histories, weights, pooled, found)
        # Every run must have stopped gaining: they are iterated together.
        if (found.objective - before.objective <= CLOSE * np.abs(found.objective)).all() and before is not begin:
            break
    return found


def _em_step(histories: Histories, weights: Floats, pooled: Floats, now: Mixtures) -> Mixtures:
    """One step; its objective is that of the mixture it began with."""
    joint = now.joint(histories)
    # From the largest, so that exponentials do not vanish.
    largest = joint.max(axis=2, keepdims=True)
    parts = np.exp(joint - largest)
    total = parts.sum(axis=2)
    value = (weights * (np.log(total) + largest[:, :, 0])).sum(axis=0)
    # p̄[c] / K of the head.
    prior = (PRIOR / now.shares.shape[1] * pooled)[:, :, None]
    value += (prior * np.log(now.rows)).sum(axis=(0, 2))
    # Responsibilities, times how many arms have the history.
    parts *= (weights / total)[:, :, None]
    counts = np.asarray(histories.counts.T @ parts.reshape(len(parts), -1)).reshape(now.rows.shape)
    rows = histories.shares(counts + prior)
    return Mixtures(parts.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)[:, None], rows, value)


def begin_apart(histories: Histories, weights: Floats, number: int, generator: np.random.Generator) -> Mixtures:
    """Mixtures to begin with: the histories of arms that explain each other badly (as k-means++ does).

    Args:
        histories: of the arms.
        weights: (history, run) how many arms have each.
        number: types of each.
        generator: where chance comes from.
    """
    pooled = histories.pooled(weights)
    # The best that any rows could do for a history: what it lacks is measured from that.
    own = _own_likelihoods(histories)
    # The first seed by the number of moves: a long history says most.
    lack = np.where(weights > 0, histories.num_moves[:, None], 0.0)
    best = np.full(weights.shape, -np.inf)
    rows = np.empty((*pooled.shape, number))
    for place in range(number):
        seeds = _drawn(weights * lack, weights, generator)
        counts = np.asarray(histories.counts[seeds].todense(), float).T
        # A seed alone would make what it has not seen impossible.
        rows[:, :, place] = histories.shares(counts + 2 * PRIOR * pooled)
        best = np.maximum(best, np.asarray(histories.counts @ np.log(rows[:, :, place])))
        lack = np.maximum(own[:, None] - best, 0.0)
    shares = np.full((weights.shape[1], number), 1 / number)
    return Mixtures(shares, rows, np.full(weights.shape[1], -np.inf))


def _own_likelihoods(histories: Histories) -> Floats:
    """(history,) the log-likelihood of each under its own shares: no rows explain it better."""
    table = histories.counts.tocoo()
    keys = table.coords[0] * (int(histories.row_of.max(initial=0)) + 1) + histories.row_of[table.coords[1]]
    _, group = np.unique(keys, return_inverse=True)
    totals = np.bincount(group, table.data)[group] if len(group) else table.data
    logs = table.data * np.log(table.data / totals)
    return np.bincount(table.coords[0], logs, histories.counts.shape[0]).astype(np.float64)


def _drawn(chances: Floats, weights: Floats, generator: np.random.Generator) -> Array:
    """(run,) a history each, by these chances; by their weights where all are 0."""
    # All histories are explained: any will do.
    chances = np.where(chances.sum(axis=0) > 0, chances, weights)
    ladder = np.cumsum(chances, axis=0)
    marks = generator.random(chances.shape[1]) * ladder[-1]
    return np.asarray(np.minimum((ladder <= marks).sum(axis=0), len(chances) - 1))
