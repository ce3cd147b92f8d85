"""Why an arm is served or not, in words that come from the policy itself.

Policies that rank conditions are told by rank. Arms are served in the order of (rank, lot), so with

    left(r) = budget - what the arms use that were served by a rank before r

an arm that waits at its best rank r either needs more than left(r), and then what it lacks went to arms of higher
priority; or it lost the lot among the arms of its own rank. Tables are told by what they give to how many arms of the
same condition; networks by the order of their scores.
"""

import copy
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.display import counted
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.planning.labels import Labels
from evenhand.policies.fluid import OccupancyPriority, Resolving, ResolvingActor
from evenhand.policies.network import CountNetworkPolicy, read_priorities, read_scores
from evenhand.policies.priority import ExchangeablePriority
from evenhand.policies.round_robin import RoundRobinActor
from evenhand.reductions.counts import CountChoices, CountTable, TypedChoices, count_states
from evenhand.reductions.joint import JointTable
from evenhand.typing import Bools, Indices

GAINS_NOTHING = {
    "whittle": "its index is not positive: idling is as good here, even if serving were free",
    "fair-index": "serving gains nothing here, even if it were free",
    "re-solving": "serving gains nothing here, even if it were free",
    "myopic": "serving gains nothing at once here",
    "never-act": "the plan never serves anyone",
}
"""Why a condition has no rank, by the name of the policy."""

SHOWN_CELLS = 3
"""Conditions that are named where others are served."""


def family_of(name: str) -> str:
    """The policy that a part of a plan is named after: details follow behind a comma or `for`.

    Args:
        name: of a part.
    """
    return name.partition(",")[0].partition(" for ")[0]


@dataclass(frozen=True, eq=False)
class Moment:
    """What is decided once: arms in the order of the problem, where they are, and what they get."""

    problem: CoupledMDP
    """How many arms there are of each type, and what they share."""

    states: Indices
    """(arm,)"""

    actions: Indices
    """(arm,)"""

    step: int
    """Of a plan by steps."""

    family: str
    """The name of the policy, such as fair-index, or nothing."""

    before: np.random.Generator
    """The policy's stream as it was before it acted."""

    @property
    def kinds(self) -> Indices:
        """(arm,) types."""
        return self.problem.type_of_arm

    @cached_property
    def idle(self) -> Indices:
        """(arm,) the first action that uses nothing."""
        return np.asarray(self.problem.types.idle[self.kinds, self.states])

    @cached_property
    def served(self) -> Bools:
        """(arm,) whether the action uses anything."""
        return np.asarray(self.problem.types.served[self.kinds, self.states, self.actions])


# What is asked: why, who is next, and who came by which priority


def reasons(policy: Policy | Starting, actor: Policy, moment: Moment) -> list[str]:
    """(arm,) why each arm gets what it gets.

    Args:
        policy: what acted, neither a mixture nor by steps.
        actor: what it started, or itself.
        moment: what was decided.
    """
    # From ranks, which can be told in full, to policies of which only the name is known.
    if isinstance(policy, ExchangeablePriority):
        if policy.stop:
            return _each(moment, "drawn at random", "not drawn; who is served is random")
        return _by_rank(moment, policy.ranks)
    if isinstance(policy, Resolving) and isinstance(actor, ResolvingActor):
        # Ranks as they are now: this policy changes its prices as the arms move.
        now = policy.policy_at(int(actor.place[0]), moment.step)
        return _by_rank(moment, now.ranks)
    if isinstance(policy, OccupancyPriority):
        return _by_draw(policy, moment)
    if isinstance(policy, CountNetworkPolicy):
        return _by_network(policy, moment)
    if isinstance(policy, (CountChoices, TypedChoices, CountTable)):
        return _by_table(policy, moment)
    if isinstance(actor, RoundRobinActor):
        return _by_turn(actor, moment)
    if isinstance(policy, JointTable):
        return ["the plan's choice where all arms are just as they are"] * len(moment.states)
    name = type(policy).__name__
    return _each(moment, f"chosen by the policy ({name})", f"not chosen by the policy ({name})")


def places_in_line(policy: Policy | Starting, actor: Policy, moment: Moment) -> list[int | None]:
    """(arm,) who would be served next if there was more: 1 for the first; arms of one priority have one place.

    None for who is served, for whom serving gains nothing, and where the policy has no order, as tables have none.

    Args:
        policy: what acted, neither a mixture nor by steps.
        actor: what it started, or itself.
        moment: what was decided.
    """
    rank = _ranks_now(policy, actor, moment)
    if rank is None:
        return [None] * len(moment.states)
    # Idling is always possible: it is nobody's place in line.
    rank[np.arange(len(rank)), moment.idle] = -1
    level = np.where(rank >= 0, rank, np.iinfo(np.int32).max).min(axis=1)
    waits = ~moment.served & (rank >= 0).any(axis=1)
    # How many that wait have a better level; equals have the same number.
    before = np.searchsorted(np.sort(level[waits]), level, side="left")
    return [int(place) + 1 if wait else None for place, wait in zip(before, waits, strict=True)]


def priorities_served(policy: Policy | Starting, actor: Policy, moment: Moment) -> list[int | None]:
    """(arm,) the place in the policy's order of what each served arm gets, 1 first; None for others, or without one.

    Args:
        policy: what acted, neither a mixture nor by steps.
        actor: what it started, or itself.
        moment: what was decided.
    """
    rank = _ranks_now(policy, actor, moment)
    if rank is None:
        return [None] * len(moment.states)
    taken = rank[np.arange(len(rank)), moment.actions]
    ranked = moment.served & (taken >= 0)
    return [int(place) + 1 if has else None for place, has in zip(taken, ranked, strict=True)]


def _ranks_now(policy: Policy | Starting, actor: Policy, moment: Moment) -> Indices | None:
    """(arm, action) ranks of what each arm may get, 0 first and -1 never; None where there are none."""
    cells = (moment.kinds, moment.states)
    if isinstance(policy, ExchangeablePriority) and not policy.stop:
        return np.array(policy.ranks[cells])
    if isinstance(policy, Resolving) and isinstance(actor, ResolvingActor):
        return np.array(policy.policy_at(int(actor.place[0]), moment.step).ranks[cells])
    if isinstance(policy, OccupancyPriority):
        # A copy: the draw must be the one that was acted on, and asking must not use up the stream.
        drawn, _ = policy.draw(moment.states[None], copy.deepcopy(moment.before))
        # What was drawn has its own ranks, before all that the budget is filled up with.
        hit = drawn[0][:, None] == np.arange(policy.laws.shape[2])
        return np.where(hit, policy.drawn_ranks[cells], policy.fill_ranks[cells])
    return None


def _each(moment: Moment, served: str, idle: str) -> list[str]:
    return [served if busy else idle for busy in moment.served]


# By rank


class _Ranked:
    """Who was served at which rank, and what was left before each."""

    def __init__(self, moment: Moment, rank: Indices, levels: int, drawn: int = 0) -> None:
        """Look at what was decided.

        Args:
            moment: what was decided.
            rank: (arm, action) ranks, 0 first and -1 never.
            levels: how many ranks the policy has.
            drawn: how many of them, the first ones, are for what was drawn beforehand.
        """
        self.moment, self.words = moment, Labels(moment.problem)
        self.arms = np.arange(len(moment.states))
        self.usage = moment.problem.types.usage[moment.kinds, moment.states]
        self.rank = rank.copy()
        # Idling competes with nobody.
        self.rank[self.arms, moment.idle] = -1
        self.levels, self.drawn = levels, drawn
        self.taken = self.rank[self.arms, moment.actions]
        # The best rank of each arm; where it has none, any action, for the level is then -1.
        self.best = np.where(self.rank >= 0, self.rank, np.iinfo(np.int32).max).argmin(axis=1)
        self.level = self.rank[self.arms, self.best]
        rows, spent = np.flatnonzero(self.taken >= 0), np.zeros((self.levels + 1, moment.problem.num_resources))
        # Shifted by one: row r + 1 holds what rank r spent, so that the running sum is what ranks before r took.
        np.add.at(spent, self.taken[rows] + 1, self.usage[rows, moment.actions[rows]])
        self.left = moment.problem.budget_limit - np.cumsum(spent, axis=0)
        self.served_at = Counter(self.taken[rows].tolist())
        # An arm competes at every rank up to the one at which it was served, or at all of its ranks if it was not.
        still = (self.rank >= 0) & ((self.taken[:, None] < 0) | (self.rank <= self.taken[:, None]))
        cells = np.argwhere(still)
        # Once for each arm and rank, though two actions of an arm may share a rank.
        self.competing = Counter(level for _, level in {(int(n), int(self.rank[n, a])) for n, a in cells})

    def why(self, arm: int, never: str) -> str:
        """One arm's reason."""
        level, taken = int(self.level[arm]), int(self.taken[arm])
        if level < 0:
            return never
        wanted = self.words.doing(int(self.moment.kinds[arm]), int(self.best[arm]))
        if taken == level:
            return f"{self._place(level)}{self._lot(level)}"
        if taken >= 0:
            lacking = self._lacking(arm, level)
            return f"{self._place(taken)}{self._lot(taken)}; for {wanted}, its first choice, {lacking}"
        return f"{wanted} has {self._place(level)}, but {self._lacking(arm, level)}"

    def _place(self, level: int) -> str:
        if level < self.drawn:
            return f"priority {level + 1} of {self.drawn}"
        kind = " for what is left of the budget" if self.drawn else ""
        return f"priority {level - self.drawn + 1} of {self.levels - self.drawn}{kind}"

    def _lot(self, level: int) -> str:
        """Where not all that came to this rank were served, the lot decided."""
        number = self.competing[level]
        return "" if self.served_at[level] == number else f", by lot among {number} arms of that priority"

    def _lacking(self, arm: int, level: int) -> str:
        # Three causes, in this order: more than there ever is, more than was left, and the lot.
        needed = self.usage[arm, self.best[arm]]
        if beyond := np.flatnonzero(needed > self.moment.problem.budget_limit).tolist():
            return f"it needs more {self.words.resources(beyond)} than there are"
        short = np.flatnonzero(needed > self.left[level]).tolist()
        if short:
            return f"arms of higher priority left too few {self.words.resources(short)}"
        return f"the lot among {self.competing[level]} arms of that priority went to others"


def _by_rank(moment: Moment, ranks: Indices, never: str = "", also: str = "") -> list[str]:
    """(arm,) reasons from ranks of (type, state, action), 0 first and -1 never."""
    never = never or GAINS_NOTHING.get(moment.family, "the plan never serves this condition")
    ranked = _Ranked(moment, ranks[moment.kinds, moment.states], int(ranks.max()) + 1)
    cells = list(zip(moment.kinds.tolist(), moment.states.tolist(), moment.actions.tolist(), strict=True))
    # Reversed, so that the first arm of each condition stands for it.
    first = dict(zip(reversed(cells), reversed(range(len(cells))), strict=True))
    told = {cell: ranked.why(arm, "") for cell, arm in first.items()}  # arms in one condition have one reason
    return [text + also if (text := told[cell]) else never for cell in cells]


def _by_draw(policy: OccupancyPriority, moment: Moment) -> list[str]:
    """What was drawn for an arm comes first, then the budget is filled up."""
    drawn, _ = policy.draw(moment.states[None], moment.before)
    now, cells = drawn[0], (moment.kinds, moment.states)
    hit = now[:, None] == np.arange(policy.laws.shape[2])
    rank = np.where(hit, policy.drawn_ranks[cells], policy.fill_ranks[cells])
    drawn_levels = int(policy.drawn_ranks.max()) + 1
    ranked = _Ranked(moment, rank, max(int(policy.fill_ranks.max()) + 1, drawn_levels), drawn_levels)
    chances, words = policy.laws[moment.kinds, moment.states, now], ranked.words
    kinds, actions = moment.kinds.tolist(), moment.actions.tolist()
    alike = list(zip(kinds, moment.states.tolist(), now.tolist(), actions, strict=True))
    first = dict(zip(reversed(alike), reversed(range(len(alike))), strict=True))
    told: dict[tuple[int, int, int, int], str] = {}  # arms in one condition have one reason
    for cell, arm in first.items():
        kind, chance, choice = cell[0], float(chances[arm]), cell[2]
        # Laws come from linear programs: a chance of 1 may lack a little.
        often = "always" if chance > 0.9995 else f"{100 * chance:.3g} of 100 times"
        meant = f"the plan gives {words.doing(kind, choice)} here {often}"
        # It idles though some action has a rank here: the budget, or the lot, went to others.
        waits = not moment.served[arm] and ranked.level[arm] >= 0
        if moment.actions[arm] == choice and not waits:
            told[cell] = f"{meant}, {ranked.why(arm, '')}" if moment.served[arm] else meant
        elif moment.served[arm]:
            told[cell] = f"{meant}; there was budget to fill up, {ranked.why(arm, '')}"
        else:
            told[cell] = f"{meant}; {ranked.why(arm, '')}"
    return [told[cell] for cell in alike]


# By tables, networks and turns


def _by_table(policy: CountChoices | TypedChoices | CountTable, moment: Moment) -> list[str]:
    """What the table gives to how many of the arms in the same condition."""
    words = Labels(moment.problem)
    cells = list(zip(moment.kinds.tolist(), moment.states.tolist(), strict=True))
    # How many arms are in a condition, and how many of them got the same action.
    crowd = Counter(cells)
    same = Counter(zip(cells, moment.actions.tolist(), strict=True))
    also, spent = _chance(policy, moment), _served_cells(moment, words)
    told = []
    for arm, (kind, state) in enumerate(cells):
        number, alike = crowd[kind, state], same[(kind, state), int(moment.actions[arm])]
        whom = f"{number} {words.type(kind)} {words.being(kind, state)}"
        if alike == number and not moment.served[arm]:
            told.append(f"with the arms as they are, the plan serves {spent}{also}")
            continue
        gets = words.doing(kind, int(moment.actions[arm]))
        lot = "" if alike == number else "; who, was drawn by lot"
        portion = (
            f"the only {whom[2:]}" if number == 1 else f"all {whom}" if alike == number else f"{alike} of the {whom}"
        )
        told.append(f"with the arms as they are, the plan gives {gets} to {portion}{lot}{also}")
    return told


def _served_cells(moment: Moment, words: Labels) -> str:
    """Who is served by what, in words."""
    rows = np.flatnonzero(moment.served)
    cells = zip(moment.kinds[rows].tolist(), moment.states[rows].tolist(), moment.actions[rows].tolist(), strict=True)
    times = Counter(cells)
    told = [
        f"{number} {words.type(kind)} {words.being(kind, state)} ({words.doing(kind, action)})"
        for (kind, state, action), number in times.most_common(SHOWN_CELLS)
    ]
    more = [f"{len(times) - SHOWN_CELLS} more conditions"] if len(times) > SHOWN_CELLS else []
    return ", ".join([*told, *more]) or "nobody"


def _chance(policy: CountChoices | TypedChoices | CountTable, moment: Moment) -> str:
    """Where a table draws, how likely the draw was."""
    if not isinstance(policy, CountTable):
        return ""
    shape = moment.problem.types.valid.shape
    allocation = np.zeros(shape, dtype=np.int64)
    # (type, state, action): what was decided, as counts.
    np.add.at(allocation, (moment.kinds, moment.states, moment.actions), 1)
    allocations, chances = policy.allocation_law(count_states(moment.problem, moment.states[None])[0])
    chance = float(chances[(allocations == allocation).all(axis=(1, 2, 3))].sum())
    return "" if chance > 1 - 1e-6 else f" (drawn, with a chance of {chance:.2g})"


def _by_network(policy: CountNetworkPolicy, moment: Moment) -> list[str]:
    """The network's scores, of all (state, action), in the order in which they are served."""
    # A network is for one type.
    counts = count_states(moment.problem, moment.states[None])[:, 0]
    outputs = policy.outputs(counts)
    # Other rules draw arm by arm, by these priorities; there is no order to tell.
    if policy.rule != "greedy":
        priorities, _ = read_priorities(outputs, moment.problem.budget_limit[None], policy.usage)
        own = priorities[0][moment.states, moment.actions]
        return [f"drawn by the network's priorities ({value:.2f} for this)" for value in own.tolist()]
    scores = read_scores(outputs, policy.usage)[0]
    # The place of every (state, action) in the order of falling scores; of equals the first.
    place = np.empty(scores.size, dtype=np.int64)
    place[np.argsort(-scores.reshape(-1), kind="stable")] = np.arange(scores.size)
    place = place.reshape(scores.shape)
    idle = moment.problem.types.idle[0]
    above = place < place[np.arange(len(idle)), idle][:, None]  # once idling is passed, the rest of a state idles
    order = np.full(scores.shape, -1, dtype=np.int32)
    order[above] = np.argsort(np.argsort(place[above]))
    never = "the network puts idling first in this condition, with the arms as they are"
    return _by_rank(moment, order[None], never, ", by the network's scores with the arms as they are")


def _by_turn(actor: RoundRobinActor, moment: Moment) -> list[str]:
    """Where arms stand in the round, after this step."""
    number = len(moment.states)
    # Steps from the head of the round to each arm.
    waits = (np.argsort(actor.order[0]) - actor.head[0]) % number
    return [
        "its turn has come in the round"
        if busy
        else f"its turn comes after {counted(wait, 'other')}"
        if wait
        else "it is next"
        for busy, wait in zip(moment.served.tolist(), waits.tolist(), strict=True)
    ]
