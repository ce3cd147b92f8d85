"""Rows of transitions from moves: pooled over types, with missed steps summed out where there are any."""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import as_generator
from evenhand.fitting.hierarchical_dirichlet import checked_prior, learned
from evenhand.fitting.missing_steps import Missed, draw_rows, fill
from evenhand.fitting.posterior import Drawn, Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.typing import Bools, Floats, Progress, Rng

HALF_A_VISIT = 0.5
"""Expected moves from which on a pair that is passed only in missed steps counts as seen."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """What moves say of transitions."""

    posterior: Posterior
    """Of the rows; NaN in its mean where nothing is known."""

    seen: Floats
    """(type, state, action) moves that began there; expected ones where steps were missed."""

    lent: Bools
    """(type, state, action) rows that nothing of their own type was seen of: they are the other types'."""

    share: Floats
    """(type, state, action) how much of a row is the other types', from 0 to 1."""


def estimate(
    moves: Moves,
    prior: float | None = None,
    possible: Bools | None = None,
    rng: Rng = 0,
    progress: Progress | None = None,
) -> Estimated:
    """Estimate the transitions of every type.

    Args:
        moves: of one step, and over gaps of whole steps.
        prior: how many observations the other types are worth; found by the moves when absent, 0 for none.
        possible: (state, action, next_state) transitions that can be; all when absent.
        rng: a seed, or a generator; only missed steps need it.
        progress: told how far it is.

    Raises:
        InvalidInput: `prior` is no number of observations.
    """
    counts = moves.counts.astype(np.float64)
    where = np.ones(counts.shape[1:], dtype=bool) if possible is None else possible
    if len(moves.gaps.number):
        return _across_gaps(moves, counts, where, prior, rng, progress)
    leaning = learned(counts, where, prior)
    return _told(leaning.given(counts), counts, leaning.shares(counts), prior)


def _across_gaps(
    moves: Moves, counts: Floats, where: Bools, prior: float | None, rng: Rng, progress: Progress | None
) -> Estimated:
    missed = Missed(moves.gaps, counts.shape[2] if moves.carry_action else 1)
    filled = fill(missed, counts, where, prior)
    drawn = draw_rows(missed, counts, where, filled, as_generator(rng), prior, progress=progress)
    visits = filled.moves.sum(axis=-1)
    began = ~moves.unseen | (visits >= HALF_A_VISIT)
    known = began | (began.any(axis=0) & _leans(len(counts), prior))
    mean = np.where(known[..., None], drawn.mean, np.nan)
    draws = np.where(known[..., None], drawn.draws, np.nan)
    lent = known & moves.unseen & (visits < 1) & _leans(len(counts), prior)
    own = np.where((began & ~lent)[..., None], filled.moves, 0.0)
    if lent.any():  # as without gaps: what the other types do
        others = filled.leaning.given(own)
        mean[lent], draws[:, lent] = others.mean[lent], others.draw(len(draws), rng)[:, lent]
    return _told(Drawn(mean, draws), own, filled.leaning.shares(filled.moves), prior)


def _leans(num_types: int, prior: float | None) -> bool:
    return num_types > 1 and checked_prior(prior) != 0


def _told(posterior: Posterior, moves: Floats, shares: Floats, prior: float | None) -> Estimated:
    seen = moves.sum(axis=-1)
    lent = (seen == 0) & (seen > 0).any(axis=0) & _leans(len(seen), prior)
    return Estimated(posterior, seen, np.asarray(lent), shares)
