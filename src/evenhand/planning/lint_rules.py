"""Lint rules: valid models that are probably not what their author meant.

Each function looks for one kind of oddity and gives a Note for each that it finds. Nothing here is a guess about
numbers: what is said of arms, states and budgets is computed (`solvers.service`, the relaxation's floors). Only names
that look alike are a matter of opinion.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.checks import plain
from evenhand.errors import InfeasibleError, NotApplicableError, NotConvergedError, TooLargeError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import block_names
from evenhand.model.objective import num_members
from evenhand.model.places import called, quoted
from evenhand.model.welfare import DEFAULT, Welfare, structure, weight_of_worst
from evenhand.solvers.service import reached, worth_of_service
from evenhand.typing import Bools, Floats, Ints

NEAR_ONE = 0.999
"""Discounts from here on reach a thousand steps ahead, and more."""

HELPS = 1e-7
"""The least share of all that rewards can differ by that counts as help."""

ROUNDING = 1e-12
"""Values differ by such a share of the largest for rounding alone."""

IN_DISGUISE = 0.9
"""The share of the weight from which on a tenth of the members decides alone."""

MOST_PAIRS = 400
"""Groups up to which names are compared one by one."""

SHOWN_LABELS = 5
"""States named in one note."""


@dataclass(frozen=True)
class Note:
    """One thing that looks odd."""

    kind: str
    """Name of the rule: `over-budget`."""

    message: str
    """The finding, and often what to do."""

    places: tuple[str, ...] = ()
    """Locations, as of faults: `arms[2].usage[1]`."""

    def __str__(self) -> str:
        return self.message


# Derived figures of the problem, computed on first use


@dataclass(frozen=True, eq=False)
class Study:
    """A problem, and what several oddities are about."""

    problem: CoupledMDP
    """The problem, under its criterion."""

    welfare: Welfare
    """The welfare."""

    @cached_property
    def blocks(self) -> Ints:
        """(type,) the first block of each type."""
        return np.unique(self.problem.type_of_block, return_index=True)[1]

    @cached_property
    def affordable(self) -> Bools:
        """(type, state, action) what an arm may do were all of the budget its own."""
        return self.problem.affordable

    @cached_property
    def reached(self) -> Bools:
        """(type, state) where an arm can get."""
        return reached(self.problem.types, self.affordable, self.problem.criterion)

    @cached_property
    def servable(self) -> Bools:
        """(type, action) whether an arm can ever be given the action, and is served by it."""
        # Within the budget, in a state that can be reached.
        open_pairs = self.problem.types.served & self.affordable & self.reached[..., None]
        return np.asarray(open_pairs.any(axis=1))

    @cached_property
    def worth(self) -> Floats:
        """(type,) the most that service can add to the value of an arm; not a number where that is not known."""
        return worth_of_service(self.problem)

    @cached_property
    def most_used(self) -> Floats:
        """(resource,) the most that all arms together can use in a step."""
        open_pairs = self.affordable & self.reached[..., None]
        # (type, resource): an arm at its dearest, wherever that is.
        most = np.where(open_pairs[..., None], self.problem.types.usage, 0.0).max(axis=(1, 2))
        return np.asarray(self.problem.type_counts @ most)

    @cached_property
    def twice(self) -> set[str]:
        """Names that several blocks have."""
        return {name for name, times in Counter(self.names).items() if name and times > 1}

    @cached_property
    def names(self) -> list[str]:
        """(block,) what the arms are called, or empty; blocks that a table of states has cut, by where they start."""
        if self.problem.arm_names:
            return block_names(self.problem)
        labels = self.problem.tables.labels
        return [label[0] for label in labels] if labels else [""] * len(self.problem.tables)

    def arm(self, block: int) -> str:
        """A block in words."""
        return called(self.names[block], block, self.names[block] in self.twice)

    def label(self, kind: str, block: int, index: int) -> str:
        """`state "poor"`, or `state 2`."""
        labels = self.problem.tables.labels
        known = labels[block][1 if kind == "state" else 2] if labels else ()
        return f"{kind} {quoted(known[index]) if known else index}"

    def resource(self, index: int) -> str:
        """A resource in words."""
        return quoted(self.problem.resources[index]) if self.problem.resources else f"resource {index}"


def find_oddities(study: Study) -> list[Note]:
    """All that looks odd, by kind."""
    return [note for look in LOOKS for note in look(study)]


# Names


def _same_names(study: Study) -> Iterator[Note]:
    for name in dict.fromkeys(name for name in study.names if name in study.twice):
        blocks = [i for i, own in enumerate(study.names) if own == name]
        groups = {study.problem.group_of_block[i] for i in blocks} if study.problem.groups else ()
        if len(groups) == len(blocks):  # a table distinguishes them by type and group
            continue
        if len({int(study.problem.type_of_block[i]) for i in blocks}) > 1:
            yield Note(
                "same-name",
                f"{len(blocks)} blocks are called {quoted(name)} and are not the same: "
                "an arm found by name may be mistaken for the other",
                tuple(f"arms[{i}].name" for i in blocks),
            )


def _identical_blocks(study: Study) -> Iterator[Note]:
    same = defaultdict(list)
    # Types are what is alike in every number: more than one block of a type may be meant as different.
    for block, kind in enumerate(study.problem.type_of_block.tolist()):
        same[kind].append(block)
    for blocks in same.values():
        if len(blocks) > 1:
            names = " and ".join(study.arm(i) for i in blocks[:2]) + (", and more," if len(blocks) > 2 else "")
            yield Note(
                "identical-blocks",
                f"{names} are the same in every number: they count as one type",
                tuple(f"arms[{i}]" for i in blocks),
            )


def _alike_groups(study: Study) -> Iterator[Note]:
    groups = list(study.problem.groups)
    names = sorted({group for group in groups if group})
    # Each name with each other: beyond this the time is better spent.
    if len(names) > MOST_PAIRS:
        return
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            if look_alike(name, other):
                # In the order in which the file has them.
                first, second = sorted((name, other), key=groups.index)
                yield Note(
                    "alike-groups",
                    f"the groups {quoted(first)} and {quoted(second)} are two, and look like one",
                    tuple(f"arms[{groups.index(group)}].group" for group in (first, second)),
                )


def look_alike(one: str, other: str) -> bool:
    """Return whether two names differ like a typing error: case, blanks, or one letter of a longer word.

    Numbers, single letters and other short words tell groups apart on purpose.
    """
    # Blanks, underscores, hyphens and points are what people type differently.
    words, others = (re.split(r"[\s_\-.]+", name.strip().casefold()) for name in (one, other))
    if "".join(words) == "".join(others):
        return True
    different = [(a, b) for a, b in zip(words, others, strict=False) if a != b]
    if len(words) != len(others) or len(different) != 1:
        return False
    ((a, b),) = different
    # In short words one letter is a difference: `A1` and `B1`.
    return min(len(a), len(b)) >= 4 and not any(map(str.isdigit, a + b)) and _one_slip(a, b)


def _one_slip(one: str, other: str) -> bool:
    """Return whether one letter more, another letter, or two letters that changed places make one word of the other."""
    short, long = sorted((one, other), key=len)
    if len(short) == len(long):
        places = [i for i in range(len(short)) if short[i] != long[i]]
        # Two neighbours that changed places.
        swapped = len(places) == 2 and places[1] == places[0] + 1 and short[places[0]] == long[places[1]]
        return len(places) == 1 or (swapped and short[places[1]] == long[places[0]])
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _some_without_group(study: Study) -> Iterator[Note]:
    problem = study.problem
    own = [i for i, group in enumerate(problem.groups) if not group]
    if problem.over == "groups" and problem.groups and own:
        names = ", ".join(study.arm(i) for i in own[:SHOWN_LABELS]) + (", ..." if len(own) > SHOWN_LABELS else "")
        yield Note(
            "no-group",
            f"{names}: without a group, and so a group by itself, which counts as much as any other",
            tuple(f"arms[{i}]" for i in own),
        )


# Budgets and actions


def _budgets(study: Study) -> Iterator[Note]:
    for k, amount in enumerate(study.problem.budget):
        name, place = study.resource(k), (f"budget[{k}]",)
        # Three causes of a budget that does nothing, the plainest first.
        used = bool((study.problem.types.usage[..., k] > 0).any())
        if not used:
            yield Note("unused-resource", f"{name}: no action uses it", place)
        elif amount == 0:
            yield Note("no-budget", f"{name}: there is nothing of it, so no action that uses it is ever taken", place)
        elif 0 < study.most_used[k] <= amount * (1 + 1e-12):
            most = plain(study.most_used[k])
            yield Note(
                "never-binding",
                f"{name}: there are {plain(amount)} a step, and all arms together can use no more than {most}: "
                "this budget never binds",
                place,
            )


def _over_budget(study: Study) -> Iterator[Note]:
    """Actions that no budget ever allows, though there is something of what they use."""
    problem, types = study.problem, study.problem.types
    some = problem.budget > 0
    # Resources of which there is nothing have a note of their own.
    too_much = (types.usage > problem.budget_limit) & some  # (type, state, action, resource)
    dear = np.asarray(too_much.any(axis=-1) & types.real)
    for t, a in np.argwhere(dear.any(axis=1)).tolist():
        states, block = np.flatnonzero(dear[t, :, a]), int(study.blocks[t])
        s = int(states[0])
        # The first of the states and resources stands for all in the sentence; the place leads there.
        k = int(np.flatnonzero(too_much[t, s, a])[0])
        everywhere = len(states) == types.num_states[t]
        where = "" if everywhere else f" in {_listed(study, block, states)}"
        takes = f"takes {plain(types.usage[t, s, a, k])} of {study.resource(k)}{where}, and there "
        takes += f"{'is' if problem.budget[k] == 1 else 'are'} {plain(problem.budget[k])}"
        yield Note(
            "over-budget",
            f"{study.arm(block)}, {study.label('action', block, a)}: {takes}, so it is never taken"
            + ("" if everywhere else " there"),
            (_usage_place(study, t, block, s, a),),
        )


def _usage_place(study: Study, t: int, block: int, state: int, action: int) -> str:
    """Return the location of the usage in a file: under the action, if it is the same in all states."""
    usage = study.problem.types.usage[t, : study.problem.types.num_states[t]]
    # A file may have usage by action; the location then has no state.
    by_state = bool((usage != usage[:1]).any())
    return f"arms[{block}].usage" + (f"[{state}]" if by_state else "") + f"[{action}]"


def _listed(study: Study, block: int, states: Iterable[int]) -> str:
    all_states = list(states)
    shown = ", ".join(study.label("state", block, int(s)) for s in all_states[:SHOWN_LABELS])
    return shown + (f" and {len(all_states) - SHOWN_LABELS} more" if len(all_states) > SHOWN_LABELS else "")


# Arms


def _never_served(study: Study) -> Iterator[Note]:
    served = study.problem.types.served
    for t in np.flatnonzero(~study.servable.any(axis=1)).tolist():
        block = int(study.blocks[t])
        # The usual reason; the next two are particular ones.
        why = "every action that uses something takes more than there is"
        if not served[t].any():
            why = "no action uses anything"
        elif (served & study.affordable)[t].any():
            why = "where some action that uses something is within the budget, it never gets"
        yield Note("never-served", f"{study.arm(block)} can never be served: {why}", (f"arms[{block}]",))


def _never_helped(study: Study) -> Iterator[Note]:
    """Arms that can be served and gain nothing by it."""
    types, total = study.problem.types, study.problem.criterion.total
    high = np.where(types.valid, types.rewards, -np.inf).max(axis=(1, 2))
    low = np.where(types.valid, types.rewards, np.inf).min(axis=(1, 2))
    # What rewards can differ by, over all time: less than this share of it does not help, and less than rounding is
    # nothing.
    least = (HELPS * (high - low) + ROUNDING * np.maximum(np.abs(high), np.abs(low))) * total
    # A worth that is not a number compares as false: nothing is said of what is not known.
    for t in np.flatnonzero(study.servable.any(axis=1) & (study.worth <= least)).tolist():
        block = int(study.blocks[t])
        yield Note(
            "never-helped",
            f"{study.arm(block)}: serving it never helps; idling is as good, even if service were free",
            (f"arms[{block}]",),
        )


def _unreached(study: Study) -> Iterator[Note]:
    types, criterion = study.problem.types, study.problem.criterion
    # Padding is not a state.
    real = np.arange(types.rewards.shape[1]) < types.num_states[:, None]
    within = "" if criterion.is_stationary else f" within {criterion.num_layers} steps"
    for t in np.flatnonzero((real & ~study.reached).any(axis=1)).tolist():
        block, states = int(study.blocks[t]), np.flatnonzero(real[t] & ~study.reached[t])
        verb = "are" if len(states) > 1 else "is"
        yield Note(
            "unreached",
            f"{study.arm(block)}: {_listed(study, block, states)} {verb} never reached from where it starts{within}, "
            "whatever is done",
            (f"arms[{block}].initial",),
        )


# What is maximised


def _discount(study: Study) -> Iterator[Note]:
    problem = study.problem
    if problem.criterion.name == "discounted" and problem.discount >= NEAR_ONE:
        yield Note(
            "discount",
            f"the discount {plain(problem.discount)} looks {problem.criterion.total:,.0f} steps ahead, and makes "
            "solving slow; the criterion average may be what is meant",
            ("discount",),
        )


def weight_of_worst_tenth(welfare: Welfare, members: int) -> tuple[int, float] | None:
    """Return the size of the worst-off tenth and its share of the weight; None if the welfare has no weights.

    Args:
        welfare: the welfare.
        members: how many there are.
    """
    return weight_of_worst(welfare, 0.1, members)


def per_cent(share: float) -> str:
    """A share in whole per cent, of which 100 means all."""
    shown = f"{100 * share:.0f} %"
    # 99.6 % must not read as all.
    return "over 99 %" if shown == "100 %" and share < 1 else shown


def _disguised(study: Study) -> Iterator[Note]:
    members = num_members(study.problem)
    worst = weight_of_worst_tenth(study.welfare, members)
    # These names say it themselves.
    open_about_it = structure(study.welfare, members).lexicographic or study.welfare.name.startswith("maximin")
    if worst is None or open_about_it or members < 10 or worst[1] < IN_DISGUISE:
        return
    few, share = worst
    who = "groups" if study.problem.over == "groups" else "arms"
    yield Note(
        "nearly-maximin",
        f"{study.welfare.name} gives the worst-off {few} of {members} {who} {per_cent(share)} of the weight: "
        f"it is maximin in disguise, and hardly sees the others; {DEFAULT} weighs alike for any number of them",
        ("welfare",) if study.problem.welfare == study.welfare.name else (),
    )


def _floors(study: Study) -> Iterator[Note]:
    problem = study.problem
    if not problem.has_floors:
        return
    from evenhand.solvers.fluid import model_of  # few models have floors, and these load HiGHS
    from evenhand.solvers.fluid.programs import Program

    floored = np.flatnonzero(problem.floors).tolist()
    try:
        Program(model_of(problem)).check_floors()
    except InfeasibleError as error:
        yield Note("floors", str(error), tuple(f"arms[{i}].floor" for i in floored))
    except (NotApplicableError, NotConvergedError, TooLargeError) as error:
        yield Note("floors-unknown", f"whether the floors can be met was not found out: {error}")


LOOKS: Sequence[Callable[[Study], Iterator[Note]]] = (
    _same_names,
    _identical_blocks,
    _alike_groups,
    _some_without_group,
    _budgets,
    _over_budget,
    _never_served,
    _never_helped,
    _unreached,
    _discount,
    _disguised,
    _floors,
)
"""All rules, in the order of the report."""
