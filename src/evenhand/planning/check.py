"""`check`: what a model says, in words, and what looks odd about it (`oddities`)."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.checks import plain
from evenhand.display import Shown
from evenhand.errors import Fault, InvalidInputError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import Loaded, Location, load_noting
from evenhand.model.objective import num_members, read_welfare
from evenhand.model.parquet import StoredArms
from evenhand.model.places import called
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool
from evenhand.planning.lint_rules import Note, Study, find_oddities, per_cent, weight_of_worst_tenth

SHOWN_OF_A_KIND = 20
"""Notes of one kind that are listed one by one."""

SHOWN_TYPES, SHOWN_NAMES = 20, 12
"""Types that a text lists, and names of states, actions or groups in a row."""


@dataclass(frozen=True)
class TypeFacts:
    """One kind of arm: what is alike in every number."""

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
    """States it never gets to, whatever is done."""

    served_by: tuple[str, ...]
    """Actions that serve it and that the budget allows; without any, it can never be served."""

    service_worth: float | None
    """The most that service can add to the value of one such arm; None where that was not found out."""

    group: str
    """Of its first block; the name of the block, where it has no group."""

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
    """Contents of a model and findings of the lint rules; `print` shows it."""

    source: str
    """The file or the name of the problem; empty for a problem made in Python."""

    problem: CoupledMDP
    """The problem itself."""

    types: tuple[TypeFacts, ...]
    """The kinds of arms."""

    resources: tuple[ResourceFacts, ...]
    """The shared resources."""

    groups: dict[str, int]
    """Arms per group; empty if no block names one."""

    welfare: Welfare
    """The welfare."""

    weight_of_worst: tuple[int, float] | None
    """Size of the worst-off tenth and its share of the weight; None if the welfare has no weights."""

    notes: tuple[Note, ...]
    """Findings of the lint rules, each with its location."""

    @cached_property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Contents of the model without the types, as names and text."""
        problem = self.problem
        return (
            ("arms", _arms_in_words(problem)),
            ("criterion", _criterion_in_words(problem)),
            *(("" if k else "budget", _resource_in_words(one)) for k, one in enumerate(self.resources)),
            ("welfare", _welfare_in_words(self.welfare, problem, self.weight_of_worst)),
            *((("groups", _groups_in_words(self.groups)),) if self.groups else ()),
            ("can be served", _served_in_words(self.types)),
        )

    @property
    def summary(self) -> str:
        """One line."""
        number = len(self.notes)
        odd = (
            "nothing looks odd" if not number else "one thing looks odd" if number == 1 else f"{number} things look odd"
        )
        return f"{self.source or 'the model'} is sound; {odd}"

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [self.summary, "", *(f"  {name:{width}}  {words}" for name, words in self.facts), ""]
        shown = self.types[:SHOWN_TYPES]
        lines += [f"  {facts.name or f'arms[{facts.block}]'}: {_type_in_words(facts)}" for facts in shown]
        if len(self.types) > SHOWN_TYPES:
            lines.append(f"  ... {len(self.types) - SHOWN_TYPES} more types")
        return "\n".join([*lines, *([""] if self.notes else []), *(f"- {note}" for note in self.notes)])

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
            "types": [asdict(facts) for facts in self.types],
            "notes": [asdict(note) for note in self.notes],
        }


def check(
    model: CoupledMDP | StoredArms | Location,
    welfare: str | Welfare | None = None,
    criterion: str | None = None,
    over: str | None = None,
    backend: str | Pool | None = None,
) -> Check:
    """Tell what a model says and what looks odd about it.

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
        kind = type(model).__name__
        raise InvalidInputError(f"check: expected a problem, or the name of a model file; of a {kind} nothing is known")
    # A criterion may make a file without a discount readable.
    loaded = Loaded(model) if isinstance(model, CoupledMDP) else load_noting(model, criterion=criterion)
    # And again for a problem that was made in Python.
    return check_loaded(replace(loaded, problem=loaded.problem.with_criterion(criterion, over)), welfare)


def check_loaded(loaded: Loaded, welfare: str | Welfare | None = None) -> Check:
    """The same for what was loaded already.

    Args:
        loaded: a problem, with its file.
        welfare: the welfare; by default as in `solve`.
    """
    problem = loaded.problem
    weighed_by = read_welfare(problem, welfare)
    study = Study(problem, weighed_by)
    # Rows that were normalised come first: they change numbers that the user wrote.
    notes = [*_shortened([_normalised(row) for row in loaded.rows]), *_by_kind(find_oddities(study))]
    return Check(
        source=loaded.name,
        problem=problem,
        types=tuple(_facts_of(study, t) for t in range(problem.num_types)),
        resources=_resources(study),
        groups=_groups(problem),
        welfare=weighed_by,
        weight_of_worst=weight_of_worst_tenth(weighed_by, num_members(problem)),
        notes=tuple(notes),
    )


# Facts


def _facts_of(study: Study, t: int) -> TypeFacts:
    problem, types = study.problem, study.problem.types
    s, a, block = int(types.num_states[t]), int(types.num_actions[t]), int(study.blocks[t])
    _, labels, names = types.labels[t] if types.labels else ("", (), ())
    # Without labels, numbers stand in for them.
    states = labels or tuple(str(i) for i in range(s))
    actions = names or tuple(str(i) for i in range(a))
    worth = float(study.worth[t])
    return TypeFacts(
        name=study.names[block],
        block=block,
        count=int(problem.type_counts[t]),
        states=states,
        actions=actions,
        starts_in=_chosen(states, types.initial[t, :s] > 0),
        unreached=_chosen(states, ~study.reached[t, :s]),
        served_by=_chosen(actions, study.servable[t, :a]),
        service_worth=None if np.isnan(worth) else worth,
        group=problem.group_names[problem.group_of_block[block]],
        floor=float(problem.type_floors[t]),
    )


def _chosen(labels: Sequence[str], wanted: Sequence[bool] | np.ndarray) -> tuple[str, ...]:
    return tuple(label for label, is_wanted in zip(labels, wanted, strict=True) if is_wanted)


def _resources(study: Study) -> tuple[ResourceFacts, ...]:
    problem = study.problem
    return tuple(
        # No more than there is can be used, whatever the arms could take.
        ResourceFacts(name, float(problem.budget[k]), float(min(study.most_used[k], problem.budget[k])))
        for k, name in enumerate(problem.resource_names)
    )


def _groups(problem: CoupledMDP) -> dict[str, int]:
    if not problem.groups:
        return {}
    # Blocks, not types: under `over = arms` a type may reach across groups.
    sizes = np.bincount(problem.group_of_block, weights=problem.counts)
    return {name: int(size) for name, size in zip(problem.group_names, sizes, strict=True)}


# Words


def _arms_in_words(problem: CoupledMDP) -> str:
    kinds = "all alike" if problem.is_symmetric else f"of {problem.num_types} types"
    return "1" if problem.num_arms == 1 else f"{problem.num_arms}, {kinds}"


def _criterion_in_words(problem: CoupledMDP) -> str:
    return f"{problem.criterion.name}: {problem.criterion.description}"


def _resource_in_words(resource: ResourceFacts) -> str:
    # Only where the budget cannot be used up is that worth a word.
    only = "" if resource.most_used >= resource.budget else f", of which only {plain(resource.most_used)} can be used"
    return f"{resource.name}: {plain(resource.budget)} a step{only}"


def _welfare_in_words(welfare: Welfare, problem: CoupledMDP, worst: tuple[int, float] | None) -> str:
    members = num_members(problem)
    who = "groups" if problem.over == "groups" else "arms"
    text = f"{welfare.name} over {members} {who}"
    # With one member there is nothing to weigh.
    if worst is None or members < 2:
        return text
    few, share = worst
    have = f"{few} of them have" if few > 1 else "one has"
    return f"{text}; the worst-off {have} {per_cent(share)} of the weight"


def _groups_in_words(groups: dict[str, int]) -> str:
    shown = [f"{name} ({number})" for name, number in list(groups.items())[:SHOWN_NAMES]]
    return ", ".join(shown) + (f" and {len(groups) - SHOWN_NAMES} more" if len(groups) > SHOWN_NAMES else "")


def _served_in_words(types: Sequence[TypeFacts]) -> str:
    never = [facts for facts in types if not facts.served_by]
    if not never:
        return "every arm"
    if len(never) == len(types):
        return "none of the arms"
    # A name that several types share gets the number of its block.
    times = Counter(facts.name for facts in types)
    names = ", ".join(called(facts.name, facts.block, times[facts.name] > 1) for facts in never[:SHOWN_NAMES])
    return f"all but {names}" + (f" and {len(never) - SHOWN_NAMES} more types" if len(never) > SHOWN_NAMES else "")


def listed(labels: Sequence[str]) -> str:
    """Labels in a row, not too many."""
    shown = ", ".join(labels[:SHOWN_NAMES])
    return shown + (f" and {len(labels) - SHOWN_NAMES} more" if len(labels) > SHOWN_NAMES else "")


def starts_in_words(facts: TypeFacts) -> str:
    """Return the initial states as text."""
    # A uniform start over all states is not listed.
    return "any state" if len(facts.starts_in) == len(facts.states) > 1 else listed(facts.starts_in)


def _type_in_words(facts: TypeFacts) -> str:
    arms = f"{facts.count} arm{'s' if facts.count > 1 else ''}"
    served = f"served by {listed(facts.served_by)}" if facts.served_by else "never served"
    floor = f", at least {100 * facts.floor:.3g} % of the time" if facts.floor else ""
    return f"{arms}; states {listed(facts.states)}; starts in {starts_in_words(facts)}; {served}{floor}"


# Notes


def _normalised(row: Fault) -> Note:
    where = row.words or row.place
    text = f"{where}: {row.message.removesuffix(', not 1')}, and were divided by that"
    return Note("normalised", text, (row.place,))


def _by_kind(notes: Sequence[Note]) -> list[Note]:
    kinds = dict.fromkeys(note.kind for note in notes)
    # Kinds in the order in which they were first found.
    return [note for kind in kinds for note in _shortened([note for note in notes if note.kind == kind])]


def _shortened(notes: list[Note]) -> list[Note]:
    """The first of a kind, and how many more there are."""
    # Of many notes of one kind the first are listed.
    more = notes[SHOWN_OF_A_KIND:]
    if not more:
        return notes
    places = tuple(place for note in more for place in note.places)
    return [*notes[:SHOWN_OF_A_KIND], Note(notes[0].kind, f"... and {len(more)} more such", places)]
