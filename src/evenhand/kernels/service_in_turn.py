"""Service in a given order within the budget, in which some arms must be served: the deadline rule of promised waits.

Arms are visited in their turn. An arm that must be served takes the service that was planned, else the best one, as
long as enough is left for the other arms that must be served; else a least one. Others take what was planned if it
fits. O(E (N log N + served A K)).
"""

import numpy as np

from evenhand.kernels.compilation import njit


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
