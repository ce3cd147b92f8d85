"""Continuous-time Markov chains from panel data by matrix exponentials of SciPy, move by move, as the R package msm.

One type and one action: log q[i, j](x) = log q[i, j] + sum over effects of b[e, i, j] x[e], constant between two rows
and between cuts of time.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import expm
from scipy.optimize import minimize


def log_likelihood(rates, effects, rows, cuts=(), exact=()):
    """Of rows (state, next_state, start, time, x); effects (covariates, then periods, state, next_state)."""
    total = 0.0
    size = len(rates)
    for state, after, start, time, x in rows:
        ends = [start, *(cut for cut in cuts if start < cut < start + time), start + time]
        path, own = np.eye(size), rates
        for begin, end in pairwise(ends):
            period = [float(begin >= cut) for cut in cuts]
            indicator = (
                [inside - later for inside, later in zip(period, [*period[1:], 0.0], strict=True)] if cuts else []
            )
            own = rates * np.exp(np.tensordot([*x, *indicator], effects, 1)) if len(effects) else rates
            generator = own - np.diag(own.sum(axis=1))
            for absorbed in exact:
                generator[np.arange(size) != absorbed, absorbed] = 0.0
            path = path @ expm(generator * (end - begin))
        chance = path[state, after]
        if after in exact and after != state:
            into = own[:, after].copy()
            into[after] = 0.0
            chance = path[state] @ into
        total += np.log(chance)
    return total


def maximise(rows, allowed, num_effects=0, cuts=(), exact=()):
    """Maximum likelihood: rates, effects, log-likelihood, and standard errors of log rates and of effects."""
    places, size = np.argwhere(allowed), len(allowed)

    def tables(point):
        rates, effects = np.zeros((size, size)), np.zeros((num_effects, size, size))
        rates[tuple(places.T)] = np.exp(point[: len(places)])
        effects[:, places[:, 0], places[:, 1]] = point[len(places) :].reshape(num_effects, len(places))
        return rates, effects

    def cost(point):
        return -log_likelihood(*tables(point), rows, cuts, exact)

    start = np.append(np.full(len(places), -1.0), np.zeros(num_effects * len(places)))
    found = minimize(cost, start, method="BFGS", options={"gtol": 1e-5})
    width, number = 1e-3, len(start)
    hessian = np.empty((number, number))
    steps = width * np.eye(number)
    for i in range(number):
        for j in range(number):
            corners = [cost(found.x + a * steps[i] + b * steps[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            hessian[i, j] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * width**2)
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return *tables(found.x), -found.fun, *tables(np.concatenate([np.log(errors[: len(places)]), errors[len(places) :]]))
