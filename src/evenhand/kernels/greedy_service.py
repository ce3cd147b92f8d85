"""Greedy service by rank, of one episode or a batch; service in a given turn; and assignment of actions in a state.

Every cell (type, state, action) has a rank, 0 first, -1 never. The candidates (arm, action) are taken in the order of
(rank, random bits); a candidate is served if its arm is not served yet and its usage still fits. The others idle. This
is the same as choosing again and again the best candidate that fits. With `stop`, one more candidate of rank 0 stands
for stopping there: with all ranks 0, each draw is then uniform over stopping and every arm's affordable actions. If an
action was *drawn* for every arm beforehand, the candidate with the drawn action has a rank of its own, so that the draw
is repaired to the budget and filled up.

The candidates of a rank are a linked list, and ranks are visited until nothing fits any more. Only the rank at which
the budget ends needs its random order, and only as far as the budget goes: a binary heap of random bits. Per episode
O(N A + ranks + served log N).

Service in turn, the deadline rule of promised waits, in which some arms must be served: an arm that must be served
takes the service that was planned, else the best one, as long as enough is left for the other arms that must be served;
else a least one. Others take what was planned if it fits. O(E (N log N + served A K)).

Uniform assignment. u[a] of the x arms of a cell get action a: arms are passed once, and each takes action a with
probability (left of u[a]) / (left of x), which makes every assignment equally likely. O(E N A).
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import njit
from evenhand.kernels.randomness import TO_UNIT, Bits, mix_bits
from evenhand.typing import Floats, Indices, Ints

bits_at = njit(mix_bits)
"""Random bits at a place."""


@njit
def uniform_at(key, place):
    """A number in [0, 1) at a place (randomness.uniforms_at)."""
    return np.float64(bits_at(key, place) >> np.uint64(11)) * TO_UNIT


@njit
def _fits(need, left):
    for k in range(len(left)):
        if need[k] > left[k]:
            return False
    return True


@njit
def _sift(bits, members, place, number):
    """Restore the order of a binary heap whose entry at `place` may be larger than those below it."""
    bit, member = bits[place], members[place]
    while 2 * place + 1 < number:
        child = 2 * place + 1
        if child + 1 < number and bits[child + 1] < bits[child]:
            child += 1
        if bits[child] >= bit:
            break
        bits[place], members[place] = bits[child], members[child]
        place = child
    bits[place], members[place] = bit, member


class Room(NamedTuple):
    """Work space of one episode."""

    work: Ints
    """(4, candidate or rank)"""

    bits: Bits
    """(candidate,)"""

    left: Floats
    """(2, resource)"""

    drawn: Indices
    """(arm,) actions drawn beforehand; -1 for none."""

    actions: Indices
    """(arm,) chosen actions."""


@njit
def make_room(tables):
    """Work space for the arms of a policy, without drawn actions."""
    num_arms = len(tables.type_of_arm)
    candidates = num_arms * tables.ranks.shape[3]
    work = np.empty((4, max(tables.num_ranks, candidates)), dtype=np.int64)
    room = Room(
        work,
        np.empty(candidates, dtype=np.uint64),
        np.empty((2, len(tables.limit))),
        np.empty(num_arms, dtype=np.int32),
        np.empty(num_arms, dtype=np.int32),
    )
    for n in range(num_arms):
        room.drawn[n] = -1
    return room


@njit
def serve(tables, period, states, key, episode, num_episodes, room):
    """Choose the actions of one episode; they are written to `room.actions`.

    Args:
        tables: order of service (`RankTables`).
        period: step of its period.
        states: (arm,) current states.
        key: key of the order of equal ranks.
        episode: number of the episode within its batch.
        num_episodes: size of the batch.
        room: work space, with the drawn actions if there are any.
    """
    type_of_arm, ranks, usage, limit = tables.type_of_arm, tables.ranks[period], tables.usage, tables.limit
    drawn_ranks = tables.drawn_ranks[period] if len(tables.drawn_ranks) > 0 else ranks
    least, num_ranks, stop, shuffle = tables.least, tables.num_ranks, tables.stop, tables.shuffle
    candidates = len(states) * ranks.shape[2]
    base = np.uint64(episode) * np.uint64(candidates)
    stop_place = np.uint64(num_episodes) * np.uint64(candidates) + np.uint64(episode)
    work, bits, left, drawn, actions = room
    num_actions, num_resources = ranks.shape[2], len(limit)
    # The first candidate of each rank, the next one of the same rank, those of one rank, and flags of served arms.
    head, link, members, served = work[0], work[1], work[2], work[3]
    budget, need = left[0], left[1]
    stop_bits = bits_at(key, stop_place)
    for r in range(num_ranks):
        head[r] = -1
    # Backwards, so that each list is in the order of the arms.
    for n in range(len(states) - 1, -1, -1):
        kind, s = type_of_arm[n], states[n]
        actions[n] = tables.idle[kind, s]
        served[n] = 0
        for a in range(num_actions - 1, -1, -1):
            r = drawn_ranks[kind, s, a] if drawn[n] == a else ranks[kind, s, a]
            if r < 0:
                continue
            c = n * num_actions + a
            place = base + np.uint64(c)
            if stop and (bits_at(key, place) if shuffle else place) >= stop_bits:
                continue
            link[c] = head[r]
            head[r] = c
    for k in range(num_resources):
        budget[k] = limit[k]
    for r in range(num_ranks):
        c = head[r]
        if c < 0:
            continue
        if not _fits(least, budget):
            break
        # The candidates of this rank whose arms are not served; if all of them fit, their order does not matter.
        number, before, all_fit = 0, -1, True
        for k in range(num_resources):
            need[k] = 0.0
        while c >= 0:
            n = c // num_actions
            if served[n] == 0:
                members[number] = c
                number += 1
                all_fit = all_fit and n != before
                before = n
                for k in range(num_resources):
                    need[k] += usage[type_of_arm[n], states[n], c % num_actions, k]
            c = link[c]
        all_fit = all_fit and _fits(need, budget)
        if not all_fit:
            for i in range(number):
                place = base + np.uint64(members[i])
                bits[i] = bits_at(key, place) if shuffle else place
            for i in range(number // 2 - 1, -1, -1):
                _sift(bits, members, i, number)
        for i in range(number):
            c = members[i] if all_fit else members[0]
            n, a = c // num_actions, c % num_actions
            for k in range(num_resources):
                need[k] = usage[type_of_arm[n], states[n], a, k]
            if served[n] == 0 and _fits(need, budget):
                served[n] = 1
                actions[n] = a
                for k in range(num_resources):
                    budget[k] -= need[k]
            if not all_fit:
                if not _fits(least, budget):
                    break
                last = number - 1 - i
                bits[0], members[0] = bits[last], members[last]
                _sift(bits, members, 0, last)


@njit
def serve_batch(tables, states, key, drawn):
    """(episode, arm) actions of a batch at the first step of the period, with (episode, arm) drawn actions or none."""
    actions, room = np.empty(states.shape, dtype=np.int32), make_room(tables)
    for e in range(len(states)):
        for n in range(states.shape[1] if len(drawn) > 0 else 0):
            room.drawn[n] = drawn[e, n]
        serve(tables, np.int64(0), states[e], key, e, len(states), room)
        for n in range(states.shape[1]):
            actions[e, n] = room.actions[n]
    return actions


@njit
def serve_in_order(type_of_arm, states, order, late, drawn, usage, idle, spare, limit, least):
    """(episode, arm) actions: arms in order take what was drawn for them if it fits, else they idle.

    What is left of a budget goes to arms that use nothing, the last first; if it must be spent, to arms that use
    nothing of such budgets.

    Args:
        type_of_arm: (arm,) types.
        states: (episode, arm) current states.
        order: (episode, arm) arms, the first first.
        late: (episode, arm) whether an arm comes after all that are not late.
        drawn: (episode, arm) drawn actions.
        usage: (type, state, action, resource) uses.
        idle: (type, state) idle actions.
        spare: (type, state, resource) actions by which what is left of each resource is spent; -1 for none.
        limit: (resource,) the budget.
        least: (resource,) what must be spent; 0 for nothing.
    """
    num_episodes, num_arms = states.shape
    actions = np.empty((num_episodes, num_arms), dtype=np.int32)
    left = np.empty(len(limit))
    for e in range(num_episodes):
        for k in range(len(limit)):
            left[k] = limit[k]
        for second in (False, True):
            for i in range(num_arms):
                n = order[e, i]
                if late[e, n] == second:
                    kind, s, a = type_of_arm[n], states[e, n], drawn[e, n]
                    fits = True
                    for k in range(len(limit)):
                        fits = fits and usage[kind, s, a, k] <= left[k]
                    actions[e, n] = a if fits else idle[kind, s]
                    for k in range(len(limit)):
                        left[k] -= usage[kind, s, actions[e, n], k]
        for second in (True, False):
            for i in range(num_arms - 1, -1, -1):
                n = order[e, i]
                if late[e, n] != second:
                    continue
                kind, s, now, busy, spends = type_of_arm[n], states[e, n], actions[e, n], False, False
                for k in range(len(limit)):
                    busy = busy or usage[kind, s, now, k] > 0
                    spends = spends or (least[k] > 0 and usage[kind, s, now, k] > 0)
                for k in range(len(limit)):
                    a = spare[kind, s, k]
                    if (
                        a < 0
                        or (least[k] > 0 and (spends or limit[k] - left[k] >= least[k]))
                        or (least[k] == 0 and busy)
                    ):
                        continue
                    fits = True
                    for j in range(len(limit)):
                        fits = fits and usage[kind, s, a, j] <= left[j] + usage[kind, s, now, j]
                    if fits:
                        actions[e, n] = a
                        for j in range(len(limit)):
                            left[j] += usage[kind, s, now, j] - usage[kind, s, a, j]
                        break
    return actions


@njit
def nearest_counts(counts, aims, least, most, metric):
    """(episode, state) counts of the same sums within bounds, nearest to aims by a metric: descent along pairs.

    Args:
        counts: (episode, state) counts within the bounds; the start.
        aims: (episode, state) aims.
        least: (episode, state) lower bounds.
        most: (episode, state) upper bounds.
        metric: (state, state) a positive definite matrix.
    """
    found, number = counts.copy(), counts.shape[1]
    slope = np.empty(number)
    for e in range(len(counts)):
        for i in range(number):
            slope[i] = 0.0
            for j in range(number):
                slope[i] += metric[i, j] * (found[e, j] - aims[e, j])
        for _ in range(100):
            moved = 0.0
            for i in range(number):
                for j in range(i):
                    bend = metric[i, i] + metric[j, j] - 2 * metric[i, j]
                    step = min((slope[j] - slope[i]) / bend, most[e, i] - found[e, i], found[e, j] - least[e, j])
                    step = max(step, least[e, i] - found[e, i], found[e, j] - most[e, j])
                    found[e, i] += step
                    found[e, j] -= step
                    for k in range(number):
                        slope[k] += step * (metric[k, i] - metric[k, j])
                    moved = max(moved, abs(step))
            if moved < 1e-6:
                break
    return found


@njit
def assign_uniformly(type_of_arm, states, allocation, key):
    """(episode, arm) actions, drawn uniformly within each type and state.

    Args:
        type_of_arm: (arm,) types.
        states: (episode, arm) current states.
        allocation: (episode, type, state, action) how many arms get each action.
        key: the key of the draw.
    """
    num_episodes, num_arms = states.shape
    num_actions = allocation.shape[3]
    actions = np.empty((num_episodes, num_arms), dtype=np.int32)
    left = allocation.copy()
    for e in range(num_episodes):
        base = np.uint64(e) * np.uint64(num_arms)
        for n in range(num_arms):
            kind, s = type_of_arm[n], states[e, n]
            total = 0
            for a in range(num_actions):
                total += left[e, kind, s, a]
            point = uniform_at(key, base + np.uint64(n)) * total
            choice = 0
            reached = left[e, kind, s, 0]
            while point >= reached and choice < num_actions - 1:
                choice += 1
                reached += left[e, kind, s, choice]
            actions[e, n] = choice
            left[e, kind, s, choice] -= 1
    return actions


@njit
def serve_in_turn(kinds, states, planned, must, turn, usage, serves, least, worth, unit, side_by_side, limit, actions):
    """Put the services of each episode into its actions.

    Args:
        kinds: (arm,) types.
        states: (episode, arm) states.
        planned: (episode, arm) planned actions.
        must: (episode, arm) whether an arm must be served.
        turn: (episode, arm) order, the least first; infinite for arms that are not served.
        usage: (type, state, action, resource) uses.
        serves: (type, state, action) feasible services.
        least: (type, state, action) services that leave the most.
        worth: (type, state, action) value of each action.
        unit: (resource,) use per service, infinite for resources that do not serve alone, NaN for unused ones.
        side_by_side: whether a service uses one of the resources, else it uses all.
        limit: (resource,) the budget.
        actions: (episode, arm) idle actions, which are replaced.
    """
    num_actions, left, numbers = usage.shape[2], np.empty(len(limit)), np.empty(len(limit))
    for e in range(len(states)):
        left[:] = limit
        owed = must[e].sum()
        for arm in np.argsort(turn[e], kind="mergesort"):
            if turn[e, arm] == np.inf:
                break
            owed -= must[e, arm]
            need, chosen, first, best = usage[kinds[arm], states[e, arm]], -1, -1, -np.inf
            for a in range(num_actions):
                same = a == planned[e, arm]
                if not serves[kinds[arm], states[e, arm], a] or not (must[e, arm] or same) or (need[a] > left).any():
                    continue
                for k in range(len(limit)):
                    numbers[k] = np.floor(max(left[k] - need[a, k], 0.0) / unit[k])
                # NaN, of resources that are not used, counts for nothing.
                services = numbers.sum() if side_by_side else np.nanmin(numbers)
                place = 2 * (least[kinds[arm], states[e, arm], a] or services >= owed) + same
                value = worth[kinds[arm], states[e, arm], a]
                if place > first or (place == first and value >= best):
                    chosen, first, best = a, place, value
            if chosen >= 0:
                actions[e, arm] = chosen
                left -= need[chosen]
