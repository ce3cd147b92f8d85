"""The weighted-sum optimum of a tabular MDP, with bounds, under every criterion.

    (T v)(x) = max_u [ w.r(x, u) + factor sum_x' P(x' | x, u) v(x') ]

discounted   Modified policy iteration: each round improves the policy once and then applies its operator a few times.
average      The same, with relative values and damped steps v + tau (T v - v): they are those of the chain that stays
             where it is with probability 1 - tau, which has the same gains and no periods (Puterman, 8.5.4).
finite:T     Backward induction: v_t = T v_(t+1), v_T = 0, one sweep a step, exact but for rounding.

With d = T v - v every round ends with a lower and an upper bound on the optimum (`criterion.bracket`). Under `average`
the smallest and largest d are taken over the states that can be reached from the initial distribution, which no policy
leaves. There the bounds always hold, but they meet only if the best mean does not depend on where the arms start.

The kernel is applied once a sweep, to outcomes, not to pairs. O(rounds * (kernel entries + pairs)).

Slow chains, and discounts next to 1, leave values that are much larger than rewards: sweeps take for ever, and the
digits of T v - v are lost. So where bounds do not close in a few rounds and states are few, policy iteration takes over
(Howard; Puterman, 9.2, for several closed classes). Policies are evaluated by elimination without subtractions
(`closed_classes`), T v - v is computed from differences along transitions,

    (T v - v)(x) = max_u [ w.r(x, u) + factor sum_x' P(x' | x, u) (v(x') - v(x)) - (1 - factor) v(x) ],

whose rounding is relative to P |v(x') - v(x)|, not to v, and v is a sum of vectors, each a correction of those before.
Choices: of pairs that are equally good but for rounding the first is taken, so that they do not hang on a last bit.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import sparse

from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.closed_classes import Elimination, one_long_run
from evenhand.typing import Floats, Ints

SWEEPS = 20
"""Applications of a policy's own operator before it is improved again."""

DAMPING = 0.8
"""tau: how far an average iterate goes towards its improvement."""

PATIENCE, STALLED = 400, 0.999
"""Rounds after which an average must have come closer, by this factor at the least."""

EPSILON = float(np.finfo(float).eps)

CLOSEST = 2.5e-14
"""A share of the largest value that counts as rounding in any case."""

TINY = float(np.finfo(float).tiny)
"""Numbers below this lose their digits: smaller differences count as none, whatever the tolerance."""

ROUNDS_BEFORE, STATES_UP_TO, ENTRIES_UP_TO = 12, 2000, 1e7
"""Rounds of sweeps before policy iteration takes over, and states and transitions up to which it does."""

MEANS = 1e-12
"""Long-run means that differ by less, relative to the largest reward, are the same."""

MOST_POLICIES, CORRECTIONS = 200, 3
"""Policies that are improved at the most, and vectors that a value function is the sum of."""


@dataclass(frozen=True)
class Optimum:
    """The best policy for one weighted sum of the objectives."""

    choices: Ints
    """(state,) the chosen pair of each state; (step, state) where there is a number of steps."""

    lower_bound: float
    """Lower bound on the optimum from the initial distribution ..."""

    upper_bound: float
    """... and at most this."""

    value_function: Floats
    """(state,) the last iterate, from which another solve may start; (step, state) where there is a number of steps."""

    rounding: float
    """Rounding error of each bound: they come no closer than a few times this, whatever the tolerance."""


def solve_weighted(
    mdp: TabularMDP,
    weights: Floats,
    tolerance: float = 1e-10,
    start: Floats | None = None,
    most_rounds: int = 10_000,
) -> Optimum:
    """Maximise a weighted sum of the objectives.

    Args:
        mdp: the problem.
        weights: (objective,) weights.
        tolerance: how far apart the bounds may be at the end, relative to the upper one, unless rounding leaves them
            further apart: callers must check them.
        start: (state,) a first guess of the value function; of no use where there is a number of steps.
        most_rounds: when to give up (NotConvergedError).
    """
    rewards = mdp.rewards @ weights
    if not mdp.criterion.is_stationary:
        return _backwards(mdp, rewards)
    return _iterate(mdp, rewards, tolerance, np.zeros(mdp.num_states) if start is None else start, most_rounds)


# -- modified policy iteration ----------------------------------------------------------------------------------------


def _iterate(mdp: TabularMDP, rewards: Floats, tolerance: float, value: Floats, most_rounds: int) -> Optimum:
    contracts, total, small = mdp.criterion.contracts, mdp.criterion.total, _is_small(mdp)
    # No policy leaves the reachable states, so bounds on an average over these alone are bounds.
    inside = np.ones(mdp.num_states, dtype=np.bool_) if contracts else mdp.reachable
    # The damped chain has the same gains and no periods.
    damping = 1.0 if contracts else DAMPING
    largest = float(np.abs(rewards).max(initial=0.0)) * total
    least, before = max(CLOSEST * largest, TINY), np.inf
    if contracts:
        value = np.clip(value, -largest, largest)  # a guess from larger weights would lose more digits than the slack
    for number in range(most_rounds):
        # The bounds hold for any value function, and a constant in it does nothing to them but cost digits.
        value = value - value[inside].mean()
        pair_values, improved = _improve(mdp, rewards, value)
        change = (improved - value)[inside]
        # Rounding of T v and of ties. Relative values may be much larger than rewards, and then rounding is too.
        scale = largest if contracts else largest + float(np.abs(value).max())
        slack = 12 * EPSILON * scale * total
        bounds = mdp.criterion.bracket(float(mdp.initial @ improved), float(change.min()), float(change.max()))
        low, high = bounds[0] - slack, bounds[1] + slack
        choices, rounding = _first_best(mdp, pair_values, improved, EPSILON * scale), max(least, slack)
        if high - low <= max(tolerance * abs(high), 4 * (least if small else rounding)):
            # The middle of the bracket: where another solve had better start.
            return Optimum(choices, low, high, improved + mdp.criterion.factor * total * change.mean(), rounding)
        if small and number >= ROUNDS_BEFORE:
            return _policy_iteration(mdp, rewards, tolerance, choices)
        # Bounds on an average that hardly come closer in so many rounds tend to different limits.
        if not contracts and number % PATIENCE == PATIENCE - 1:
            if high - low > STALLED * before:
                _refuse(mdp, high - low)
            before = high - low
        value = _sweep(mdp, rewards, choices, value + damping * (improved - value), damping)
    raise NotConvergedError(f"the bounds are still {high - low:.3g} apart after {most_rounds} rounds")


def _refuse(mdp: TabularMDP, gap: float) -> NoReturn:
    """Raise what the bounds on an average that do not meet are a sign of."""
    if one_long_run(mdp):
        raise NotConvergedError(
            f"the bounds are still {gap:.3g} apart: the arms take very long to forget where they were"
        )
    raise NotApplicableError(start_matters(gap))


def start_matters(apart: float) -> str:
    """Words for a problem whose best long-run mean is not the same from everywhere."""
    return (
        f"the best long-run mean depends on where the arms start (its bounds stay {apart:.3g} apart), "
        "and the criterion average is for problems where it does not. Use finite:T, or discounted with a discount "
        "near 1."
    )


# -- policy iteration, if values are much larger than rewards ----------------------------------------------------------


def _is_small(mdp: TabularMDP) -> bool:
    """Return whether policies can be evaluated by elimination, and the transitions of all outcomes be written out."""
    if mdp.num_states > STATES_UP_TO:
        return False
    if isinstance(mdp.kernel, sparse.csr_array):
        return bool(mdp.kernel.nnz <= ENTRIES_UP_TO)
    return mdp.num_transitions <= 0.5 * ENTRIES_UP_TO  # what is not yet written out takes more memory on the way


class _Differences:
    """P v - v by pairs, from the differences of v along transitions (see the file's head).

    With m the likeliest next state of an outcome, P v - v = sum P (v(x') - v(m)) + v(m) - v(x): the outcome is summed
    once for all its pairs, and of slow chains m is x.
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        written = isinstance(mdp.kernel, sparse.csr_array)
        kernel: Any = mdp.kernel
        self.rows: Any = kernel if written else mdp.transitions
        self.row_of_pair = mdp.outcomes if written else np.arange(mdp.num_pairs)
        lengths, data = np.diff(self.rows.indptr), self.rows.data
        self.unit = (int(lengths.max()) + 16) * EPSILON
        # The likeliest next state of each row, the first of equals.
        best = np.repeat(np.maximum.reduceat(data, self.rows.indptr[:-1]), lengths)
        places = np.where(data == best, np.arange(len(data)), len(data))
        self.likeliest = self.rows.indices[np.minimum.reduceat(places, self.rows.indptr[:-1])].astype(np.int64)
        self.middle = np.repeat(self.likeliest, lengths)

    def _by_pairs(self, value: Floats) -> tuple[Floats, Floats, Floats]:
        """(pair,) P v - v in two summands, and the chance of other states than the likeliest."""
        data, states = self.rows.data, self.rows.indices
        moved = data * (value[states] - value[self.middle])
        parts = (moved, np.abs(moved), np.where(states == self.middle, 0.0, data))
        sums, size, away = (np.add.reduceat(part, self.rows.indptr[:-1])[self.row_of_pair] for part in parts)
        led = value[self.likeliest[self.row_of_pair]] - value[self.mdp.state_of_pair]
        return sums + led, size + np.abs(led), np.where(led == 0, away, 1.0)

    def __call__(self, value: Floats) -> tuple[Floats, Floats]:
        """(pair,) factor P v - v, and how far rounding may have put it off."""
        factor = self.mdp.criterion.factor
        moved, size, _ = self._by_pairs(value)
        here = (1 - factor) * value[self.mdp.state_of_pair]
        return factor * moved - here, self.unit * (factor * size + np.abs(here))

    def gained(self, means: Floats) -> Floats:
        """(pair,) by how much the mean after a pair differs from that of its state, per move away from it."""
        moved, _, away = self._by_pairs(means)
        return np.asarray(moved / np.where(away > 0, away, 1.0))

    def chain(self, choices: Ints) -> Floats:
        """(state, next_state) the transition matrix of a policy."""
        return np.asarray(self.rows[self.row_of_pair[choices]].toarray())


class _Evaluated(NamedTuple):
    """One policy."""

    means: Floats
    """(state,) its long-run mean from each state; 0 where values are discounted."""

    value: Floats
    """(state,) its value, or its bias."""

    excess: Floats
    """(pair,) w.r + factor P v - v, less the mean of the state."""

    noise: Floats
    """(pair,) how far rounding may have put the excess off."""


def _evaluate(mdp: TabularMDP, rewards: Floats, choices: Ints, differences: _Differences) -> _Evaluated:
    """Evaluate a policy by elimination, and correct what rounding left."""
    chain = Elimination(differences.chain(choices), mdp.criterion.factor)
    contracts = mdp.criterion.contracts
    means = np.zeros(mdp.num_states) if contracts else chain.means(rewards[choices])
    # Without the mean, which is much larger, corrections are not lost in sums with it.
    excess = rewards - means[mdp.state_of_pair]
    value, noise = np.zeros(mdp.num_states), 4 * EPSILON * (np.abs(rewards) + np.abs(means[mdp.state_of_pair]))
    for _ in range(CORRECTIONS):
        own = excess[choices]
        own = own if contracts else own - chain.means(own)
        if value.any() and (np.abs(own) <= noise[choices]).all():
            break
        part = chain.biases(own)
        moved, error = differences(part)
        value, excess, noise = value + part, excess + moved, noise + error
    return _Evaluated(means, value, excess, noise)


def _policy_iteration(mdp: TabularMDP, rewards: Floats, tolerance: float, choices: Ints) -> Optimum:
    """Howard's policy iteration, with the mean before the bias if a policy has several closed classes."""
    differences = _Differences(mdp)
    largest = float(np.abs(rewards).max(initial=0.0))
    rounding = max(CLOSEST * largest * mdp.criterion.total, TINY)
    for _ in range(MOST_POLICIES):
        found = _evaluate(mdp, rewards, choices, differences)
        low, high = _bounds(mdp, found, choices)
        following = _improved(mdp, found, choices, differences, MEANS * largest)
        close, ended = high - low <= max(tolerance * abs(high), 4 * rounding), (following == choices).all()
        if ended and not close and not mdp.criterion.contracts:
            spread = float(np.ptp(found.means[mdp.reachable]))
            if spread > 0.5 * (high - low):
                _refuse(mdp, spread)
        # Policies that rounding cannot distinguish leave bounds as close as it allows.
        if close or ended:
            return Optimum(choices, low, high, found.value, rounding)
        choices = following
    raise NotConvergedError(f"the bounds are still {high - low:.3g} apart after {MOST_POLICIES} policies")


def _bounds(mdp: TabularMDP, found: _Evaluated, choices: Ints) -> tuple[float, float]:
    """Return a lower bound on the policy, by its own pairs, and an upper bound on all, by all pairs."""
    # No policy leaves the reachable states, so of an average these alone count.
    inside = np.ones(mdp.num_states, dtype=np.bool_) if mdp.criterion.contracts else mdp.reachable
    mean, total = float(found.means[inside].mean()), mdp.criterion.total
    change = found.excess + (found.means - mean)[mdp.state_of_pair]
    least = float((change - found.noise)[choices[inside]].min())
    most = float((change + found.noise)[inside[mdp.state_of_pair]].max())
    # v is within a rounding of what the excess was computed from. T v is at least v + least, and at most v + most.
    now, size = mean, abs(mean)
    if mdp.criterion.contracts:
        now, size = float(mdp.initial @ found.value), float(mdp.initial @ np.abs(found.value))
    slack = 4 * EPSILON * size
    return now + least * total - slack, now + most * total + slack


def _improved(mdp: TabularMDP, found: _Evaluated, choices: Ints, differences: _Differences, tie: float) -> Ints:
    """(state,) better pairs where there are any: by their means, and if there are none, by their biases."""
    allowed = np.ones(mdp.num_pairs, dtype=np.bool_)
    if np.ptp(found.means) > tie:
        gained = differences.gained(found.means)
        best = _best_of(mdp, gained)
        better = gained[best] > gained[choices] + tie
        if better.any():
            return np.where(better, best, choices)
        allowed = gained >= -tie
    best = _best_of(mdp, np.where(allowed, found.excess, -np.inf))
    surely = found.excess[best] - found.noise[best] > found.excess[choices] + found.noise[choices]
    return np.where(surely & allowed[best], best, choices)


def _best_of(mdp: TabularMDP, pair_values: Floats) -> Ints:
    """(state,) the first pair of the largest value."""
    return _first_best(mdp, pair_values, np.maximum.reduceat(pair_values, mdp.offsets[:-1]), 0.0)


# -- a number of steps ------------------------------------------------------------------------------------------------


def _backwards(mdp: TabularMDP, rewards: Floats) -> Optimum:
    steps = mdp.criterion.num_layers
    values = np.zeros((steps + 1, mdp.num_states))
    choices = np.zeros((steps, mdp.num_states), dtype=np.int64)
    largest = float(np.abs(rewards).max(initial=0.0)) * mdp.criterion.total
    for step in reversed(range(steps)):
        pair_values, values[step] = _improve(mdp, rewards, values[step + 1])
        choices[step] = _first_best(mdp, pair_values, values[step], EPSILON * largest)
    now = float(mdp.initial @ values[0])
    # The errors of all steps add up.
    slack = 16 * EPSILON * largest * steps
    return Optimum(choices, now - slack, now + slack, values[:-1], slack)


# -- one application of an operator -----------------------------------------------------------------------------------


def _improve(mdp: TabularMDP, rewards: Floats, value: Floats) -> tuple[Floats, Floats]:
    """(pair,) the value of each pair, and (state,) the best of each state."""
    pair_values = rewards + mdp.criterion.factor * (mdp.kernel @ value)[mdp.outcomes]
    return pair_values, np.maximum.reduceat(pair_values, mdp.offsets[:-1])


def _first_best(mdp: TabularMDP, pair_values: Floats, best: Floats, unit: float) -> Ints:
    """(state,) the first pair that attains the maximum, but for a few roundings of size `unit`."""
    pairs = np.arange(mdp.num_pairs)
    enough = pair_values >= np.repeat(best - 4 * unit, np.diff(mdp.offsets))
    return np.asarray(np.minimum.reduceat(np.where(enough, pairs, mdp.num_pairs), mdp.offsets[:-1]))


def _sweep(mdp: TabularMDP, rewards: Floats, choices: Ints, value: Floats, damping: float = 1.0) -> Floats:
    """Apply the operator of one policy a few times, each time as far as the damping goes."""
    own, outcomes = rewards[choices], mdp.outcomes[choices]
    rows = mdp.kernel[outcomes] if sparse.issparse(mdp.kernel) else None
    for _ in range(SWEEPS):
        expected = rows @ value if rows is not None else (mdp.kernel @ value)[outcomes]
        following = own + mdp.criterion.factor * expected
        value = following if damping == 1 else value + damping * (following - value)
    return value
