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
from evenhand.fitting.diagnostics.steps import UNKNOWN, Steps, tally
from evenhand.typing import Array, Floats, Ints

FOLDS = 5
"""Number of folds of arms; at most the number of arms."""

STRENGTHS: Floats = 4.0 ** np.arange(-2.0, 9.0)
"""Grid of c."""

SURE = 2.0
"""Standard errors from which a gain is significant."""

DENSE = 2_000_000
"""Codes up to which a table of all of them is cheaper than to sort those that occur."""

MOST_CELLS = 10_000_000
"""Cells of the table of all five variables up to which order 2 is tested."""


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
    steps: Steps, sizes: tuple[int, int, int], rng: np.random.Generator, strengths: Floats = STRENGTHS
) -> tuple[dict[int, Gain], dict[str, str]]:
    """Order 1 against 0, and 2 against 1 on the steps whose state before is known; and reasons why not.

    Args:
        steps: what is scored.
        sizes: numbers of types, states and actions.
        rng: deals arms into folds.
        strengths: grid of c.
    """
    found, left_out = {}, {}
    known = steps.where(steps.before != UNKNOWN)
    for order, scored, rows in ((1, steps, "two rows"), (2, known, "three rows")):
        if not len(scored) or scored.arm[0] == scored.arm[-1]:
            few = "only one arm has" if len(scored) else "no arm has"
            left_out[f"order {2 * order - 2}"] = f"{few} {rows} one step apart, and a held-out score needs two arms"
        else:
            found[order] = _gain(order, scored, sizes, strengths, rng)
    if 2 in found:
        found[2] = replace(found[2], test=_order_test(known, sizes, rng))
    return found, left_out


def _order_test(steps: Steps, sizes: tuple[int, int, int], rng: np.random.Generator) -> HomogeneityTest | None:
    """Test whether the next state depends on the state before last."""
    shape = (sizes[1], *sizes, sizes[1])
    if np.prod(shape, dtype=np.float64) > MOST_CELLS:
        return None
    counts = tally([steps.before, steps.type, steps.state, steps.action, steps.next_state], shape)
    return homogeneity(counts.reshape(sizes[1], -1, sizes[1]), rng)


def _gain(order: int, steps: Steps, sizes: tuple[int, int, int], strengths: Floats, rng: np.random.Generator) -> Gain:
    types, states, actions = sizes
    # Arms with a step, numbered from 0; steps are in the order of arms.
    arm, total = np.cumsum(np.diff(steps.arm, prepend=steps.arm[:1]) != 0), len(steps)
    arms = int(arm[-1]) + 1
    folds = min(FOLDS, arms)
    fold_of_arm = np.empty(arms, dtype=np.int32)
    fold_of_arm[rng.permutation(arms)] = np.arange(arms) % folds
    # Distinct steps, the kinds, are few for any number of steps; order 1 has a single state before.
    shape = (folds, *[states] * (order == 2), types, states, actions, states)
    columns = [fold_of_arm[arm], *[steps.before] * (order == 2), steps.type, steps.state, steps.action]
    code = np.ravel_multi_index([*columns, steps.next_state], shape)
    codes, kind_of_step, number = numbered(code, int(np.prod(shape, dtype=np.float64)))
    fold, *before, kind, state, action, next_state = np.unravel_index(codes, shape)
    # At the lowest level all next states are alike.
    even = np.full((folds, states), 1 / states)
    bare = _Level(fold, next_state, number, strengths, next_state, even).finer(action)
    own = (kind * states + state) * actions + action
    shorter = longer = bare.finer(state * actions + action).finer(own)
    if order == 1:
        shorter = bare.finer(kind * actions + action)
    else:
        longer = longer.finer(before[0] * (types * states * actions) + own)
    scores, gained = shorter.scores(), longer.scores() - shorter.scores()
    gain, held_out = float(gained @ number / total), float(scores @ number / total)
    spread = np.bincount(arm, weights=(gained - gain)[kind_of_step], minlength=arms)
    stderr = float(np.sqrt((spread**2).sum() * arms / (arms - 1)) / total)
    return Gain(order, held_out, held_out + gain, gain, stderr, total, arms, folds)


@dataclass(frozen=True, eq=False)
class _Level:
    """Predictions at one level of contexts, per fold and cell: a context together with a next state."""

    fold: Array
    """(kind,) of the steps."""

    next_state: Array
    """(kind,) outcomes."""

    number: Ints
    """(kind,) numbers of steps."""

    strengths: Floats
    """Grid of c."""

    cell: Array
    """(kind,) context and outcome; the outcome alone at the lowest level."""

    predicted: Floats
    """(fold, cell) probabilities."""

    def finer(self, context: Array) -> "_Level":
        """The next level.

        Args:
            context: (kind,) codes of the known variables; finer than at this level.
        """
        folds, outcomes = len(self.predicted), int(self.next_state.max()) + 1
        contexts, context = np.unique(context, return_inverse=True)
        cell, num_cells = context * outcomes + self.next_state, len(contexts) * outcomes
        below = np.zeros(num_cells, dtype=self.cell.dtype)
        below[cell] = self.cell  # every step of a cell is in the same cell one level below
        # (fold, cell) numbers outside the fold.
        within = np.bincount(self.fold * num_cells + cell, self.number, folds * num_cells).reshape(folds, num_cells)
        seen = within.sum(axis=0) - within
        totals = seen.reshape(folds, len(contexts), outcomes).sum(axis=2)
        base, predicted = self.predicted[:, below], np.empty(seen.shape)
        for f in range(folds):
            c = strength(seen[f], base[f], totals[f], self.strengths)
            predicted[f] = (seen[f] + c * base[f]) / (np.repeat(totals[f], outcomes) + c)
        return replace(self, cell=cell, predicted=predicted)

    def scores(self) -> Floats:
        """(kind,) log-likelihood by counts on the other folds."""
        return np.asarray(np.log(self.predicted[self.fold, self.cell]))


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


def strength(seen: Floats, base: Floats, totals: Floats, strengths: Floats) -> float:
    """The c of the grid under which the counts are likeliest; of equal ones the largest, which adds least.

    Args:
        seen: (cell,) counts.
        base: (cell,) what is expected of each.
        totals: (row,) counts.
        strengths: the grid.
    """
    from scipy.special import gammaln

    some = seen > 0
    number, expected, rows = seen[some], base[some], totals[totals > 0]
    likelihoods = np.array([
        (gammaln(c * expected + number) - gammaln(c * expected)).sum() + (gammaln(c) - gammaln(c + rows)).sum()
        for c in strengths
    ])  # fmt: skip
    best = likelihoods.max()
    return float(strengths[np.flatnonzero(likelihoods >= best - 1e-9 * max(1.0, abs(best)))[-1]])
