"""The weakly coupled Markov decision process: arms that share a budget of resources at every step."""

import copy
import hashlib
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from evenhand.checks import (
    SHOWN_PER_ARRAY,
    Faults,
    check_amounts,
    check_memory,
    check_over,
    check_shape,
    comma_hint,
    number_fault,
    plain,
    read_names,
    read_numbers,
    report_normalised,
    whole_fault,
)
from evenhand.display import Shown, counted
from evenhand.errors import Fault, InvalidInputError, nearest
from evenhand.model.arm import ROOM, Arm, ArmTables, common_resources, frozen, read_waits, set_fields, usable_amount
from evenhand.model.criterion import Criterion, as_criterion, read_criterion
from evenhand.model.labels import AXES, Names, with_words
from evenhand.model.welfare import parse_welfare
from evenhand.typing import Bools, Floats, Indices, Ints, Nested

MOST_ARMS = 10**9
"""Maximum number of arms of a problem."""

Kind = TypeVar("Kind")

Over = Literal["arms", "groups"]
"""Members of the welfare: every arm, or every group by its mean value."""


_OF_TYPES = ("type_of_block", "types", "type_counts", "type_of_arm", "group_of_type", "type_floors", "type_max_waits")
"""Cached properties that depend on which arms are of one type."""


class SharedResources(Shown):
    """The part that every kind of problem has: resources with a budget, and a criterion."""

    budget: Floats
    discount: float
    criterion: Criterion
    resources: Sequence[str] = ()
    spend: Sequence[str] = ()

    @property
    def num_resources(self) -> int:
        """Number of resources."""
        return len(self.budget)

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Names of the resources; `resource 0` and so on by default."""
        return tuple(self.resources) or tuple(f"resource {k}" for k in range(self.num_resources))

    @property
    def named_budget(self) -> dict[str, float]:
        """Budget under the names of the resources."""
        return dict(zip(self.resource_names, self.budget.tolist(), strict=True))

    @property
    def budget_limit(self) -> Floats:
        """(resource,) budget with a tolerance for rounding."""
        return np.asarray(frozen(self.budget * ROOM))

    @property
    def spends_all(self) -> Bools:
        """(resource,) whether the whole budget must be used at every step."""
        return np.array([rule == "all" for rule in self.spend or ["at most"] * self.num_resources])

    @property
    def least_use(self) -> Floats:
        """(resource,) least use per step, with a tolerance for rounding: the budget if all of it must be used, or 0."""
        return np.asarray(frozen(np.where(self.spends_all, self.budget / ROOM, 0.0)))

    def _other_budget(self, budget: Any) -> Floats:
        """(resource,) another budget, as `CoupledMDP.with_budget` takes it; raises ModelError with every fault."""
        faults = Faults()
        amounts = read_amounts(budget, self.resource_names, self.budget, faults)
        faults.raise_if_any("budget", argument="budget")
        return amounts

    @property
    def _in_short(self) -> str:
        """End of a representation: `1 resource, discount 0.95`."""
        criterion = f"discount {self.discount}" if self.criterion.name == "discounted" else self.criterion.name
        return f"{counted(self.num_resources, 'resource')}, {criterion}"


@dataclass(frozen=True, eq=False)
class CoupledMDP(SharedResources):
    """Arms, their numbers, and the resources that they share at every step.

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
    """One entry per block of identical arms; stored as ArmTables."""

    budget: Floats
    """(resource,) amount of each resource available per step."""

    discount: float = None  # type: ignore[assignment]  # filled in below
    """Discount in [0, 1]; 1, only and by default, if the criterion is not `discounted`."""

    counts: Ints = None  # type: ignore[assignment]  # filled in below
    """(block,) number of arms of each block; 1 by default."""

    resources: Sequence[str] = ()
    """The name of each resource, or none."""

    groups: Sequence[str] = ()
    """(block,) group of each block, "" for a group of its own; empty if no block has one."""

    floors: Floats = None  # type: ignore[assignment]  # filled in below
    """(block,) smallest expected share of time in which each arm is served; 0 by default."""

    criterion: Criterion = "discounted"  # type: ignore[assignment]  # text is read below
    """Value of rewards over time; may be given as text."""

    over: Over = "arms"
    """Members of the welfare."""

    welfare: str | None = None
    """Default welfare of the problem, as text; by default `gini:half=0.75`."""

    arm_names: Sequence[str] = ()
    """(arm,) names of the arms, in the order of the blocks, or none; set by `with_initial_states`."""

    max_waits: Indices = None  # type: ignore[assignment]  # read below
    """(block, state) promised waits, -1 for none (`with_max_wait`); or {state: steps}, for all arms or per block."""

    spend: Sequence[str] = ()
    """(resource,) `all` if exactly the budget must be used at every step, or `at most`, the default; a single text is
    the rule of every resource."""

    if TYPE_CHECKING:  # the fields as they may be given

        def __init__(
            self,
            arms: Sequence[Arm],
            budget: Nested,
            discount: float | None = None,
            counts: Nested | None = None,
            resources: Sequence[str] = (),
            groups: Sequence[str] = (),
            floors: Nested | None = None,
            criterion: str | Criterion = "discounted",
            over: Over = "arms",
            welfare: str | None = None,
            arm_names: Sequence[str] = (),
            max_waits: Nested | Mapping[str, int] | None = None,
            spend: str | Sequence[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        faults = Faults()
        # Arms first: the numbers of resources and blocks are what the other fields are checked against.
        tables = self._read_arms(faults)
        num_blocks, num_resources = (None, None) if tables is None else (len(tables), tables.usage.shape[-1])
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        read = read_fields(given, num_blocks, num_resources, faults) | {"arms": tables}
        if tables is not None:
            read["max_waits"] = read_waits(self.max_waits, tables, faults)
        if faults:
            names = [Names.of(arm) for arm in self.arms] if isinstance(self.arms, tuple) else []
            names = self.arms.names if isinstance(self.arms, ArmTables) else names
            faults.found = with_words(faults.found, names, self.resources)
        faults.raise_if_any()
        # An Arm reports this itself when it is created.
        if isinstance(self.arms, ArmTables):
            report_normalised(self.arms.nearly(), stacklevel=3)
        set_fields(self, read)
        self.check_spend()

    # -- the same problem, changed -----------------------------------------------------------------------------------

    def with_criterion(self, criterion: str | Criterion | None = None, over: str | None = None) -> "CoupledMDP":
        """Return the problem with another criterion, or with welfare over arms or groups.

        Args:
            criterion: `discounted`, `average`, `finite:T`, or an object with its own discount; by default unchanged.
            over: `arms` or `groups`; by default unchanged.
        """
        check_over(over)
        # A criterion as text takes the problem's discount; one that is an object brings its own.
        chosen = self.criterion if criterion is None else as_criterion(criterion, self.discount)
        if chosen == self.criterion and over in (None, self.over):
            return self
        own = getattr(chosen, "discount", self.discount)
        # Types are cut at groups: nothing that is known of them carries over.
        forgotten: tuple[str, ...] = _OF_TYPES if over not in (None, self.over) else ()
        forgotten = (*forgotten, "signature") if own != self.discount else forgotten
        return self._changed(forgotten, criterion=chosen, discount=own, over=over or self.over)

    def _changed(self, forgotten: Iterable[str], **fields: Any) -> "CoupledMDP":
        """The problem with other fields; all cached properties but those that depend on them are shared."""
        same = copy.copy(self)
        for known in forgotten:
            same.__dict__.pop(known, None)
        set_fields(same, fields)
        return same

    def with_initial_states(self, states: Any) -> "CoupledMDP":
        """Return the problem with observed states as initial states.

        Arms of a block that are in different states become blocks of their own, which differ in `initial` only. The
        arms, and so the number of arms per block, are those of the table.

        Args:
            states: a table with the columns arm, type and state: a file name, a data frame, a list of rows, a mapping
                of columns; or (arm,) state numbers, in the order of the arms.

        Raises:
            TableError: with every fault and its row.
        """
        from evenhand.model.state_table import with_initial_states  # it imports this module

        return with_initial_states(self, states)

    def with_budget(self, budget: float | Sequence[float] | Floats | Mapping[str, float]) -> "CoupledMDP":
        """Return the problem with another budget.

        Args:
            budget: one number per resource; a single number if there is one resource; or amounts under names of
                resources, which leave the others unchanged.

        Raises:
            ModelError: with every fault, in the names of the resources.
        """
        amounts = self._other_budget(budget)
        if np.array_equal(amounts, self.budget):
            return self
        found = self._changed(("usable_budget", "types", "signature"), budget=amounts)
        found.check_spend()
        return found

    def with_spend(self, spend: str | Sequence[str]) -> "CoupledMDP":
        """Return the problem with another rule of spending.

        Args:
            spend: `all` or `at most`, for every resource or one per resource.

        Raises:
            ModelError: the budget cannot always be spent.
        """
        faults = Faults()
        rules = _read_spend(spend, self.num_resources, faults)
        faults.raise_if_any("spend", argument="spend")
        found = self._changed((), spend=rules)
        found.check_spend()
        return found

    def check_spend(self) -> None:
        """Refuse a budget that cannot be spent in every state of the arms.

        Whatever the states, every arm must have an action that uses one unit of the resource and nothing else; the
        budget and all other uses must be multiples of the unit, and there must be an arm for each unit.

        Raises:
            ModelError: with every fault.
        """
        faults, units = Faults(), 0.0
        if self.spend and self.has_max_wait:
            faults.add("spend", "a budget that must be spent does not go with promised waits (max_wait)")
        for resource in np.flatnonzero(self.spends_all):
            name, budget = self.resource_names[resource], float(self.budget[resource])
            usage, valid = self.types.usage, self.types.valid
            own = usage[..., resource]
            if not (positive := own[valid & (own > 0)]).size:
                faults.add("spend", f"{name}: no action uses it, so that its budget cannot be spent")
                continue
            unit = float(positive.min())
            whole = np.round(np.append(positive, budget) / unit)
            if (np.abs(np.append(positive, budget) - whole * unit) > 1e-9 * unit * np.maximum(whole, 1)).any():
                faults.add("spend", f"{name}: budget and uses must be multiples of {plain(unit)}, the least use")
            single = valid & (own == unit) & ((usage > 0).sum(axis=-1) == 1)
            for kind, state in np.argwhere(valid.any(axis=2) & ~single.any(axis=2))[:SHOWN_PER_ARRAY].tolist():
                where = f"arms[{int(self._first_blocks[kind])}], state {state}"
                faults.add("spend", f"{where}: no action uses {plain(unit)} of {name} and nothing else")
            units += budget / unit
        if units > self.num_arms * ROOM:
            faults.add("spend", f"{plain(units)} units must be spent per step, and there are {self.num_arms} arms")
        faults.found = with_words(faults.found, self.tables.names, self.resources)
        faults.raise_if_any("spend", argument="spend")

    def with_max_wait(
        self, limits: Mapping[str, int | None], *, type: str | None = None, group: str | None = None
    ) -> "CoupledMDP":
        """Return the problem with promised waits (see `policies.deadlines`) in some states; other promises stay.

        Args:
            limits: steps without service after which an arm in a state is served, by state; None for no promise.
            type: name of the type of these arms; by default all that have the state.
            group: their group; by default any.

        Raises:
            ModelError: no such arm has the state, or a limit is not a whole number from 0.
        """
        groups = (self.group_names[number] for number in self.group_of_block)
        blocks = enumerate(zip((label[0] for label in self.tables.all_labels), groups, strict=True))
        rows = [block for block, (name, place) in blocks if type in (None, name) and group in (None, place)]
        if not rows:
            raise InvalidInputError("max_wait: there are no arms of this type and group", argument="max_wait")
        faults, waits = Faults(), self.max_waits.copy()
        new = read_waits(limits, self.tables.select(np.array(rows)), faults, unset=-2)
        faults.raise_if_any("max_wait", argument="max_wait")
        waits[rows] = np.where(new > -2, new, waits[rows])
        return self._changed(_OF_TYPES, max_waits=waits)

    def waits_of(self, block: int) -> dict[str, int]:
        """Promised waits of one block, by the names of the states."""
        labels, limits = self.tables.all_labels[block][1], self.max_waits[block].tolist()
        return {labels[s] if labels else str(s): limit for s, limit in enumerate(limits) if limit >= 0}

    def with_transitions(self, transitions: Floats) -> "CoupledMDP":
        """Return the problem with other transition probabilities.

        Arms of one type stay so unless their transitions now differ, and others are not merged: a policy for this
        problem can be simulated there.

        Args:
            transitions: (block, state, action, next_state) probabilities, padded like `tables.transitions`.

        Raises:
            ModelError: a row is not a distribution.
        """
        check_shape(
            transitions,
            dict(zip(("block", *AXES["transitions"]), self.tables.transitions.shape, strict=True)),
            "transitions",
        )
        moved = replace(self.tables, transitions=np.array(transitions, dtype=np.float64))
        moved.find_faults().raise_if_any("transitions")
        # The old type together with the new numbers: equal tables of different old types stay apart.
        same = self._changed((*_OF_TYPES, "signature"), arms=moved)
        same.__dict__["type_of_block"] = _numbered(zip(self.type_of_block.tolist(), moved.digests, strict=True))[1]
        return same

    def _read_arms(self, faults: Faults) -> ArmTables | None:
        if isinstance(self.arms, ArmTables):
            found = self.arms.find_faults().found
            faults.found.extend(found)
            return self.arms if found else self.arms.tidied()
        if isinstance(self.arms, (Arm, str, Mapping)) or not isinstance(self.arms, Iterable):
            hint = "; write [arm], and counts=[n] for n arms like it" if isinstance(self.arms, Arm) else ""
            faults.add("arms", f"expected a list of arms, got {type(self.arms).__name__}{hint}")
            return None
        # An iterator is consumed once.
        object.__setattr__(self, "arms", tuple(self.arms))
        for index, arm in enumerate(self.arms):
            if not isinstance(arm, Arm):
                faults.add(f"arms[{index}]", f"expected an Arm, got {type(arm).__name__}")
        if not self.arms:
            faults.add("arms", "there is none; a problem needs at least one")
        if not faults:
            common_resources(self.arms, faults)
        return None if faults else ArmTables.stack(self.arms)

    # -- sizes, types, groups ----------------------------------------------------------------------------------------

    @property
    def tables(self) -> ArmTables:
        """The blocks as padded arrays."""
        assert isinstance(self.arms, ArmTables)
        return self.arms

    @cached_property
    def num_arms(self) -> int:
        """Number of arms."""
        return int(self.counts.sum())

    @cached_property
    def usable_budget(self) -> Floats:
        """(resource,) largest part of the budget that actions can use up: 1 of 1.1 if each takes a whole unit.

        Bounds and prices are those of this budget; shares of the budget are of `budget` itself.
        """
        use = self.types.usage[self.types.valid]
        amounts = [usable_amount(b, np.unique(use[:, k])) for k, b in enumerate(self.budget.tolist())]
        return np.asarray(frozen(np.array(amounts)))

    @cached_property
    def type_of_block(self) -> Indices:
        """(block,) type of each block, in order of first appearance."""
        # Arms are of one type by their numbers. Floors and promises distinguish them, and over groups the group.
        groups = self.group_of_block.tolist() if self.over == "groups" else [0] * len(self.tables)
        waits = [row.tobytes() for row in self.max_waits] if self.has_max_wait else groups
        return _numbered(zip(self.tables.digests, self.floors.tolist(), waits, groups, strict=True))[1]

    @cached_property
    def _groups_read(self) -> tuple[tuple[str, ...], Indices]:
        """Names of all groups in order of first appearance, and the (block,) group of each block."""
        # A block without a group is one by itself: called by its own name if that is unique and no group has it.
        given, named = self.groups or ("",) * len(self.tables), [label[0] for label in self.tables.all_labels]
        times = Counter(name for name, group in zip(named, given, strict=True) if not group)
        keys = []
        for index, (name, group) in enumerate(zip(named, given, strict=True)):
            own = name if name and times[name] == 1 else f"arms[{index}]"
            own = own if own not in given else f"{own} (arms[{index}])"
            keys.append((group, -1) if group else (own, index))
        found, numbers = _numbered(keys)
        return tuple(name for name, _ in found), numbers

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups, in order of first appearance; a block without one is a group by its own name."""
        return self._groups_read[0]

    @property
    def group_of_block(self) -> Indices:
        """(block,) group of each block."""
        return self._groups_read[1]

    @cached_property
    def group_of_type(self) -> Indices:
        """(type,) group of each type, if welfare is over groups."""
        if self.over != "groups":
            raise InvalidInputError("group_of_type: types are cut at groups only under over = 'groups'")
        return np.asarray(frozen(self.group_of_block[self._first_blocks]))

    @property
    def _first_blocks(self) -> Ints:
        """(type,) its first block, which stands for it: all its blocks have the same numbers, group and floor."""
        return np.unique(self.type_of_block, return_index=True)[1]

    @cached_property
    def type_floors(self) -> Floats:
        """(type,) smallest share of time in which each arm of the type is served."""
        return np.asarray(frozen(self.floors[self._first_blocks]))

    @cached_property
    def type_max_waits(self) -> Indices:
        """(type, state) promised waits, -1 without a promise."""
        return np.asarray(frozen(self.max_waits[self._first_blocks]))

    @property
    def has_max_wait(self) -> bool:
        """True if some arm has a promised wait."""
        return bool((self.max_waits >= 0).any())

    @property
    def has_floors(self) -> bool:
        """True if some arm has a floor."""
        return bool(self.floors.any())

    @cached_property
    def types(self) -> ArmTables:
        """The distinct arms, with the actions that the budget allows."""
        first = self._first_blocks
        types = self.tables if len(first) == len(self.tables) else self.tables.select(first)
        return types.within(self.budget)

    @property
    def num_types(self) -> int:
        """Number of distinct arms."""
        return len(self.types)

    @cached_property
    def type_counts(self) -> Ints:
        """(type,) number of arms of each type."""
        # Weights are floats there, exact up to 2^53: there are at most 10^9 arms.
        sums = np.bincount(self.type_of_block, weights=self.counts, minlength=self.num_types)
        return np.asarray(frozen(sums.astype(np.int64)))

    @cached_property
    def type_of_arm(self) -> Indices:
        """(arm,) type of each arm, in the order of the blocks."""
        check_memory(4.0 * self.num_arms, f"a table of {self.num_arms} arms", "Work with counts instead.")
        return np.asarray(frozen(np.repeat(self.type_of_block, self.counts)))

    @property
    def is_symmetric(self) -> bool:
        """True if all arms are identical."""
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
        same = ("signature", "criterion", "over", "groups", "resources", "spend", "welfare", "arm_names")
        return (
            all(getattr(self, name) == getattr(other, name) for name in same)
            and np.array_equal(self.floors, other.floors)
            and np.array_equal(self.max_waits, other.max_waits)
            and self.tables.labels == other.tables.labels
        )

    def __hash__(self) -> int:
        return hash(self.signature)

    def __repr__(self) -> str:
        kinds = "identical" if self.is_symmetric else counted(self.num_types, "type")
        groups = f", over {len(self.group_names)} groups" if self.over == "groups" else ""
        return f"CoupledMDP({counted(self.num_arms, 'arm')}, {kinds}, {self._in_short}{groups})"


def _numbered(kinds: Iterable[Kind]) -> tuple[list[Kind], Indices]:
    """The distinct kinds in order of first appearance, and the number of each."""
    first: dict[Kind, int] = {}
    numbers = [first.setdefault(kind, len(first)) for kind in kinds]
    return list(first), np.asarray(frozen(np.array(numbers, dtype=np.int32)))


# -- reading its fields, each with all its faults --------------------------------------------------------------------


def read_fields(
    given: Mapping[str, Any], num_blocks: int | None, num_resources: int | None, faults: Faults
) -> dict[str, Any]:
    """Check all fields of a problem but its arms, and return them as the problem stores them.

    Args:
        given: values under the names of the fields.
        num_blocks: number of blocks, if the arms are valid.
        num_resources: number of resources, if known.
        faults: list to which faults are added.
    """
    discount, criterion = read_criterion(given["discount"], given["criterion"], faults)
    counts = read_counts(given["counts"], num_blocks, faults)
    groups = _read_groups(given["groups"], num_blocks, faults)
    if given["over"] not in ("arms", "groups"):
        faults.add("over", f"expected 'arms' or 'groups', got {reprlib.repr(given['over'])}")
    num_members = None
    if num_blocks is not None and len(counts) == num_blocks and len(groups) in (0, num_blocks):
        # Over groups: each named group once, and every block without one for itself.
        num_groups = len(set(groups) - {""}) + groups.count("") if groups else num_blocks
        num_members = num_groups if given["over"] == "groups" else int(counts.sum())
    welfare = given["welfare"]
    if welfare is not None and not isinstance(welfare, str):
        faults.add("welfare", f"expected text such as 'gini:2', got {reprlib.repr(welfare)}")
    elif welfare is not None and (num_members is not None or "," not in welfare):  # weights are as many as members
        try:
            parse_welfare(welfare, num_members or 1)
        except InvalidInputError as error:
            faults.add("welfare", str(error))
    budget = read_budget(given["budget"], num_resources, faults)
    floors = given["floors"]
    if floors is not None:
        floors = _read_entries(floors, num_blocks, "floors", lambda entry: number_fault(entry, most=1.0), faults)
    return {
        "counts": counts,
        "budget": budget,
        "discount": discount,
        "criterion": criterion,
        "resources": read_names(given["resources"], num_resources or len(budget), "resources", faults),
        "spend": _read_spend(given.get("spend", ()), num_resources or len(budget), faults),
        "groups": groups,
        "floors": np.zeros(num_blocks or 1) if floors is None else np.array(floors, dtype=np.float64),
        "arm_names": read_names(given["arm_names"], int(counts.sum()), "arm_names", faults),
    }


def _read_spend(value: object, num_resources: int, faults: Faults) -> tuple[str, ...]:
    """(resource,) `all` or `at most`; empty if all are `at most`."""
    rules = [value] * num_resources if isinstance(value, str) else _entries(value)
    if any(rule not in ("all", "at most") for rule in rules) or len(rules) not in (0, num_resources):
        faults.add("spend", f"expected 'all' or 'at most', or one of these per resource, got {reprlib.repr(value)}")
        return ()
    return tuple(rules) if "all" in rules else ()


def _entries(value: object) -> list[Any]:
    """Several values, or a single one."""
    several = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return list(value) if several else [value]  # type: ignore[call-overload]


def _read_entries(
    value: object, num_blocks: int | None, place: str, fault_of: Callable[[Any], str], faults: Faults
) -> list[Any] | None:
    """Valid entries of a field with one per block; or faults, and None.

    Args:
        value: entries, or a single one.
        num_blocks: number of blocks, if known.
        place: name of the field; in blocks it is that without its last letter.
        fault_of: returns the message for an invalid entry; empty for a valid one.
        faults: list to which faults are added.
    """
    entries = _entries(value)
    if num_blocks is not None and len(entries) != num_blocks:
        faults.add(place, f"has {len(entries)} entries for {num_blocks} arms")
        return None
    wrong = [(index, message) for index, entry in enumerate(entries) if (message := fault_of(entry))]
    for index, message in wrong[:SHOWN_PER_ARRAY]:
        faults.add(f"arms[{index}].{place[:-1]}", message)
    if (more := len(wrong) - SHOWN_PER_ARRAY) > 0:
        faults.found.append(Fault("arms", f"... and {more} more such {place}", stands_for=more))
    return None if wrong else entries


def read_counts(value: object, num_blocks: int | None, faults: Faults) -> Ints:
    """(block,) arms per block, each an integer of at least 1, in all at most MOST_ARMS; 1 by default."""
    entries = None
    if value is not None:
        entries = _read_entries(value, num_blocks, "counts", lambda entry: whole_fault(entry, most=MOST_ARMS), faults)
    counts = [1] * (num_blocks or 1) if entries is None else [int(entry) for entry in entries]
    if (total := sum(counts)) > MOST_ARMS:
        faults.add("arms", f"{total} arms in all; at most {MOST_ARMS} are supported")
    return np.array(counts, dtype=np.int64)


def read_budget(value: object, num_resources: int | None, faults: Faults) -> Floats:
    """(resource,) amounts that are finite and not negative.

    Args:
        value: amounts, or a single one.
        num_resources: expected number of amounts, if known.
        faults: list to which faults are added.
    """
    budget = read_numbers(_entries(value), ("resource",), "budget", faults, check_amounts)
    if budget is None:
        return np.zeros(num_resources or 1)
    if num_resources is not None and len(budget) != num_resources:
        size, wanted = counted(len(budget), "entry", "entries"), counted(num_resources, "resource")
        hint = comma_hint(len(budget), num_resources)
        faults.add("budget", f"has {size} where the arms' usage has {wanted}{hint}")
    return budget


def read_amounts(value: object, names: Sequence[str], unsaid: Floats, faults: Faults) -> Floats:
    """(resource,) a new budget; faults name the resources.

    Args:
        value: one number per resource, or amounts under some names.
        names: (resource,) names of the resources.
        unsaid: (resource,) budget of the resources that are not named.
        faults: list to which faults are added.
    """
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
    entries = _entries(value)
    if len(entries) != len(names):
        message = f"expected {counted(len(names), 'number')} ({', '.join(names)}), got {len(entries)}"
        faults.add("", message + comma_hint(len(entries), len(names)))
    read = np.zeros(len(names))
    for index, (name, entry) in enumerate(zip(names, entries, strict=False)):
        if message := number_fault(entry):
            faults.add(name, message)
        else:
            read[index] = float(entry)
    return read


def find_resource(name: str, names: Sequence[str]) -> str | None:
    """Return the resource of a name, whatever its case and whether it is written `crew hours` or `crew_hours`."""
    plainly = {known.lower().replace("_", " ").replace("-", " "): known for known in names}
    return name if name in names else plainly.get(name.strip().lower().replace("_", " ").replace("-", " "))


def _read_groups(value: object, num_blocks: int | None, faults: Faults) -> tuple[str, ...]:
    """(block,) a name or "" each; empty if no block has one."""
    if not isinstance(value, (list, tuple)):
        faults.add("groups", f"expected a list of names, got {reprlib.repr(value)}")
    if not isinstance(value, (list, tuple)) or not value:
        return ()
    found = _read_entries(
        value, num_blocks, "groups", lambda name: "" if isinstance(name, str) else "expected text", faults
    )
    return tuple(found) if found and any(found) else ()
