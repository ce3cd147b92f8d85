"""Estimates of transition rows: pooled over types, with missing steps summed out."""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import as_generator
from evenhand.fitting.hierarchical_dirichlet import checked_prior, estimate_prior
from evenhand.fitting.missing_steps import Missed, draw_rows, fill
from evenhand.fitting.posterior import Drawn, Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.typing import Bools, Floats, Progress, Rng

HALF_A_VISIT = 0.5
"""Expected moves from which on a pair that is passed only in missing steps counts as observed."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """Estimated transition rows."""

    posterior: Posterior
    """Posterior of the rows; NaN in the mean of unknown rows."""

    seen: Floats
    """(type, state, action) moves that began there; expected ones if steps are missing."""

    lent: Bools
    """(type, state, action) rows without records of the type, estimated from the others."""

    share: Floats
    """(type, state, action) weight of the other types in a row, from 0 to 1."""


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
        prior: weight of the other types in observations; estimated by default, 0 for none.
        possible: (state, action, next_state) possible transitions; all by default.
        rng: a seed, or a generator; only missing steps need it.
        progress: function of the current task and its completed share.

    Raises:
        InvalidInputError: `prior` is not a number of observations.
    """
    counts = moves.counts.astype(np.float64)
    where = np.ones(counts.shape[1:], dtype=bool) if possible is None else possible
    if len(moves.gaps.number):
        return _across_gaps(moves, counts, where, prior, rng, progress)
    pooled_prior = estimate_prior(counts, where, prior)
    return _estimated(pooled_prior.given(counts), counts, pooled_prior.shares(counts), prior)


def _across_gaps(
    moves: Moves, counts: Floats, where: Bools, prior: float | None, rng: Rng, progress: Progress | None
) -> Estimated:
    missed = Missed(moves.gaps, counts.shape[2] if moves.carry_action else 1)
    filled = fill(missed, counts, where, prior)
    drawn = draw_rows(missed, counts, where, filled, as_generator(rng), prior, progress=progress)
    visits = filled.moves.sum(axis=-1)
    began = ~moves.unseen | (visits >= HALF_A_VISIT)
    known = began | (began.any(axis=0) & _pools(len(counts), prior))
    mean = np.where(known[..., None], drawn.mean, np.nan)
    draws = np.where(known[..., None], drawn.draws, np.nan)
    lent = known & moves.unseen & (visits < 1) & _pools(len(counts), prior)
    own = np.where((began & ~lent)[..., None], filled.moves, 0.0)
    if lent.any():  # as without gaps: the other types
        others = filled.pooled_prior.given(own)
        mean[lent], draws[:, lent] = others.mean[lent], others.draw(len(draws), rng)[:, lent]
    return _estimated(Drawn(mean, draws), own, filled.pooled_prior.shares(filled.moves), prior)


def _pools(num_types: int, prior: float | None) -> bool:
    return num_types > 1 and checked_prior(prior) != 0


def _estimated(posterior: Posterior, moves: Floats, shares: Floats, prior: float | None) -> Estimated:
    seen = moves.sum(axis=-1)
    lent = (seen == 0) & (seen > 0).any(axis=0) & _pools(len(seen), prior)
    return Estimated(posterior, seen, np.asarray(lent), shares)
