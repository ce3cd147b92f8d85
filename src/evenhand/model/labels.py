"""Labels of types, states, actions and resources; their numbers if they have none.

A type is all blocks whose arms are identical, so it has the names of all of them. If several types have one name, their
initial state, their group, or else their number is added.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem, Simulator


class Labels:
    """The words of one problem."""

    def __init__(self, problem: CoupledMDP) -> None:
        self.problem = problem
        types = problem.types
        self._labels = types.labels or (("", (), ()),) * len(types)
        self._bases, self._types = base_names(problem), type_names(problem)
        self._times = Counter(self._bases)

    def type(self, kind: int) -> str:
        """`Ford`, or `type 2`."""
        return self._types[kind]

    def base(self, kind: int) -> str:
        """`Ford`, also where several types are called so."""
        return self._bases[kind] or self.type(kind)

    def types(self, kinds: Sequence[int]) -> str:
        """`Ford and Opel`; `Ford from new, fair` where only some of a name are meant, by where they start."""
        by_base: dict[str, list[int]] = {}
        for kind in kinds:
            by_base.setdefault(self.base(kind), []).append(kind)
        names = []
        for base, own in by_base.items():
            whole = len(own) == self._times[base] or len(own) == 1
            start = f"{base} from "
            if len(own) > 1 and whole:
                names.append(base)
            elif whole or not all(self.type(kind).startswith(start) for kind in own):
                names += [self.type(kind) for kind in own]
            else:
                names.append(start + ", ".join(self.type(kind).removeprefix(start) for kind in own))
        if len(names) > 6:
            return f"{len(kinds)} types ({names[0]}, ...)"
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def state(self, kind: int, state: int) -> str:
        """`poor`, or `2`."""
        states = self._labels[kind][1]
        return states[state] if states else str(state)

    def action(self, kind: int, action: int) -> str:
        """`overhaul`, or `2`."""
        actions = self._labels[kind][2]
        return actions[action] if actions else str(action)

    def doing(self, kind: int, action: int) -> str:
        """`overhaul`, or `action 2`, as it stands in a sentence."""
        return self.action(kind, action) if self._labels[kind][2] else f"action {action}"

    def being(self, kind: int, state: int) -> str:
        """`in poor`, or `in state 2`."""
        return f"in {self.state(kind, state)}" if self._labels[kind][1] else f"in state {state}"

    def resources(self, which: list[int]) -> str:
        """`bays and technicians`."""
        names = [self.problem.resource_names[number] for number in which]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def one_more(name: str) -> str:
    """`one more bay`; `one unit more of crew` if the name is not the plural of an English word."""
    single = _singular(name)
    return f"one more {single}" if single else f"one unit more of {name}"


def _singular(name: str) -> str | None:
    """The name of one of many; None where it is not the plural of an English word."""
    if not name.replace(" ", "").isalpha() or not name.endswith("s") or name.endswith(("ss", "us", "is")):
        return None
    if name.endswith("ies") and len(name) > 4:
        return name[:-3] + "y"
    return name[:-2] if name.endswith(("ches", "shes", "xes", "sses")) else name[:-1]


def amount_of(name: str, amount: float) -> str:
    """`3 bays`, `1 bay`; `2 units of resource 0` where the name is not of things that are counted."""
    single = _singular(name)
    if single is None:
        return f"{quantity(amount)} {'unit' if amount == 1 else 'units'} of {name}"
    return f"{quantity(amount)} {single if amount == 1 else name}"


def listed(texts: Iterable[str]) -> str:
    """`Ford, Opel`; parted by semicolons where a comma stands in one of them, outside of brackets."""
    items = list(texts)
    return ("; " if any("," in re.sub(r"\([^)]*\)", "", text) for text in items) else ", ").join(items)


def quantity(amount: float) -> float | int:
    """A whole number as such."""
    return int(amount) if float(amount).is_integer() else float(amount)


def as_key(name: str) -> str:
    """The name of a resource as parameters of built-in problems are written."""
    return name.lower().replace(" ", "_").replace("-", "_")


# -- names of types, blocks and arms ---------------------------------------------------------------------------------


def base_names(problem: Problem, most: int = 3) -> list[str]:
    """(type,) names of its blocks, as `Ford` or `Ford, Opel`; empty if they have none.

    Args:
        problem: the problem.
        most: number of blocks whose names are listed.
    """
    blocks: list[dict[str, None]] = [{} for _ in range(problem.num_types)]
    for kind, (name, _, _) in zip(problem.type_of_block.tolist(), problem.tables.labels, strict=False):
        if name:
            blocks[kind][name] = None
    return [", ".join(list(own)[:most]) + (", …" if len(own) > most else "") for own in blocks]


def own_names(problem: Problem) -> list[str]:
    """(type,) names that distinguish types, as `Ford from poor`; empty if there is none.

    Args:
        problem: the problem.
    """
    if isinstance(problem, Simulator):
        return [""]
    names = _with_starts(base_names(problem), problem.types)
    shared = Counter(names)
    if problem.over == "groups" and max(shared.values()) > 1:
        groups = [problem.group_names[number] for number in problem.group_of_type]
        names = [f"{n} of {g}" if n and shared[n] > 1 else n for n, g in zip(names, groups, strict=True)]
        shared = Counter(names)
    return [name if shared[name] == 1 or not name else f"{name} (type {kind})" for kind, name in enumerate(names)]


def type_names(problem: Problem) -> list[str]:
    """(type,) unique names; `type 2` if it has none.

    Args:
        problem: the problem.
    """
    names = [name or f"type {kind}" for kind, name in enumerate(own_names(problem))]
    times = Counter(names)  # a block may be called "type 2"
    return [name if times[name] == 1 else f"{name} ({kind})" for kind, name in enumerate(names)]


def arm_names(problem: Problem) -> list[str]:
    """(arm,) name of the block of each arm, with its initial state if others of the name have another.

    Args:
        problem: the problem.
    """
    if isinstance(problem, Simulator) or not problem.tables.labels:
        return [""] * problem.num_arms
    blocks = zip(block_names(problem), problem.counts.tolist(), strict=True)
    return [name for name, count in blocks for _ in range(count)]


def block_names(problem: CoupledMDP) -> list[str]:
    """(block,) name of each block, with its initial state if others of the name have another; may be empty.

    Args:
        problem: the problem.
    """
    tables = problem.tables
    return _with_starts([name for name, _, _ in tables.labels] or [""] * len(tables), tables)


def _with_starts(names: list[str], tables: ArmTables) -> list[str]:
    """Add the initial state to names of types or blocks that start in different states with certainty."""
    if max(Counter(filter(None, names)).values(), default=1) == 1:
        return names
    starts: dict[str, set[bytes]] = {}
    for name, start in zip(names, tables.initial, strict=True):
        starts.setdefault(name, set()).add(start.tobytes())
    found = []
    for number, name in enumerate(names):
        start, states = tables.initial[number], tables.labels[number][1] if tables.labels else ()
        if not name or len(starts[name]) == 1 or start.max() < 1:
            found.append(name)
        else:
            found.append(f"{name} from {states[start.argmax()] if states else f'state {start.argmax()}'}")
    return found
