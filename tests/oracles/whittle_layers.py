"""Whittle indices by time to go in NumPy (`evenhand.kernels.whittle_layers`)."""

import numpy as np

from evenhand.kernels import Layers
from evenhand.kernels import whittle_layers as kernel
from evenhand.typing import Bools, Floats, Ints

# -- layers -----------------------------------------------------------------------------------------------------------


def index_layers(
    transitions: Floats, rewards: Floats, num_states: Ints, factor: float, num_steps: int, room: int
) -> Layers:
    """The indices of every arm at every step, in NumPy.

    Args:
        transitions: (arm, state, action, next_state) probabilities, passive first.
        rewards: (arm, state, action) rewards.
        num_states: (arm,) how many states are real; the rest is padding.
        factor: what the next step counts for, gamma.
        num_steps: how many steps there are.
        room: most charges a state and step.
    """
    found = Layers.empty(len(rewards), num_steps, rewards.shape[1])
    for arm, n in enumerate(num_states):
        _walk(arm, transitions[arm, :n, :, :n], rewards[arm, :n], factor, num_steps, room, found)
    return found


def _walk(
    arm: int, transitions: Floats, rewards: Floats, factor: float, num_steps: int, room: int, found: Layers
) -> None:
    n = len(rewards)
    # Relative to their mean over states, as values are: P_1 - P_0 does not see constants.
    gain, passive = rewards[:, 1] - rewards[:, 0], rewards[:, 0] - rewards[:, 0].mean()
    forward, effect = factor * transitions[:, 0].T, factor * (transitions[:, 1] - transitions[:, 0]).T
    # V_0 = 0 has no kinks: any one charge will do.
    charges, values = np.array([gain.mean()]), np.zeros((1, n))
    spread, error, largest = float(np.ptp(rewards)), 0.0, 0.0
    for step in range(num_steps - 1, -1, -1):
        # The equations of the file's head, at all charges at once: (charge, state) tables.
        advantages = gain - charges[:, None] + values @ effect
        idle = passive + values @ forward
        charges, advantages, idle = _reach_out(charges, advantages, idle)
        size = max(spread, float(np.abs(values).max()), float(np.abs(charges).max()))
        # The bound on rounding of the file's head.
        error, largest = factor * error + (4 * n + 20) * kernel.EPSILON * size, max(largest, size)
        # Twice, since an advantage is a difference of values.
        _read_off(arm, step, charges, advantages, max(kernel.TIE * size, 2 * error), found)
        charges, advantages, idle = _add_zeros(charges, advantages, idle, kernel.BLUR * size)
        if len(charges) > room * n * num_steps:
            found.crowded[arm] = True
            return
        # V = idle + max(advantage, 0), exact at every charge because all kinks are among them.
        values = idle + np.maximum(advantages, 0.0)
        values -= values.mean(axis=1, keepdims=True)
    found.errors[arm] = 2 * error / largest if largest else 0.0


# -- one layer --------------------------------------------------------------------------------------------------------


def _reach_out(charges: Floats, advantages: Floats, idle: Floats) -> tuple[Floats, Floats, Floats]:
    """More charges at both ends, so that no advantage changes its sign beyond them; advantages fall by 1 there."""
    # Beyond the ends all advantages fall by 1 a unit of charge, so this is how far the last sign change is.
    down, up = -float(advantages[0].min()), float(advantages[-1].max())
    if down > 0:
        charges = np.append(charges[0] - down, charges)
        advantages, idle = np.vstack([advantages[0] + down, advantages]), np.vstack([idle[0], idle])
    if up > 0:
        charges = np.append(charges, charges[-1] + up)
        advantages, idle = np.vstack([advantages, advantages[-1] - up]), np.vstack([idle, idle[-1]])
    return charges, advantages, idle


def _read_off(arm: int, step: int, charges: Floats, advantages: Floats, tie: float, found: Layers) -> None:
    """The indices of a layer, and whether some state regains."""
    passive = advantages <= tie
    tied, zero = _first_zeros(charges, advantages, passive), _first_zeros(charges, advantages, advantages <= 0)
    # A range of ties begins where the advantage is as good as 0; but for rounding alone 0 itself is more exact.
    indices = np.where(zero - tied <= 4 * tie, zero, tied)
    found.indices[arm, step, : len(indices)] = indices
    again = np.maximum.accumulate(passive, axis=0) & (advantages > 2 * tie)
    if found.regained[arm, 0] < 0 and again.any():
        state = int(np.argmax(again.any(axis=0)))
        found.regained[arm] = step, state
        found.witnesses[arm] = indices[state], charges[np.argmax(again[:, state])]


def _first_zeros(charges: Floats, advantages: Floats, passive: Bools) -> Floats:
    """(state,) where each advantage reaches 0 on its way to the first charge that counts as passive, or this charge."""
    first, states = passive.argmax(axis=0), np.arange(advantages.shape[1])
    # An advantage that never gets there counts as there at the last charge.
    first = np.where(passive.any(axis=0), first, len(charges) - 1)
    before = np.maximum(first - 1, 0)
    high, low = advantages[before, states], advantages[first, states]
    # Linear between neighbouring charges.
    share = np.where(high > low, np.clip(high / np.where(high > low, high - low, 1.0), 0.0, 1.0), 1.0)
    return np.asarray(charges[before] + share * (charges[first] - charges[before]))


def _add_zeros(charges: Floats, advantages: Floats, idle: Floats, blur: float) -> tuple[Floats, Floats, Floats]:
    """A charge more wherever an advantage passes through 0 between two charges; all is linear there."""
    left, right = advantages[:-1], advantages[1:]
    # Only signs that differ by more than rounding make a crossing.
    crossing = ((left > blur) & (right < -blur)) | ((left < -blur) & (right > blur))
    interval, state = np.nonzero(crossing)
    left, right = left[interval, state], right[interval, state]
    share = left / (left - right)
    kept = _apart(interval, share, left, right, charges, blur)
    interval, state, share = interval[kept], state[kept], share[kept]
    between = [_between(x, interval, share[:, None]) for x in (advantages, idle)]
    # By construction; interpolation would leave a rounding error.
    between[0][np.arange(len(state)), state] = 0.0
    return (
        np.insert(charges, interval + 1, _between(charges, interval, share)),
        np.insert(advantages, interval + 1, between[0], axis=0),
        np.insert(idle, interval + 1, between[1], axis=0),
    )


def _between(ends: Floats, interval: Ints, share: Floats) -> Floats:
    """Linear interpolation at a share of an interval."""
    return np.asarray(ends[interval] + share * (ends[interval + 1] - ends[interval]))


def _apart(interval: Ints, share: Floats, left: Floats, right: Floats, charges: Floats, blur: float) -> Ints:
    """Zeros to retain, in order: not those whose advantage is mere rounding at the charge before."""
    kept: list[int] = []
    zeros = _between(charges, interval, share)
    for number in np.lexsort((share, interval)):
        # Compared with the charge before it in the same interval, or with the interval's own beginning.
        at, before, floor = interval[number], 0.0, charges[interval[number]]
        if kept and interval[kept[-1]] == at:
            before, floor = share[kept[-1]], zeros[kept[-1]]
        there = left[number] + before * (right[number] - left[number])
        if abs(there) > blur and floor < zeros[number] < charges[at + 1]:
            kept.append(int(number))
    return np.array(kept, dtype=np.int64)
