"""Matching of the arms of two problems: a policy acts on positions, each of which must hold the arm it was made for.

Two types are the same if their numbers are, wherever they start; if welfare is over groups, also by the names of their
groups, unless all groups were renamed. A type whose numbers are unknown in the other problem, as after another fit, is
matched by its name; an arm without any match stays in its position, so that a policy can be simulated in another
scenario.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.composite import CompositePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.labels import base_names, type_names
from evenhand.model.policy import Tabulated
from evenhand.model.simulator import Problem, Simulator
from evenhand.typing import Ints


def all_made_for(policy: object) -> list[Problem]:
    """The problem that a policy was made for, if it has one; of a policy with parts, those of all parts."""
    if isinstance(policy, CompositePolicy) and not hasattr(policy, "problem"):
        return [problem for part in policy.parts for problem in all_made_for(part)]
    found = policy.reduction.problem if isinstance(policy, Tabulated) else getattr(policy, "problem", None)
    return [found] if isinstance(found, (CoupledMDP, Simulator)) else []


def check_arms(policy: object, problem: Problem, by_counts: bool = False) -> None:
    """Raise PolicyError if a policy was made for other arms than those of a problem.

    Args:
        policy: the policy; one that has no problem is trusted.
        problem: the problem on which it acts.
        by_counts: True if it acts on the counts of types, rather than on positions.
    """
    if getattr(policy, "any_number", False) is True:
        return
    for made_for in all_made_for(policy):
        # Another number of arms is refused by `act`, with both numbers.
        if (by_counts or made_for.num_arms == problem.num_arms) and not has_same_arms(
            made_for, problem.with_criterion(over=made_for.over), by_counts
        ):
            raise PolicyError(
                "the policy was made for other arms, or for these in another order; "
                "make_policy(problem, policy) fits it to this problem if that is possible"
            )


def has_same_arms(made_for: Problem, problem: Problem, by_counts: bool = False) -> bool:
    """Return whether each position has the arm that a policy was made for.

    Args:
        made_for: the problem of the policy.
        problem: the problem on which it acts, over the same members.
        by_counts: compare the numbers of arms of each type instead of the positions.
    """
    if not isinstance(made_for, CoupledMDP) or not isinstance(problem, CoupledMDP) or _is_equal(made_for, problem):
        return made_for.num_arms == problem.num_arms
    if by_counts:
        if not np.array_equal(made_for.type_counts, problem.type_counts):
            return False
        one = other = np.arange(problem.num_types)
    else:
        if made_for.num_arms != problem.num_arms:
            return False
        # By blocks if they have the same sizes: there may be a billion arms.
        by_blocks = np.array_equal(made_for.counts, problem.counts)
        one, other = ((p.type_of_block if by_blocks else p.type_of_arm).astype(np.int64) for p in (made_for, problem))
    match = _Match(made_for, problem)
    pairs = np.unique(one * problem.num_types + other).tolist()
    return all(match.may_be(*divmod(pair, problem.num_types)) for pair in pairs)


def matched_types(made_for: Problem, problem: CoupledMDP, types: Sequence[int] | None = None) -> Ints:
    """(type,) the type of the first problem that each type of the second is, whatever its initial states.

    Args:
        made_for: the problem of a policy.
        problem: the other problem.
        types: (type,) the result, if it is known.

    Raises:
        NotApplicableError: some arm of the problem is not in the other, or could be several of them.
    """
    if types is not None:
        return np.asarray(types)
    if not isinstance(made_for, CoupledMDP):
        raise NotApplicableError("the policy was made for a simulator")
    match = _Match(made_for, problem)
    return np.array([match.type_for(kind) for kind in range(problem.num_types)])


def table_rows(made_for: Problem, problem: CoupledMDP, types: Sequence[int] | None) -> tuple[Ints, ...]:
    """Index of a (type, state, action) table that selects the cells of a problem's types; see `matched_types`."""
    _, num_states, num_actions = problem.types.valid.shape
    return np.ix_(matched_types(made_for, problem, types), np.arange(num_states), np.arange(num_actions))


def subproblem(problem: CoupledMDP, types: Sequence[int], counts: Ints, budget: Sequence[float]) -> CoupledMDP:
    """Return a problem with some of the types, in other numbers, and another budget.

    Args:
        problem: the problem.
        types: the types, in increasing order.
        counts: (type,) arms of each.
        budget: (resource,) the budget.
    """
    return replace(
        problem,
        arms=problem.types.select(np.asarray(types)),
        budget=np.asarray(budget, dtype=np.float64),
        counts=np.asarray(counts),
        groups=[_groups(problem)[kind] for kind in types],
        floors=problem.type_floors[np.asarray(types)],
        max_waits=problem.type_max_waits[np.asarray(types)],
        welfare=None,
        arm_names=(),
    )


def _is_equal(one: CoupledMDP, other: CoupledMDP) -> bool:
    """Return whether two problems surely have the same arms at the same positions."""
    same = one.tables is other.tables and np.array_equal(one.counts, other.counts)
    return (same or one.signature == other.signature) and one.over == other.over and one.groups == other.groups


class _Match:
    """The types of two problems, side by side."""

    def __init__(self, *both: CoupledMDP) -> None:
        self.both = both
        self.moves = [problem.types.dynamics for problem in both]
        self.names = [base_names(problem) for problem in both]
        self.groups = [_groups(problem) for problem in both]
        self.sizes = [np.stack([p.types.num_states, p.types.num_actions], axis=1).tolist() for p in both]
        self.known_moves, self.known_names = [set(moves) for moves in self.moves], [set(n) - {""} for n in self.names]
        # Groups of which none is known by its name were renamed.
        self.grouped = bool(set(self.groups[0]) & set(self.groups[1]) - {""})

    def may_be(self, theirs: int, ours: int) -> bool:
        """Return whether a type of the first problem may be one of the second: nothing contradicts it."""
        if self.grouped and self.groups[0][theirs] != self.groups[1][ours]:
            return False
        if self.moves[0][theirs] == self.moves[1][ours]:
            return True
        # Neither has its exact match, or its name, elsewhere.
        if self.moves[0][theirs] in self.known_moves[1] or self.moves[1][ours] in self.known_moves[0]:
            return False
        one, other = self.names[0][theirs], self.names[1][ours]
        if one != other and (one in self.known_names[1] or other in self.known_names[0]):
            return False
        return bool(self.sizes[0][theirs] == self.sizes[1][ours])

    def type_for(self, ours: int) -> int:
        """The type of the first problem that one of the second is."""
        made_for, problem = self.both
        every, name = range(made_for.num_types), self.names[1][ours]
        found = [kind for kind in every if self.moves[0][kind] == self.moves[1][ours]]
        if name and not found:
            size = self.sizes[1][ours]
            found = [kind for kind in every if self.names[0][kind] == name and self.sizes[0][kind] == size]
        found = [kind for kind in found if not self.grouped or self.groups[0][kind] == self.groups[1][ours]]
        if not found:
            name = type_names(problem)[ours]
            raise NotApplicableError(f"the policy was made for other arms: it does not know {name}")
        if not self.grouped and len({self.groups[0][kind] for kind in found}) > 1:
            name = type_names(problem)[ours]
            raise NotApplicableError(
                f"the policy distinguishes arms like {name} by their groups, which are others here"
            )
        # Of several with the same dynamics, one with the same floor, promises and initial states; else the first.
        floor, start = problem.type_floors[ours], np.trim_zeros(problem.types.initial[ours], "b")

        def waits_of(whole: CoupledMDP, kind: int) -> dict[str, int]:
            """Return the promises of a type."""
            return whole.waits_of(int(np.argmax(whole.type_of_block == kind)))

        waits = waits_of(problem, ours)

        def differs(kind: int) -> tuple[bool, bool, bool]:
            same_start = np.array_equal(np.trim_zeros(made_for.types.initial[kind], "b"), start)
            return bool(made_for.type_floors[kind] != floor), waits_of(made_for, kind) != waits, not same_start

        return min(found, key=differs)


def _groups(problem: CoupledMDP) -> Sequence[str]:
    """(type,) the name of its group; empty if welfare is over arms."""
    if problem.over != "groups":
        return [""] * problem.num_types
    return [problem.group_names[group] for group in problem.group_of_type.tolist()]
