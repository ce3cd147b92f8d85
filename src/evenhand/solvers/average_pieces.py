"""Whittle indices of an average by pieces: for arms that fall apart at single charges, and only there.

A machine that may be left broken for ever: up to some charge it is best to mend it again and again, beyond it never.
At that charge both means are equal, a policy that does each from some states is optimal too, and biases jump. On both
sides the optimality equation has one solution still. So the sweep over charges (`solvers.whittle`) cannot pass, but the
advantages are known piece by piece:

    1. Candidates: the policies that are optimal at some charge under a discount near 1.
    2. Each that has a single closed class: its a and b, the advantages a - c b, and the range of charges at which no
       active state has a negative and no passive state a positive one. There it solves the optimality equation.
    3. If the ranges cover all charges, from all-active to all-passive, and within each the advantages are strict (or a
       tied switch leaves a single closed class), the advantages are the limits of the discounted ones at every charge
       but the ends of the ranges.

The discount only proposes; what is returned is proved by 2 and 3, else there is nothing. The index of a state is the
charge at which its advantage reaches 0, or jumps over it. O(S^3) a candidate, S + 1 of them for an indexable arm.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from evenhand.solvers.closed_classes import closed_classes
from evenhand.typing import Bools, Floats

TIE = 1e-11
"""Advantages below this, relative to the largest that rewards could make, count as 0."""


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


class Indices(NamedTuple):
    """Indices found piece by piece."""

    indices: Floats
    """(state,) least charge from which passive is optimal."""
    regained: int
    """A state that becomes strictly better off active again, or -1."""
    witnesses: tuple[float, float]
    """Charges at which it is best passive, and later strictly best active."""


def indices_by_pieces(transitions: Floats, rewards: Floats, candidates: Iterable[Bools]) -> Indices | None:
    """The indices of an arm, if the candidates prove them.

    Args:
        transitions: (state, action, next_state) probabilities, passive first.
        rewards: (state, action) rewards.
        candidates: (state,) active states of policies that may be optimal.
    """
    # Steps 1 to 3 of the file's head: candidates in, pieces that cover all charges, each proved on its own.
    pieces = _cover([p for active in candidates if (p := _piece(transitions, rewards, active)) is not None])
    if not pieces or not all(_is_sole(piece, transitions) for piece in pieces):
        return None
    return _read_off(pieces)


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
    tie, flat = TIE * float(np.ptp(rewards)) * norm, TIE * norm
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


def _is_sole(piece: Piece, transitions: Floats) -> bool:
    """Return whether the optimality equation has one solution within the piece."""
    # Advantages are linear and keep their sign within a piece: one that is 0 inside it is 0 all along.
    inside = sum(_ends(piece)) / 2
    tied = np.flatnonzero(np.abs(piece.a - inside * piece.b) <= piece.tie)
    return all(_is_single(transitions, piece.active ^ (np.arange(len(piece.a)) == s)) for s in tied)


def _read_off(pieces: list[Piece]) -> Indices:
    """Follow the advantages through the pieces, looking at both ends of each."""
    indices = np.full(len(pieces[0].a), np.nan)
    regained, witnesses = -1, (np.nan, np.nan)
    for piece in pieces:
        for charge in _ends(piece):
            advantages = piece.a - charge * piece.b
            # More than twice a tie: a state that became passive by a tie must not come back by the same one.
            again = ~np.isnan(indices) & (advantages > 2 * piece.tie)
            if regained < 0 and again.any():
                regained = int(np.argmax(again))
                witnesses = float(indices[regained]), charge
            new = np.isnan(indices) & (advantages <= piece.tie)
            indices[new] = _zeros(piece, charge)[new]
    return Indices(indices, regained, witnesses)


def _ends(piece: Piece) -> tuple[float, float]:
    """Both ends of a piece; where it has none, a charge by which no sign changes any more."""
    far = 1 + float(np.abs(piece.a).max())  # all-active and all-passive have b = 1
    low = piece.low if piece.low > -np.inf else min(piece.high - 1, -far)
    return low, piece.high if piece.high < np.inf else max(piece.low + 1, far)


def _zeros(piece: Piece, charge: float) -> Floats:
    """(state,) where advantages that are not positive at a charge have reached 0 in the piece."""
    # Where b is 0 the advantage is the same all along, and reaches 0 nowhere.
    reached = piece.a / np.where(np.abs(piece.b) > 0, piece.b, np.inf)
    inside = (reached >= piece.low) & (reached <= charge) & (piece.b > 0)
    return np.where(inside, reached, charge)
