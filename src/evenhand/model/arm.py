"""One arm, and many arms as one set of padded arrays.

An arm is a small Markov decision process with `transitions[state, action, next_state]`, `rewards[state, action]`,
`usage[state, action, resource]` and `initial[state]`. In every state it has an idle action that uses nothing.
Everything that computes works on ArmTables, so that a step of a million different arms is one array operation.
"""

import hashlib
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from evenhand.checks import (
    NEARLY_ONE,
    SUM_TOLERANCE,
    Check,
    Faults,
    check_amounts,
    check_finite,
    check_memory,
    check_nearly_distributions,
    nearly,
    read_names,
    read_numbers,
    tell_normalised,
)
from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, ModelError
from evenhand.model.places import Names, with_words, with_words_of_arm
from evenhand.typing import Array, Bools, Floats, Indices

SHOWN_ARMS = 20
"""Faulty arms of a large table that are shown in full."""


ROOM = 1 + 1e-9
"""A budget times this has room for rounding: three uses of 0.1 fit a budget of 0.3."""


def frozen(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


# -- one arm ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Arm(Shown):
    """One arm: a Markov decision process that uses shared resources.

    Lists are accepted and turned into arrays; everything wrong with them is reported at once (ModelError).

    Example:
        >>> import evenhand as eh
        >>> arm = eh.Arm(
        ...     transitions=[[[0.7, 0.3], [1, 0]], [[0, 1], [1, 0]]],
        ...     rewards=[[1.0, 0.5], [0.0, -0.5]],
        ...     usage=[[0], [1]],
        ...     name="pump",
        ...     states=["runs", "broken"],
        ...     actions=["wait", "repair"],
        ... )
        >>> arm
        Arm('pump', 2 states, 2 actions, 1 resource)
    """

    transitions: Floats
    """(state, action, next_state) probabilities."""

    rewards: Floats
    """(state, action) expected reward of a step."""

    usage: Floats
    """(action, resource) or (state, action, resource) use of each resource; stored as the latter."""

    initial: Floats = None  # type: ignore[assignment]  # filled in below
    """(state,) distribution of the first state; uniform by default."""

    name: str = ""
    """Name of this kind of arm."""

    states: Sequence[str] = ()
    """A label for each state, or none."""

    actions: Sequence[str] = ()
    """A label for each action, or none."""

    def __post_init__(self) -> None:
        faults = Faults()
        given = {key: getattr(self, key) for key in ("transitions", "rewards", "usage", "initial")}
        arrays, sizes = _read_arrays(given, faults)
        labels = {key: read_names(getattr(self, key), None, key, faults, blank=True) for key in ("states", "actions")}
        if not isinstance(self.name, str):
            faults.add("name", f"expected text, got {reprlib.repr(self.name)}")
        for key, axis in (("states", "state"), ("actions", "action")):
            if labels[key] and sizes.get(axis, len(labels[key])) != len(labels[key]):
                faults.add(key, f"has {counted(len(labels[key]), 'label')} for {counted(sizes[axis], axis)}")
        if faults:
            raise ModelError(with_words_of_arm(faults.found, self._names()))
        if rows := [row for key in ("transitions", "initial") for row in nearly(arrays[key], key)]:
            tell_normalised(with_words_of_arm(rows, self._names()), stacklevel=3)
        arrays |= {key: normalised(arrays[key]) for key in ("transitions", "initial")}
        for key, value in {**arrays, **labels}.items():
            object.__setattr__(self, key, frozen(value) if isinstance(value, np.ndarray) else value)

    def _names(self) -> Names:
        """Names of the arm and its parts, for faults; the arm may be invalid."""
        names = Names.of_block({key: getattr(self, key) for key in ("name", "states", "actions")})
        return replace(names, by_state=_depth(self.usage) > 2)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return int(self.rewards.shape[0])

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.rewards.shape[1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Arm):
            return NotImplemented
        arrays = ("transitions", "rewards", "usage", "initial")
        labels = ("name", "states", "actions")
        return all(np.array_equal(getattr(self, k), getattr(other, k)) for k in arrays) and all(
            getattr(self, k) == getattr(other, k) for k in labels
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = (self.num_states, "state"), (self.num_actions, "action"), (self.usage.shape[2], "resource")
        name = f"{self.name!r}, " if self.name else ""
        return f"Arm({name}{', '.join(counted(*size) for size in sizes)})"


def normalised(rows: Floats) -> Floats:
    """The same distributions along the last axis, with sums of 1 but for rounding: what certificates rely on.

    Rows that are right already stay as they are, to the last bit, so that a model read back is the same model.
    """
    sums = rows.sum(axis=-1, keepdims=True)
    # The tolerance is rounding of a sum of some hundred numbers. Rows of zeros are padding, and stay.
    off = (np.abs(sums - 1) > 1e-13) & (sums > 0)
    return np.where(off, rows / np.where(off, sums, 1.0), rows) if off.any() else rows


_AXES = {
    "transitions": ("state", "action", "next state"),
    "rewards": ("state", "action"),
    "usage by action": ("action", "resource"),
    "usage": ("state", "action", "resource"),
    "initial": ("state",),
}

_CHECKS: dict[str, Check] = {
    "transitions": check_nearly_distributions,
    "rewards": check_finite,
    "usage": check_amounts,
    "initial": check_nearly_distributions,
}


# -- reading its arrays ----------------------------------------------------------------------------------------------


def _read_arrays(given: dict[str, object], faults: Faults) -> tuple[dict[str, Floats], dict[str, int]]:
    """The four arrays, with numbers that make sense and shapes that agree, or faults; and the sizes that are known.

    Where the transitions could not be read, that is the fault to mend first: the sizes of the others say nothing of the
    labels then.
    """
    by_action = _depth(given["usage"]) < 3
    axes = _AXES | ({"usage": _AXES["usage by action"]} if by_action else {})
    read = {
        key: read_numbers(value, axes[key], key, faults, _CHECKS[key])
        for key, value in given.items()
        if not (key == "initial" and value is None)
    }
    arrays = {key: array for key, array in read.items() if array is not None}
    # Sizes are compared with the transitions if these are valid, else with the rewards, so that one mistake is one
    # fault.
    source = next((key for key in ("transitions", "rewards") if key in arrays), None)
    sizes: dict[str, int] = {}
    if source is not None:
        sizes = dict(zip(axes[source], arrays[source].shape, strict=True))
        sizes["next state"] = sizes["state"]
        for key, array in arrays.items():
            _check_sizes(key, dict(zip(axes[key], array.shape, strict=True)), sizes, source, faults)
    if "usage" in arrays:
        _check_idle(arrays["usage"], faults)
    # Sizes of the rewards alone may be the mistake itself, and are not compared with labels.
    if faults or source is None:
        return {}, sizes if source == "transitions" else {}
    if by_action:
        arrays["usage"] = np.repeat(arrays["usage"][None], sizes["state"], axis=0)
    arrays.setdefault("initial", np.full(sizes["state"], 1 / sizes["state"]))
    return arrays, sizes


def _depth(value: object) -> int:
    depth = 0
    while isinstance(value, (list, tuple, np.ndarray)) and len(value):
        depth, value = depth + 1, value[0]
    return depth


def _check_sizes(key: str, got: dict[str, int], want: dict[str, int], source: str, faults: Faults) -> None:
    for axis, size in got.items():
        if axis in want and size != want[axis]:
            known = f"there are {want[axis]} states" if key == source else f"{source} has {want[axis]}"
            faults.add(key, f"has {size} {axis}s where {known}")


def _check_idle(usage: Floats, faults: Faults) -> None:
    """In every state some action uses nothing. `usage` may lack its state axis."""
    # Some action must use none of the resources, state by state; without a state axis there is one answer.
    busy = np.atleast_1d(~(usage == 0).all(axis=-1).any(axis=-1))
    if busy.all():
        faults.add("usage", "no action is idle: one action must use nothing of any resource")
        return
    for state in np.flatnonzero(busy):
        faults.add(f"usage[{state}]", "no action is idle in this state: one must use nothing of any resource")


# -- many arms -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ArmTables(Sequence[Arm]):
    """Many arms as padded arrays; also a sequence of Arm.

    Arms with fewer states or actions than the largest are padded with zeros; `real` marks what is not padding, and
    `valid` the actions that may be chosen.
    """

    transitions: Floats
    """(arm, state, action, next_state) probabilities."""

    rewards: Floats
    """(arm, state, action) rewards."""

    usage: Floats
    """(arm, state, action, resource) usage."""

    initial: Floats
    """(arm, state) distributions of the first state."""

    num_states: Indices
    """(arm,) number of real states."""

    num_actions: Indices
    """(arm,) number of real actions."""

    labels: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = field(default=())
    """(name, states, actions) of each arm, or empty when no arm has any."""

    usable: Bools | None = None
    """(arm, state, action) actions within the shared budget (`within`); None for all."""

    @classmethod
    def stack(cls, arms: Sequence[Arm]) -> "ArmTables":
        """Pad arms of any sizes to common ones."""
        if len({arm.usage.shape[2] for arm in arms}) != 1:
            raise InvalidInputError("arms disagree in their number of resources")
        sizes = np.array([arm.rewards.shape for arm in arms], dtype=np.int32)
        S, A = (int(size) for size in sizes.max(axis=0))
        K = arms[0].usage.shape[2]
        # Eight bytes a number, and for each state-action pair S transitions, K usages and one reward.
        check_memory(8.0 * len(arms) * S * A * (S + K + 1), f"{len(arms)} arms of up to {S} states", "Use fewer arms.")
        tables = {
            "transitions": np.zeros((len(arms), S, A, S)),
            "rewards": np.zeros((len(arms), S, A)),
            "usage": np.zeros((len(arms), S, A, K)),
            "initial": np.zeros((len(arms), S)),
        }
        for i, arm in enumerate(arms):
            s, a = sizes[i]
            tables["transitions"][i, :s, :a, :s] = arm.transitions
            tables["rewards"][i, :s, :a] = arm.rewards
            tables["usage"][i, :s, :a] = arm.usage
            tables["initial"][i, :s] = arm.initial
        labels = tuple((arm.name, tuple(arm.states), tuple(arm.actions)) for arm in arms)
        named = labels if any(name or states or actions for name, states, actions in labels) else ()
        return cls(
            transitions=tables["transitions"],
            rewards=tables["rewards"],
            usage=tables["usage"],
            initial=tables["initial"],
            num_states=sizes[:, 0].copy(),
            num_actions=sizes[:, 1].copy(),
            labels=named,
        )

    def __post_init__(self) -> None:
        # Contiguous, as kernels and fingerprints read them; read-only, as problems share them.
        for name in ("transitions", "rewards", "usage", "initial", "num_states", "num_actions"):
            object.__setattr__(self, name, frozen(np.ascontiguousarray(getattr(self, name))))

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        num_states, num_actions = self.rewards.shape[1:]
        return f"ArmTables({counted(len(self), 'arm')}, up to {num_states} states and {num_actions} actions)"

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """The arm at a position, without padding."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        s, a = self.num_states[index], self.num_actions[index]
        name, states, actions = self.labels[index] if self.labels else ("", (), ())
        return Arm(
            transitions=self.transitions[index, :s, :a, :s],
            rewards=self.rewards[index, :s, :a],
            usage=self.usage[index, :s, :a],
            initial=self.initial[index, :s],
            name=name,
            states=states,
            actions=actions,
        )

    def __iter__(self) -> Iterator[Arm]:
        return (self[i] for i in range(len(self)))

    def select(self, rows: Array) -> "ArmTables":
        """Some of the arms, by their positions; labels come along."""
        return ArmTables(
            transitions=self.transitions[rows],
            rewards=self.rewards[rows],
            usage=self.usage[rows],
            initial=self.initial[rows],
            num_states=self.num_states[rows],
            num_actions=self.num_actions[rows],
            labels=tuple(self.labels[i] for i in rows) if self.labels else (),
            usable=None if self.usable is None else self.usable[rows],
        )

    def within(self, budget: Floats) -> "ArmTables":
        """The same arms, of whose actions only those are valid that fit the budget if one arm has all of it.

        No policy can choose the others, so they belong into no bound, index, price or policy.

        Args:
            budget: (resource,) what is available at every step.
        """
        usable = np.asarray((self.usage <= budget * ROOM).all(axis=-1))
        return replace(self, usable=None if usable.all() else usable)

    def tidied(self) -> "ArmTables":
        """The same arms without padding that none of them needs, with distributions that sum to 1, under no budget."""
        s, a = int(self.num_states.max()), int(self.num_actions.max())
        return replace(
            self,
            transitions=normalised(self.transitions[:, :s, :a, :s]),
            rewards=self.rewards[:, :s, :a],
            usage=self.usage[:, :s, :a],
            initial=normalised(self.initial[:, :s]),
            usable=None,
        )

    @cached_property
    def real(self) -> Bools:
        """(arm, state, action) whether the entry is real, not padding."""
        S, A = self.rewards.shape[1:]
        real_states = np.arange(S) < self.num_states[:, None]
        real_actions = np.arange(A) < self.num_actions[:, None]
        return np.asarray(frozen(real_states[:, :, None] & real_actions[:, None, :]))

    @cached_property
    def valid(self) -> Bools:
        """(arm, state, action) whether the action may be chosen: it is real, and usable."""
        return self.real if self.usable is None else np.asarray(frozen(self.real & self.usable))

    @cached_property
    def idle(self) -> Indices:
        """(arm, state) the first action that uses nothing."""
        free = (self.usage == 0).all(axis=-1) & self.real
        return np.asarray(frozen(free.argmax(axis=-1).astype(np.int32)))

    @cached_property
    def served(self) -> Bools:
        """(arm, state, action) whether an action uses anything, that is, serves the arm."""
        return np.asarray(frozen((self.usage > 0).any(axis=-1) & self.real))

    def unrolled(self, num_steps: int) -> "ArmTables":
        """The same arms in time: state s at step t is number t S + s, S the arm's own number of states.

        After the last step nothing comes: its rows are 0. Labels are left out.

        Args:
            num_steps: number of steps.
        """
        number, S, A, K = (*self.transitions.shape[:3], self.usage.shape[3])
        # Room for the arm with the most states; one with fewer fills the beginning of its rows.
        wide = num_steps * S
        size = 8.0 * number * wide * A * (wide + K + 1)
        check_memory(size, f"{number} arms unrolled over {num_steps} steps", "Use fewer steps, or a discount.")
        moves, rewards = np.zeros((number, wide, A, wide)), np.zeros((number, wide, A))
        usage, start = np.zeros((number, wide, A, K)), np.zeros((number, wide))
        # Arms of one size are filled together; there are few sizes and may be many arms.
        for own in np.unique(self.num_states):
            rows = np.flatnonzero(self.num_states == own)
            start[rows, :own] = self.initial[rows, :own]
            for step in range(num_steps):
                now = slice(step * own, (step + 1) * own)
                rewards[rows, now], usage[rows, now] = self.rewards[rows, :own], self.usage[rows, :own]
                # The last step leads nowhere.
                if step + 1 < num_steps:
                    moves[rows, now, :, now.stop : now.stop + own] = self.transitions[rows, :own, :, :own]
        num_states = (self.num_states * num_steps).astype(np.int32)
        return ArmTables(moves, rewards, usage, start, num_states, self.num_actions)

    @cached_property
    def cumulative(self) -> Floats:
        """(arm, state, action, next_state) running sums that reach 1 at the last next state of positive probability.

        Rounding cannot make an impossible state come up: a draw u < 1 is never at or beyond the 1.
        """
        return np.asarray(frozen(running_sums(self.transitions)))

    @cached_property
    def cumulative_initial(self) -> Floats:
        """(arm, state) running sums of the initial distributions, closed like `cumulative`."""
        return np.asarray(frozen(running_sums(self.initial)))

    def find_faults(self) -> Faults:
        """All faults of arms that came as arrays, with places in the words of a model file."""
        faults = Faults()
        # Checks on the whole arrays find the suspects; words are made for a few of them only.
        suspects = self._suspects()
        for index in suspects[:SHOWN_ARMS]:
            part = Faults()
            s, a = self.num_states[index], self.num_actions[index]
            arrays: dict[str, object] = {
                "transitions": self.transitions[index, :s, :a, :s],
                "rewards": self.rewards[index, :s, :a],
                "usage": self.usage[index, :s, :a],
                "initial": self.initial[index, :s],
            }
            _read_arrays(arrays, part)
            faults.found.extend(fault.within(f"arms[{index}]") for fault in part.found)
        if len(suspects) > SHOWN_ARMS:
            # One more fault stands for all that are not shown, so that their number is right.
            more = len(suspects) - SHOWN_ARMS
            faults.found.append(Fault("arms", f"... and {more} more arms have faults", stands_for=more))
        return faults

    @property
    def names(self) -> list[Names]:
        """Names of each arm and its parts."""
        labels = self.labels or (("", (), ()),) * len(self)
        return [Names(*label, by_state=True) for label in labels]

    def nearly(self) -> list[Fault]:
        """The rows of sound arms whose sum is not 1 for more than rounding, in the words of a model file."""
        off = np.abs(self.transitions.sum(axis=-1) - self.real) > SUM_TOLERANCE
        bad = off.any(axis=(1, 2)) | (np.abs(self.initial.sum(axis=-1) - 1) > SUM_TOLERANCE)
        rows = []
        for index in np.flatnonzero(bad).tolist():
            s, a = self.num_states[index], self.num_actions[index]
            found = nearly(self.transitions[index, :s, :a, :s], "transitions")
            rows += [row.within(f"arms[{index}]") for row in found + nearly(self.initial[index, :s], "initial")]
        return with_words(rows, self.names) if rows else []

    def _suspects(self) -> list[int]:
        """Arms that fail some check on the whole arrays; only these are checked one by one."""
        real_states = np.arange(self.rewards.shape[1]) < self.num_states[:, None]
        # In `sound` not-a-number compares as false, and so makes an arm a suspect; overflow makes a sum that is off.
        with np.errstate(invalid="ignore", over="ignore"):
            rows_off = np.abs(self.transitions.sum(axis=-1) - self.real) > NEARLY_ONE
            starts_off = np.abs(self.initial.sum(axis=-1) - 1) > NEARLY_ONE
            # States that are padding need no idle action.
            idle = ((self.usage == 0).all(axis=-1) & self.real).any(axis=-1) | ~real_states
            sound = (
                (np.isfinite(self.transitions) & (self.transitions >= 0)).all(axis=(1, 2, 3))
                & (np.isfinite(self.initial) & (self.initial >= 0)).all(axis=1)
                & (np.abs(self.rewards) <= 1e12).all(axis=(1, 2))
                & ((self.usage >= 0) & (self.usage <= 1e12)).all(axis=(1, 2, 3))
                & ~rows_off.any(axis=(1, 2))
                & ~starts_off
                & idle.all(axis=1)
            )
        return [int(i) for i in np.flatnonzero(~sound)]

    @cached_property
    def digests(self) -> list[bytes]:
        """A short fingerprint of each arm's numbers, without labels: equal arms have equal fingerprints."""
        rows = [
            np.ascontiguousarray(part).reshape(len(self), -1).view(np.uint8)
            for part in (
                # Sizes first: padding alone does not tell two states with zeros from one.
                np.stack([self.num_states, self.num_actions], axis=1),
                self.transitions + 0.0,  # -0.0 becomes 0.0
                self.rewards + 0.0,
                self.usage + 0.0,
                self.initial + 0.0,
            )
        ]
        # All parts side by side as bytes, one row an arm, so that each arm is hashed by a single call.
        ends = np.cumsum([0, *(row.shape[1] for row in rows)])
        whole = np.empty((len(self), ends[-1]), dtype=np.uint8)
        for (start, stop), row in zip(pairwise(ends), rows, strict=True):
            whole[:, start:stop] = row
        return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in whole]


def running_sums(probabilities: Floats) -> Floats:
    """(..., state) running sums of distributions, closed: they reach 1 at the last state of positive probability.

    Args:
        probabilities: (..., state) distributions.
    """
    # What is left after each state, summed from the end: exactly 0 after the last possible state, which a difference
    # from 1 would miss by rounding.
    later = np.flip(np.cumsum(np.flip(probabilities, axis=-1), axis=-1), axis=-1) - probabilities
    return np.where(later > 0, np.minimum(np.cumsum(probabilities, axis=-1), 1.0), 1.0)
