"""Names of types of arms, for tables, pages, frames and plans.

A type is all blocks whose arms are identical, so it has the names of all of them. If several types have one name, their
initial state, their group, or else their number is added.
"""

from collections import Counter

from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem, Simulator

MOST_BLOCKS = 3
"""Maximum number of block names in the name of a type."""


def base_names(problem: Problem) -> list[str]:
    """(type,) names of its blocks, as `Ford` or `Ford, Opel`; empty if they have none.

    Args:
        problem: the problem.
    """
    blocks: list[dict[str, None]] = [{} for _ in range(problem.num_types)]
    for kind, (name, _, _) in zip(problem.type_of_block.tolist(), problem.tables.labels, strict=False):
        if name:
            blocks[kind][name] = None
    return [", ".join(list(own)[:MOST_BLOCKS]) + (", …" if len(own) > MOST_BLOCKS else "") for own in blocks]


def told_names(problem: Problem) -> list[str]:
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
    names = [name or f"type {kind}" for kind, name in enumerate(told_names(problem))]
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
