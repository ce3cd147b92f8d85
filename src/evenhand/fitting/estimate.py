"""Estimates of transitions: pooled over types, with missing steps summed out; by generators if times are irregular."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import as_generator
from evenhand.display import counted
from evenhand.fitting.hierarchical_dirichlet import checked_prior, estimate_prior
from evenhand.fitting.log import Log
from evenhand.fitting.missing_steps import Missed, draw_rows, fill, log_likelihood
from evenhand.fitting.posterior import Drawn, Posterior
from evenhand.fitting.structural_zeros import refuse_contradictions
from evenhand.fitting.transition_counts import Moves
from evenhand.typing import Bools, Progress, Rng

if TYPE_CHECKING:
    from evenhand.fitting.covariates import Design
    from evenhand.fitting.ctmc.rates import Rates

HALF_A_VISIT = 0.5
"""Expected moves from which on a pair that is passed only in missing steps counts as observed."""


@dataclass(frozen=True, eq=False)
class Estimated:
    """Estimated transitions."""

    posterior: Posterior
    """Posterior of the transitions; NaN in the mean of unknown rows."""

    log_likelihood: float
    """Of the records under the mean."""

    notes: tuple[str, ...]
    """Remarks on the estimates."""

    passed: Bools
    """(type, state, action) pairs without a row that are estimated from the times between rows."""

    rates: "Rates | None" = None
    """Rates of jumps, if times are irregular."""


def estimate(
    log: Log,
    moves: Moves,
    possible: Bools,
    entered: tuple[int, ...] = (),
    prior: float | None = None,
    rng: Rng = 0,
    progress: Progress | None = None,
    strata: "Design | None" = None,
) -> Estimated:
    """Estimate the transitions of every type.

    Args:
        log: the records.
        moves: their transition counts.
        possible: (state, action, next_state) possible transitions.
        entered: states whose every entry is a row at its very time, if times are irregular.
        prior: weight of the other types in observations; estimated by default, 0 for none.
        rng: a seed, or a generator; only missing steps and irregular times need it.
        progress: function of the current task and its completed share.
        strata: types and covariates, if rates have covariates.

    Raises:
        TableError: the records contradict the structural zeros; with every fault.
        InvalidInputError: `prior` is not a number of observations.
    """
    if not log.regular:
        from evenhand.fitting.ctmc import fit_generators, generator_notes, named_rates  # only irregular times need it

        more: dict[str, Any] = {"strata": strata, "cuts": log.cuts, "progress": progress}
        found = fit_generators(moves, log.step, entered, possible, prior, rng, **more)
        rates = named_rates(found, log, strata)
        return Estimated(found, found.log_likelihood, generator_notes(found, log), found.passed, rates)
    refuse_contradictions(log, possible, moves.carry_action)
    own = moves.counts.astype(np.float64)
    pools = len(own) > 1 and checked_prior(prior) != 0
    posterior: Posterior
    if not len(moves.gaps.number):
        posterior = estimate_prior(own, possible, prior).given(own)
    else:
        missed = Missed(moves.gaps, own.shape[2] if moves.carry_action else 1)
        filled = fill(missed, own, possible, prior)
        drawn = draw_rows(missed, own, possible, filled, as_generator(rng), progress=progress)
        visits = filled.moves.sum(axis=-1)
        began = ~moves.unseen | (visits >= HALF_A_VISIT)
        known = began | (began.any(axis=0) & pools)
        mean, draws = (np.where(known[..., None], rows, np.nan) for rows in (drawn.mean, drawn.draws))
        borrowed = known & moves.unseen & (visits < 1) & pools
        own = np.where((began & ~borrowed)[..., None], filled.moves, 0.0)
        if borrowed.any():  # as without gaps: the other types
            others = filled.pooled_prior.given(own)
            mean[borrowed], draws[:, borrowed] = others.mean[borrowed], others.draw(len(draws), rng)[:, borrowed]
        posterior = Drawn(mean, draws)
    seen = own.sum(axis=-1) > 0
    borrowed = ~seen & seen.any(axis=0) & pools
    notes: tuple[str, ...] = ()
    if number := int(borrowed.sum()):
        named = "; ".join(log.pair_names(borrowed, 5))
        notes = (f"{counted(number, 'pair')} without records of the type, estimated from the others: {named}",)
    return Estimated(posterior, log_likelihood(moves, posterior.mean), notes, moves.unseen & seen)
