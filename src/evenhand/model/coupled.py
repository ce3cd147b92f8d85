"""The weakly coupled Markov decision process: arms that share a budget of resources at every step."""

import copy
import hashlib
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import floor, gcd, lcm
from typing import Any, Literal

import numpy as np

from evenhand.checks import (
    LARGEST,
    Faults,
    check_amounts,
    check_memory,
    check_over,
    check_shape,
    comma_hint,
    plain,
    read_numbers,
    tell_normalised,
)
from evenhand.display import Shown, counted
from evenhand.errors import InvalidInput, nearest
from evenhand.model.arm import ROOM, Arm, ArmTables, frozen
from evenhand.model.criterion import Criterion, as_criterion
from evenhand.model.places import Names, called, with_words
from evenhand.model.welfare import parse_welfare
from evenhand.typing import Bools, Floats, Indices, Ints

MOST_ARMS = 10**9
"""The largest number of arms of a problem; simulation by counts is meant for up to this many."""

MOST_USES, FINEST_STEP = 1000, 10**6
"""Different uses of a resource, and parts of a unit, up to which a common step of the uses is looked for."""

_AXES = ("block", "state", "action", "next_state")

Over = Literal["arms", "groups"]
"""Whose values welfare weighs: every arm's, or the mean of each group, each group counted once."""


@dataclass(frozen=True, eq=False)
class CoupledMDP(Shown):
    """Arms, how many there are of each, and what they share at every step.

    At every step the chosen actions may use at most `budget` of each resource, summed over all arms.
    Blocks of identical arms are one *type*, however they were written down; under `over = "groups"` a type does not
    reach beyond its group.

    Example:
        >>> import evenhand as eh
        >>> pump = eh.Arm([[[0.7, 0.3], [1, 0]], [[0, 1], [1, 0]]], rewards=[[1, 0.5], [0, -0.5]], usage=[[0], [1]])
        >>> eh.CoupledMDP([pump], budget=[2], discount=0.9, counts=[10])
        CoupledMDP(10 arms, identical, 1 resource, discount 0.9)
    """

    arms: Sequence[Arm]
    """One entry a block of identical arms; kept as ArmTables."""

    budget: Floats
    """(resource,) what is available of each resource at every step."""

    discount: float
    """In [0, 1]: what a reward one step later is worth; 1 only where the criterion is not `discounted`."""

    counts: Ints = None  # type: ignore[assignment]  # filled in below
    """(block,) how many arms each block stands for; 1 when absent."""

    resources: Sequence[str] = ()
    """The name of each resource, or none."""

    groups: Sequence[str] = ()
    """(block,) the group of each block, "" for a group of its own; empty when no block has one."""

    floors: Floats = None  # type: ignore[assignment]  # filled in below
    """(block,) the least share of time in which each arm is served, in expectation; 0 when absent."""

    criterion: Criterion = "discounted"  # type: ignore[assignment]  # text is read below
    """What rewards over time are worth; may be given as text."""

    over: Over = "arms"
    """Whose values welfare weighs."""

    welfare: str | None = None
    """How values are weighed unless something else is asked for, as text; `gini:half=0.75` when absent."""

    arm_names: Sequence[str] = ()
    """(arm,) what each arm is called, in the order of the blocks, or none; `starting_at` fills it in."""

    def __post_init__(self) -> None:
        faults = Faults()
        # Arms first: how many resources and blocks there are is what the others are checked against. Where the arms
        # could not be read, each is checked by itself.
        tables = self._read_arms(faults)
        num_resources = tables.usage.shape[-1] if tables is not None else None
        num_blocks = None if tables is None else len(tables)
        discount, criterion = read_criterion(self.discount, self.criterion, faults)
        counts = read_counts(self.counts, num_blocks, faults)
        read = {
            "arms": tables,
            "counts": counts,
            "budget": read_budget(self.budget, num_resources, faults),
            "discount": discount,
            "criterion": criterion,
            "resources": read_names(self.resources, num_resources, "resources", faults),
            "groups": read_groups(self.groups, num_blocks, faults),
            "floors": read_floors(self.floors, num_blocks, faults),
        }
        read_over(self.over, faults)
        read_welfare_text(self.welfare, _members_of(read, self.over), faults)
        read["arm_names"] = _read_arm_names(self.arm_names, int(counts.sum()), faults)
        # Places become names only for a message.
        if faults:
            faults.found = with_words(faults.found, self._names(), self.resources)
        faults.raise_if_any()
        # Arms told it themselves when they were made; tables come here as they are.
        if isinstance(self.arms, ArmTables):
            tell_normalised(self.arms.nearly(), stacklevel=3)
        for name, value in read.items():
            object.__setattr__(self, name, frozen(value) if isinstance(value, np.ndarray) else value)

    # -- the same problem, changed -----------------------------------------------------------------------------------

    def under(self, criterion: str | Criterion | None = None, over: str | None = None) -> "CoupledMDP":
        """The same arms and budget under another criterion, or with welfare over something else.

        Args:
            criterion: `discounted`, `average`, `finite:T`, or an object, whose own discount then counts; as it is when
                absent.
            over: `arms` or `groups`; as it is when absent.
        """
        check_over(over)
        # A criterion as text takes the problem's discount; one that is an object brings its own.
        chosen = self.criterion if criterion is None else as_criterion(criterion, self.discount)
        if chosen == self.criterion and over in (None, self.over):
            return self
        same = copy.copy(self)
        if over not in (None, self.over):  # types are cut at groups: nothing that is known of them carries over
            for known in ("type_of_block", "types", "type_counts", "type_of_arm", "group_of_type", "type_floors"):
                same.__dict__.pop(known, None)
            object.__setattr__(same, "over", over)
        object.__setattr__(same, "criterion", chosen)
        if (own := getattr(chosen, "discount", self.discount)) != self.discount:
            same.__dict__.pop("signature", None)
            object.__setattr__(same, "discount", own)
        return same

    def starting_at(self, states: Any) -> "CoupledMDP":
        """The same problem from where the arms are now, each arm in one state for certain.

        Arms of a block that are in different states become blocks of their own, which differ in nothing but `initial`.
        The arms, and so how many there are of each block, are those of the table.

        Args:
            states: a table with the columns arm, type and state: the name of a file, a data frame, a list of rows, a
                table of columns; or (arm,) numbers of states, in the order of the arms.

        Raises:
            TableError: with every fault and its row.
        """
        from evenhand.model.whereabouts import starting_at  # it is about problems, too

        return starting_at(self, states)

    def with_budget(self, budget: float | Sequence[float] | Floats | Mapping[str, float]) -> "CoupledMDP":
        """The same arms with another budget: what if there was more, or less?

        Args:
            budget: one number a resource; a number alone where there is one resource; or amounts under names of
                resources, which leave the others as they are.

        Raises:
            ModelError: with every fault, in the names of the resources.
        """
        faults = Faults()
        amounts = read_amounts(budget, self.resource_names, self.budget, faults)
        faults.raise_if_any("budget", argument="budget")
        if np.array_equal(amounts, self.budget):
            return self
        same = copy.copy(self)
        # What depends on the budget is forgotten; all else that is cached is shared.
        for known in ("budget_limit", "usable_budget", "types", "signature"):
            same.__dict__.pop(known, None)
        object.__setattr__(same, "budget", frozen(amounts))
        return same

    def with_transitions(self, transitions: Floats) -> "CoupledMDP":
        """The same arms in another world: all as it is, but for how they move.

        Arms that were of one type stay so unless they now move differently, and others are not merged: what was made
        for this problem can be played there.

        Args:
            transitions: (block, state, action, next_state) probabilities, padded like `tables.transitions`.

        Raises:
            ModelError: a row is no distribution.
        """
        check_shape(transitions, dict(zip(_AXES, self.tables.transitions.shape, strict=True)), "transitions")
        moved = replace(self.tables, transitions=np.array(transitions, dtype=np.float64))
        moved.find_faults().raise_if_any("transitions")
        # The old type together with the new numbers: equal tables of different old types stay apart.
        kinds = list(zip(self.type_of_block.tolist(), moved.digests, strict=True))
        first: dict[object, int] = {}
        types = np.array([first.setdefault(kind, len(first)) for kind in kinds], dtype=np.int32)
        same = copy.copy(self)
        for known in ("types", "signature", "type_of_arm", "type_counts", "group_of_type", "type_floors"):
            same.__dict__.pop(known, None)
        object.__setattr__(same, "arms", moved)
        same.__dict__["type_of_block"] = frozen(types)
        return same

    def _read_arms(self, faults: Faults) -> ArmTables | None:
        if isinstance(self.arms, ArmTables):
            found = self.arms.find_faults().found
            faults.found.extend(found)
            return self.arms if found else self.arms.tidied()
        if isinstance(self.arms, Arm):
            faults.add("arms", "expected a list of arms, got one; write [arm], and counts=[n] for n arms like it")
            return None
        if isinstance(self.arms, (str, Mapping)) or not isinstance(self.arms, Iterable):
            faults.add("arms", f"expected a list of arms, got {type(self.arms).__name__}")
            return None
        # Any iterable is taken; it is walked once and kept.
        object.__setattr__(self, "arms", tuple(self.arms))
        if strange := [(index, arm) for index, arm in enumerate(self.arms) if not isinstance(arm, Arm)]:
            for index, arm in strange:
                faults.add(f"arms[{index}]", f"expected an Arm, got {type(arm).__name__}")
            return None
        if not self.arms:
            faults.add("arms", "there is none; a problem needs at least one")
            return None
        resources = [arm.usage.shape[2] for arm in self.arms]
        for index, number in enumerate(resources):
            if number != resources[0]:
                first = called(self.arms[0].name, 0)
                faults.add(f"arms[{index}].usage", f"has {number} resources where {first} has {resources[0]}")
        return None if faults else ArmTables.stack(self.arms)

    def _names(self) -> list[Names]:
        """What the arms are called, in the words that faults use."""
        if isinstance(self.arms, ArmTables):
            return self.arms.names
        if not isinstance(self.arms, tuple) or not all(isinstance(arm, Arm) for arm in self.arms):
            return []
        return [Names(arm.name, arm.states, arm.actions, by_state=True) for arm in self.arms]

    # -- what there is: sizes, types, groups -------------------------------------------------------------------------

    @property
    def tables(self) -> ArmTables:
        """The blocks as padded arrays."""
        assert isinstance(self.arms, ArmTables)
        return self.arms

    @cached_property
    def num_arms(self) -> int:
        """How many arms there are in all."""
        return int(self.counts.sum())

    @property
    def num_resources(self) -> int:
        """How many resources the arms share."""
        return len(self.budget)

    @cached_property
    def budget_limit(self) -> Floats:
        """(resource,) the budget with room for rounding."""
        return np.asarray(frozen(self.budget * ROOM))

    @cached_property
    def usable_budget(self) -> Floats:
        """(resource,) the most of the budget that actions can use up: of 1.1 no more than 1 if each takes a whole unit.

        Bounds and prices are those of this budget; shares of the budget are of `budget` itself.
        """
        use = self.types.usage[self.types.valid]
        amounts = [usable_amount(b, np.unique(use[:, k])) for k, b in enumerate(self.budget.tolist())]
        return np.asarray(frozen(np.array(amounts)))

    @cached_property
    def type_of_block(self) -> Indices:
        """(block,) the type of each block, in order of first appearance."""
        first: dict[object, int] = {}
        # Arms are of one type by their numbers. A floor tells them apart, and over groups so does the group.
        kinds: Sequence[object] = self.tables.digests
        if self.floors.any():
            kinds = list(zip(kinds, self.floors.tolist(), strict=True))
        if self.over == "groups":
            kinds = list(zip(kinds, self.group_of_block.tolist(), strict=True))
        types = [first.setdefault(kind, len(first)) for kind in kinds]
        return np.asarray(frozen(np.array(types, dtype=np.int32)))

    @cached_property
    def _groups_read(self) -> tuple[tuple[str, ...], Indices]:
        """The names of all groups in order of first appearance, and the (block,) group of each block."""
        # A block without a group is one by itself: called by its own name where that is unique and no group has it.
        given = self.groups or ("",) * len(self.tables)
        named = [label[0] for label in self.tables.labels] or [""] * len(self.tables)
        times = Counter(name for name, group in zip(named, given, strict=True) if not group)
        first: dict[str, int] = {}
        taken = {group for group in given if group}
        for index, group in enumerate(given):
            own = named[index] if named[index] and times[named[index]] == 1 else f"arms[{index}]"
            own = own if own not in taken else f"{own} (arms[{index}])"
            first.setdefault(group or own, index)
        names = tuple(first)
        number = {name: i for i, name in enumerate(names)}
        starts = {index: number[name] for name, index in first.items()}
        places = [number[group] if group else starts[index] for index, group in enumerate(given)]
        return names, np.asarray(frozen(np.array(places, dtype=np.int32)))

    @property
    def group_names(self) -> tuple[str, ...]:
        """The name of each group, in order of first appearance; a block without one is a group by its own name."""
        return self._groups_read[0]

    @property
    def group_of_block(self) -> Indices:
        """(block,) the group of each block."""
        return self._groups_read[1]

    @cached_property
    def group_of_type(self) -> Indices:
        """(type,) the group of each type; only where welfare is over groups does a type have one."""
        if self.over != "groups":
            raise InvalidInput("group_of_type: types are cut at groups only under over = 'groups'")
        # The first block of each type stands for it; all its blocks have the same group, or floor.
        _, first = np.unique(self.type_of_block, return_index=True)
        return np.asarray(frozen(self.group_of_block[first]))

    @cached_property
    def type_floors(self) -> Floats:
        """(type,) the least share of time in which each arm of the type is served."""
        _, first = np.unique(self.type_of_block, return_index=True)
        return np.asarray(frozen(self.floors[first]))

    @property
    def has_floors(self) -> bool:
        """Whether some arm must be served now and then."""
        return bool(self.floors.any())

    @property
    def resource_names(self) -> tuple[str, ...]:
        """The name of each resource; `resource 0` and so on where none was given."""
        return tuple(self.resources) or tuple(f"resource {k}" for k in range(self.num_resources))

    @property
    def named_budget(self) -> dict[str, float]:
        """What is available of each resource at every step, under its name."""
        return dict(zip(self.resource_names, self.budget.tolist(), strict=True))

    @cached_property
    def types(self) -> ArmTables:
        """The distinct arms, of whose actions those are valid that the budget allows."""
        _, first = np.unique(self.type_of_block, return_index=True)
        types = self.tables if len(first) == len(self.tables) else self.tables.select(first)
        return types.within(self.budget)

    @property
    def num_types(self) -> int:
        """How many distinct arms there are."""
        return len(self.types)

    @cached_property
    def type_counts(self) -> Ints:
        """(type,) how many arms there are of each type."""
        # Weights are floats there, exact up to 2^53: there are at most 10^9 arms.
        sums = np.bincount(self.type_of_block, weights=self.counts, minlength=self.num_types)
        return np.asarray(frozen(sums.astype(np.int64)))

    @cached_property
    def type_of_arm(self) -> Indices:
        """(arm,) the type of each arm, in the order the blocks were written."""
        check_memory(4.0 * self.num_arms, f"a table of {self.num_arms} arms", "Work with counts instead.")
        return np.asarray(frozen(np.repeat(self.type_of_block, self.counts)))

    @property
    def affordable(self) -> Bools:
        """(type, state, action) whether what the action uses is within the budget, were all of it one arm's."""
        return self.types.valid

    @property
    def is_symmetric(self) -> bool:
        """Whether all arms are identical."""
        return self.num_types == 1

    @cached_property
    def signature(self) -> str:
        """A fingerprint of the arms, the budget and the discount, without labels and objective."""
        parts = [b"".join(self.tables.digests), self.counts.tobytes()]
        parts += [self.budget.tobytes(), np.float64(self.discount).tobytes()]
        return hashlib.blake2b(b"|".join(parts), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoupledMDP):
            return NotImplemented
        # The signature has the numbers; these are what it leaves out.
        same = ("signature", "criterion", "over", "groups", "resources", "welfare", "arm_names")
        return (
            all(getattr(self, name) == getattr(other, name) for name in same)
            and np.array_equal(self.floors, other.floors)
            and self.tables.labels == other.tables.labels
        )

    def __hash__(self) -> int:
        return hash(self.signature)

    def __repr__(self) -> str:
        kinds = "identical" if self.is_symmetric else counted(self.num_types, "type")
        worth = f"discount {self.discount}" if self.criterion.name == "discounted" else self.criterion.name
        groups = f", over {len(self.group_names)} groups" if self.over == "groups" else ""
        arms, resources = counted(self.num_arms, "arm"), counted(self.num_resources, "resource")
        return f"CoupledMDP({arms}, {kinds}, {resources}, {worth}{groups})"


# -- reading its parts, each with all its faults ---------------------------------------------------------------------


def read_counts(value: object, num_blocks: int | None, faults: Faults) -> Ints:
    """(block,) arms a block, each a whole number from 1, in all at most MOST_ARMS."""
    if value is None:
        return np.ones(num_blocks or 1, dtype=np.int64)
    entries: list[Any] = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if num_blocks is not None and len(entries) != num_blocks:
        faults.add("counts", f"has {len(entries)} entries for {num_blocks} arms")
    before = len(faults.found)
    for index, entry in enumerate(entries):
        if message := _count_fault(entry):
            faults.add(f"arms[{index}].count", message)
        # A column of wrong counts would fill pages; twenty show what is wrong.
        if len(faults.found) > before + 20:
            faults.add("arms", "... and perhaps more such counts")
            break
    # Stand-ins that keep the later checks going.
    if len(faults.found) > before:
        return np.ones(len(entries), dtype=np.int64)
    total = sum(int(entry) for entry in entries)
    # Where a single count is too large, that has been told.
    if total > MOST_ARMS and all(int(entry) <= MOST_ARMS for entry in entries):
        faults.add("arms", f"{total} arms in all; at most {MOST_ARMS} are supported")
    return np.array([int(entry) for entry in entries], dtype=np.int64)


def _count_fault(entry: object) -> str:
    if isinstance(entry, (bool, np.bool_)) or not isinstance(entry, (int, np.integer)):
        return f"expected a whole number, got {reprlib.repr(entry)}"
    if entry < 1:
        return f"expected at least 1, got {entry}"
    return f"{entry} arms are too many; at most {MOST_ARMS} are supported" if entry > MOST_ARMS else ""


def read_budget(value: object, num_resources: int | None, faults: Faults) -> Floats:
    """(resource,) amounts that are finite and not negative.

    Args:
        value: amounts, or one.
        num_resources: how many there should be, where that is known.
        faults: where faults are noted.
    """
    single = not isinstance(value, (list, tuple, np.ndarray)) or (isinstance(value, np.ndarray) and value.ndim == 0)
    entries = [value] if single else value
    budget = read_numbers(entries, ("resource",), "budget", faults, check_amounts)
    if budget is None:
        return np.zeros(num_resources or 1)
    if num_resources is not None and len(budget) != num_resources:
        hint = comma_hint(len(budget), num_resources)
        entries_told, resources_told = counted(len(budget), "entry", "entries"), counted(num_resources, "resource")
        faults.add("budget", f"has {entries_told} where the arms' usage has {resources_told}{hint}")
    return budget


def usable_amount(budget: float, uses: Floats) -> float:
    """The most of a resource that actions can use up: a multiple of the largest step of which all uses are multiples.

    Args:
        budget: what there is of the resource at a step.
        uses: (use,) the different amounts that actions within the budget use.

    Returns:
        The budget itself if uses have no common step, or one so fine that it makes no difference.
    """
    if len(uses) > MOST_USES:
        return budget
    steps = [Fraction(use).limit_denominator(FINEST_STEP) for use in uses.tolist() if use > 0]
    if not np.allclose([float(step) for step in steps], uses[uses > 0], rtol=1e-12, atol=0):
        return budget
    if not steps:
        return 0.0
    unit = lcm(*(step.denominator for step in steps))
    if unit > FINEST_STEP**2:  # a step this fine makes no difference
        return budget
    step = gcd(*(int(step * unit) for step in steps)) / unit
    # Twice the room of `budget_limit`: what fits there must fit here, whatever the division rounds.
    return min(budget, floor(budget / step * ROOM**2) * step)


def read_amounts(value: object, names: Sequence[str], unsaid: Floats, faults: Faults) -> Floats:
    """(resource,) another budget; faults speak of resources by their names.

    Args:
        value: one number a resource, or amounts under some names.
        names: (resource,) what the resources are called.
        unsaid: (resource,) the budget of those that are not named.
        faults: where faults are noted.
    """
    # Names may be written as people say them; what is not named stays as it is.
    if isinstance(value, Mapping):
        amounts = dict(zip(names, unsaid.tolist(), strict=True))
        for name, amount in value.items():
            if (known := find_resource(str(name), names)) is None:
                near = nearest(str(name), names)
                hint = f"did you mean {near}?" if near else f"there is {', '.join(names)}"
                faults.add(str(name), f"there is no such resource; {hint}")
            else:
                amounts[known] = amount
        value = list(amounts.values())
    # `np.ndim`: an array without axes is a single number.
    single = not isinstance(value, (list, tuple, np.ndarray)) or np.ndim(value) == 0
    entries: list[Any] = [value] if single else list(value)  # type: ignore[call-overload]
    if len(entries) != len(names):
        told = f"expected {counted(len(names), 'number')} ({', '.join(names)}), got {len(entries)}"
        faults.add("", told + comma_hint(len(entries), len(names)))
    amounts_read = np.zeros(len(names))
    for index, (name, entry) in enumerate(zip(names, entries, strict=False)):
        if message := _amount_fault(entry):
            faults.add(name, message)
        else:
            amounts_read[index] = float(entry)
    return amounts_read


def _amount_fault(entry: object) -> str:
    number = isinstance(entry, (int, float, np.number)) and not isinstance(entry, (bool, np.bool_))
    if number and 0 <= entry <= LARGEST:  # type: ignore[operator]  # a number
        return ""
    return f"expected a number from 0 to {plain(LARGEST)}, got {plain(entry) if number else reprlib.repr(entry)}"


def find_resource(name: str, names: Sequence[str]) -> str | None:
    """The resource that a name means, whatever its case and whether it is written `crew hours` or `crew_hours`."""
    plainly = {known.lower().replace("_", " ").replace("-", " "): known for known in names}
    return name if name in names else plainly.get(name.strip().lower().replace("_", " ").replace("-", " "))


def read_discount(value: object, faults: Faults, *, below_one: bool = True) -> float:
    """A number in [0, 1), or in [0, 1]."""
    most = "below 1" if below_one else "1"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        faults.add("discount", f"expected a number from 0 to {most}, got {reprlib.repr(value)}")
        return 0.0
    if not 0 <= value <= 1 or (below_one and value == 1):
        hint = "; a discount of 1 goes with the criteria average and finite:T" if value == 1 else ""
        faults.add("discount", f"expected a number from 0 to {most}, got {plain(value)}{hint}")
        return 0.0
    return float(value)


def read_criterion(discount: object, criterion: object, faults: Faults) -> tuple[float, Criterion | None]:
    """A discount and a criterion that go together."""
    # Other criteria may have a discount of 1.
    below_one = criterion == "discounted" or (isinstance(criterion, Criterion) and criterion.name == "discounted")
    number = read_discount(discount, faults, below_one=below_one)
    try:
        read = as_criterion(criterion, number)  # type: ignore[arg-type]  # told below
        # Not where the discount itself is at fault: then the two differ for that reason.
        if (own := getattr(read, "discount", number)) != number and not faults:
            faults.add("criterion", f"its discount is {plain(own)}, and the problem's is {plain(number)}")
        return number, read
    except InvalidInput as error:
        faults.add("criterion", str(error).removeprefix("criterion: "))
        return number, None


def read_over(value: object, faults: Faults) -> None:
    """`arms` or `groups`."""
    if value not in ("arms", "groups"):
        faults.add("over", f"expected 'arms' or 'groups', got {reprlib.repr(value)}")


def read_welfare_text(value: object, number: int | None, faults: Faults) -> None:
    """A welfare as text, for so many members; where that is not known, weights of one's own are not counted."""
    # Explicit weights must be as many as there are members; without that number they cannot be judged.
    if value is None or (number is None and isinstance(value, str) and "," in value):
        return
    if not isinstance(value, str):
        faults.add("welfare", f"expected text such as 'gini:2', got {reprlib.repr(value)}")
        return
    try:
        parse_welfare(value, number or 1)
    except InvalidInput as error:
        faults.add("welfare", str(error))


def _members_of(read: Mapping[str, Any], over: object) -> int | None:
    """How many members welfare has, where all that it takes to know was read."""
    tables, groups = read["arms"], read["groups"]
    if tables is None or len(read["counts"]) != len(tables) or len(groups) not in (0, len(tables)):
        return None
    if over != "groups":
        return int(read["counts"].sum())
    # Each named group once, and every block without one for itself.
    return len({group for group in groups if group}) + (list(groups).count("") if groups else len(tables))


def read_names(value: object, number: int | None, place: str, faults: Faults) -> tuple[str, ...]:
    """As many different names as there are things, or none."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        faults.add(place, f"expected a list of names, got {reprlib.repr(value)}")
        return ()
    if value and number is not None and len(value) != number:
        faults.add(place, f"has {len(value)} names for {number} {place}")
    if len(set(value)) < len(value):
        faults.add(place, "has the same name twice")
    return tuple(value)


def _read_arm_names(value: object, num_arms: int, faults: Faults) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        faults.add("arm_names", f"expected a list of names, got {reprlib.repr(value)}")
        return ()
    if value and len(value) != num_arms:
        faults.add("arm_names", f"has {len(value)} names for {num_arms} arms")
    if len(set(value)) < len(value):
        faults.add("arm_names", "has the same name twice")
    return tuple(value)


def read_groups(value: object, num_blocks: int | None, faults: Faults) -> tuple[str, ...]:
    """(block,) a name or "" each; empty when no block has one."""
    if not isinstance(value, (list, tuple)):
        faults.add("groups", f"expected a list of names, got {reprlib.repr(value)}")
        return ()
    for index, name in enumerate(value):
        if not isinstance(name, str):
            faults.add(f"arms[{index}].group", f"expected a name, got {reprlib.repr(name)}")
    if value and num_blocks is not None and len(value) != num_blocks:
        faults.add("groups", f"has {len(value)} entries for {num_blocks} arms")
    return tuple(value) if any(value) else ()


def read_floors(value: object, num_blocks: int | None, faults: Faults) -> Floats:
    """(block,) shares of time from 0 to 1; 0 when absent."""
    if value is None:
        return np.zeros(num_blocks or 1)
    entries: list[Any] = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if num_blocks is not None and len(entries) != num_blocks:
        faults.add("floors", f"has {len(entries)} entries for {num_blocks} arms")
        return np.zeros(num_blocks)
    floors = np.zeros(len(entries))
    for index, entry in enumerate(entries):
        number = isinstance(entry, (int, float, np.number)) and not isinstance(entry, (bool, np.bool_))
        if number and 0 <= entry <= 1:
            floors[index] = float(entry)
        else:
            shown = plain(entry) if number else reprlib.repr(entry)
            faults.add(f"arms[{index}].floor", f"expected a share of time from 0 to 1, got {shown}")
    return floors
