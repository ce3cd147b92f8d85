"""The likelihood of records at irregular times, and what it expects of the paths in between.

A cell is a type, with given values of covariates, in a period of time. In cell c an arm moves by the generator Q[c, a]
while action a acts. What was recorded of a move is its ends: s, the action a, then s' after a time t. The action acts
for one step d, and the rest is idle; or it is carried on. Cuts of time divide these stretches further. A move is thus a
list of segments, each with its generator and duration:

    P = exp(Q_1 t_1) exp(Q_2 t_2) ...        for example  exp(Q[c, a] min(t, d)) exp(Q[c, 0] (t - d)^+)

and the likelihood of the move is P[s, s']. So whole steps mean what they mean in records of whole steps.

States may be exact (a set E): every entry into one is a row at its very time, as of a death. Then no path between two
rows enters E, and P is made of generators without these jumps, which leave with all their rates all the same:

    R[i, j] = Q[i, j] for i = j or j not in E, else 0        P = exp(R_1 t_1) exp(R_2 t_2) ...
    density of entering s' in E from s != s':  sum over k of P[s, k] Q_n[k, s']        Q_n acts at the end

If E is one absorbing state this is the likelihood of exact times of death in panel data (Jackson 2011, msm). If E is
all states, it is that of an event history, exp(-q[s] t) q[s, s']: the state is known all the time, each segment is a
move of its own, and like moves become one of their mean time.

By `kernels.exponentials` the derivative of the log-likelihood by the entries of Q, taken as free, gives the expected
jumps and times of the unseen paths, which serve twice:

    jumps[c, a, i, j] = q[i, j] dL/dQ[i, j]        times[c, a, i] = dL/dQ[i, i]
    dL / d log q[i, j] = jumps[i, j] - q[i, j] times[i]            the gradient (Fisher's identity)
    q[i, j] <- jumps[i, j] / times[i]                              a step of EM (Bladt and Sørensen 2005)

Moves that are alike are one kind with a number, and an exponential is computed once for each generator and duration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from evenhand.checks import check_memory
from evenhand.fitting.transition_counts import Moves
from evenhand.kernels.exponentials import Exponentials
from evenhand.typing import Array, Bools, Floats, Indices

MOST_DURATIONS = 4096
"""Maximum number of different durations; if there are more, each is rounded to three digits."""

TINY = 1e-290
"""Instead of a probability of 0."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Moves as kinds, and the exponentials that they need."""

    num_cells: int
    """Number of cells."""

    num_actions: int
    """Number of actions; the idle action is 0."""

    num_states: int
    """Number of states of every type."""

    cell: Array
    """(kind,) at the start of the move."""

    state: Array
    """(kind,) before."""

    next_state: Array
    """(kind,) after."""

    number: Floats
    """(kind,) number of moves."""

    segments: Array
    """(kind, segment) exponentials in their order; of no time where there are fewer, which may follow the first."""

    entered: Bools
    """(kind,) whether its next state was entered at that very time."""

    unrecorded: Bools
    """(state, next_state) entries of a generator that act between two rows: all but entries into exact states."""

    which: Indices
    """(exponential,) its generator, cell by cell and action by action; never falls."""

    times: Floats
    """(exponential,) its duration."""

    def expect(self, rates: Floats) -> "Expected":
        """Log-likelihood, expected jumps and expected times.

        Args:
            rates: (cell, action, state, next_state) of jumps; 0 on the diagonal.
        """
        flat = rates.reshape(-1, self.num_states, self.num_states)
        paths = self.between(rates)
        entered, plain = self.entered, ~self.entered
        first, last, inner = self.segments[:, 0], self.segments[:, -1], self._inner
        # (kind, state) where the segments up to the last but one lead, and from where the last leads to the end.
        before = [paths.values[first, self.state]]
        for kinds, place in inner:
            led = before[-1].copy()
            led[kinds] = np.einsum("ek,ekm->em", led[kinds], paths.values[place])
            before.append(led)
        after = paths.values[last, :, self.next_state]
        # A state that is entered has a density in place of a probability: the rates into it, except from itself.
        elsewhere = 1.0 - np.eye(self.num_states)[self.next_state[entered]]
        into = flat[self._last[entered], :, self.next_state[entered]] * elsewhere
        after[entered] = np.einsum("ekm,em->ek", paths.values[last[entered]], into)
        seen = np.maximum((before[-1] * after).sum(axis=1), TINY)
        values = np.bincount(self.cell, self.number * np.log(seen), self.num_cells).astype(np.float64)
        # P is linear in the row of the first exponential, in those between, and in the column of the last, or in all of
        # it if a state is entered; d log P / d P is 1 / P for each move of a kind.
        weight = (self.number / seen)[:, None]
        rows, columns = self._summations
        to_end = weight * before[-1]
        weights = (columns @ to_end[plain]).reshape(paths.values.shape).swapaxes(1, 2).copy()
        np.add.at(weights, last[entered], to_end[entered][:, :, None] * into[:, None, :])
        for (kinds, place), led in zip(reversed(inner), reversed(before[:-1]), strict=True):
            np.add.at(weights, place, (weight * led)[kinds][:, :, None] * after[kinds][:, None, :])
            after[kinds] = np.einsum("ekm,em->ek", paths.values[place], after[kinds])
        weights += (rows @ (weight * after)).reshape(weights.shape)
        slopes = paths.adjoint(weights) * self.unrecorded
        by_rate = np.einsum("ekm,ek->em", paths.values[last[entered]], to_end[entered])
        np.add.at(slopes.swapaxes(1, 2), (self._last[entered], self.next_state[entered]), by_rate * elsewhere)
        times = np.broadcast_to(np.diagonal(slopes, axis1=1, axis2=2)[..., None], slopes.shape)
        jumps, times = (part.reshape(rates.shape) for part in (flat * slopes, times))
        return Expected(values, jumps, times, float(seen.min(initial=1.0)))

    def between(self, rates: Floats) -> Exponentials:
        """Distributions after each stretch of time, of paths that enter no exact state.

        Args:
            rates: (cell, action, state, next_state) of jumps; 0 on the diagonal.
        """
        acting = np.where(self.unrecorded, with_diagonal(rates), 0.0)
        return Exponentials(acting.reshape(-1, self.num_states, self.num_states), self.which, self.times)

    def has_path(self, free: Bools) -> Bools:
        """(kind,) whether some path of jumps makes the move; of the jumps alone, so that no rate can underflow.

        Args:
            free: (cell, action, state, next_state) jumps that can be.
        """
        jumps = free.reshape(-1, self.num_states, self.num_states).astype(np.float32)
        reach = np.minimum(jumps * self.unrecorded + np.eye(self.num_states, dtype=np.float32), 1.0)
        for _ in range(self.num_states.bit_length()):
            reach = np.minimum(reach @ reach, 1.0)
        before = reach[self.which[self.segments[:, 0]], self.state]
        for kinds, place in self._inner:
            before[kinds] = np.einsum("ek,ekm->em", before[kinds], reach[self.which[place]])
        # Where no segment follows, the same action goes on: a closure changes nothing when it is applied twice.
        after = reach[self._last, :, self.next_state]
        entered = self._last[self.entered], slice(None), self.next_state[self.entered]
        after[self.entered] = (reach @ jumps)[entered]
        return np.asarray((before * after).any(axis=1))

    @cached_property
    def _inner(self) -> list[tuple[Array, Array]]:
        """Per segment between the first and the last: the kinds that have it, and their exponentials."""
        places = [self.segments[:, k] for k in range(1, self.segments.shape[1] - 1)]
        return [(np.flatnonzero(self.times[place] > 0), place[self.times[place] > 0]) for place in places]

    @cached_property
    def _summations(self) -> tuple[csr_array, csr_array]:
        """Sums over kinds per row of their first exponential; and per column of the last, if no state is entered."""
        plain, shape = ~self.entered, (len(self.times), self.num_states)
        columns = self.segments[plain, -1], self.next_state[plain]
        return _summation((self.segments[:, 0], self.state), shape), _summation(columns, shape)

    @cached_property
    def _last(self) -> Array:
        """(kind,) the generator that acts at the end."""
        # If there is one segment, it acts at the end.
        first, last = self.segments[:, 0], self.segments[:, -1]
        return np.where(self.times[last] > 0, self.which[last], self.which[first])


def _summation(places: tuple[Array, Array], shape: tuple[int, int]) -> csr_array:
    """Sparse matrix that adds up the values of kinds in their places of a table; faster than `np.add.at`."""
    size = len(places[0])
    entries = np.ones(size), (np.ravel_multi_index(places, shape), np.arange(size))
    return csr_array(entries, shape=(shape[0] * shape[1], size))


@dataclass(frozen=True, eq=False)
class Expected:
    """Likelihood of a panel under given rates."""

    values: Floats
    """(cell,) log-likelihoods, by the cell at the start of a move."""

    jumps: Floats
    """(cell, action, state, next_state) expected jumps on the paths in between."""

    times: Floats
    """(cell, action, state, next_state) expected time in the state, the same for each jump out of it."""

    least_likely: float
    """Probability of the least likely recorded move."""


def read_panel(
    moves: Moves,
    step: float,
    exact: tuple[int, ...] = (),
    most: int = MOST_DURATIONS,
    digits: int = 3,
    cuts: Sequence[float] = (),
) -> Panel:
    """Moves as a panel, with one cell per type and period.

    Args:
        moves: counted; those of one step, and those over other times.
        step: how long a step is, in the unit of the times.
        exact: states of which every entry is a row, at its very time.
        most: maximum number of different durations; if there are more, each is rounded.
        digits: digits of rounded durations.
        cuts: times at which a new period begins; then `moves.gaps.start` is needed, and no move may be in `counts`.
    """
    num_types, num_states, num_actions, _ = moves.counts.shape
    is_exact = np.isin(np.arange(num_states), exact)
    gaps, whole, periods = moves.gaps, np.nonzero(moves.counts), len(cuts) + 1
    codes = (gaps.type, gaps.state, gaps.action, gaps.next_state)
    types, state, action, next_state = (np.concatenate([one, own]) for one, own in zip(whole, codes, strict=True))
    time = np.concatenate([np.full(len(whole[0]), step), gaps.time])
    number = np.concatenate([moves.counts[whole], gaps.number]).astype(np.float64)
    is_history = bool(is_exact.all())
    if not is_history:
        time = rounded(time, step, most, digits)
    # Durations between the ends, the end of the action, and the cuts.
    start = np.zeros(len(time)) if gaps.start is None else gaps.start
    inner = [np.full(len(time), np.inf if moves.carry_action else step), *(cut - start for cut in cuts)]
    ends = np.sort(np.column_stack([np.zeros(len(time)), *(np.clip(end, 0, time) for end in inner), time]), axis=1)
    middle, lengths = (ends[:, 1:] + ends[:, :-1]) / 2, np.diff(ends, axis=1)
    acts = np.where(moves.carry_action | (middle < step), action[:, None], 0)
    cell = types[:, None] * periods + np.searchsorted(np.asarray(cuts, float), start[:, None] + middle, side="right")
    which = cell * num_actions + acts
    some = lengths > 0
    is_last = some & (some[:, ::-1].cumsum(axis=1)[:, ::-1] == 1)
    if is_history:  # the state is known at the end of every segment
        kind, _ = np.nonzero(some)
        next_state = np.where(is_last[some], next_state[kind], state[kind])
        state, number = state[kind], number[kind]
        which, lengths = np.repeat(which[some][:, None], 2, axis=1), np.outer(lengths[some], [1.0, 0.0])
    else:  # the first segment, those between, those of no time, and the last of several
        lengths = rounded(lengths, step, most, digits) if cuts else lengths
        is_last &= some.sum(axis=1, keepdims=True) > 1
        order = np.argsort(~some + 2 * is_last, axis=1, kind="stable")
        which, lengths = np.take_along_axis(which, order, axis=1), np.take_along_axis(lengths, order, axis=1)
    # As floats, with the times: integers of this size are exact.
    keys = np.column_stack([state, next_state, which, 0 * lengths if is_history else lengths])
    distinct, position = np.unique(keys, axis=0, return_inverse=True)
    total = np.bincount(position.ravel(), number).astype(np.float64)
    means = np.bincount(position.ravel(), number * lengths[:, 0]) / total
    kinds, width = distinct.astype(np.int64), lengths.shape[1]
    which, lengths = kinds[:, 2 : 2 + width], np.outer(means, [1.0, 0.0]) if is_history else distinct[:, 2 + width :]
    check_memory(64.0 * len(total) * num_states**2, "the generators of these records", "Give fewer states.")
    # Equal exponentials are computed once.
    pairs, place = np.unique(np.stack([which.ravel(), lengths.ravel()]), axis=1, return_inverse=True)
    return Panel(
        num_cells=num_types * periods,
        num_actions=num_actions,
        num_states=num_states,
        cell=which[:, 0] // num_actions,
        state=kinds[:, 0],
        next_state=kinds[:, 1],
        number=total,
        segments=place.reshape(which.shape),
        # An arm that is in the state already cannot enter it.
        entered=is_exact[kinds[:, 1]] & (kinds[:, 0] != kinds[:, 1]),
        unrecorded=~is_exact | np.eye(num_states, dtype=bool),
        which=pairs[0].astype(np.int32),
        times=pairs[1],
    )


def rounded(times: Floats, step: float, most: int, digits: int) -> Floats:
    """Round durations if too many differ; one of a step remains.

    Args:
        times: durations.
        step: length of a step.
        most: maximum number of different ones.
        digits: digits of rounded durations.
    """
    if len(np.unique(times)) <= most:
        return times
    # To three digits: less than 1 in 100 off, and as often too long.
    scale = 10.0 ** (np.floor(np.log10(np.maximum(times, 1e-300))) - digits + 1)
    return np.where(times == step, step, np.round(times / scale) * scale)


def with_diagonal(rates: Floats) -> Floats:
    """(..., state, next_state) generators of these rates, which have 0 on their diagonal."""
    return np.asarray(rates - rates.sum(axis=-1)[..., None] * np.eye(rates.shape[-1]))
