"""One arm, and many arms as one set of padded arrays.

An arm is a small Markov decision process with `transitions[state, action, next_state]`, `rewards[state, action]`,
`usage[state, action, resource]` and `initial[state]`. In every state it has an idle action that uses nothing.
Everything that computes works on ArmTables, so that a step of a million different arms is one array operation.
"""

import hashlib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from math import floor, gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import (
    NEARLY_ONE,
    SHOWN_PER_ARRAY,
    SUM_TOLERANCE,
    Check,
    Faults,
    check_amounts,
    check_distributions,
    check_finite,
    check_memory,
    nearly,
    read_names,
    read_numbers,
    report_normalised,
    whole_fault,
)
from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, ModelError, nearest
from evenhand.model.labels import AXES, Names, called, depth_of, with_words, with_words_of_arm
from evenhand.typing import Array, Bools, Floats, Indices, Nested

ROOM = 1 + 1e-9
"""A budget times this has room for rounding: three uses of 0.1 fit a budget of 0.3."""


MOST_USES, FINEST_STEP = 1000, 10**6
"""Number of distinct uses of a resource, and largest denominator, up to which a common divisor is computed."""


def frozen(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def set_fields(instance: object, values: Mapping[str, Any]) -> None:
    """Set fields of a frozen dataclass; arrays become read-only."""
    for name, value in values.items():
        object.__setattr__(instance, name, frozen(value) if isinstance(value, np.ndarray) else value)


def usable_amount(budget: float, uses: Floats) -> float:
    """Largest amount of a resource that actions can use up: a multiple of the greatest common divisor of all uses.

    Args:
        budget: amount available per step.
        uses: (use,) distinct amounts used by actions within the budget.

    Returns:
        The budget itself if uses have no common divisor, or one so small that it makes no difference.
    """
    if len(uses) > MOST_USES:
        return budget
    steps = [Fraction(use).limit_denominator(FINEST_STEP) for use in uses.tolist() if use > 0]
    if not np.allclose([float(step) for step in steps], uses[uses > 0], rtol=1e-12, atol=0):
        return budget
    if not steps:
        return 0.0
    unit = lcm(*(step.denominator for step in steps))
    if unit > FINEST_STEP**2:
        return budget
    step = gcd(*(int(step * unit) for step in steps)) / unit
    # Twice the tolerance of `budget_limit`: what fits there must fit here, whatever the division rounds.
    return min(budget, floor(budget / step * ROOM**2) * step)


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

    if TYPE_CHECKING:  # the fields as they may be given

        def __init__(
            self,
            transitions: Nested,
            rewards: Nested,
            usage: Nested,
            initial: Nested | None = None,
            name: str = "",
            states: Sequence[str] = (),
            actions: Sequence[str] = (),
        ) -> None: ...

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
            raise ModelError(with_words_of_arm(faults.found, Names.of(self)))
        if rows := [row for key in ("transitions", "initial") for row in nearly(arrays[key], key)]:
            report_normalised(with_words_of_arm(rows, Names.of(self)), stacklevel=3)
        set_fields(self, arrays | {key: normalised(arrays[key]) for key in ("transitions", "initial")} | labels)

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
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

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


_CHECKS: dict[str, Check] = {
    "transitions": partial(check_distributions, tolerance=NEARLY_ONE),
    "rewards": check_finite,
    "usage": check_amounts,
    "initial": partial(check_distributions, tolerance=NEARLY_ONE),
}


# -- reading its arrays ----------------------------------------------------------------------------------------------


def _read_arrays(given: dict[str, object], faults: Faults) -> tuple[dict[str, Floats], dict[str, int]]:
    """The four arrays, with numbers that make sense and shapes that agree, or faults; and the sizes that are known.

    Where the transitions could not be read, that is the fault to mend first: the sizes of the others say nothing of the
    labels then.
    """
    by_action = depth_of(given["usage"]) < 3
    axes = AXES | ({"usage": AXES["usage"][1:]} if by_action else {})
    read = {
        key: read_numbers(value, axes[key], key, faults, _CHECKS[key])
        for key, value in given.items()
        if not (key == "initial" and value is None)
    }
    arrays = {key: array for key, array in read.items() if array is not None}
    moves = arrays.get("transitions")
    if moves is not None and moves.shape[0] != moves.shape[2]:
        del arrays["transitions"]  # the other arrays are not compared with it
        by_action_first = moves.shape[1] == moves.shape[2]
        hint = "; axes are (state, action, next state), so transpose the first two" if by_action_first else ""
        faults.add("transitions", f"has {moves.shape[2]} next states where there are {moves.shape[0]} states{hint}")
    # Sizes are compared with the transitions if these are valid, else with the rewards, so that one mistake is one
    # fault.
    source = next((key for key in ("transitions", "rewards") if key in arrays), None)
    sizes: dict[str, int] = {}
    if source is not None:
        sizes = dict(zip(axes[source], arrays[source].shape, strict=True))
        sizes["next state"] = sizes["state"]
        for key, array in arrays.items():
            for axis, size in zip(axes[key], array.shape, strict=True):
                if size != sizes.get(axis, size):
                    faults.add(key, f"has {size} {axis}s where {source} has {sizes[axis]}")
    if "usage" in arrays:
        check_idle(arrays["usage"], faults)
    # Sizes of the rewards alone may be the mistake itself, and are not compared with labels.
    if faults or source is None:
        return {}, sizes if source == "transitions" else {}
    if by_action:
        arrays["usage"] = np.repeat(arrays["usage"][None], sizes["state"], axis=0)
    arrays.setdefault("initial", np.full(sizes["state"], 1 / sizes["state"]))
    return arrays, sizes


def check_idle(usage: Floats, faults: Faults) -> None:
    """In every state some action uses nothing. `usage` may lack its state axis."""
    # Some action must use none of the resources, state by state; without a state axis there is one answer.
    busy = np.atleast_1d(~(usage == 0).all(axis=-1).any(axis=-1))
    if busy.all():
        faults.add("usage", "no action is idle: one action must use nothing of any resource")
        return
    for state in np.flatnonzero(busy):
        faults.add(f"usage[{state}]", "no action is idle in this state: one must use nothing of any resource")


_ARRAYS = ("transitions", "rewards", "usage", "initial", "num_states", "num_actions")
_UNNAMED: tuple[str, tuple[str, ...], tuple[str, ...]] = ("", (), ())


def common_resources(arms: Iterable[Arm | None], faults: Faults) -> int | None:
    """Number of resources of the first arm that is not None; adds a fault per arm with another number."""
    valid = [(index, arm) for index, arm in enumerate(arms) if arm is not None]
    numbers = [arm.usage.shape[2] for _, arm in valid]
    for (index, _), number in zip(valid, numbers, strict=True):
        if number != numbers[0]:
            first = called(valid[0][1].name, valid[0][0])
            faults.add(f"arms[{index}].usage", f"has {number} resources where {first} has {numbers[0]}")
    return numbers[0] if numbers else None


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

    num_states: Indices = None  # type: ignore[assignment]  # filled in below
    """(arm,) number of real states; by default all."""

    num_actions: Indices = None  # type: ignore[assignment]  # filled in below
    """(arm,) number of real actions; by default all."""

    labels: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    """(name, states, actions) of each arm, or empty if no arm has any."""

    usable: Bools | None = None
    """(arm, state, action) actions within the shared budget (`within`); None for all."""

    @classmethod
    def stack(cls, arms: "Sequence[Arm | ArmTables]") -> "ArmTables":
        """Pad arms, or tables of arms, of any sizes to common ones, and put them one after another."""
        if len(arms) == 1 and isinstance(arms[0], ArmTables):
            return arms[0]
        if len({part.usage.shape[-1] for part in arms}) != 1:
            raise InvalidInputError("arms disagree in their number of resources")
        sizes = [1 if isinstance(part, Arm) else len(part) for part in arms]
        S, A = (max(part.rewards.shape[axis] for part in arms) for axis in (-2, -1))
        number, K = sum(sizes), arms[0].usage.shape[-1]
        # Eight bytes a number, and for each state-action pair S transitions, K usages and one reward.
        check_memory(8.0 * number * S * A * (S + K + 1), f"{number} arms of up to {S} states", "Use fewer arms.")
        shapes = {"transitions": (S, A, S), "rewards": (S, A), "usage": (S, A, K), "initial": (S,)}
        arrays = {name: np.zeros((number, *shape)) for name, shape in shapes.items()}
        labels: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        for part, first, size in zip(arms, np.cumsum([0, *sizes]), sizes, strict=False):
            for name, array in arrays.items():
                own = getattr(part, name)
                array[(slice(first, first + size), *map(slice, own.shape[own.ndim - array.ndim + 1 :]))] = own
            labels += (
                [(part.name, tuple(part.states), tuple(part.actions))] if isinstance(part, Arm) else part.all_labels
            )
        return cls(
            **arrays,
            num_states=np.concatenate([np.atleast_1d(part.num_states) for part in arms]).astype(np.int32),
            num_actions=np.concatenate([np.atleast_1d(part.num_actions) for part in arms]).astype(np.int32),
            labels=tuple(labels) if any(label != _UNNAMED for label in labels) else (),
        )

    def __post_init__(self) -> None:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name, size in zip(("num_states", "num_actions"), self.rewards.shape[1:], strict=True):
            if arrays[name] is None:
                arrays[name] = np.full(len(self), size, dtype=np.int32)
        # Contiguous, as kernels and fingerprints read them; read-only, as problems share them.
        set_fields(self, {name: np.ascontiguousarray(array) for name, array in arrays.items()})

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
        name, states, actions = self.all_labels[index]
        return Arm(**self.arrays_of(index), name=name, states=states, actions=actions)

    def arrays_of(self, index: int) -> dict[str, Any]:
        """Transitions, rewards, usage and initial distribution of one arm, without padding."""
        s, a = self.num_states[index], self.num_actions[index]
        return {
            "transitions": self.transitions[index, :s, :a, :s],
            "rewards": self.rewards[index, :s, :a],
            "usage": self.usage[index, :s, :a],
            "initial": self.initial[index, :s],
        }

    def select(self, rows: Array) -> "ArmTables":
        """Some of the arms, by their positions; labels come along."""
        changed = {name: getattr(self, name)[rows] for name in _ARRAYS}
        labels = tuple(self.labels[i] for i in rows) if self.labels else ()
        return ArmTables(**changed, labels=labels, usable=None if self.usable is None else self.usable[rows])

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

    @property
    def usage_by_state(self) -> Bools:
        """(arm,) whether usage depends on the state, to the last bit: -0.0 differs from 0.0."""
        bits = self.usage.view(np.int64)
        return np.asarray(((bits != bits[:, :1]) & self.real[..., None]).any(axis=(1, 2, 3)))

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
        for index in suspects[:SHOWN_PER_ARRAY]:
            part = Faults()
            _read_arrays(self.arrays_of(index), part)
            faults.found.extend(fault.within(f"arms[{index}]") for fault in part.found)
        if len(suspects) > SHOWN_PER_ARRAY:
            # One more fault stands for all that are not shown, so that their number is right.
            more = len(suspects) - SHOWN_PER_ARRAY
            faults.found.append(Fault("arms", f"... and {more} more arms have faults", stands_for=more))
        return faults

    @property
    def all_labels(self) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
        """(name, states, actions) of each arm, empty texts if no arm has any."""
        return self.labels or (_UNNAMED,) * len(self)

    @property
    def names(self) -> list[Names]:
        """Names of each arm and its parts."""
        return [Names(*label, by_state=True) for label in self.all_labels]

    def nearly(self) -> list[Fault]:
        """The rows of sound arms whose sum is not 1 for more than rounding, in the words of a model file."""
        off = np.abs(self.transitions.sum(axis=-1) - self.real) > SUM_TOLERANCE
        bad = off.any(axis=(1, 2)) | (np.abs(self.initial.sum(axis=-1) - 1) > SUM_TOLERANCE)
        rows = []
        for index in np.flatnonzero(bad).tolist():
            own = self.arrays_of(index)
            found = [row for key in ("transitions", "initial") for row in nearly(own[key], key)]
            rows += [row.within(f"arms[{index}]") for row in found]
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
        # Sizes first: padding alone does not distinguish two states with zeros from one. -0.0 becomes 0.0.
        parts: list[Array] = [np.stack([self.num_states, self.num_actions], axis=1)]
        parts += [array + 0.0 for array in (self.transitions, self.rewards, self.usage, self.initial)]
        # All parts side by side as bytes, one row per arm, so that each arm is hashed by a single call.
        whole = np.concatenate([part.reshape(len(self), -1).view(np.uint8) for part in parts], axis=1)
        return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in whole]

    @cached_property
    def dynamics(self) -> list[bytes]:
        """All numbers of each arm but its initial distribution, without padding: equal if arms move alike."""
        parts = (self.arrays_of(index) for index in range(len(self)))
        keys = ("transitions", "rewards", "usage")
        # The shape distinguishes arms with equal numbers; -0.0 becomes 0.0.
        return [
            b"|".join([str(own["usage"].shape).encode(), *((own[k] + 0.0).tobytes() for k in keys)]) for own in parts
        ]


def read_waits(given: Any, tables: ArmTables, faults: Faults, unset: int = -1, most: int = 10_000) -> Indices:
    """(arm, state) steps without service after which an arm in the state is served.

    Args:
        given: {state: steps}, None for no promise, for all arms that have the state; one such mapping per arm; the
            array itself; or None.
        tables: the arms.
        faults: list to which faults are added.
        unset: entry of states without a promise.
        most: the largest number of steps.
    """
    shape = tables.rewards.shape[:2]
    waits = np.full(shape, unset, dtype=np.int32)
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or len(given) != len(tables) or given.dtype.kind not in "iu":
            faults.add("max_wait", f"expected whole numbers of shape (arm={len(tables)}, state)")
        elif given.min() < -1 or given.max() > most:
            faults.add("max_wait", f"expected whole numbers from -1 to {most}")
        else:
            width = min(given.shape[1], shape[1])  # padding may have been cut
            waits[:, :width] = given[:, :width]
            waits[np.arange(shape[1]) >= tables.num_states[:, None]] = -1
        return waits
    shared = not isinstance(given, (list, tuple))
    rows = [{} if given is None else given] * len(tables) if shared else list(given)
    places = ["max_wait"] * len(tables) if shared else [f"arms[{index}].max_wait" for index in range(len(tables))]
    if len(rows) != len(tables):
        faults.add("max_wait", f"has {len(rows)} entries for {len(tables)} arms")
    wrong = [place for place, row in zip(places, rows, strict=False) if not isinstance(row, Mapping)]
    for place in dict.fromkeys(wrong):
        faults.add(place, "expected steps by state, such as {stopped = 4}")
    if wrong or len(rows) != len(tables):
        return waits
    names = [
        label[1] or tuple(map(str, range(size)))
        for label, size in zip(tables.all_labels, tables.num_states.tolist(), strict=True)
    ]
    known = [set().union(*names)] * len(tables) if shared else [set(own) for own in names]
    listed = zip(places, rows, known, strict=True)
    found = {(place, state): (steps, own) for place, row, own in listed for state, steps in row.items()}
    for (place, state), (steps, own) in found.items():
        if state not in own:
            near = nearest(str(state), own)
            faults.add(f"{place}.{state}", f"no arm has this state{f'; did you mean {near}?' if near else ''}")
        elif steps is not None and (message := whole_fault(steps, 0, most)):
            faults.add(f"{place}.{state}", message)
    for index, (row, own_names) in enumerate(zip(rows, names, strict=True)) if not faults else ():
        for state in set(row) & set(own_names):
            waits[index, own_names.index(state)] = -1 if row[state] is None else row[state]
    return waits


def running_sums(probabilities: Floats) -> Floats:
    """(..., state) running sums of distributions, closed: they reach 1 at the last state of positive probability.

    Args:
        probabilities: (..., state) distributions.
    """
    # What is left after each state, summed from the end: exactly 0 after the last possible state, which a difference
    # from 1 would miss by rounding.
    later = np.flip(np.cumsum(np.flip(probabilities, axis=-1), axis=-1), axis=-1) - probabilities
    return np.where(later > 0, np.minimum(np.cumsum(probabilities, axis=-1), 1.0), 1.0)
