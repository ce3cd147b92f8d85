"""The likelihood of records at irregular times, and what it expects of the paths in between.

An arm of type τ moves by the generator Q[τ, a] while action a acts. What was recorded of a move is its ends: s, the
action a, then s' after a time t. The action acts for one step d, and the rest is idle; or it is carried on:

    P = exp(Q[τ, a] min(t, d)) exp(Q[τ, 0] (t - d)^+)        or        P = exp(Q[τ, a] t)

and the likelihood of the move is P[s, s']. So whole steps mean what they mean in records of whole steps.

States may be exact (a set E): every entry into one is a row at its very time, as of a death. Then no path between two
rows enters E, and P is made of generators without these jumps, which leave with all their rates all the same:

    R[i, j] = Q[i, j] for i = j or j not in E, else 0        P = exp(R[τ, a] min(t, d)) exp(R[τ, 0] (t - d)^+)
    density of entering s' in E from s != s':  sum over k of P[s, k] Q[τ, b][k, s']      b the action at the end

If E is one absorbing state this is the likelihood of exact times of death in panel data (Jackson 2011, msm). If E is
all states, it is that of an event history, exp(-q[s] t) q[s, s']: the time in s and the number of jumps are all that
counts, and like moves become one of their mean time.

By `kernels.exponentials` the derivative of the log-likelihood by the entries of Q, taken as free, gives the expected
jumps and times of the unseen paths, which serve twice:

    jumps[τ, a, i, j] = q[i, j] dL/dQ[i, j]        times[τ, a, i] = dL/dQ[i, i]
    dL / d log q[i, j] = jumps[i, j] - q[i, j] times[i]            the gradient (Fisher's identity)
    q[i, j] <- jumps[i, j] / times[i]                              a step of EM (Bladt and Sørensen 2005)

Moves that are alike are one kind with a number, and an exponential is computed once for each generator and duration.
"""

from dataclasses import dataclass, replace
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

    num_types: int
    """Number of types, each with one generator per action."""

    num_actions: int
    """Number of actions; the idle action is 0."""

    num_states: int
    """Number of states of every type."""

    type: Array
    """(kind,) of the arm."""

    state: Array
    """(kind,) before."""

    next_state: Array
    """(kind,) after."""

    number: Floats
    """(kind,) number of moves."""

    first: Array
    """(kind,) the position of the exponential of its action."""

    second: Array
    """(kind,) that of the idle time after it, which may have length 0."""

    entered: Bools
    """(kind,) whether its next state was entered at that very time."""

    unrecorded: Bools
    """(state, next_state) entries of a generator that act between two rows: all but entries into exact states."""

    which: Indices
    """(exponential,) its generator, type by type and action by action; never falls."""

    times: Floats
    """(exponential,) its duration."""

    def pooled(self) -> "Panel":
        """The same records, with all types taken for one."""
        # The same action and duration is one exponential, whatever the type.
        keys = np.stack([self.which % self.num_actions, self.times])
        distinct, position = np.unique(keys, axis=1, return_inverse=True)
        return replace(
            self,
            num_types=1,
            type=np.zeros_like(self.type),
            first=position.ravel()[self.first],
            second=position.ravel()[self.second],
            which=distinct[0].astype(np.int32),
            times=distinct[1],
        )

    def expect(self, rates: Floats) -> "Expected":
        """Log-likelihood, expected jumps and expected times.

        Args:
            rates: (type, action, state, next_state) of jumps; 0 on the diagonal.
        """
        flat = rates.reshape(-1, self.num_states, self.num_states)
        paths = self.between(rates)
        entered, plain = self.entered, ~self.entered
        # (kind, state) where the action leads, and from where the idle time leads to the end.
        before = paths.values[self.first, self.state]
        after = paths.values[self.second, :, self.next_state]
        # A state that is entered has a density in place of a probability: the rates into it, except from itself.
        elsewhere = 1.0 - np.eye(self.num_states)[self.next_state[entered]]
        into = flat[self._last[entered], :, self.next_state[entered]] * elsewhere
        after[entered] = np.einsum("ekm,em->ek", paths.values[self.second[entered]], into)
        seen = np.maximum((before * after).sum(axis=1), TINY)
        values = np.bincount(self.type, self.number * np.log(seen), self.num_types).astype(np.float64)
        # P is linear in the row of the first exponential, and in the column of the second, or in all of it if a state
        # is entered; d log P / d P is 1 / P for each move of a kind.
        weight = (self.number / seen)[:, None]
        weights, to_end = np.zeros_like(paths.values), weight * before
        rows, columns = self._summations
        weights += (rows @ (weight * after)).reshape(weights.shape)
        weights += (columns @ to_end[plain]).reshape(weights.shape).swapaxes(1, 2)
        np.add.at(weights, self.second[entered], to_end[entered][:, :, None] * into[:, None, :])
        slopes = paths.adjoint(weights) * self.unrecorded
        by_rate = np.einsum("ekm,ek->em", paths.values[self.second[entered]], to_end[entered])
        np.add.at(slopes.swapaxes(1, 2), (self._last[entered], self.next_state[entered]), by_rate * elsewhere)
        times = np.broadcast_to(np.diagonal(slopes, axis1=1, axis2=2)[..., None], slopes.shape)
        jumps, times = (part.reshape(rates.shape) for part in (flat * slopes, times))
        return Expected(values, jumps, times, float(seen.min(initial=1.0)))

    def between(self, rates: Floats) -> Exponentials:
        """Distributions after each stretch of time, of paths that enter no exact state.

        Args:
            rates: (type, action, state, next_state) of jumps; 0 on the diagonal.
        """
        acting = np.where(self.unrecorded, with_diagonal(rates), 0.0)
        return Exponentials(acting.reshape(-1, self.num_states, self.num_states), self.which, self.times)

    def has_path(self, free: Bools) -> Bools:
        """(kind,) whether some path of jumps makes the move; of the jumps alone, so that no rate can underflow.

        Args:
            free: (type, action, state, next_state) jumps that can be.
        """
        jumps = free.reshape(-1, self.num_states, self.num_states).astype(np.float32)
        reach = np.minimum(jumps * self.unrecorded + np.eye(self.num_states, dtype=np.float32), 1.0)
        for _ in range(self.num_states.bit_length()):
            reach = np.minimum(reach @ reach, 1.0)
        before = reach[self.which[self.first], self.state]
        # Where no idle time follows, the same action goes on: a closure changes nothing when it is applied twice.
        after = reach[self._last, :, self.next_state]
        entered = self._last[self.entered], slice(None), self.next_state[self.entered]
        after[self.entered] = (reach @ jumps)[entered]
        return np.asarray((before * after).any(axis=1))

    @cached_property
    def _summations(self) -> tuple[csr_array, csr_array]:
        """Sums over kinds per row of their first exponential; and per column of the last, if no state is entered."""
        plain, shape = ~self.entered, (len(self.times), self.num_states)
        columns = self.second[plain], self.next_state[plain]
        return _summation((self.first, self.state), shape), _summation(columns, shape)

    @cached_property
    def _last(self) -> Array:
        """(kind,) the generator that acts at the end."""
        # Where no idle time follows, the action itself acts at the end.
        return np.where(self.times[self.second] > 0, self.which[self.second], self.which[self.first])


def _summation(places: tuple[Array, Array], shape: tuple[int, int]) -> csr_array:
    """Sparse matrix that adds up the values of kinds in their places of a table; faster than `np.add.at`."""
    size = len(places[0])
    entries = np.ones(size), (np.ravel_multi_index(places, shape), np.arange(size))
    return csr_array(entries, shape=(shape[0] * shape[1], size))


@dataclass(frozen=True, eq=False)
class Expected:
    """Likelihood of a panel under given rates."""

    values: Floats
    """(type,) log-likelihoods."""

    jumps: Floats
    """(type, action, state, next_state) expected jumps on the paths in between."""

    times: Floats
    """(type, action, state, next_state) expected time in the state, the same for each jump out of it."""

    least_likely: float
    """Probability of the least likely recorded move."""


def read_panel(
    moves: Moves, step: float, exact: tuple[int, ...] = (), most: int = MOST_DURATIONS, digits: int = 3
) -> Panel:
    """Moves as a panel.

    Args:
        moves: counted; those of one step, and those over other times.
        step: how long a step is, in the unit of the times.
        exact: states of which every entry is a row, at its very time.
        most: maximum number of different durations; if there are more, each is rounded.
        digits: digits of rounded durations.
    """
    num_types, num_states, num_actions, _ = moves.counts.shape
    is_exact = np.isin(np.arange(num_states), exact)
    gaps, whole = moves.gaps, np.nonzero(moves.counts)
    codes = (gaps.type, gaps.state, gaps.action, gaps.next_state)
    places = [np.concatenate([one, other]) for one, other in zip(whole, codes, strict=True)]
    time = np.concatenate([np.full(len(whole[0]), step), gaps.time])
    numbers = np.concatenate([moves.counts[whole], gaps.number]).astype(np.float64)
    is_history = bool(is_exact.all())
    if not is_history and len(np.unique(gaps.time)) > most:
        # To three digits: less than 1 in 100 off, and as often too long.
        scale = 10.0 ** (np.floor(np.log10(time)) - digits + 1)
        time = np.where(time == step, step, np.round(time / scale) * scale)
    # As floats, with the time: integers of this size are exact. The action that acts at the end is never averaged.
    keys = np.stack([*places, time > step if is_history else time]).astype(np.float64)
    distinct, position = np.unique(keys, axis=1, return_inverse=True)
    types, state, action, next_state = distinct[:4].astype(np.int64)
    number = np.bincount(position.ravel(), numbers).astype(np.float64)
    later, time = distinct[4], distinct[4] if not is_history else np.bincount(position.ravel(), numbers * time) / number
    if is_history:  # rounding must not make times of one step a little longer than the step
        time = np.where(later > 0, time, np.minimum(time, step))
    # Carried on it acts all the time, else for a step at most.
    acting = time if moves.carry_action else np.minimum(time, step)
    idle = types * num_actions
    check_memory(64.0 * len(time) * num_states**2, "the generators of these records", "Give fewer states.")
    # First all stretches of actions, then the idle ones; equal ones are computed once.
    keys = np.concatenate([np.stack([idle + action, acting]), np.stack([idle, time - acting])], axis=1)
    distinct, position = np.unique(keys, axis=1, return_inverse=True)
    first, second = position.reshape(2, -1)
    # An arm that is in the state already cannot enter it.
    entered, unrecorded = is_exact[next_state] & (state != next_state), ~is_exact | np.eye(num_states, dtype=bool)
    sizes, kinds = (num_types, num_actions, num_states), (types, state, next_state, number, first, second, entered)
    return Panel(*sizes, *kinds, unrecorded, distinct[0].astype(np.int32), distinct[1])


def with_diagonal(rates: Floats) -> Floats:
    """(..., state, next_state) generators of these rates, which have 0 on their diagonal."""
    return np.asarray(rates - rates.sum(axis=-1)[..., None] * np.eye(rates.shape[-1]))
