"""Missed steps: rows that are several whole steps apart, with the states in between summed out.

A gap of L steps of an arm of type t begins in s with action a and ends in s'. The first step is the action's, the
others are the filler's f: the idle action, or the same action carried on. With P_a the transitions under a,

    Z = [P_a P_f^(L-1)][s, s']            its likelihood: a sum over all paths
    log-likelihood = sum counts log p + sum number log Z

Expected numbers of moves on the missing paths are P * d log Z / d P, entry by entry, because Z is a sum of products.
Powers are products of halves, and the derivatives come from one sweep back (reverse mode), with Q_k = P_f^k, A_k the
derivative by Q_k, and k = l + u its halves, so that a gap of a thousand steps costs twenty products:

    Q_k = Q_l Q_u,      A_l += A_k Q_u',      A_u += Q_l' A_k,      dP_f = A_1

EM repeats: expected moves are added to the counts, and rows are estimated from both. Without a prior each round is a
maximisation, and the likelihood never falls; with a strength that is fixed the same holds of likelihood and prior
together (Dempster, Laird and Rubin 1977). Where much is missing its steps are small, so that after every two rounds it
leaps ahead by the step r and its change v (SQUAREM: Varadhan and Roland 2008),

    rows + 2 a r + a^2 v,    a = max(1, |r| / |v|)

and back again where likelihood and prior are lost by it, to leap less far the next time. What is leaned on (`pooling`)
is learned from moves of one step: expected moves look more alike than moves do, and would feed on themselves.

The posterior is drawn by data augmentation (Tanner and Wong 1987), from where EM arrived: given rows, paths through the
gaps are drawn, many arms at once. Of stretches of k steps from i to s' it is drawn where they are halfway, and of both
halves again, down to single steps:

    j ~ Multinomial(number, Q_l[i, j] Q_u[j, s'] / Q_k[i, s'])

and given all moves, rows are drawn, Dirichlet(counts + drawn + c m). Drawn moves are as scattered as real ones: c and m
are learned from them now and then, and drawn from what was learned. The estimate is the mean of the draws, each taken
before its last step (Rao and Blackwell). Under maximum likelihood (`prior=0`) it is the maximum, and draws have the
weakest prior, one observation spread over the transitions of the maximum: a likelihood alone does not define a
distribution.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import NotConvergedError
from evenhand.fitting.hierarchical_dirichlet import PooledPrior, checked_prior, estimate_prior
from evenhand.fitting.posterior import Dirichlet, Drawn
from evenhand.fitting.transition_counts import Gaps
from evenhand.typing import Bools, Floats, Indices, Ints, Progress

CLOSE = 1e-9
"""EM has arrived when no probability has farther to go than this, as its steps fall by their rate."""

ROUNDS = 5_000
"""EM that has not arrived after so many leaps is given up."""

NEARER = 0.1
"""The share of a probability that one leap leaves at least."""

ROUNDING = 1e-12
"""The share of a likelihood that sums of another order may differ by."""

FAINT = 1e-200
"""Likelihoods of a gap below this are too near the smallest number there is."""

STILL = 20
"""Leaps after which EM has arrived, too, if the likelihood has gained no more than that: records tell no more."""

TINY = 1e-300
"""Lower bound of a sum of squares."""

LEARNED = 4
"""Sweeps after which the prior is estimated again."""

SUPPORT = 1e-9
"""Probabilities of a maximum that are larger are transitions it has."""

NUM_DRAWS, THINNING, BURN_IN = 400, 2, 60
"""Number of stored draws, sweeps per stored draw, and sweeps before the first."""

MOST_BYTES = 2e8
"""Maximum size of the stored draws in bytes."""

FEWEST = 100
"""Minimum number of draws, for any number of rows."""


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

    @cached_property
    def lengths(self) -> Ints:
        """(length,) rising: the numbers of filling steps, their halves, the halves of these, and so on down to 1."""
        found, new = {1}, set((self.steps - 1).tolist())
        # Halves of halves, so that each length is a product of two shorter ones that are there.
        while new:
            found |= new
            new = {half for length in new for half in (length // 2, length - length // 2)} - found - {0}
        return np.array(sorted(found), dtype=np.int64)

    @cached_property
    def _halves(self) -> tuple[Ints, Ints]:
        """(length,) the places of both halves of each; of 1 they mean nothing."""
        lower = np.searchsorted(self.lengths, self.lengths // 2)
        return lower, np.searchsorted(self.lengths, self.lengths - self.lengths // 2)

    @cached_property
    def _place(self) -> Ints:
        """(kind,) that of its number of filling steps among the lengths."""
        return np.searchsorted(self.lengths, self.steps - 1)

    def powers(self, rows: Floats, product: Callable[[Floats, Floats], Floats] = np.matmul) -> Floats:
        """(length, type, filler, state, next_state) the transitions of so many filling steps.

        Args:
            rows: (type, state, action, next_state) transitions.
            product: of two of them.
        """
        fill = self._fill(rows)
        size = 16.0 * len(self.lengths) * fill.size
        check_memory(size, f"gaps of up to {self.lengths[-1] + 1} steps", "Use fewer states, or a longer step.")
        found = np.empty((len(self.lengths), *fill.shape))
        found[0] = fill
        # Lengths rise: both halves are there before the whole.
        for place, (lower, upper) in enumerate(zip(*self._halves, strict=True)):
            if place:
                found[place] = product(found[lower], found[upper])
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
        # (kind, state) from where the first step ends to where the gap does.
        after = powers[self._place, gaps.type, self.filler, :, gaps.next_state]
        return rows[gaps.type, gaps.state, gaps.action] * after, after

    def faintest(self, rows: Floats) -> float:
        """The least Z of all gaps.

        Args:
            rows: (type, state, action, next_state) transitions.
        """
        return float(self.ways(rows, self.powers(rows))[0].sum(axis=-1).min(initial=1.0))

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
        # d log Z / d Z is 1 / Z, for as many arms as have the gap.
        weight = (gaps.number / total)[:, None]
        by_rows, by_power = np.zeros_like(rows), np.zeros_like(powers)
        # Z is linear in the first step: its derivative is what comes after.
        np.add.at(by_rows, (gaps.type, gaps.state, gaps.action), weight * after)
        first = weight * rows[gaps.type, gaps.state, gaps.action]
        np.add.at(by_power.swapaxes(-1, -2), (self._place, gaps.type, self.filler, gaps.next_state), first)
        # From the longest to the shortest: a length is complete before it is handed down to its halves.
        for place, lower, upper in self._downwards():
            by_power[lower] += by_power[place] @ powers[upper].swapaxes(-1, -2)
            by_power[upper] += powers[lower].swapaxes(-1, -2) @ by_power[place]
        # What is left is the derivative by single filling steps.
        by_rows[:, :, : self.num_fillers] += by_power[0].transpose(0, 2, 1, 3)
        # P dL/dP, entry by entry: expected moves.
        return by_rows * rows, float(gaps.number @ np.log(total))

    def _downwards(self) -> Iterator[tuple[int, int, int]]:
        """The places of lengths above 1 and of their halves, the longest first."""
        lower, upper = self._halves
        for place in range(len(self.lengths) - 1, 0, -1):
            yield place, int(lower[place]), int(upper[place])

    def drawn(self, rows: Floats, rng: np.random.Generator) -> Floats:
        """(type, state, action, next_state) moves on paths that were drawn.

        Args:
            rows: (type, state, action, next_state) transitions.
            rng: random generator.
        """
        gaps, powers = self.gaps, self.powers(rows)
        ways, _ = self.ways(rows, powers)
        moves = np.zeros_like(rows)
        # Where the first step of each gap ends, given where the gap does.
        first = rng.multinomial(gaps.number, _shares(ways))
        np.add.at(moves, (gaps.type, gaps.state, gaps.action), first)
        # Stretches of one length with the same two ends are alike: where they are halfway is drawn together.
        stretches = np.zeros(powers.shape, dtype=np.int64)
        np.add.at(stretches.swapaxes(-1, -2), (self._place, gaps.type, self.filler, gaps.next_state), first)
        for place, lower, upper in self._downwards():
            kind, filler, state, end = np.nonzero(stretches[place])
            if not len(kind):
                continue
            # Q_l[i, j] Q_u[j, s'], for every stretch.
            weights = powers[lower, kind, filler, state] * powers[upper, kind, filler, :, end]
            split = rng.multinomial(stretches[place][kind, filler, state, end], _shares(weights))
            np.add.at(stretches[lower], (kind, filler, state), split)
            np.add.at(stretches[upper].swapaxes(-1, -2), (kind, filler, end), split)
        # Stretches of one step are moves.
        moves[:, :, : self.num_fillers] += stretches[0].transpose(0, 2, 1, 3)
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
    # Truths, not chances: those of a thousand steps may be below the smallest number there is.
    rows = np.broadcast_to(possible.astype(np.float64), counts.shape)
    ways, _ = missed.ways(rows, missed.powers(rows, lambda one, other: np.sign(one @ other)))
    return np.asarray(ways.any(axis=-1))


@dataclass(frozen=True, eq=False)
class Filled:
    """Result of EM."""

    rows: Floats
    """(type, state, action, next_state) transitions; even where nothing is known of a row."""

    moves: Floats
    """(type, state, action, next_state) counts, and expected moves on the missing paths."""

    pooled_prior: PooledPrior
    """Prior of the rows."""

    log_likelihoods: tuple[float, ...]
    """Before each round."""


def fill(missed: Missed, counts: Floats, possible: Bools, prior: float | None = None) -> Filled:
    """Estimate rows with the missing states summed out.

    Args:
        missed: the gaps, each of which has a path.
        counts: (type, state, action, next_state) moves of one step.
        possible: (state, action, next_state) transitions that can be.
        prior: strength of shrinkage towards the other types; estimated by default.

    Raises:
        NotConvergedError: EM does not arrive, or cannot begin.
    """
    even = _even(possible)
    begin = _within_reach(missed, _known(estimate_prior(counts, possible, 1.0).matched(counts).mean, even), possible)
    pooled_prior = estimate_prior(counts, possible, prior)
    rows, moves, likelihoods = _arrive(missed, counts, pooled_prior, counts + missed.expected(begin)[0], even)
    return Filled(rows, moves, pooled_prior, tuple(likelihoods))


def _within_reach(missed: Missed, rows: Floats, possible: Bools) -> Floats:
    """Initial rows under which every gap has a representable probability.

    The probability of a long stay in a state that is left soon may underflow; rows then stay longer.

    Args:
        missed: the gaps.
        rows: (type, state, action, next_state) transitions.
        possible: (state, action, next_state) transitions that can be.

    Raises:
        NotConvergedError: staying is impossible, and the probability of a path underflows.
    """
    if missed.faintest(rows) > FAINT:
        return rows
    # Staying, where it can be.
    stays = np.eye(rows.shape[1], dtype=bool)[:, None] & possible
    # A stay of all the steps then has a chance of about 1/e.
    share = np.where(stays.any(axis=-1, keepdims=True), 1.0 / missed.steps.max(), 1.0)
    rows = np.asarray(share * rows + (1 - share) * stays)
    if missed.faintest(rows) > FAINT:
        return rows
    raise NotConvergedError("missed steps: a gap is so long that none of its paths has a representable probability")


def _known(mean: Floats, even: Floats) -> Floats:
    """Return the rows, uniform ones if unknown."""
    return np.where(np.isnan(mean), even, mean)


def _arrive(
    missed: Missed, counts: Floats, pooled_prior: PooledPrior, moves: Floats, even: Floats
) -> tuple[Floats, Floats, list[float]]:
    """Rounds of EM in twos, each two followed by a leap that is taken back if it loses."""
    rounds = _Rounds(missed, counts, pooled_prior, even)
    first = rounds.of(rounds.rows_of(moves))
    likelihoods, mark, still, reach = [], np.inf, 0, np.inf
    for _ in range(ROUNDS):
        second = rounds.of(first.after)
        likelihoods += [first.log_likelihood, second.log_likelihood]
        slack = ROUNDING * (1 + abs(second.objective))
        # Rounds that gain nothing but rounding are counted, as long as they come in a row.
        still = still + 1 if abs(second.objective - mark) <= slack else 0
        mark = mark if still else second.objective
        if still == STILL or _left(first, second) < CLOSE:
            return second.after, second.moves, likelihoods
        # No farther than the last leap that was taken allows.
        length = min(_length(first, second), reach)
        ahead = rounds.of(_leap(first, second, length))
        taken = ahead.objective >= second.objective - slack
        # Far leaps are learned: farther after one that won, nearer after one that lost.
        reach = max(reach, 4 * length) if taken else max(length / 4, 1.0)
        first = ahead if taken else rounds.of(second.after)
    raise NotConvergedError(f"the missed steps: EM had still {_left(first, second):.1e} to go after {ROUNDS} leaps")


def _left(first: "_Round", second: "_Round") -> float:
    """Estimate the remaining distance: steps fall at a rate, and the rest is the last step times rate / (1 - rate)."""
    change, before = float(np.abs(second.step).max()), float(np.abs(first.step).max())
    # A rate of 1 would never arrive.
    rate = min(change / before, 0.999) if before > 0 else 0.0
    return change * max(1.0, rate / (1 - rate))


@dataclass(frozen=True, eq=False)
class _Round:
    """A round of EM: rows before and after."""

    rows: Floats
    after: Floats
    moves: Floats
    log_likelihood: float
    objective: float

    @property
    def step(self) -> Floats:
        return self.after - self.rows


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Data of the rounds of EM."""

    missed: Missed
    counts: Floats
    prior: PooledPrior
    even: Floats

    def of(self, rows: Floats) -> _Round:
        """A round from these rows. Their objective is the posterior, up to a constant.

        Args:
            rows: (type, state, action, next_state) transitions.
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # a leap too far, which is taken back
            expected, value = self.missed.expected(rows)
        value += _weighted_logs(self.counts, rows)
        moves = self.counts + expected
        return _Round(rows, self.rows_of(moves), moves, value, value + _weighted_logs(self.prior.pull, rows))

    def rows_of(self, moves: Floats) -> Floats:
        """(type, state, action, next_state) estimated from moves; even ones where nothing is known."""
        return _known(self.prior.matched(moves).mean, self.even)


def _weighted_logs(weights: Floats, rows: Floats) -> float:
    weights = np.broadcast_to(weights, rows.shape)
    some = weights > 0
    return float(weights[some] @ np.log(rows[some]))


def _length(first: _Round, second: _Round) -> float:
    """Return the length of a leap: the number of steps that two steps extrapolate to."""
    bend = second.step - first.step
    return max(1.0, float(np.sqrt((first.step**2).sum() / max((bend**2).sum(), TINY))))


def _leap(first: _Round, second: _Round, length: float) -> Floats:
    """Rows so far ahead of two rounds."""
    ahead = first.rows + 2 * length * first.step + length**2 * (second.step - first.step)
    # Towards 0, but never there: EM could not come back from it.
    return _shares(np.maximum(ahead, NEARER * second.after))


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
        rng: random generator.
        prior: as `fill` had it.
        num_draws: number of draws; by default as many as are useful.
        progress: function of the current task and its completed share.
    """
    # As many as fit; fewer where rows are many, but never too few for quantiles.
    room = int(MOST_BYTES / (8 * counts.size))
    number = max(FEWEST, min(NUM_DRAWS, room)) if num_draws is None else num_draws
    check_memory(8.0 * number * counts.size, f"{number} draws", "Use fewer states.")
    draws, mean, rows, pooled_prior = np.empty((number, *counts.shape)), np.zeros_like(filled.rows), filled.rows, None
    learns = checked_prior(prior) is None and len(counts) > 1
    # The weakest prior: one observation over the transitions that the maximum has.
    weakest = _even(filled.rows > SUPPORT)
    for sweep in range(BURN_IN + THINNING * number):
        moves = counts + missed.drawn(rows, rng)
        # A given strength uses the prior of EM; else the prior is estimated again every few sweeps.
        if pooled_prior is None or (learns and sweep % LEARNED == 0):
            pooled_prior = estimate_prior(moves, possible) if learns else filled.pooled_prior
        total = moves + (pooled_prior.draw(rng) if pooled_prior.strength.any() else weakest)
        rows = Dirichlet(total).one(int(rng.integers(2**63)), 0)
        draw, odd = divmod(sweep - BURN_IN, THINNING)
        if draw >= 0:
            # Every sweep counts for the mean, though only some draws are stored: the conditional mean has less variance
            # than a draw.
            mean += _shares(total)
        if draw >= 0 and odd == THINNING - 1:
            draws[draw] = rows
        if progress is not None and sweep % 50 == 0:
            progress("drawing paths through missed steps", sweep / (BURN_IN + THINNING * number))
    estimate = mean / (THINNING * number) if filled.pooled_prior.strength.any() else filled.rows
    return Drawn(estimate, draws)
