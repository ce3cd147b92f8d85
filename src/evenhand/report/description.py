"""Description of a problem in sentences: its arms, choices, budget and criterion, and the meaning of its welfare."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import counted
from evenhand.model.naming import base_names, type_names
from evenhand.model.simulator import Problem, Simulator
from evenhand.model.welfare import Welfare
from evenhand.report.format import amount, few, listed, percent
from evenhand.report.summary import Cell, Section, Table, TableRow
from evenhand.typing import Floats

MOST_TYPES = 12
"""Types that are listed."""


def problem_section(problem: Problem) -> Section:
    """Return the section of a page that describes the problem."""
    types = types_table(problem)
    return Section("The problem", facts=problem_facts(problem), tables=[types] if types else [])


def problem_facts(problem: Problem) -> list[tuple[str, str]]:
    """Return the description of a problem by terms."""
    return [
        ("Arms", _arms(problem)),
        ("States and actions", _choices(problem)),
        ("Budget", _budget(problem)),
        ("Discount and value" if problem.criterion.name == "discounted" else "Time and value", _time(problem)),
        *_groups(problem),
        *_floors(problem),
    ]


def _groups(problem: Problem) -> list[tuple[str, str]]:
    if problem.over != "groups":
        return []
    names = problem.group_names
    which = f": {listed(few(names))}" if len(names) > 1 else f", {names[0]}"
    meaning = (
        "The value of a group is the mean of its arms' values, and welfare counts each group once, large or small."
    )
    return [("Groups", f"The arms are in {counted(len(names), 'group')}{which}. {meaning}")]


def _floors(problem: Problem) -> list[tuple[str, str]]:
    if not problem.has_floors:
        return []
    pairs = zip(type_names(problem), problem.type_floors, strict=True)
    floors = [f"{percent(float(floor))} for {name}" for name, floor in pairs if floor > 0]
    return [("Floors", f"Each arm is to be served in at least this share of the time: {listed(few(floors))}.")]


def _arms(problem: Problem) -> str:
    meaning = "An arm is whatever competes for the resources: a machine, a patient, a customer."
    if problem.num_arms == 1:
        return f"There is one arm, {type_names(problem)[0]}. {meaning}"
    if problem.is_symmetric:
        name = type_names(problem)[0]
        called = "" if name == "type 0" else f" ({name})"
        return f"There are {problem.num_arms:,} identical arms{called}. {meaning}"
    kinds = f"of {problem.num_types:,} types" if problem.num_types < problem.num_arms else "which all differ"
    makes = len(alike_but_for_starts(problem))
    if makes < problem.num_types:  # they differ in their initial states only
        sorts = "of one type" if makes == 1 else f"of {makes:,} types"
        kinds = f"{sorts}, which start in different states"
    return f"There are {problem.num_arms:,} arms {kinds}. {meaning}"


def _choices(problem: Problem) -> str:
    """Return states and actions, if all types share them."""
    if not same_choices(problem):
        return "The types differ in their states and actions; see the table below."
    who = "it" if problem.num_arms == 1 else "each arm"
    states, actions = states_text(problem, 0), actions_text(problem, 0)
    return f"At every step {who} is in one of {states}, and is given one of {actions}."


def same_choices(problem: Problem) -> bool:
    """Return whether all types have the same states and actions, by name and by usage."""
    types = problem.types
    labels = {label[1:] for label in types.labels}
    alike = (types.num_states == types.num_states[0]).all() and (types.num_actions == types.num_actions[0]).all()
    return len(labels) <= 1 and bool(alike) and bool((types.usage == types.usage[0]).all())


def states_text(problem: Problem, kind: int) -> str:
    """Return `3 states (new, worn, failed)`."""
    size = int(problem.types.num_states[kind])
    labels = problem.types.labels[kind][1] if problem.types.labels else ()
    return counted(size, "state") + (f" ({', '.join(few(labels))})" if labels else "")


def actions_text(problem: Problem, kind: int) -> str:
    """Return `2 actions: wait (uses nothing) or call (uses 1)`."""
    types = problem.types
    size = int(types.num_actions[kind])
    labels = (types.labels[kind][2] if types.labels else ()) or [f"action {index}" for index in range(size)]
    # Real states only: padding uses nothing.
    usage = types.usage[kind, : types.num_states[kind]]
    names = problem.resource_names
    texts = [f"{labels[action]} (uses {_usage(usage[:, action], names)})" for action in range(size)]
    return f"{counted(size, 'action')}: {listed(few(texts), 'or')}"


def _usage(usage: Floats, names: Sequence[str]) -> str:
    """Return the (state, resource) usage of an action as text."""
    low, high = usage.min(axis=0), usage.max(axis=0)
    if not high.any():
        return "nothing"
    amounts = [
        amount(a) if a == b else f"{amount(a)} to {amount(b)}, by state," for a, b in zip(low, high, strict=True)
    ]
    if len(amounts) == 1:
        return amounts[0].rstrip(",")
    return listed([f"{text} of {name}" for text, name in zip(amounts, names, strict=True) if text != "0"])


def _budget(problem: Problem) -> str:
    budget = [amount(value) for value in problem.budget]
    shares = "In one step it may use" if problem.num_arms == 1 else "In one step all arms together may use"
    names = problem.resource_names
    if names == ("resource 0",):
        return f"{shares} at most {budget[0]} of the resource."
    return f"{shares} at most {listed([f'{text} of {name}' for text, name in zip(budget, names, strict=True)])}."


def _time(problem: Problem) -> str:
    return f"The value of an arm is {problem.criterion.description}."


def weights_of_time(problem: Problem) -> str:
    """Return the end of a sentence on the weights of steps; empty if they are equal."""
    if problem.criterion.factor < 1:
        return ", early steps counting for more"
    return ", in the long run" if problem.criterion.is_stationary else ""


def alike_but_for_starts(problem: Problem) -> dict[str, list[int]]:
    """Return types by name, those together that differ in nothing but their initial state."""
    bases, names = base_names(problem), type_names(problem)
    # Names such as `Ford from poor` were made by cutting a type at its starts.
    split = [bool(base) and name.startswith(f"{base} from ") for base, name in zip(bases, names, strict=True)]
    moves: dict[str, set[tuple[bytes, ...]]] = {}
    for kind in np.flatnonzero(split).tolist():
        moves.setdefault(bases[kind], set()).add(_moves_of(problem, kind))
    found: dict[str, list[int]] = {}
    for kind, (base, name) in enumerate(zip(bases, names, strict=True)):
        # Together only if they are alike in all but that.
        found.setdefault(base if split[kind] and len(moves[base]) == 1 else name, []).append(kind)
    return found


def _moves_of(problem: Problem, kind: int) -> tuple[bytes, ...]:
    """Return the tables of a type without its initial state, for comparison."""
    if isinstance(problem, Simulator):
        return ()
    types = problem.types
    return tuple(table[kind].tobytes() for table in (types.transitions, types.rewards, types.usage))


def starts_words(problem: Problem, name: str, kinds: Sequence[int]) -> str:
    """Return `4 from sound, 2 from poor`; empty for a single initial state.

    Args:
        problem: the problem.
        name: name of the types, by `alike_but_for_starts`.
        kinds: types of this name.
    """
    names = type_names(problem)
    starts = [f"{problem.type_counts[kind]:,} {names[kind].removeprefix(name).strip()}" for kind in kinds]
    return ", ".join(few(starts)) if len(kinds) > 1 else ""


def is_nameless(problem: Problem) -> bool:
    """Return whether every arm is a type of its own without a name."""
    return problem.num_types == problem.num_arms and not any(name for name, _, _ in problem.types.labels)


def member(problem: Problem) -> str:
    """Return `arm` or `group`, the member that welfare is over."""
    return "group" if problem.over == "groups" else "arm"


def welfare_meaning(welfare: Welfare, who: str = "arm", number: int | None = None) -> str:
    """Return the meaning of a welfare.

    Args:
        welfare: the welfare.
        who: its members, `arm` or `group`.
        number: number of members, if known.
    """
    unit = f"It is in the same unit as the values, and if all {who}s are equal it is simply their value."
    say, among = (getattr(welfare, name, None) for name in ("meaning", "meaning_among"))
    if among is not None and number is not None:
        return f"{among(who, number)} {unit}"
    return f"{say(who)} {unit}" if say is not None else f"It is one number for the values of all {who}s."


def types_table(problem: Problem) -> Table | None:
    """Return the types with their arms, and their states and actions if these differ; None if it would be empty.

    Types that differ in nothing but their initial state share a row.
    """
    alike = same_choices(problem)
    if problem.is_symmetric or (alike and is_nameless(problem)):
        return None
    heads = [Cell("Type"), Cell("Arms")]
    if not alike:
        heads += [Cell(title, is_text=True) for title in ("States", "Actions")]
    rows = []
    for name, kinds in list(alike_but_for_starts(problem).items())[:MOST_TYPES]:
        texts = [] if alike else [states_text(problem, kinds[0]), actions_text(problem, kinds[0])]
        number_of_arms = int(problem.type_counts[kinds].sum())
        cells = [Cell(f"{number_of_arms:,}"), *(Cell(text, is_text=True) for text in texts)]
        rows.append(TableRow(name, tuple(cells), note=starts_words(problem, name, kinds)))
    more = len(alike_but_for_starts(problem)) - MOST_TYPES
    return Table("Types of arms", tuple(heads), tuple(rows), max(more, 0))
