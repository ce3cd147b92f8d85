"""What types of arms are called: one answer for tables, pages, frames and plans.

A type is all blocks whose arms are identical, so it has the names of all of them. Where several types have one name,
what tells them apart is added: the state that they start in, their group, else their number.
"""

from collections import Counter

from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem, Simulator

MOST_BLOCKS = 3
"""Blocks of a type by whose names it is called; of more, these are the first."""


def base_names(problem: Problem) -> list[str]:
    """(type,) the names of its blocks, as `Ford` or `Ford, Opel`; empty where they have none.

    Args:
        problem: whose types they are.
    """
    blocks: list[dict[str, None]] = [{} for _ in range(problem.num_types)]
    for kind, (name, _, _) in zip(problem.type_of_block.tolist(), problem.tables.labels, strict=False):
        if name:
            blocks[kind][name] = None
    return [", ".join(list(own)[:MOST_BLOCKS]) + (", …" if len(own) > MOST_BLOCKS else "") for own in blocks]


def told_names(problem: Problem) -> list[str]:
    """(type,) names with what tells types of one name apart, as `Ford from poor`; empty where there is none.

    Args:
        problem: whose types they are.
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
    """(type,) what people call each type, no two alike; `type 2` where it has no name.

    Args:
        problem: whose types they are.
    """
    names = [name or f"type {kind}" for kind, name in enumerate(told_names(problem))]
    times = Counter(names)  # a block may be called "type 2"
    return [name if times[name] == 1 else f"{name} ({kind})" for kind, name in enumerate(names)]


def arm_names(problem: Problem) -> list[str]:
    """(arm,) what the block of each arm is called, with where it starts if others of the name start elsewhere.

    Args:
        problem: whose arms they are.
    """
    if isinstance(problem, Simulator) or not problem.tables.labels:
        return [""] * problem.num_arms
    blocks = zip(block_names(problem), problem.counts.tolist(), strict=True)
    return [name for name, count in blocks for _ in range(count)]


def block_names(problem: CoupledMDP) -> list[str]:
    """(block,) what each block is called, with where it starts if others of the name start elsewhere; may be empty.

    Args:
        problem: whose blocks they are.
    """
    tables = problem.tables
    return _with_starts([name for name, _, _ in tables.labels] or [""] * len(tables), tables)


def _with_starts(names: list[str], tables: ArmTables) -> list[str]:
    """Where types, or blocks, of one name start in different states for certain, also where that is."""
    if max(Counter(filter(None, names)).values(), default=1) == 1:
        return names
    starts: dict[str, set[bytes]] = {}
    for name, start in zip(names, tables.initial, strict=True):
        starts.setdefault(name, set()).add(start.tobytes())
    told = []
    for number, name in enumerate(names):
        start, states = tables.initial[number], tables.labels[number][1] if tables.labels else ()
        if not name or len(starts[name]) == 1 or start.max() < 1:
            told.append(name)
        else:
            told.append(f"{name} from {states[start.argmax()] if states else f'state {start.argmax()}'}")
    return told
