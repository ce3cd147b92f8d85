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

and back again where likelihood and prior are lost by it, to leap less far the next time. The pooled prior
is estimated from moves of one step: expected moves are more alike than moves, and would reinforce themselves.

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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import NotConvergedError
from evenhand.fitting.hierarchical_dirichlet import PooledPrior, estimate_prior
from evenhand.fitting.posterior import Dirichlet, Drawn, shares
from evenhand.fitting.transition_counts import Gaps, Moves
from evenhand.typing import Bools, Floats, Progress

CLOSE, ROUNDS = 1e-9, 5_000
"""EM has converged if the estimated distance of each probability is below this; it fails after so many leaps."""

FAINT = 1e-200
"""Likelihoods of a gap below this are too near the smallest number there is."""

NUM_DRAWS, THINNING, BURN_IN = 400, 2, 60
"""Number of stored draws, sweeps per stored draw, and sweeps before the first."""


class Missed:
    """Gaps of two or more whole steps, and the actions that fill them."""

    def __init__(self, gaps: Gaps, num_fillers: int) -> None:
        """Index the gaps.

        Args:
            gaps: of 2 steps or more each.
            num_fillers: 1 if missed steps are idle; the number of actions if they carry the action on.
        """
        self.gaps, self.num_fillers = gaps, num_fillers
        self.steps = np.rint(gaps.time).astype(np.int64)
        self.filler = gaps.action if num_fillers > 1 else np.zeros_like(gaps.action)
        # Numbers of filling steps, their halves, the halves of these, down to 1: each is the product of two shorter.
        found, new = {1}, set((self.steps - 1).tolist())
        while new:
            found |= new
            new = {half for length in new for half in (length // 2, length - length // 2)} - found - {0}
        self.lengths = np.array(sorted(found), dtype=np.int64)
        halves = self.lengths // 2, self.lengths - self.lengths // 2
        lower, upper = (np.searchsorted(self.lengths, half).tolist() for half in halves)
        # Places of lengths above 1 and of their halves; lengths rise.
        self._halves = list(zip(range(1, len(lower)), lower[1:], upper[1:], strict=True))
        self._place = np.searchsorted(self.lengths, self.steps - 1)

    def powers(self, rows: Floats, product: Callable[[Floats, Floats], Floats] = np.matmul) -> Floats:
        """(length, type, filler, state, next_state) transitions of so many filling steps.

        Args:
            rows: (type, state, action, next_state) transitions.
            product: of two of them.
        """
        fill = np.ascontiguousarray(rows[:, :, : self.num_fillers].transpose(0, 2, 1, 3))
        size = 16.0 * len(self.lengths) * fill.size
        check_memory(size, f"gaps of up to {self.lengths[-1] + 1} steps", "Use fewer states, or a longer step.")
        found = np.empty((len(self.lengths), *fill.shape))
        found[0] = fill
        for place, lower, upper in self._halves:
            found[place] = product(found[lower], found[upper])
        return found

    def ways(self, rows: Floats, powers: Floats) -> tuple[Floats, Floats]:
        """(kind, next_state) weights of the ends of the first step, and the likelihood of the rest after each.

        Args:
            rows: (type, state, action, next_state) transitions.
            powers: of them.
        """
        gaps = self.gaps
        after = powers[self._place, gaps.type, self.filler, :, gaps.next_state]
        return rows[gaps.type, gaps.state, gaps.action] * after, after

    def likelihoods(self, rows: Floats) -> Floats:
        """(kind,) Z of each gap.

        Args:
            rows: (type, state, action, next_state) transitions.
        """
        return np.asarray(self.ways(rows, self.powers(rows))[0].sum(axis=-1))

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
        # A length is complete before it is passed down to its halves.
        for place, lower, upper in reversed(self._halves):
            by_power[lower] += by_power[place] @ powers[upper].swapaxes(-1, -2)
            by_power[upper] += powers[lower].swapaxes(-1, -2) @ by_power[place]
        by_rows[:, :, : self.num_fillers] += by_power[0].transpose(0, 2, 1, 3)
        return by_rows * rows, float(gaps.number @ np.log(total))

    def drawn(self, rows: Floats, rng: np.random.Generator) -> Floats:
        """(type, state, action, next_state) moves on drawn paths.

        Args:
            rows: (type, state, action, next_state) transitions.
            rng: random generator.
        """
        gaps, powers = self.gaps, self.powers(rows)
        moves = np.zeros_like(rows)
        # The end of the first step of each gap, given the end of the gap.
        first = rng.multinomial(gaps.number, shares(self.ways(rows, powers)[0]))
        np.add.at(moves, (gaps.type, gaps.state, gaps.action), first)
        # Stretches of one length with the same two ends are alike: their middles are drawn together.
        stretches = np.zeros(powers.shape, dtype=np.int64)
        np.add.at(stretches.swapaxes(-1, -2), (self._place, gaps.type, self.filler, gaps.next_state), first)
        for place, lower, upper in reversed(self._halves):
            kind, filler, state, end = np.nonzero(stretches[place])
            if len(kind):
                weights = powers[lower, kind, filler, state] * powers[upper, kind, filler, :, end]
                split = rng.multinomial(stretches[place][kind, filler, state, end], shares(weights))
                np.add.at(stretches[lower], (kind, filler, state), split)
                np.add.at(stretches[upper].swapaxes(-1, -2), (kind, filler, end), split)
        # Stretches of one step are moves.
        moves[:, :, : self.num_fillers] += stretches[0].transpose(0, 2, 1, 3)
        return moves


def log_likelihood(moves: Moves, transitions: Floats) -> float:
    """Log-likelihood of moves whose times are whole steps apart.

    Args:
        moves: transition counts.
        transitions: (type, state, action, next_state) probabilities; NaN in unknown rows.
    """
    seen, gaps = moves.counts > 0, moves.gaps
    with np.errstate(divide="ignore"):
        value = float(moves.counts[seen] @ np.log(transitions[seen]))
        if len(gaps.number):
            missed = Missed(gaps, transitions.shape[2] if moves.carry_action else 1)
            value += float(gaps.number @ np.log(missed.likelihoods(np.nan_to_num(transitions))))
    return value


def with_paths(missed: Missed, counts: Floats, possible: Bools) -> Bools:
    """(kind,) whether a gap has a path of possible transitions.

    Args:
        missed: the gaps.
        counts: (type, state, action, next_state) of one step; only their shape counts.
        possible: (state, action, next_state) possible transitions.
    """
    # Signs, not probabilities: those of a thousand steps may be below the smallest number there is.
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


@dataclass(frozen=True, eq=False)
class _Round:
    """A round of EM: rows before and after. The objective is the log posterior of the former, up to a constant."""

    rows: Floats
    after: Floats
    moves: Floats
    log_likelihood: float
    objective: float

    @property
    def step(self) -> Floats:
        return self.after - self.rows


def fill(missed: Missed, counts: Floats, possible: Bools, prior: float | None = None) -> Filled:
    """Estimate rows with the missing states summed out: EM in twos, each followed by a leap, undone if it loses.

    Args:
        missed: the gaps, each of which has a path.
        counts: (type, state, action, next_state) moves of one step.
        possible: (state, action, next_state) possible transitions.
        prior: strength of shrinkage towards the other types; estimated by default.

    Raises:
        NotConvergedError: EM does not converge, or cannot begin.
    """
    even, pooled_prior = shares(possible.astype(np.float64)), estimate_prior(counts, possible, prior)
    # (state, action, next_state) mean of the pseudo-counts c m.
    pull = ((pooled_prior.weight * pooled_prior.strength)[..., None] * pooled_prior.common).sum(axis=0)

    def rows_of(moves: Floats, prior: PooledPrior = pooled_prior) -> Floats:
        mean = prior.matched(moves).mean
        return np.where(np.isnan(mean), even, mean)

    def em_round(rows: Floats) -> _Round:
        with np.errstate(divide="ignore", invalid="ignore"):  # a leap too far, which is undone
            expected, value = missed.expected(rows)
        value += _weighted_logs(counts, rows)
        moves = counts + expected
        return _Round(rows, rows_of(moves), moves, value, value + _weighted_logs(pull, rows))

    begin = _within_reach(missed, rows_of(counts, estimate_prior(counts, possible, 1.0)), possible)
    first = em_round(rows_of(counts + missed.expected(begin)[0]))
    likelihoods: list[float] = []
    mark, still, reach = np.inf, 0, np.inf
    for _ in range(ROUNDS):
        second = em_round(first.after)
        likelihoods += [first.log_likelihood, second.log_likelihood]
        # Rounds in a row that gain nothing but rounding: the records are not informative on the rest.
        slack = 1e-12 * (1 + abs(second.objective))
        still = still + 1 if abs(second.objective - mark) <= slack else 0
        mark = mark if still else second.objective
        # Steps fall at a rate, and the remaining distance is the last step times rate / (1 - rate).
        change, before = float(np.abs(second.step).max()), float(np.abs(first.step).max())
        rate = min(change / before, 0.999) if before > 0 else 0.0
        if still == 20 or change * max(1.0, rate / (1 - rate)) < CLOSE:
            return Filled(second.after, second.moves, pooled_prior, tuple(likelihoods))
        bend = second.step - first.step
        # No farther than the last leap that won allows.
        length = min(max(1.0, float(np.sqrt((first.step**2).sum() / max((bend**2).sum(), 1e-300)))), reach)
        ahead = first.rows + 2 * length * first.step + length**2 * bend
        # Towards 0, but never there: EM could not return from it.
        leap = em_round(shares(np.maximum(ahead, 0.1 * second.after)))
        won = leap.objective >= second.objective - slack
        reach = max(reach, 4 * length) if won else max(length / 4, 1.0)
        first = leap if won else em_round(second.after)
    raise NotConvergedError(f"missed steps: EM still changes probabilities by {change:.1e} after {ROUNDS} leaps")


def _within_reach(missed: Missed, rows: Floats, possible: Bools) -> Floats:
    """Initial rows under which every gap has a representable probability.

    That of a long stay in a state that is left soon may underflow; rows then stay longer, if staying is possible.
    """
    stays = np.eye(rows.shape[1], dtype=bool)[:, None] & possible
    # A stay of all the steps then has a probability of about 1/e.
    share = np.where(stays.any(axis=-1, keepdims=True), 1.0 / missed.steps.max(initial=1), 1.0)
    for found in (rows, np.asarray(share * rows + (1 - share) * stays)):
        if missed.likelihoods(found).min(initial=1.0) > FAINT:
            return found
    raise NotConvergedError("missed steps: a gap is so long that none of its paths has a representable probability")


def _weighted_logs(weights: Floats, rows: Floats) -> float:
    weights = np.broadcast_to(weights, rows.shape)
    some = weights > 0
    return float(weights[some] @ np.log(rows[some]))


def draw_rows(
    missed: Missed,
    counts: Floats,
    possible: Bools,
    filled: Filled,
    rng: np.random.Generator,
    num_draws: int | None = None,
    progress: Progress | None = None,
) -> Drawn:
    """A sample from the posterior.

    Args:
        missed: the gaps.
        counts: (type, state, action, next_state) moves of one step.
        possible: (state, action, next_state) possible transitions.
        filled: from `fill`.
        rng: random generator.
        num_draws: number of draws; by default 400, or as many as fit into 200 MB, at least 100.
        progress: function of the current task and its completed share.
    """
    number = max(100, min(NUM_DRAWS, int(2e8 / (8 * counts.size)))) if num_draws is None else num_draws
    check_memory(8.0 * number * counts.size, f"{number} draws", "Use fewer states.")
    draws, mean, rows, pooled_prior = np.empty((number, *counts.shape)), np.zeros_like(filled.rows), filled.rows, None
    learns = len(filled.pooled_prior.strength) > 1  # a strength that is not given has a grid
    # The weakest prior: one observation over the transitions that the maximum has.
    weakest = shares((filled.rows > CLOSE).astype(np.float64))
    sweeps = BURN_IN + THINNING * number
    for sweep in range(sweeps):
        moves = counts + missed.drawn(rows, rng)
        # A given strength uses the prior of EM; else the prior is estimated again every few sweeps.
        if pooled_prior is None or (learns and sweep % 4 == 0):
            pooled_prior = estimate_prior(moves, possible) if learns else filled.pooled_prior
        total = moves + (pooled_prior.draw(rng) if pooled_prior.strength.any() else weakest)
        rows = Dirichlet(total).one(int(rng.integers(2**63)), 0)
        draw, odd = divmod(sweep - BURN_IN, THINNING)
        if draw >= 0:
            # Every sweep counts for the mean: the conditional mean has less variance than a draw.
            mean += shares(total)
        if draw >= 0 and odd == THINNING - 1:
            draws[draw] = rows
        if progress is not None and sweep % 50 == 0:
            progress("drawing paths through missed steps", sweep / sweeps)
    return Drawn(mean / (THINNING * number) if filled.pooled_prior.strength.any() else filled.rows, draws)
