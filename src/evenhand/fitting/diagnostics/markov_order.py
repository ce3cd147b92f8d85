"""Markov order: chains of order 0, 1 and 2, scored on held-out arms.

All three condition on the type t and the action a. The chain of order 1 is the one that is fitted:

    order 0   p(s' | t, a)          order 1   p(s' | t, s, a)          order 2   p(s' | t, r, s, a)

r the state before s. Arms are dealt into folds; the steps of a fold are scored, log p, by chains counted on the others.
A chain that has more rows must not lose only because they are thin, so each is shrunk towards the one below it:

    p(s' | context) = (n[context, s'] + c p(s' | shorter context)) / (n[context] + c)

along  nothing → a → (t, a)  and  nothing → a → (s, a) → (t, s, a) → (t, r, s, a). The strength c of each level and fold
is the one of a grid under which the counts of the other folds are likeliest (Dirichlet-multinomial). So a state before
last without information gets a large c, and costs next to nothing.

The gain of one chain over another is a mean over steps; steps of an arm are not independent, so its error is that of
a ratio of sums over arms. It says how much is gained. Held-out scores are a weak test of order 1 against 2, so that is
decided by the likelihood ratio (Anderson and Goodman, 1957; see `tables`): contexts (t, s, a), groups r, outcomes s'.
"""

from dataclasses import dataclass, replace

import numpy as np

from evenhand.fitting.diagnostics.format import chance, with_error
from evenhand.fitting.diagnostics.homogeneity import LEVEL, HomogeneityTest, homogeneity
from evenhand.fitting.diagnostics.steps import UNKNOWN, Steps, coded, tally
from evenhand.typing import Array, Floats, Ints

FOLDS = 5
"""Number of folds of arms; at most the number of arms."""

STRENGTHS = 4.0 ** np.arange(-2, 9)
"""Grid of c."""

SURE = 2.0
"""Standard errors from which a gain is significant."""

DENSE = 2_000_000
"""Codes up to which a table of all of them is cheaper than to sort those that occur."""

MOST_CELLS = 10_000_000
"""Cells of a table of states before, contexts and next states, up to which order 2 is tested."""


@dataclass(frozen=True)
class Gain:
    """Predictive gain of the longer of two memories."""

    order: int
    """The longer memory: 1 against 0, or 2 against 1."""

    shorter: float
    """Held-out log-likelihood of the chain of shorter memory, nats per step."""

    longer: float
    """That of the chain of longer memory."""

    gain: float
    """Their difference."""

    stderr: float
    """Its standard error over arms."""

    steps: int
    """Number of scored steps."""

    arms: int
    """Number of their arms."""

    folds: int
    """Number of folds."""

    test: HomogeneityTest | None = None
    """Likelihood ratio of order 2 against 1; None for order 1, or if its table is too large."""

    @property
    def is_sure(self) -> bool:
        """Return whether the gain is significant: by the test, else by two standard errors."""
        if self.test is None or self.test.is_rough:
            return self.gain > SURE * self.stderr
        return self.test.adjusted < LEVEL

    @property
    def words(self) -> str:
        """A sentence."""
        figures = with_error(self.gain, self.stderr)
        if self.order == 1:
            said = "the state predicts" if self.is_sure else "the state does not visibly predict"
            return f"{said} the next state: {figures}, on arms left out of the fit"
        odds = "" if self.test is None or self.test.is_rough else f" ({chance(self.test.adjusted)})"
        if self.is_sure:
            return f"the state before last has predictive value, too: {figures}{odds}"
        return f"the state before last adds no visible predictive value: {figures}{odds}"


def gains(
    steps: Steps, sizes: tuple[int, int, int], rng: np.random.Generator
) -> tuple[dict[int, Gain], dict[str, str]]:
    """Order 1 against 0, and 2 against 1 on the steps whose state before is known; and why not, where that cannot be.

    Args:
        steps: what is scored.
        sizes: numbers of types, states and actions.
        rng: deals arms into folds.
    """
    found, left_out = {}, {}
    known = steps.where(steps.before != UNKNOWN)
    for order, scored, name in ((1, steps, "order 0"), (2, known, "order 2")):
        arms = scored.num_arms
        if arms < 2:
            few = "no arm has" if not arms else "only one arm has"
            rows = "two rows" if order == 1 else "three rows"
            left_out[name] = f"{few} {rows} one step apart, and a held-out score needs two arms"
        else:
            found[order] = _gain(order, scored, sizes, min(FOLDS, arms), rng)
    if 2 in found:
        found[2] = replace(found[2], test=_order_test(known, sizes, rng))
    return found, left_out


def _order_test(steps: Steps, sizes: tuple[int, int, int], rng: np.random.Generator) -> HomogeneityTest | None:
    """Test whether the next state depends on the state before last."""
    states = sizes[1]
    contexts, context, _ = numbered(coded([steps.type, steps.state, steps.action], sizes), int(np.prod(sizes)))
    shape = (states, len(contexts), states)
    if np.prod(shape, dtype=np.float64) > MOST_CELLS:
        return None
    return homogeneity(tally([steps.before, context, steps.next_state], shape), rng)


def _gain(order: int, steps: Steps, sizes: tuple[int, int, int], folds: int, rng: np.random.Generator) -> Gain:
    arm, arms = steps.arm_numbers, steps.num_arms
    fold_of_arm = np.empty(arms, dtype=np.int32)
    fold_of_arm[rng.permutation(arms)] = np.arange(arms) % folds
    alike = _alike(order, steps, sizes, fold_of_arm[arm], folds)
    shorter, longer = _scores(order, alike, sizes, folds)
    total = len(steps)
    gain = float((longer - shorter) @ alike.number / total)
    spread = np.bincount(arm, weights=(longer - shorter - gain)[alike.of_step], minlength=arms)
    stderr = float(np.sqrt((spread**2).sum() * arms / (arms - 1)) / total)
    held_out = float(shorter @ alike.number / total)
    return Gain(order, held_out, held_out + gain, gain, stderr, total, arms, folds)


@dataclass(frozen=True, eq=False)
class _StepKinds:
    """Distinct steps with their numbers: few, for any number of steps."""

    fold: Array
    before: Array
    type: Array
    state: Array
    action: Array
    next_state: Array
    number: Ints
    """(kind,) number of steps."""

    of_step: Array
    """(step,) its kind."""


def _alike(order: int, steps: Steps, sizes: tuple[int, int, int], fold: Array, folds: int) -> _StepKinds:
    """Return the kinds of steps; order 1 has a single state before."""
    types, states, actions = sizes
    shape = (folds, states if order == 2 else 1, types, states, actions, states)
    before = [steps.before] if order == 2 else []
    columns = [fold, *before, steps.type, steps.state, steps.action, steps.next_state]
    code = coded(columns, shape if before else (folds, *shape[2:]))
    kinds, of_step, number = numbered(code, int(np.prod(shape, dtype=np.float64)))
    fold_of, before_of, type_of, state_of, action_of, next_of = np.unravel_index(kinds, shape)
    return _StepKinds(fold_of, before_of, type_of, state_of, action_of, next_of, number, of_step)


def _scores(order: int, steps: _StepKinds, sizes: tuple[int, int, int], folds: int) -> tuple[Floats, Floats]:
    """(kind,) log-likelihoods by the chain of shorter memory, and by that of longer."""
    types, states, actions = sizes
    pairs = states * actions
    bare = _Ladder(steps, states, folds).level(steps.action, actions)
    pair = steps.state * actions + steps.action
    own = steps.type * pairs + pair
    first = bare.level(pair, pairs).level(own, types * pairs)
    if order == 1:
        return bare.level(steps.type * actions + steps.action, types * actions).scores(), first.scores()
    longer = steps.before * (types * pairs) + own
    return first.scores(), first.level(longer, states * types * pairs).scores()


class _Ladder:
    """A level of contexts with its predictions, one a fold and a cell: a context together with a next state."""

    def __init__(self, steps: _StepKinds, num_outcomes: int, folds: int) -> None:
        """The lowest level: nothing is known, and all next states are alike.

        Args:
            steps: what is counted and scored.
            num_outcomes: how many states there are.
            folds: how many there are.
        """
        self.steps, self.num_outcomes, self.folds = steps, num_outcomes, folds
        self.cell: Array = steps.next_state
        self.predicted: Floats = np.full((folds, num_outcomes), 1 / num_outcomes)

    def level(self, context: Array, num_contexts: int) -> "_Ladder":
        """The next level.

        Args:
            context: (kind,) what is known; finer than at this level.
            num_contexts: how many of them there may be.
        """
        above = _Ladder.__new__(_Ladder)
        vars(above).update(vars(self))
        if num_contexts * self.num_outcomes > DENSE:
            values, context, _ = numbered(context, num_contexts)
            num_contexts = len(values)
        above.cell, num_cells = context * self.num_outcomes + self.steps.next_state, num_contexts * self.num_outcomes
        below = np.zeros(num_cells, dtype=self.cell.dtype)
        below[above.cell] = self.cell  # every step of a cell is in the same cell one level below
        seen = above._outside(num_cells)
        totals = seen.reshape(self.folds, num_contexts, self.num_outcomes).sum(axis=2)
        base = self.predicted[:, below]
        above.predicted = np.empty(seen.shape)
        for f in range(self.folds):
            c = strength(seen[f], base[f], totals[f])
            above.predicted[f] = (seen[f] + c * base[f]) / (np.repeat(totals[f], self.num_outcomes) + c)
        return above

    def _outside(self, num_cells: int) -> Floats:
        """(fold, cell) how often each was seen outside the fold."""
        place, size = self.steps.fold * num_cells + self.cell, self.folds * num_cells
        within = np.bincount(place, weights=self.steps.number, minlength=size).reshape(self.folds, num_cells)
        return np.asarray(within.sum(axis=0) - within)

    def scores(self) -> Floats:
        """(kind,) its log-likelihood by what was counted on the other folds."""
        return np.asarray(np.log(self.predicted[self.steps.fold, self.cell]))


def numbered(code: Array, size: int) -> tuple[Ints, Array, Ints]:
    """Codes that occur, in their order; the place of each code among them; and how often each occurs.

    Args:
        code: from 0.
        size: how many there may be.
    """
    if size > DENSE:
        values, places, number = np.unique(code, return_inverse=True, return_counts=True)
        return values, places.reshape(-1), number
    number = np.bincount(code, minlength=size)
    values = np.flatnonzero(number)
    place_of = np.zeros(size, dtype=np.int32)
    place_of[values] = np.arange(len(values))
    return values, place_of[code], number[values]


def strength(seen: Floats, base: Floats, totals: Floats) -> float:
    """The c of the grid under which the counts are likeliest; of equal ones the largest, which adds least.

    Args:
        seen: (cell,) counts.
        base: (cell,) what is expected of each.
        totals: (row,) counts.
    """
    from scipy.special import gammaln

    some = seen > 0
    number, expected, rows = seen[some], base[some], totals[totals > 0]
    likelihoods = np.array(
        [
            (gammaln(c * expected + number) - gammaln(c * expected)).sum() + (gammaln(c) - gammaln(c + rows)).sum()
            for c in STRENGTHS
        ]
    )
    best = likelihoods.max()
    return float(STRENGTHS[np.flatnonzero(likelihoods >= best - 1e-9 * max(1.0, abs(best)))[-1]])
