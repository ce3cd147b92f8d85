"""Whittle indices of two-action arms, with a verdict on indexability.

    V_c(s) = max_{a in {0, 1}} [ r(s, a) - c a + gamma sum_s' P(s' | s, a) V_c(s') ]

The charge c is paid for each step of activity; a subsidy for passivity is the same. An arm is *indexable* if a state in
which passive (0) is optimal at some charge has it optimal at every higher charge. The index of a state is then the
least charge at which passive is optimal: up to it active is optimal, from it on passive, and there both are equally
good. Where both stay equally good for a range of charges, the index is its lower end.

The same under the other criteria. `finite:T`: V has the step as an argument, the charge is the same at all remaining
steps, and each step has indices of its own (`kernels.whittle_layers`, O(T^2 S^3) an arm). `average`: with the mean g
and the bias h,

    g(c) + h_c(s) = max_{a in {0, 1}} [ r(s, a) - c a + sum_s' P(s' | s, a) h_c(s') ].

An arm for which every policy on the path has a single closed class of states solves this equation at every charge,
and, but for finitely many charges, by one h only (up to a constant): advantages are strict there, so every policy with
the best mean plays the same actions in the states that it does not leave for ever (Schweitzer and Federgruen, "The
functional equations of undiscounted Markov renewal programming", 1978). So the advantages are the limits of the
discounted ones, and the indices the limits of the discounted indices where these cross 0 at one charge. Where a policy
on the path, or tied with one over a range of charges by a single switch, has several closed classes, the sweep does not
pass. If that happens at single charges only, the indices are found piece by piece (below); else the mean depends on the
start and limits may be infinite: that arm is refused, with the states (`solvers.closed_classes`).

The optimal policy is followed through *all* charges (`kernels.whittle_pivots`): each of the finitely many policies
is optimal between two neighbouring charges, by the signs of all advantages at both, and advantages are linear between.
Indexability is read off this complete list. So the verdict is proved for the numbers of the arm as doubles compute
them: a state that returns to active with an advantage below TIE = 1e-12, relative to the largest that rewards could
make, counts as tied (finite horizons: and below the bound on rounding, which grows with T). Passive is a state only
with an advantage of 0 but for rounding. If the arm is not indexable, a state and two charges are the witnesses. O(S^3)
an indexable arm.

An average by pieces. A machine that may be left broken for ever: up to some charge it is best to mend it again and
again, beyond it never. At that charge both means are equal, a policy that does each from some states is optimal too,
and biases jump. On both sides the optimality equation has one solution still. So the sweep over charges cannot pass,
but the advantages are known piece by piece:

    1. Candidates: the policies that are optimal at some charge under a discount near 1.
    2. Each that has a single closed class: its a and b, the advantages a - c b, and the range of charges at which no
       active state has a negative and no passive state a positive one. There it solves the optimality equation.
    3. If the ranges cover all charges, from all-active to all-passive, and within each the advantages are strict (or a
       tied switch leaves a single closed class), the advantages are the limits of the discounted ones at every charge
       but the ends of the ranges.

The discount only proposes; what is returned is proved by 2 and 3, else there is nothing. The index of a state is the
charge at which its advantage reaches 0, or jumps over it. O(S^3) a candidate, S + 1 of them for an indexable arm.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenhand import kernels
from evenhand.checks import check_memory
from evenhand.errors import NotConvergedError
from evenhand.model.criterion import Criterion, Discounted
from evenhand.solvers.closed_classes import closed_classes, never_splits
from evenhand.typing import ArrayLike, Bools, Floats, Indices, Ints

SOUND = 1e-8
"""Relative error of a sweep above which it is refused."""

NEARLY_ONE = 1 - 1e-7
"""A discount whose optimal policies are candidates for those of an average."""

PIECE_TIE = 1e-11
"""Advantages below this, relative to the largest that rewards could make, count as 0."""

MOST_PIVOTS = 1000
"""Pivots a state after which a sweep is given up. An indexable arm needs one, ties aside."""


@dataclass(frozen=True)
class WhittleResult:
    """Whittle indices of a batch of arms."""

    indices: Floats
    """(arm, state) index of each state, or (arm, step, state) for a finite horizon; nan where the arm is not indexable
    or the state is padding."""

    indexable: Bools
    """(arm,) True if indexable; False also for refused arms."""

    regained: Indices
    """(arm,) a state in which active became strictly better again; -1 for indexable arms."""

    witnesses: Floats
    """(arm, 2) a charge at which passive is optimal in that state, and a higher one at which it is not; else nan."""

    regained_step: Indices | None = None
    """(arm,) the step at which that state regains, the last such; None unless the horizon is finite."""

    refused: Mapping[int, str] = field(default_factory=dict)
    """For an average: reasons of arms without indices."""

    def explain(self, arm: int) -> str:
        """Return the verdict on an arm as text."""
        if arm in self.refused:
            return self.refused[arm]
        if self.indexable[arm]:
            return "indexable: where passive is optimal, it is optimal at every higher charge"
        low, high = self.witnesses[arm]
        at = "" if self.regained_step is None else f"at step {self.regained_step[arm]} "
        return (
            f"not indexable: {at}in state {self.regained[arm]} passive is optimal at charge {low:.10g}, "
            f"but active is strictly better at {high:.10g}"
        )


# -- the indices ------------------------------------------------------------------------------------------------------


def whittle_indices(
    transitions: ArrayLike,
    rewards: ArrayLike,
    criterion: Criterion | float,
    num_states: ArrayLike | None = None,
    most_pivots: int = MOST_PIVOTS,
) -> WhittleResult:
    """Return the Whittle index of every state of every arm.

    Args:
        transitions: (arm, state, action, next_state) probabilities; action 0 is passive, 1 active.
        rewards: (arm, state, action) rewards.
        criterion: criterion; a number is a discount.
        num_states: (arm,) number of real states, the first ones; all by default.
        most_pivots: changes of the optimal policy per state (and step) after which an arm is given up.

    Raises:
        NotConvergedError: rounding outweighs the advantages of an arm, or its policy changes too often.
    """
    arms = _Arms(transitions, rewards, criterion, num_states, most_pivots)
    # Steps have indices of their own, found backwards; everything below is for time without an end.
    if arms.criterion.num_steps is not None:
        return _by_layers(arms, arms.criterion.num_steps)
    sweeps, refused = _sweep(arms)
    # What a sweep cannot pass may still have indices, piece by piece.
    for arm in list(refused):
        if _found_in_pieces(arms, sweeps, arm):
            del refused[arm]
    indexable = sweeps.regained < 0
    # No verdict is no indexability.
    indexable[list(refused)] = False
    return WhittleResult(
        indices=np.where(indexable[:, None], sweeps.indices, np.nan),
        indexable=indexable,
        regained=sweeps.regained,
        witnesses=sweeps.witnesses,
        refused=refused,
    )


def _by_layers(arms: "_Arms", num_steps: int) -> WhittleResult:
    """The indices of every step, by backward induction."""
    number, most = arms.rewards.shape[:2]
    size = 8.0 * num_steps * most * (number + 8 * most)
    check_memory(size, f"indices of {number} arms over {num_steps} steps", "Use fewer steps, or a discount.")
    tables, factor = (arms.transitions, arms.rewards, arms.num_states), arms.criterion.factor
    found = kernels.index_layers(tables, factor, num_steps, arms.most_pivots)
    bad = np.flatnonzero((found.errors > SOUND) | found.crowded)
    if len(bad):
        why = "the optimal policy changes too often" if found.crowded[bad[0]] else "too many steps for doubles"
        raise NotConvergedError(f"arm {bad[0]}: {why}; use fewer steps, or a discount")
    indexable = found.regained[:, 1] < 0
    return WhittleResult(
        indices=np.where(indexable[:, None, None], found.indices, np.nan),
        indexable=indexable,
        regained=found.regained[:, 1],
        witnesses=found.witnesses,
        regained_step=found.regained[:, 0],
    )


# -- arguments --------------------------------------------------------------------------------------------------------


class _Arms:
    """The arms, as the kernels read them."""

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike,
        criterion: Criterion | float,
        num_states: ArrayLike | None,
        most_pivots: int = MOST_PIVOTS,
    ) -> None:
        self.most_pivots = most_pivots
        # A copy: Numba compiles separately for read-only arrays.
        self.rewards: Floats = np.array(rewards, dtype=np.float64, order="C")
        num_arms, most = self.rewards.shape[:2]
        self.num_states: Ints = np.full(num_arms, most) if num_states is None else np.asarray(num_states, np.int64)
        self.criterion = criterion if isinstance(criterion, Criterion) else Discounted(criterion)
        real = np.arange(most) < self.num_states[:, None]
        # The indices do not depend on the initial distribution: it only weights the use by which a sweep is checked.
        self.initial: Floats = real / np.maximum(self.num_states, 1)[:, None]
        # Padded states go to the first state for sure, so that their rows are distributions like the others.
        rows = np.where(real[:, :, None, None], transitions, np.arange(most) == 0)
        # The tableau trusts that rows sum to 1 to the last digit, not only to the last that was written down.
        self.transitions: Floats = np.ascontiguousarray(rows / rows.sum(axis=-1, keepdims=True), dtype=np.float64)
        self.left_out = np.zeros(num_arms, dtype=np.bool_)

    def sweep(self) -> "kernels.Sweeps":
        """Sweep all arms.

        Raises:
            NotConvergedError: the policy of an arm changed more often than allowed.
        """
        # The long run forgets the start.
        initial = 0 * self.initial if self.criterion.is_average else self.initial
        tables = self.transitions, self.rewards, initial, self.num_states
        sweeps = kernels.sweep_arms(tables, self.criterion.factor, self.criterion.total, self.most_pivots)
        crowded = np.flatnonzero(sweeps.status == kernels.CROWDED)
        if len(crowded):
            room = sweeps.charges.shape[1]
            raise NotConvergedError(f"arm {crowded[0]}: the optimal policy changed more than {room} times")
        return sweeps

    def split_by(self, arm: int, active: Bools) -> str:
        """The refusal of an arm that a policy splits into several closed classes; nothing if it does not."""
        n = self.num_states[arm]
        classes = closed_classes(self.transitions[arm, np.arange(n), active.astype(np.int64), :n])
        if len(classes) == 1:
            return ""
        policy = f"active in {_some(np.flatnonzero(active))}" if active.any() else "never active"
        return (
            f"the long-run mean depends on the start: {policy}, the arm stays in {_some(classes[0])} for ever once "
            f"there, and likewise in {_some(classes[1])}; use a discount near 1, or finite:T"
        )


def _some(states: Indices | Ints) -> str:
    """Return the first states as text."""
    names = ", ".join(map(str, states[:8])) + (", ..." if len(states) > 8 else "")
    return f"state {names}" if len(states) == 1 else f"states {names}"


# -- sweeps, and refused arms -----------------------------------------------------------------------------------------


def _sweep(arms: _Arms) -> tuple["kernels.Sweeps", dict[int, str]]:
    """Sweep all arms; return also the reasons of those that are refused."""
    if not arms.criterion.is_average:
        sweeps = arms.sweep()
        _check_rounding(sweeps, {})
        return sweeps, {}
    refused: dict[int, str] = {}
    # Most arms are split by no policy. Only the others are checked, policy by policy.
    doubtful = np.flatnonzero(~never_splits(arms.transitions, arms.num_states))
    # The sweep begins at all-active: where that splits the arm, it cannot begin.
    for arm in doubtful.tolist():
        if why := arms.split_by(arm, np.ones(arms.num_states[arm], dtype=np.bool_)):
            refused[arm] = why
            # An arm that always goes to its first state takes its place.
            arms.left_out[arm], arms.transitions[arm], arms.transitions[arm, ..., 0] = True, 0.0, 1.0
    sweeps = arms.sweep()
    for arm in [arm for arm in doubtful.tolist() if arm not in refused]:
        if why := next(
            (why for active in _policies_on_path(arms, sweeps, arm) if (why := arms.split_by(arm, active))), ""
        ):
            refused[arm] = why
            # Of a refused arm nothing is proved, so its sweep has no say.
            sweeps.regained[arm], sweeps.witnesses[arm] = -1, np.nan
    _check_rounding(sweeps, refused)
    return sweeps, refused


def _policies_on_path(arms: _Arms, sweeps: "kernels.Sweeps", arm: int) -> Iterator[Bools]:
    """(state,) the policies of a sweep, and those that are as good over a range of charges."""
    active = np.ones(arms.num_states[arm], dtype=np.bool_)
    pivots, status = int(sweeps.num_pivots[arm]), sweeps.status[arm]
    charges, seen = sweeps.charges[arm], sweeps.indices[arm, : len(active)]
    # The switch that would split the arm is noted behind the last pivot.
    for number, state in enumerate(sweeps.switched[arm, : pivots + (status == kernels.SPLIT)]):
        yield active.copy()
        before, after = (charges[number - 1] if number else -np.inf), charges[number]
        close = 1e-9 * (1 + abs(after))
        # States that stayed active although passive was as good already are tied between the two charges.
        for tied in np.flatnonzero(active & (seen < after - close)) if after - before > close else ():
            yield active ^ (np.arange(len(active)) == tied)
        active[state] = ~active[state]
    yield active
    if status == kernels.STUCK:  # only where all-passive splits the arm can there be nothing left to switch
        yield np.zeros_like(active)


def _check_rounding(sweeps: "kernels.Sweeps", refused: Mapping[int, str]) -> None:
    wrong = (sweeps.errors > SOUND) | (sweeps.status != kernels.DONE)
    wrong[list(refused)] = False
    if wrong.any():
        arm = int(np.argmax(wrong))
        raise NotConvergedError(
            f"arm {arm}: rounding outweighs its advantages (relative error {sweeps.errors[arm]:.2g})"
        )


# -- an average by pieces ---------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A range of charges and the policy that is optimal there."""

    low: float
    high: float
    a: Floats
    """(state,) advantages are a - c b."""
    b: Floats
    """(state,)"""
    active: Bools
    """(state,)"""
    tie: float
    """Advantages below this count as 0."""


def _found_in_pieces(arms: _Arms, sweeps: "kernels.Sweeps", arm: int) -> bool:
    """Find the indices of an arm that a sweep could not pass; return whether it has some."""
    if arms.left_out[arm]:
        return False
    n = int(arms.num_states[arm])
    # Under a discount next to 1 nothing splits: the policies there are candidates for the average.
    near = _Arms(arms.transitions[[arm], :n, :, :n], arms.rewards[[arm], :n], NEARLY_ONE, None)
    transitions, rewards = near.transitions[0], near.rewards[0]
    candidates = [_piece(transitions, rewards, active) for active in _policies_on_path(near, near.sweep(), 0)]
    pieces = _cover([piece for piece in candidates if piece is not None])
    for piece in pieces:
        # Advantages are linear and keep their sign within a piece: one that is 0 inside it is 0 all along.
        inside = sum(_ends(piece)) / 2
        tied = np.flatnonzero(np.abs(piece.a - inside * piece.b) <= piece.tie)
        if not all(_is_single(transitions, piece.active ^ (np.arange(n) == s)) for s in tied):
            return False
    if not pieces:
        return False
    sweeps.indices[arm, :n], sweeps.regained[arm], sweeps.witnesses[arm] = _read_off(pieces)
    return True


def _is_single(transitions: Floats, active: Bools) -> bool:
    return len(closed_classes(transitions[np.arange(len(active)), active.astype(np.int64)])) == 1


def _piece(transitions: Floats, rewards: Floats, active: Bools) -> Piece | None:
    """The charges at which a policy is optimal, if it has one closed class and there are any."""
    if not _is_single(transitions, active):
        return None
    n, chosen = len(active), active.astype(np.int64)
    # A constant in the rewards changes no advantage; without it they round less.
    states, centred = np.arange(n), rewards - rewards.mean()
    # With one closed class this is regular, and gives the bias up to a constant, which P_1 - P_0 does not see.
    system = np.eye(n) - transitions[states, chosen] + 1 / n
    effect = np.linalg.solve(system.T, (transitions[:, 1] - transitions[:, 0]).T).T
    # advantage(c) = a - c b, as in `kernels.whittle_pivots` with gamma = 1.
    a = rewards[:, 1] - rewards[:, 0] + effect @ centred[states, chosen]
    b = 1 + effect @ chosen
    norm = 1 + float(np.abs(effect).sum(axis=1).max())
    tie, flat = PIECE_TIE * float(np.ptp(rewards)) * norm, PIECE_TIE * norm
    # sign (a - c b) >= 0 limits c from above where sign b > 0, from below where it is < 0; else a alone decides.
    sign = np.where(active, 1.0, -1.0)
    falling, rising, level = sign * b > flat, sign * b < -flat, np.abs(b) <= flat
    high = float((a[falling] / b[falling]).min(initial=np.inf))
    low = float((a[rising] / b[rising]).max(initial=-np.inf))
    if low > high or (sign[level] * a[level] < -tie).any():
        return None
    return Piece(low, high, a, b, active, tie)


def _cover(pieces: list[Piece]) -> list[Piece]:
    """The pieces in order, cut where they meet; none if they leave a gap."""
    chosen: list[Piece] = []
    reached = -np.inf
    # By where they begin: a piece that goes no further than those before it is not needed.
    for piece in sorted(pieces, key=lambda piece: (piece.low, piece.high)):
        gap = piece.low - reached
        # A gap that is no more than rounding of two charges is none.
        if gap > 1e-9 * (1 + abs(piece.low)) or (not chosen and piece.low > -np.inf):
            return []
        if piece.high > reached:
            chosen.append(piece._replace(low=max(piece.low, reached)))
            reached = piece.high
    if not chosen or not chosen[0].active.all() or chosen[-1].active.any():
        return []  # a state that is active, or passive, at every charge has no index
    return chosen if reached == np.inf else []


def _read_off(pieces: list[Piece]) -> tuple[Floats, int, tuple[float, float]]:
    """Indices, a state that regains or -1, and its witnesses: from the advantages at both ends of each piece."""
    indices = np.full(len(pieces[0].a), np.nan)
    regained, witnesses = -1, (np.nan, np.nan)
    for piece in pieces:
        # Where b is 0 the advantage is the same all along, and reaches 0 nowhere.
        zeros = piece.a / np.where(np.abs(piece.b) > 0, piece.b, np.inf)
        for charge in _ends(piece):
            advantages = piece.a - charge * piece.b
            # More than twice a tie: a state that became passive by a tie must not come back by the same one.
            again = ~np.isnan(indices) & (advantages > 2 * piece.tie)
            if regained < 0 and again.any():
                regained = int(np.argmax(again))
                witnesses = float(indices[regained]), charge
            new = np.isnan(indices) & (advantages <= piece.tie)
            # Advantages that are not positive at the charge reached 0 in the piece, or jumped over it at its end.
            inside = (zeros >= piece.low) & (zeros <= charge) & (piece.b > 0)
            indices[new] = np.where(inside, zeros, charge)[new]
    return indices, regained, witnesses


def _ends(piece: Piece) -> tuple[float, float]:
    """Both ends of a piece; where it has none, a charge by which no sign changes any more."""
    far = 1 + float(np.abs(piece.a).max())  # all-active and all-passive have b = 1
    low = piece.low if piece.low > -np.inf else min(piece.high - 1, -far)
    return low, piece.high if piece.high < np.inf else max(piece.low + 1, far)
