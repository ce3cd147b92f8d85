"""Rounding of an allocation of fractions of arms to whole arms, within a budget or spending exactly it."""

import numpy as np

from evenhand.kernels.compilation import njit


@njit
def round_within(shares, order, counts, idle, usage, budget, services, units, least):
    """(type, state, action) whole numbers of arms, the largest remainders first.

    Idle arms then get what rounding leaves of the use of `shares`, and what must be spent is.

    Args:
        shares: (type, state, action) numbers of arms.
        order: (cell,) cells with a remainder, the largest first.
        counts: (type, state) numbers of arms.
        idle: (type, state) the action that uses nothing.
        usage: (type, state, action, resource) usage.
        budget: (resource,) the most that may be used.
        services: (cell, 3) type, state and action of what gains over idling, the best first.
        units: (cell, 4) type, state, action and resource of what spends one unit, the best first.
        least: (resource,) the least that must be used.
    """
    number = shares.shape[2]
    found, left = np.floor(shares).astype(np.int64), counts.copy()
    free = budget.copy()
    for t in range(shares.shape[0]):
        for s in range(shares.shape[1]):
            for a in range(number):
                left[t, s] -= found[t, s, a]
                for k in range(len(free)):
                    free[k] -= found[t, s, a] * usage[t, s, a, k]
    for cell in order:
        t, s, a = cell // (number * shares.shape[1]), cell // number % shares.shape[1], cell % number
        fits = left[t, s] > 0
        for k in range(len(free)):
            fits = fits and usage[t, s, a, k] <= free[k]
        if fits:
            found[t, s, a] += 1
            left[t, s] -= 1
            for k in range(len(free)):
                free[k] -= usage[t, s, a, k]
    spent, rest = np.zeros(len(free)), np.full(len(free), 1e-6)
    for t in range(shares.shape[0]):
        for s in range(shares.shape[1]):
            found[t, s, idle[t, s]] += left[t, s]
            for a in range(number):
                for k in range(len(free)):
                    spent[k] += found[t, s, a] * usage[t, s, a, k]
                    rest[k] += (shares[t, s, a] - found[t, s, a]) * usage[t, s, a, k]
    for u in range(len(services)):
        t, s, a = services[u]
        some = found[t, s, idle[t, s]]
        for k in range(len(free)):
            if usage[t, s, a, k] > 0:
                some = min(some, np.int64(max(min(rest[k], free[k] + 1e-9) / usage[t, s, a, k], 0.0)))
        found[t, s, a] += some
        found[t, s, idle[t, s]] -= some
        for k in range(len(free)):
            spent[k] += some * usage[t, s, a, k]
            rest[k] -= some * usage[t, s, a, k]
            free[k] -= some * usage[t, s, a, k]
    for u in range(len(units)):
        t, s, a, k = units[u]
        if spent[k] < least[k]:
            some = min(np.int64(np.ceil((least[k] - spent[k]) / usage[t, s, a, k])), found[t, s, idle[t, s]])
            found[t, s, a] += some
            found[t, s, idle[t, s]] -= some
            spent[k] += some * usage[t, s, a, k]
    return found
