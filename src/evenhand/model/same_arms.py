"""Matching of the arms of two problems: a policy acts on places, each of which must hold the arm it was made for.

Two types are the same if their numbers are, wherever they start; where welfare is over groups, also by the names of
their groups, unless all groups were renamed. A type whose numbers are unknown in the other problem, as after another
fit, is taken by its name; an arm without any match keeps its place, which is how a policy is played in another world.
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
    if isinstance(policy, CompositePolicy):
        return [problem for part in policy.parts for problem in all_made_for(part)]
    found = policy.reduction.problem if isinstance(policy, Tabulated) else getattr(policy, "problem", None)
    return [found] if isinstance(found, (CoupledMDP, Simulator)) else []


def check_places(policy: object, problem: Problem, by_counts: bool = False) -> None:
    """Raise PolicyError if a policy was made for other arms than it is to play.

    Args:
        policy: what acts; one that has no problem is trusted.
        problem: where it acts.
        by_counts: whether it acts on the counts of types, rather than on places.
    """
    if getattr(policy, "any_number", False) is True:
        return
    for made_for in all_made_for(policy):
        here = problem.with_criterion(over=made_for.over)
        fits = same_types(made_for, here) if by_counts else same_places(made_for, here)
        # Another number of arms is refused by `act`, which says both numbers.
        if not fits and (by_counts or made_for.num_arms == problem.num_arms):
            raise PolicyError(
                "the policy was made for other arms, or for these in another order; "
                "make_policy(problem, policy) fits it to this problem if that is possible"
            )


def same_places(made_for: Problem, problem: Problem) -> bool:
    """Return whether each place has the arm that a policy was made for.

    Args:
        made_for: the problem of the policy.
        problem: the one it is to play, over the same members.
    """
    if made_for.num_arms != problem.num_arms:
        return False
    if not isinstance(made_for, CoupledMDP) or not isinstance(problem, CoupledMDP) or _is_equal(made_for, problem):
        return True
    # By blocks if they are as long as each other: there may be a billion arms.
    by_blocks = np.array_equal(made_for.counts, problem.counts)
    one, other = ((p.type_of_block if by_blocks else p.type_of_arm).astype(np.int64) for p in (made_for, problem))
    pairs = np.unique(one * problem.num_types + other)
    match = _Match(made_for, problem)
    return all(match.may_be(*divmod(pair, problem.num_types)) for pair in pairs.tolist())


def same_types(made_for: Problem, problem: Problem) -> bool:
    """Return whether both have as many arms of the same types, in the same order of types.

    Args:
        made_for: the problem of a policy.
        problem: the one it is to play, over the same members.
    """
    if not isinstance(made_for, CoupledMDP) or not isinstance(problem, CoupledMDP) or _is_equal(made_for, problem):
        return made_for.num_arms == problem.num_arms
    if not np.array_equal(made_for.type_counts, problem.type_counts):
        return False
    match = _Match(made_for, problem)
    return all(match.may_be(kind, kind) for kind in range(problem.num_types))


def match_types(made_for: CoupledMDP, problem: CoupledMDP) -> list[int]:
    """(type,) the type that each of a problem's types is in another problem, wherever it starts.

    Args:
        made_for: the problem that a plan was made for.
        problem: another, such as the same from where its arms are now.

    Raises:
        NotApplicableError: some arm of the problem is not in the other, or could be several of them.
    """
    match = _Match(made_for, problem)
    return [match.type_for(kind) for kind in range(problem.num_types)]


def matched_types(made_for: Problem, problem: CoupledMDP, types: Sequence[int] | None) -> Ints:
    """(type,) the given types, or those that `match_types` finds.

    Args:
        made_for: the problem of a policy.
        problem: the other problem.
        types: (type,) types of the policy's problem, if they are known.
    """
    if types is None:
        if not isinstance(made_for, CoupledMDP):
            raise NotApplicableError("the policy was made for a simulator")
        types = match_types(made_for, problem)
    return np.asarray(types)


def table_rows(made_for: Problem, problem: CoupledMDP, types: Sequence[int] | None) -> tuple[Ints, ...]:
    """Index of a (type, state, action) table that selects the cells of a problem's types; see `matched_types`."""
    _, num_states, num_actions = problem.types.valid.shape
    return np.ix_(matched_types(made_for, problem, types), np.arange(num_states), np.arange(num_actions))


def subproblem(problem: CoupledMDP, types: Sequence[int], counts: Ints, budget: Sequence[float]) -> CoupledMDP:
    """Return a problem with some of the types, in other numbers, and another budget.

    Args:
        problem: the problem.
        types: the types, in rising order.
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
        welfare=None,
        arm_names=(),
    )


def _is_equal(one: CoupledMDP, other: CoupledMDP) -> bool:
    """Return whether two problems surely have the same arms at the same places."""
    same = one.tables is other.tables and np.array_equal(one.counts, other.counts)
    return (same or one.signature == other.signature) and one.over == other.over and one.groups == other.groups


class _Match:
    """The types of two problems, side by side."""

    def __init__(self, made_for: CoupledMDP, problem: CoupledMDP) -> None:
        self.both = made_for, problem
        self.moves = made_for.types.dynamics, problem.types.dynamics
        self.names = base_names(made_for), base_names(problem)
        self.groups = _groups(made_for), _groups(problem)
        self.known = tuple(set(moves) for moves in self.moves)
        self.called = tuple(set(names) - {""} for names in self.names)
        # Groups of which none is known by its name were renamed.
        self.grouped = bool(set(self.groups[0]) & set(self.groups[1]) - {""})

    def may_be(self, theirs: int, ours: int) -> bool:
        """Return whether a type of the first problem may be one of the second: nothing shows that it is another."""
        if self.grouped and self.groups[0][theirs] != self.groups[1][ours]:
            return False
        if self.moves[0][theirs] == self.moves[1][ours]:
            return True
        # The very arm is elsewhere.
        if self.moves[0][theirs] in self.known[1] or self.moves[1][ours] in self.known[0]:
            return False
        one, other = self.names[0][theirs], self.names[1][ours]
        if one != other and (one in self.called[1] or other in self.called[0]):
            return False
        return self._sizes(0, theirs) == self._sizes(1, ours)

    def type_for(self, ours: int) -> int:
        """The type of the first problem that one of the second is."""
        made_for, problem = self.both
        moves, name = self.moves[1][ours], self.names[1][ours]
        every = range(made_for.num_types)
        found = [kind for kind in every if self.moves[0][kind] == moves] or [
            kind
            for kind in every
            if name and self.names[0][kind] == name and self._sizes(0, kind) == self._sizes(1, ours)
        ]
        found = [kind for kind in found if not self.grouped or self.groups[0][kind] == self.groups[1][ours]]
        name_here = type_names(problem)[ours]
        if not found:
            raise NotApplicableError(f"the policy was made for other arms: it does not know {name_here}")
        if not self.grouped and len({self.groups[0][kind] for kind in found}) > 1:
            raise NotApplicableError(
                f"the policy distinguishes arms like {name_here} by their groups, which are others here"
            )
        # Of several that move alike, the one with the same floor and start; else the first.
        floor, start = problem.type_floors[ours], problem.types.initial[ours]

        def differs(kind: int) -> tuple[bool, bool]:
            here = made_for.types.initial[kind]
            return bool(made_for.type_floors[kind] != floor), not np.array_equal(
                np.trim_zeros(here, "b"), np.trim_zeros(start, "b")
            )

        return min(found, key=differs)

    def _sizes(self, which: int, kind: int) -> tuple[int, int]:
        types = self.both[which].types
        return int(types.num_states[kind]), int(types.num_actions[kind])


def _groups(problem: CoupledMDP) -> Sequence[str]:
    """(type,) the name of its group; empty where welfare is over arms."""
    if problem.over != "groups":
        return [""] * problem.num_types
    return [problem.group_names[group] for group in problem.group_of_type.tolist()]
