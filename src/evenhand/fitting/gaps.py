"""Missed steps: rows that are several whole steps apart, with the states in between summed out.

A gap of L steps of an arm of type t begins in s with action a and ends in s'. The first step is the action's, the
others are the filler's f: the idle action, or the same action carried on. With P_a the transitions under a,

    Z = [P_a P_f^(L-1)][s, s']            its likelihood: a sum over all paths
    log-likelihood = sum counts log p + sum number log Z

Expected numbers of moves on the missing paths are P * d log Z / d P, entry by entry, because Z is a sum of products.
The derivatives of all powers come from one sweep back (reverse mode), with Q_k = P_f^k and A_k the derivative by Q_k:

    Q_k = Q_(k-1) P_f,      dP_f += Q_(k-1)' A_k,      A_(k-1) += A_k P_f'

EM repeats: expected moves are added to the counts, and rows are estimated from both. Without a prior each round is a
maximisation, and the likelihood never falls; with a strength that is fixed the same holds of likelihood and prior
together (Dempster, Laird and Rubin 1977). What is leaned on (`pooling`) is learned from moves of one step: expected
moves look more alike than moves do, and would feed on themselves.

The posterior is drawn by data augmentation (Tanner and Wong 1987), from where EM arrived: given rows, paths through the
gaps are drawn, many arms at once, with i the state, r the steps to go and s' the end,

    j ~ Multinomial(number, P_f[i, j] Q_(r-1)[j, s'] / Q_r[i, s'])

and given all moves, rows are drawn, Dirichlet(counts + drawn + c m). Drawn moves are as scattered as real ones: c and m
are learned from them now and then, and drawn from what was learned. The estimate is the mean of the draws, each taken
before its last step (Rao and Blackwell). Under maximum likelihood (`prior=0`) it is the maximum, and draws have the
weakest prior there is, one observation spread over the transitions that the maximum has: a likelihood alone is no
distribution.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import NotConverged
from evenhand.fitting.moves import Gaps
from evenhand.fitting.pooling import Leaning, checked_prior, learned
from evenhand.fitting.posterior import Dirichlet, Drawn
from evenhand.typing import Bools, Floats, Indices, Ints, Progress

CLOSE = 1e-9
"""EM has arrived when no probability moves more than this in a round, as its steps fall by their rate."""

ROUNDS = 20_000
"""EM that has not arrived by then is given up."""

LEARNED = 4
"""Sweeps after which what rows lean on is learned anew."""

SUPPORT = 1e-9
"""Probabilities of a maximum that are larger are transitions it has."""

KEPT, BETWEEN, FIRST = 400, 2, 60
"""Draws that are kept, sweeps to each, and sweeps before the first."""

MOST_BYTES = 2e8
"""Of the draws that are kept; there are fewer where rows are many."""

FEWEST = 100
"""Draws that are kept of however many rows."""


@dataclass(frozen=True, eq=False)
class Missed:
    """Gaps of whole steps, and what fills them."""

    gaps: Gaps
    """Of 2 steps or more each."""

    num_fillers: int
    """1 where missed steps are idle; as many as there are actions where they carry the action on."""

    @property
    def steps(self) -> Ints:
        """(kind,) how long they are."""
        return np.rint(self.gaps.time).astype(np.int64)

    @property
    def filler(self) -> Indices:
        """(kind,) what fills them."""
        return self.gaps.action if self.num_fillers > 1 else np.zeros_like(self.gaps.action)

    def powers(self, rows: Floats) -> Floats:
        """(power, type, filler, state, next_state) the transitions of 0, 1, ... steps.

        Args:
            rows: (type, state, action, next_state) transitions.
        """
        fill = self._fill(rows)
        longest = int(self.steps.max()) if len(self.steps) else 1
        size = 16.0 * longest * fill.size
        check_memory(size, f"a gap of {longest} steps", "Use fewer states, or a longer --step.")
        found = np.empty((longest, *fill.shape))
        found[0] = np.eye(fill.shape[-1])
        for k in range(1, longest):
            np.matmul(found[k - 1], fill, out=found[k])
        return found

    def _fill(self, rows: Floats) -> Floats:
        """(type, filler, state, next_state)."""
        return np.ascontiguousarray(rows[:, :, : self.num_fillers].transpose(0, 2, 1, 3))

    def ways(self, rows: Floats, powers: Floats) -> tuple[Floats, Floats]:
        """(kind, next_state) the weights of the first step's ends; and what is to come after each.

        Args:
            rows: (type, state, action, next_state) transitions.
            powers: of them.
        """
        gaps = self.gaps
        after = powers[self.steps - 1, gaps.type, self.filler, :, gaps.next_state]
        return rows[gaps.type, gaps.state, gaps.action] * after, after

    def log_likelihood(self, rows: Floats) -> float:
        """The sum of the logarithms of Z.

        Args:
            rows: (type, state, action, next_state) transitions.
        """
        if not len(self.steps):
            return 0.0
        ways, _ = self.ways(rows, self.powers(rows))
        with np.errstate(divide="ignore"):
            return float(self.gaps.number @ np.log(ways.sum(axis=-1)))

    def expected(self, rows: Floats) -> tuple[Floats, float]:
        """(type, state, action, next_state) expected moves on the missing paths, and the log-likelihood of the gaps.

        Args:
            rows: (type, state, action, next_state) transitions, under which every gap has a path.
        """
        gaps, powers = self.gaps, self.powers(rows)
        ways, after = self.ways(rows, powers)
        total = ways.sum(axis=-1)
        weight = (gaps.number / total)[:, None]
        by_rows, by_powers = np.zeros_like(rows), np.zeros_like(powers).swapaxes(-1, -2)
        np.add.at(by_rows, (gaps.type, gaps.state, gaps.action), weight * after)
        first = weight * rows[gaps.type, gaps.state, gaps.action]
        np.add.at(by_powers, (self.steps - 1, gaps.type, self.filler, gaps.next_state), first)
        by_fill, fill = np.zeros(powers.shape[1:]), self._fill(rows)
        by_power = by_powers.swapaxes(-1, -2)
        for k in range(len(powers) - 1, 0, -1):
            by_fill += powers[k - 1].swapaxes(-1, -2) @ by_power[k]
            by_power[k - 1] += by_power[k] @ fill.swapaxes(-1, -2)
        by_rows[:, :, : self.num_fillers] += by_fill.transpose(0, 2, 1, 3)
        return by_rows * rows, float(gaps.number @ np.log(total))

    def drawn(self, rows: Floats, rng: np.random.Generator) -> Floats:
        """(type, state, action, next_state) moves on paths that were drawn.

        Args:
            rows: (type, state, action, next_state) transitions.
            rng: where chance comes from.
        """
        gaps, powers = self.gaps, self.powers(rows)
        ways, _ = self.ways(rows, powers)
        moves = np.zeros_like(rows)
        first = rng.multinomial(gaps.number, _shares(ways))
        np.add.at(moves, (gaps.type, gaps.state, gaps.action), first)
        # Arms with as many steps to go, in one state and to one end, are alike: they are drawn together.
        waiting = np.zeros(powers.swapaxes(-1, -2).shape, dtype=np.int64)
        np.add.at(waiting, (self.steps - 1, gaps.type, self.filler, gaps.next_state), first)
        fill = self._fill(rows)
        for to_go in range(len(powers) - 1, 0, -1):
            kind, filler, end, state = np.nonzero(waiting[to_go])
            if not len(kind):
                continue
            weights = fill[kind, filler, state] * powers[to_go - 1, kind, filler, :, end]
            split = rng.multinomial(waiting[to_go][kind, filler, end, state], _shares(weights))
            np.add.at(moves, (kind, state, filler), split)
            np.add.at(waiting[to_go - 1], (kind, filler, end), split)
        return moves


def _shares(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _even(possible: Bools) -> Floats:
    """Rows spread evenly over what can be."""
    return _shares(possible.astype(np.float64))


def with_paths(missed: Missed, counts: Floats, possible: Bools) -> Bools:
    """(kind,) whether a gap has any path through what can be.

    Args:
        missed: the gaps.
        counts: (type, state, action, next_state) of one step; only their shape counts.
        possible: (state, action, next_state) transitions that can be.
    """
    rows = np.broadcast_to(_even(possible), counts.shape)
    ways, _ = missed.ways(rows, missed.powers(rows))
    return np.asarray(ways.sum(axis=-1) > 0)


@dataclass(frozen=True, eq=False)
class Filled:
    """What EM arrived at."""

    rows: Floats
    """(type, state, action, next_state) transitions; even where nothing is known of a row."""

    moves: Floats
    """(type, state, action, next_state) counts, and expected moves on the missing paths."""

    leaning: Leaning
    """What rows lean on."""

    log_likelihoods: tuple[float, ...]
    """Before each round."""


def fill(missed: Missed, counts: Floats, possible: Bools, prior: float | None = None) -> Filled:
    """Estimate rows with the missing states summed out.

    Args:
        missed: the gaps, each of which has a path.
        counts: (type, state, action, next_state) moves of one step.
        possible: (state, action, next_state) transitions that can be.
        prior: the strength with which rows lean on other types; found when absent.

    Raises:
        NotConverged: EM does not arrive.
    """
    even = _even(possible)
    begin = _known(learned(counts, possible, 1.0).given(counts).mean, even)
    leaning = learned(counts, possible, prior)
    rows, moves, told = _arrive(missed, counts, leaning, counts + missed.expected(begin)[0], even)
    return Filled(rows, moves, leaning, tuple(told))


def _known(mean: Floats, even: Floats) -> Floats:
    """The same rows; even ones where nothing is known."""
    return np.where(np.isnan(mean), even, mean)


def _arrive(
    missed: Missed, counts: Floats, leaning: Leaning, moves: Floats, even: Floats
) -> tuple[Floats, Floats, list[float]]:
    rows, told, before = _known(leaning.given(moves).mean, even), [], np.inf
    observed = counts > 0
    for _ in range(ROUNDS):
        expected, gap_likelihood = missed.expected(rows)
        told.append(gap_likelihood + float(counts[observed] @ np.log(rows[observed])))
        moves = counts + expected
        new = _known(leaning.given(moves).mean, even)
        change = float(np.abs(new - rows).max())
        rows = new
        # Steps fall by a rate; what is left to go is the last step times rate / (1 - rate).
        rate = min(change / before, 0.999) if before > 0 else 0.0
        if change * max(1.0, rate / (1 - rate)) < CLOSE:
            return rows, moves, told
        before = change
    raise NotConverged(f"the missed steps: EM still moved by {change:.1e} after {ROUNDS} rounds")


def draw_rows(
    missed: Missed,
    counts: Floats,
    possible: Bools,
    filled: Filled,
    rng: np.random.Generator,
    prior: float | None = None,
    num_draws: int | None = None,
    progress: Progress | None = None,
) -> Drawn:
    """A sample from the posterior.

    Args:
        missed: the gaps.
        counts: (type, state, action, next_state) moves of one step.
        possible: (state, action, next_state) transitions that can be.
        filled: from `fill`.
        rng: where chance comes from.
        prior: as `fill` had it.
        num_draws: how many; as many as are useful when absent.
        progress: told how far it is.
    """
    room = int(MOST_BYTES / (8 * counts.size))
    number = max(FEWEST, min(KEPT, room)) if num_draws is None else num_draws
    check_memory(8.0 * number * counts.size, f"{number} draws", "Use fewer states.")
    draws, mean, rows, leaning = np.empty((number, *counts.shape)), np.zeros_like(filled.rows), filled.rows, None
    learns = checked_prior(prior) is None and len(counts) > 1
    weakest = _even(filled.rows > SUPPORT)
    for sweep in range(FIRST + BETWEEN * number):
        moves = counts + missed.drawn(rows, rng)
        if leaning is None or (learns and sweep % LEARNED == 0):
            leaning = learned(moves, possible) if learns else filled.leaning
        total = moves + (leaning.draw(rng) if leaning.strength.any() else weakest)
        rows = Dirichlet(total).one(int(rng.integers(2**63)), 0)
        kept, odd = divmod(sweep - FIRST, BETWEEN)
        if kept >= 0:
            mean += _shares(total)
        if kept >= 0 and odd == BETWEEN - 1:
            draws[kept] = rows
        if progress is not None and sweep % 50 == 0:
            progress("drawing paths through missed steps", sweep / (FIRST + BETWEEN * number))
    estimate = mean / (BETWEEN * number) if filled.leaning.strength.any() else filled.rows
    return Drawn(estimate, draws)
