"""What keeps an arm at its best: the pairs of state and action by which it loses nothing.

Each arm is looked at alone. It has its best value V from its first states if, and only if, every pair that it ever
meets *keeps* it:

    discounted   r(s, a) + gamma sum_s' p(s' | s, a) V(s') = V(s)
    finite       the same with V_t and V_(t+1), step by step
    average      in the long run it is in pairs of an end component all of which are tight in Bellman's equation of
                 several chains, g(s) = sum_s' p g(s') and g(s) + h(s) = r(s, a) + sum_s' p h(s'). What is lost on the
                 way there is lost once, and counts for nothing; elsewhere one pair that leads there is kept

States that are never met while all is kept do not matter, and all of their pairs are kept. An arm that can stay at its
best by actions that use nothing takes nothing from the others (`free`): there its pairs are cut down to those after
which that is still so. Losses of up to a share of 1e-11 of all that an arm could have are taken for rounding.

Under the average an arm that needs service may rest in several places, come to them in several ways, or leave one for a
while and lose that once. Which of these suits the others, no arm can tell by itself: `narrowed` looks at all of them.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.errors import NotApplicable
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Average, Criterion
from evenhand.model.objective import Objective
from evenhand.model.welfare import PowerMean
from evenhand.solvers.arms import SingleArms, are_communicating, closure, gains_at
from evenhand.solvers.service import MOST_STEPS, best_chains, best_values, empty_blocks, reached, recurring
from evenhand.typing import Bools, Floats, Ints

DUST = 1e-10
"""Of the largest value there could be: a best value up to this is 0."""

_ROUNDING = 1e-11
"""Of all that an arm could have: a loss of up to this is none."""


@dataclass(frozen=True, eq=False)
class Keeping:
    """What keeps some arms at their best."""

    pairs: Bools
    """(step, type, state, action) pairs that keep them; one step where the criterion has no number of steps. Under the
    average, unless they are kept freely, there are those of all places where they can rest, and none elsewhere."""

    met: Bools
    """(step, type, state) where they can be while all is kept."""

    @property
    def always(self) -> Bools:
        """(type, state, action) pairs that keep them at every step at which they can be met."""
        return np.asarray((self.pairs | ~self.met[..., None]).all(axis=0))


def keeping(types: ArmTables, allowed: Bools, criterion: Criterion, rows: Ints, free: bool = False) -> Keeping:
    """What keeps some arms at their best; all that is allowed keeps the others.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen.
        criterion: what rewards over time are worth.
        rows: which of the types are to be kept at their best.
        free: whether they are to be kept there without using anything, wherever what is kept leads; with actions that
            use something still among what is kept, but under the average.

    Raises:
        NotApplicable: it cannot be told, or they cannot be kept so.
    """
    if criterion.num_steps is not None and criterion.num_steps > MOST_STEPS:
        raise NotApplicable(f"what keeps arms at their best is found for up to {MOST_STEPS} steps")
    if criterion.is_average:
        return _in_the_long_run(types, allowed, rows, free)
    tight = _tight(types, allowed, criterion, rows)
    if free:
        tight = _with_a_free_way(types, tight, rows)
    pairs, met = np.broadcast_to(allowed, tight.shape).copy(), np.zeros(tight.shape[:3], dtype=np.bool_)
    met[:, rows] = _met(types, tight, criterion)[:, rows]
    pairs[:, rows] = np.where(met[..., None], tight, allowed)[:, rows]
    if not _is_whole(pairs, types, met, free):
        raise NotApplicable("they cannot be kept at their best without using anything")
    return Keeping(pairs, met)


def _is_whole(pairs: Bools, types: ArmTables, met: Bools, free: bool) -> bool:
    """Whether something is kept, or something that uses nothing, wherever the arms can be."""
    return bool(((pairs & ~types.served if free else pairs).any(axis=-1) | ~met).all())


def _tight(types: ArmTables, allowed: Bools, criterion: Criterion, rows: Ints) -> Bools:
    """(step, type, state, action) pairs that attain the maximum in Bellman's equation."""
    gains = gains_at(types, np.ones(len(types)), np.zeros(types.usage.shape[-1]), criterion)
    arms = SingleArms(types.select(rows), allowed[rows], types.initial[rows], criterion)
    ahead = np.zeros((len(types), *arms.shape[:-1]))
    ahead[rows] = arms.best(np.arange(len(rows)), gains[rows]).ahead
    by_step = ahead if ahead.ndim == 3 else ahead[:, None]
    later = by_step if criterion.num_steps is None else np.pad(by_step[:, 1:], ((0, 0), (0, 1), (0, 0)))
    worth = types.rewards + criterion.factor * np.einsum("tsaj,tuj->utsa", types.transitions, later)
    worth = np.where(allowed, worth, -np.inf)
    rounding = _ROUNDING * np.abs(types.rewards).max(axis=(1, 2)) * criterion.total
    return np.asarray(allowed & (worth >= worth.max(axis=-1, keepdims=True) - rounding[:, None, None]))


def _with_a_free_way(types: ArmTables, tight: Bools, rows: Ints) -> Bools:
    """Pairs after which the arm can still be kept without using anything: what leads elsewhere is struck out."""
    leads, free = types.transitions > 0, ~types.served
    kept = tight.copy()
    while True:
        safe = np.asarray((kept & free).any(axis=-1))
        later = safe if len(safe) == 1 else np.concatenate([safe[1:], np.ones_like(safe[:1])])
        lost = np.asarray((leads & ~later[:, :, None, None, :]).any(axis=-1) & kept)
        if not lost[:, rows].any():
            return np.asarray(kept & safe[..., None])
        kept &= ~lost


def _met(types: ArmTables, kept: Bools, criterion: Criterion) -> Bools:
    """(step, type, state) where arms can be while only kept pairs are chosen."""
    first = types.initial > 0
    if criterion.num_steps is None:
        return first[None] if criterion.factor == 0 else reached(types, kept[0], criterion)[None]
    met = np.empty(kept.shape[:3], dtype=np.bool_)
    for step in range(len(kept)):
        met[step] = first if step == 0 or criterion.factor else False
        if step and criterion.factor:
            edges = ((types.transitions > 0) & kept[step - 1][..., None]).any(axis=2)
            met[step] = (met[step - 1][..., None] & edges).any(axis=1)
    return met


def _in_the_long_run(types: ArmTables, allowed: Bools, rows: Ints, free: bool) -> Keeping:
    """The same under the average, arm by arm."""
    usable = allowed & ~types.served if free else allowed
    pairs, met = allowed.copy(), np.zeros(allowed.shape[:2], dtype=np.bool_)
    for row in rows:
        leads, first = types.transitions[row] > 0, types.initial[row] > 0
        tight, stays = _tight_chains(types, allowed, int(row))
        resting = recurring(leads, tight & usable[row])
        kept = _towards(leads, usable[row] & stays, resting)
        met[row] = _within(leads, kept, first)
        if not np.asarray(kept.any(axis=-1))[met[row]].all():
            raise NotApplicable("they cannot be kept at their best in this way")
        near = _within(leads, allowed[row] & stays, first)
        pairs[row] = np.where(met[row][:, None], kept, allowed[row]) if free else kept & near[:, None]
    return Keeping(pairs[None], met[None])


def _tight_chains(types: ArmTables, allowed: Bools, row: int) -> tuple[Bools, Bools]:
    """(state, action) pairs that are tight in both of Bellman's equations of several chains, and in the first."""
    one = np.array([row])
    size, moves, rewards = int(types.num_states[row]), types.transitions[row], types.rewards[row]
    means, ahead = np.zeros(len(moves)), np.zeros(len(moves))
    if are_communicating(types.select(one), allowed[one]).all():
        criterion = Average()
        gains = gains_at(types, np.ones(len(types)), np.zeros(types.usage.shape[-1]), criterion)
        best = SingleArms(types, allowed, types.initial, criterion).best(one, gains[one])
        means[:], ahead = best.bound[0], best.ahead[0]
        rounding = _ROUNDING * max(float(np.abs(rewards).max()), float(np.abs(ahead).max()))
    else:
        means[:size], ahead[:size] = best_chains(types, allowed, row)
        rounding = 1e-7 * float(np.abs(rewards).max())  # as far as a linear program can tell
    stays = allowed[row] & (np.abs(moves @ means - means[:, None]) <= rounding)
    pays = rewards + moves @ ahead - ahead[:, None] - means[:, None] >= -rounding
    return np.asarray(stays & pays), np.asarray(stays)


def _towards(leads: Bools, usable: Bools, resting: Bools) -> Bools:
    """(state, action) the pairs of rest, and in other states one that leads there, surely in the end; else none.

    Args:
        leads: (state, action, next_state) whether it is possible.
        usable: (state, action) what may be chosen.
        resting: (state, action) pairs of end components.
    """
    good = np.ones(len(usable), dtype=np.bool_)
    while True:
        safe = usable & ~(leads & ~good).any(axis=-1)  # these never lead to where there is no way back
        kept, inside = resting & good[:, None], np.asarray(resting.any(axis=-1) & good)
        while True:
            nearer = np.asarray(safe & (leads & inside).any(axis=-1) & ~inside[:, None])
            joining = np.asarray(nearer.any(axis=-1))
            if not joining.any():
                break
            kept = kept | (joining[:, None] & (np.arange(usable.shape[1]) == nearer.argmax(axis=-1)[:, None]))
            inside = inside | joining
        if (inside == good).all():
            return np.asarray(kept)
        good = inside


def _within(leads: Bools, kept: Bools, first: Bools) -> Bools:
    """(state,) where an arm can come while only kept pairs are chosen."""
    ways = closure(np.asarray((leads & kept[..., None]).any(axis=1))[None])[0]
    return np.asarray((first[:, None] & ways).any(axis=0))


def at_rest(problem: CoupledMDP) -> tuple[Bools, Floats]:
    """Types whose members of welfare have 0 at best, and less by some of what may be done.

    What is at its best whatever is done is not among them (`service.empty_blocks`). Nor is what the budget alone keeps
    from more: an arm that could have more had it all of the budget can have it, for all others can idle. A group whose
    arms keep each other from it is not among them, though it has 0 at best.

    Args:
        problem: the problem.

    Returns:
        (type,) which they are, and the (type,) best value of an arm; not a number where nobody needs to know.
    """
    types, unknown = problem.types, np.full(problem.num_types, np.nan)
    loses = ((types.rewards < 0) & types.valid).any(axis=(1, 2))
    empty = np.zeros(problem.num_types, dtype=np.bool_)
    empty[problem.type_of_block[empty_blocks(problem)]] = True
    if not (loses & ~empty).any():
        return np.zeros_like(empty), unknown
    best = best_values(types, problem.affordable, problem.criterion)
    size = np.abs(types.rewards).max(axis=(1, 2)) * problem.criterion.total
    if problem.over == "groups":
        arms, group = problem.type_counts.astype(np.float64), problem.group_of_type
        most = (np.bincount(group, arms * best) / np.bincount(group, arms))[group]
        size = (np.bincount(group, arms * size) / np.bincount(group, arms))[group]
        return np.asarray((np.abs(most) <= DUST * size) & ~empty), best
    return np.asarray((np.abs(best) <= DUST * size) & ~empty), best


def members_at_rest(problem: CoupledMDP, objective: Objective, values: Floats) -> Floats:
    """(member,) what welfare weighs; who has 0 at best and is there but for rounding has 0, where it is steep there.

    Args:
        problem: the problem.
        objective: whose values count.
        values: (unit,) exact values of its types or arms.
    """
    members, welfare = objective.members(values), objective.welfare
    if not isinstance(welfare, PowerMean) or not 0 < welfare.aversion < 1:
        return members
    kinds = at_rest(problem)[0]
    if objective.groups is not None:
        still = np.isin(np.arange(len(members)), problem.group_of_type[kinds])
    else:
        still = kinds if len(kinds) == len(members) else kinds[problem.type_of_arm]
    size = float(np.abs(problem.types.rewards).max()) * problem.criterion.total
    return np.where(still & (np.abs(members) <= DUST * size), 0.0, members)
