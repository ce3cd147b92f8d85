"""`check`: contents of a model, and lint rules for valid models that are probably not what their author meant.

Each rule is a function that yields a `Note` for each finding (`RULES`). What is said of arms, states and budgets is
computed (`solvers.service`, the relaxation's floors); only names that look alike are a matter of opinion.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.checks import LARGEST, plain
from evenhand.display import Shown
from evenhand.errors import (
    Fault,
    InfeasibleError,
    InvalidInputError,
    NotApplicableError,
    NotConvergedError,
    TooLargeError,
)
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import Loaded, Location, load_noting
from evenhand.model.labels import block_names, called, promises_in_words, quoted
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.parquet import StoredArms
from evenhand.model.welfare import DEFAULT, Welfare, structure, weight_of_worst
from evenhand.parallel import Pool
from evenhand.solvers.service import reached, worth_of_service
from evenhand.typing import Bools, Floats, Ints

SHOWN = 12
"""Labels of a list, and notes of one kind, that are shown; of more the number."""

HELPS = 1e-7
"""Share of the largest difference of rewards below which the value of service counts as 0."""

MOST_GROUPS = 400
"""Groups up to which names are compared one by one."""


@dataclass(frozen=True)
class Note:
    """A finding of a lint rule."""

    kind: str
    """Name of the rule: `over-budget`."""

    message: str
    """The finding, and often what to do."""

    places: tuple[str, ...] = ()
    """Locations, as of faults: `arms[2].usage[1]`."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class TypeFacts:
    """One type of arms, equal in every number."""

    name: str
    """Name of its first block; may be empty."""

    block: int
    """The number of that block in the model, from 0."""

    count: int
    """Number of arms."""

    states: tuple[str, ...]
    """Labels of its states, or their numbers."""

    actions: tuple[str, ...]
    """Labels of its actions, or their numbers."""

    starts_in: tuple[str, ...]
    """States in which it may begin."""

    unreached: tuple[str, ...]
    """States that it never reaches under any policy."""

    served_by: tuple[str, ...]
    """Actions that serve it and that the budget allows; without any, it can never be served."""

    service_worth: float | None
    """The most that service can add to the value of one such arm; None if unknown."""

    group: str
    """Of its first block; the name of the block, if it has no group."""

    floor: float
    """The least share of time in which each of these arms is served."""


@dataclass(frozen=True)
class ResourceFacts:
    """One resource."""

    name: str
    """Its name."""

    budget: float
    """Amount per step."""

    most_used: float
    """The most that all arms together can use of it in a step."""


@dataclass(frozen=True, eq=False, repr=False)
class Check(Shown):
    """Contents of a model and findings of the lint rules."""

    source: str
    """The file or the name of the problem; empty for a problem made in Python."""

    problem: CoupledMDP
    """The problem itself, under its criterion."""

    welfare: Welfare
    """The welfare."""

    normalised: tuple[Fault, ...] = ()
    """Rows whose probabilities were divided by their sum."""

    @cached_property
    def types(self) -> tuple[TypeFacts, ...]:
        """The types of arms."""
        return tuple(self._type_facts(t) for t in range(self.problem.num_types))

    @cached_property
    def resources(self) -> tuple[ResourceFacts, ...]:
        """The shared resources."""
        used = np.minimum(self.most_used, self.problem.budget).tolist()
        return tuple(map(ResourceFacts, self.problem.resource_names, self.problem.budget.tolist(), used))

    @cached_property
    def groups(self) -> dict[str, int]:
        """Arms per group; empty if no block names one."""
        # Blocks, not types: under `over = arms` a type may have arms in several groups.
        sizes = np.bincount(self.problem.group_of_block, weights=self.problem.counts).astype(int).tolist()
        return dict(zip(self.problem.group_names, sizes, strict=True)) if self.problem.groups else {}

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Findings of the lint rules, each with its location."""
        notes = defaultdict(list)
        for rule in RULES:
            for note in rule(self):
                notes[note.kind].append(note)
        for kind, found in notes.items():
            if more := found[SHOWN:]:
                places = tuple(place for note in more for place in note.places)
                found[SHOWN:] = [Note(kind, f"... and {len(more)} more such", places)]
        return tuple(note for found in notes.values() for note in found)

    @cached_property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Contents of the model without the types, as names and text."""
        problem, members = self.problem, num_members(self.problem)
        budgets = []
        for one in self.resources:
            only = "" if one.most_used >= one.budget else f", of which only {plain(one.most_used)} can be used"
            budgets.append(f"{one.name}: {plain(one.budget)} a step{only}")
        welfare = f"{self.welfare.name} over {members} {problem.over}"
        if self.weight_of_worst is not None and members > 1:
            few, share = self.weight_of_worst
            welfare += (
                f"; the worst-off {f'{few} of them have' if few > 1 else 'one has'} {_percent(share)} of the weight"
            )
        never = [self.arm(one.block) for one in self.types if not one.served_by]
        served = f"all but {listed(never)}" if never else "every arm"
        return (
            ("arms", f"{problem.num_arms}, {'all alike' if problem.is_symmetric else f'of {problem.num_types} types'}"),
            ("criterion", f"{problem.criterion.name}: {problem.criterion.description}"),
            *(("" if k else "budget", words) for k, words in enumerate(budgets)),
            ("welfare", welfare),
            *([("groups", listed([f"{name} ({size})" for name, size in self.groups.items()]))] if self.groups else []),
            *(("" if k else "promised", words) for k, words in enumerate(promises_in_words(problem)[:SHOWN])),
            ("can be served", "none of the arms" if len(never) == len(self.types) else served),
        )

    @property
    def summary(self) -> str:
        """One line."""
        number = len(self.notes)
        odd = "one thing looks" if number == 1 else f"{number} things look" if number else "nothing looks"
        return f"{self.source or 'the model'} is sound; {odd} odd"

    def __repr__(self) -> str:
        return f"Check({self.summary})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        problem = self.problem
        return {
            "model": self.source,
            "sound": True,
            "arms": problem.num_arms,
            "criterion": problem.criterion.name,
            "discount": problem.discount,
            "over": problem.over,
            "welfare": {
                "name": self.welfare.name,
                "weight_of_worst_tenth": None if self.weight_of_worst is None else self.weight_of_worst[1],
            },
            "resources": [asdict(resource) for resource in self.resources],
            "groups": self.groups,
            "promises": promises_in_words(problem),
            "types": [asdict(facts) for facts in self.types],
            "notes": [asdict(note) for note in self.notes],
        }

    # -- derived figures, computed on first use

    @cached_property
    def blocks(self) -> Ints:
        """(type,) the first block of each type."""
        return np.unique(self.problem.type_of_block, return_index=True)[1]

    @cached_property
    def reached(self) -> Bools:
        """(type, state) states that an arm can reach with the whole budget."""
        return reached(self.problem.types, self.problem.types.valid, self.problem.criterion)

    @cached_property
    def open_pairs(self) -> Bools:
        """(type, state, action) pairs that an arm can reach within the budget."""
        return np.asarray(self.problem.types.valid & self.reached[..., None])

    @cached_property
    def servable(self) -> Bools:
        """(type, action) whether an arm can ever be served by the action."""
        return np.asarray((self.problem.types.served & self.open_pairs).any(axis=1))

    @cached_property
    def worth(self) -> Floats:
        """(type,) the most that service can add to the value of an arm; not a number if unknown."""
        return worth_of_service(self.problem)

    @cached_property
    def most_used(self) -> Floats:
        """(resource,) the most that all arms together can use in a step."""
        most = np.where(self.open_pairs[..., None], self.problem.types.usage, 0.0).max(axis=(1, 2))
        return np.asarray(self.problem.type_counts @ most)

    @cached_property
    def weight_of_worst(self) -> tuple[int, float] | None:
        """Size of the worst-off tenth and its share of the weight; None if the welfare has no weights."""
        return weight_of_worst(self.welfare, 0.1, num_members(self.problem))

    @cached_property
    def names(self) -> list[str]:
        """(block,) names of the blocks, or empty; blocks that a table of states has cut, by their first states."""
        if self.problem.arm_names:
            return block_names(self.problem)
        labels = self.problem.tables.labels
        return [label[0] for label in labels] if labels else [""] * len(self.problem.tables)

    @cached_property
    def times(self) -> Counter[str]:
        """Number of blocks of each name."""
        return Counter(self.names)

    def arm(self, block: int) -> str:
        """A block in words."""
        return called(self.names[block], block, self.times[self.names[block]] > 1)

    def label(self, kind: str, block: int, index: int) -> str:
        """`state "poor"`, or `state 2`."""
        labels = self.problem.tables.labels
        known = labels[block][1 if kind == "state" else 2] if labels else ()
        return f"{kind} {quoted(known[index]) if known else index}"

    def states(self, block: int, states: Iterable[int]) -> str:
        """Return several states in words."""
        return listed([self.label("state", block, int(state)) for state in states])

    def _type_facts(self, t: int) -> TypeFacts:
        """Return the facts of a type."""
        problem, types, block = self.problem, self.problem.types, int(self.blocks[t])
        s, a = int(types.num_states[t]), int(types.num_actions[t])
        _, states, actions = types.labels[t] if types.labels else ("", (), ())
        states, actions = states or tuple(map(str, range(s))), actions or tuple(map(str, range(a)))
        return TypeFacts(
            name=self.names[block],
            block=block,
            count=int(problem.type_counts[t]),
            states=states,
            actions=actions,
            starts_in=_where(states, types.initial[t, :s] > 0),
            unreached=_where(states, ~self.reached[t, :s]),
            served_by=_where(actions, self.servable[t, :a]),
            service_worth=None if np.isnan(self.worth[t]) else float(self.worth[t]),
            group=problem.group_names[problem.group_of_block[block]],
            floor=float(problem.type_floors[t]),
        )


def listed(labels: Sequence[str]) -> str:
    """Return labels in a row, not too many."""
    return ", ".join(labels[:SHOWN]) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")


def _percent(share: float) -> str:
    shown = f"{100 * share:.0f} %"
    return "over 99 %" if shown == "100 %" and share < 1 else shown  # 99.6 % must not read as all


def check(
    model: CoupledMDP | StoredArms | Location,
    welfare: str | Welfare | None = None,
    criterion: str | None = None,
    over: str | None = None,
    backend: str | Pool | None = None,
) -> Check:
    """Describe a model and report what looks odd about it.

    Odd are, for example, blocks that share a name, actions that no budget allows, states that are never reached, arms
    that gain nothing by being served, budgets that never bind, and floors that cannot be met. None of it is an error.

    Args:
        model: a problem, the name of a model file, or an opened Parquet model. Of more than 100,000 rows the result has
            totals instead of types (`planning.stored_models.StoredCheck`).
        welfare: the welfare; by default as in `solve`.
        criterion: in the place of the model's own.
        over: in the place of the model's own.
        backend: where the rows of a large opened model are read.

    Raises:
        ModelError: the file is not sound; with every fault.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3, budget=3)
        >>> found = eh.check(machines)
        >>> [note.kind for note in found.notes]
        ['never-binding']
        >>> found.types[0].served_by
        ('replace',)
    """
    if isinstance(model, StoredArms):
        opened = model.with_criterion(criterion, over)  # type: ignore[arg-type]  # checked where it is read
        if opened.is_large:
            from evenhand.planning.stored_models import check_stored

            return check_stored(opened, backend=backend)  # type: ignore[return-value]  # documented above
        model = opened.problem()
    if not isinstance(model, (CoupledMDP, str, os.PathLike)):
        raise InvalidInputError(f"check: expected a problem or the name of a model file, got {type(model).__name__}")
    # A criterion may make a file without a discount readable; a problem made in Python gets it afterwards.
    loaded = Loaded(model) if isinstance(model, CoupledMDP) else load_noting(model, criterion=criterion)
    return check_loaded(replace(loaded, problem=loaded.problem.with_criterion(criterion, over)), welfare)


def check_loaded(loaded: Loaded, welfare: str | Welfare | None = None) -> Check:
    """Check a model that was loaded already.

    Args:
        loaded: a problem, with its file.
        welfare: the welfare; by default as in `solve`.
    """
    welfare = read_welfare(loaded.problem, welfare)
    return Check(loaded.name, loaded.problem, welfare, tuple(loaded.rows))


def _where(labels: Sequence[str], wanted: Bools) -> tuple[str, ...]:
    return tuple(label for label, is_wanted in zip(labels, wanted, strict=True) if is_wanted)


# -- rules -----------------------------------------------------------------------------------------------------------


def _normalised(context: Check) -> Iterator[Note]:
    for row in context.normalised:
        text = f"{row.words or row.place}: {row.message.removesuffix(', not 1')}, and were divided by that"
        yield Note("normalised", text, (row.place,))


def _same_names(context: Check) -> Iterator[Note]:
    problem, by_name = context.problem, defaultdict(list)
    for block, name in enumerate(context.names):
        by_name[name].append(block)
    for name, blocks in by_name.items():
        # A table distinguishes blocks by type and group.
        apart = problem.groups and len({problem.group_of_block[i] for i in blocks}) == len(blocks)
        if name and not apart and len({int(problem.type_of_block[i]) for i in blocks}) > 1:
            text = f"{len(blocks)} blocks are called {quoted(name)} and are not the same"
            places = tuple(f"arms[{i}].name" for i in blocks)
            yield Note("same-name", f"{text}: an arm found by name may be mistaken for the other", places)


def _identical_blocks(context: Check) -> Iterator[Note]:
    same = defaultdict(list)
    for block, kind in enumerate(context.problem.type_of_block.tolist()):
        same[kind].append(block)
    for blocks in same.values():
        if len(blocks) > 1:
            names = " and ".join(map(context.arm, blocks[:2])) + (", and more," if len(blocks) > 2 else "")
            places = tuple(f"arms[{i}]" for i in blocks)
            yield Note("identical-blocks", f"{names} are the same in every number: they count as one type", places)


def _alike_groups(context: Check) -> Iterator[Note]:
    groups = list(context.problem.groups)
    names = list(dict.fromkeys(group for group in groups if group))
    for number, name in enumerate(names if len(names) <= MOST_GROUPS else []):
        for other in names[number + 1 :]:
            if look_alike(name, other):
                text = f"the groups {quoted(name)} and {quoted(other)} are two, and look like one"
                places = tuple(f"arms[{groups.index(group)}].group" for group in (name, other))
                yield Note("alike-groups", text, places)


def look_alike(one: str, other: str) -> bool:
    """Return whether two names differ like a typing error: case, blanks, or one letter of a longer word.

    Numbers, single letters and other short words tell groups apart on purpose.
    """
    words, others = (re.split(r"[\s_\-.]+", name.strip().casefold()) for name in (one, other))
    if "".join(words) == "".join(others):
        return True
    different = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    if len(words) != len(others) or len(different) != 1:
        return False
    ((a, b),) = different
    if min(len(a), len(b)) < 4 or any(map(str.isdigit, a + b)):
        return False
    # Without what they have in common, one letter is left at most, or two that changed places.
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])


def _no_group(context: Check) -> Iterator[Note]:
    own = [i for i, group in enumerate(context.problem.groups) if not group]
    if context.problem.over == "groups" and own:
        names = listed([context.arm(i) for i in own])
        text = f"{names}: without a group, and so a group by itself, which counts as much as any other"
        yield Note("no-group", text, tuple(f"arms[{i}]" for i in own))


def _budgets(context: Check) -> Iterator[Note]:
    problem = context.problem
    for k, amount in enumerate(problem.budget):
        name, place, most = _resource(problem, k), (f"budget[{k}]",), context.most_used[k]
        if not (problem.types.usage[..., k] > 0).any():
            yield Note("unused-resource", f"{name}: no action uses it", place)
        elif amount == 0:
            yield Note("no-budget", f"{name}: there is nothing of it, so no action that uses it is ever taken", place)
        elif 0 < most <= amount * (1 + 1e-12):
            use = f"there are {plain(amount)} a step, and all arms together can use no more than {plain(most)}"
            yield Note("never-binding", f"{name}: {use}: this budget never binds", place)


def _resource(problem: CoupledMDP, index: int) -> str:
    return quoted(problem.resources[index]) if problem.resources else f"resource {index}"


def _over_budget(context: Check) -> Iterator[Note]:
    """Actions that no budget ever allows, though there is something of what they use."""
    problem, types = context.problem, context.problem.types
    too_much = (types.usage > problem.budget_limit) & (problem.budget > 0)  # (type, state, action, resource)
    dear = np.asarray(too_much.any(axis=-1) & types.real)
    for t, a in np.argwhere(dear.any(axis=1)).tolist():
        states, block = np.flatnonzero(dear[t, :, a]), int(context.blocks[t])
        # The first of the states and resources stands for all; the place leads there.
        s = int(states[0])
        k = int(np.flatnonzero(too_much[t, s, a])[0])
        everywhere = len(states) == types.num_states[t]
        where, there = ("", "") if everywhere else (f" in {context.states(block, states)}", " there")
        takes = f"takes {plain(types.usage[t, s, a, k])} of {_resource(problem, k)}{where}"
        budget = f"there {'is' if problem.budget[k] == 1 else 'are'} {plain(problem.budget[k])}"
        usage = types.usage[t, : types.num_states[t]]
        by_state = f"[{s}]" if (usage != usage[:1]).any() else ""  # a file may have usage by action
        action = f"{context.arm(block)}, {context.label('action', block, a)}"
        text = f"{action}: {takes}, and {budget}, so it is never taken{there}"
        if types.usage[t, s, a, k] >= LARGEST:  # as a fit forbids a pair that was never seen
            text = f"{action}: forbidden{where}; its usage is {plain(LARGEST)}, more than any budget"
        yield Note("over-budget", text, (f"arms[{block}].usage{by_state}[{a}]",))


def _never_served(context: Check) -> Iterator[Note]:
    served = context.problem.types.served
    for t in np.flatnonzero(~context.servable.any(axis=1)).tolist():
        block = int(context.blocks[t])
        why = "every action that uses something takes more than there is"
        if not served[t].any():
            why = "no action uses anything"
        elif (served & context.problem.types.valid)[t].any():
            why = "where some action that uses something is within the budget, it never gets"
        yield Note("never-served", f"{context.arm(block)} can never be served: {why}", (f"arms[{block}]",))


def _never_helped(context: Check) -> Iterator[Note]:
    """Arms that can be served and gain nothing by it."""
    types, total = context.problem.types, context.problem.criterion.total
    high = np.where(types.valid, types.rewards, -np.inf).max(axis=(1, 2))
    low = np.where(types.valid, types.rewards, np.inf).min(axis=(1, 2))
    least = (HELPS * (high - low) + 1e-12 * np.maximum(np.abs(high), np.abs(low))) * total
    # An unknown worth, not a number, compares as false.
    for t in np.flatnonzero(context.servable.any(axis=1) & (context.worth <= least)).tolist():
        block = int(context.blocks[t])
        text = f"{context.arm(block)}: serving it never helps; idling is as good, even if service were free"
        yield Note("never-helped", text, (f"arms[{block}]",))


def _unreached(context: Check) -> Iterator[Note]:
    types, criterion = context.problem.types, context.problem.criterion
    lost = (np.arange(types.rewards.shape[1]) < types.num_states[:, None]) & ~context.reached  # padding is not a state
    within = "" if criterion.is_stationary else f" within {criterion.num_layers} steps"
    for t in np.flatnonzero(lost.any(axis=1)).tolist():
        block, states = int(context.blocks[t]), np.flatnonzero(lost[t])
        words = f"{context.states(block, states)} {'are' if len(states) > 1 else 'is'} never reached"
        text = f"{context.arm(block)}: {words} from where it starts{within}, whatever is done"
        yield Note("unreached", text, (f"arms[{block}].initial",))


def _discount(context: Check) -> Iterator[Note]:
    criterion, discount = context.problem.criterion, context.problem.discount
    if criterion.name == "discounted" and discount >= 0.999:
        ahead = f"the discount {plain(discount)} looks {criterion.total:,.0f} steps ahead, and makes solving slow"
        yield Note("discount", f"{ahead}; consider the criterion average", ("discount",))


def _nearly_maximin(context: Check) -> Iterator[Note]:
    problem, welfare, members = context.problem, context.welfare, num_members(context.problem)
    says_so = structure(welfare, members).lexicographic or welfare.name.startswith("maximin")
    if context.weight_of_worst is None or says_so or members < 10 or context.weight_of_worst[1] < 0.9:
        return
    few, share = context.weight_of_worst
    yield Note(
        "nearly-maximin",
        f"{welfare.name} gives the worst-off {few} of {members} {problem.over} {_percent(share)} of the weight: "
        f"it is maximin in disguise, and hardly sees the others; {DEFAULT} does not depend on their number",
        ("welfare",) if problem.welfare == welfare.name else (),
    )


def _floors(context: Check) -> Iterator[Note]:
    if not context.problem.has_floors:
        return
    from evenhand.solvers.fluid import model_of  # few models have floors, and these load HiGHS
    from evenhand.solvers.fluid.programs import Program

    try:
        Program(model_of(context.problem)).check_floors()
    except InfeasibleError as error:
        floored = np.flatnonzero(context.problem.floors).tolist()
        yield Note("floors", str(error), tuple(f"arms[{i}].floor" for i in floored))
    except (NotApplicableError, NotConvergedError, TooLargeError) as error:
        yield Note("floors-unknown", f"the feasibility of the floors is unknown: {error}")


def _promises(context: Check) -> Iterator[Note]:
    if context.problem.has_max_wait:
        from evenhand.planning.promises import promise_notes  # few models have promises

        yield from (Note(kind, text, ("max_wait",)) for kind, text in promise_notes(context.problem))


RULES = (
    _normalised,  # first: they change numbers that the user wrote
    _same_names,
    _identical_blocks,
    _alike_groups,
    _no_group,
    _budgets,
    _over_budget,
    _never_served,
    _never_helped,
    _unreached,
    _discount,
    _nearly_maximin,
    _floors,
    _promises,
)
"""All rules, in the order of the report."""
