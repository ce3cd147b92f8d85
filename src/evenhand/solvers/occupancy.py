"""Policies and their occupancy measures on a tabular MDP, under every criterion (Puterman, Theorems 6.9.1 and 8.9.2).

For pair probabilities pi, visits to states are counted by the criterion's weights of time:

    discounted   q = mu + gamma P_pi^T q                              one linear system for all objectives at once
    average      q = lim_T 1/T sum_{t<T} (P_pi^T)^t mu                long-run shares from the initial distribution
    finite:T     q_0 = mu,  q_t = gamma P_pi_t^T q_(t-1)              one push a step; (step, pair) arrays

and q(x, u) = q(x) pi(u | x), V = sum_{x,u} q(x, u) r(x, u); q sums to the criterion's total.

If there are few states, the discounted system is solved by LU, or by elimination without subtractions if the total
weight of time is large; else by BiCGSTAB with a residual that is checked: an error e in the equation moves no value by
more than |e|_1 max|r| total. The average is found class by class if there are few states: the stationary distribution
of each closed class, and the chance to end in it. Else q = mu + c, with the c in the range of I - P^T that solves
(I - P^T) c = P^T mu - mu, found by GMRES. Corrections are added until one that was solved for is next to nothing: what
a chain moves in a step says little if it moves slowly.

The way back: the policy of a measure is pi(u | x) = q(x, u) / q(x). Under `average` it has this measure only if it has
one closed class where q lives. With several, each is a policy of its own, drawn at the start by its share of q, and
elsewhere the way to the class is taken (`parts_of`). From where there is no way to it, q is followed as it is: then
the parts need not have q together, and callers that need them must evaluate the parts.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from evenhand.checks import check_memory, check_shape
from evenhand.errors import InvalidInputError, NotConvergedError
from evenhand.model.criterion import Criterion
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.closed_classes import Elimination, label_classes
from evenhand.typing import Floats, Ints

DENSE_UP_TO = 250
"""States up to which the system is solved directly."""

LARGE_TOTAL = 1e3
"""Total weight of time beyond which more states than these are."""

CLASSES_UP_TO = 2000
"""States up to which long-run shares are found class by class."""

RESIDUAL = 1e-12
"""The largest residual left, as a share of all visits."""

SETTLED, MOST_CORRECTIONS = 1e-9, 30
"""A correction of long-run shares that is next to nothing, and corrections after which they are given up."""

ROUNDED = 2.0**-52
"""Rounding error of a step of the distribution of a chain."""

SELDOM = 1e-10
"""A share of all visits that may be the rounding of a linear program, or of a chain pushed until it stands still."""


# -- from a policy to its visits --------------------------------------------------------------------------------------


def occupancy_measure(mdp: TabularMDP, probabilities: Floats, dense_up_to: int = DENSE_UP_TO) -> Floats:
    """The visits to each pair, by the criterion's weights of time.

    Args:
        mdp: the problem.
        probabilities: (pair,) the policy, which sums to 1 over the pairs of each state; (step, pair) where the
            criterion has a number of steps, and (pair,) there for the same at every step.
        dense_up_to: states up to which the system is solved directly, unless the total weight of time is large.

    Returns:
        (pair,) visits; (step, pair) where the criterion has a number of steps.
    """
    if not mdp.criterion.is_stationary:
        return _push_forward(mdp, np.broadcast_to(probabilities, (mdp.criterion.num_layers, mdp.num_pairs)))
    check_policy_table(mdp, probabilities)
    # (state, outcome) the chance of each outcome: pairs that lead to the same outcome add up.
    choose = sparse.csr_array((probabilities, mdp.outcomes, mdp.offsets), shape=(mdp.num_states, mdp.kernel.shape[0]))
    criterion, initial = mdp.criterion, mdp.initial
    if mdp.num_states <= _direct_up_to(criterion, dense_up_to):
        # Only rows of outcomes that the policy takes are written out.
        used = np.unique(choose.indices)
        chain = (choose[:, used] @ mdp.kernel[used]).toarray()
        if not criterion.contracts:
            visits = Elimination(chain).shares(initial)
        elif criterion.total > LARGE_TOTAL:
            visits = Elimination(chain, criterion.factor).visits(initial)
        else:  # the residual of LU is rounding, and it is much quicker
            visits = np.maximum(np.linalg.solve(np.eye(len(chain)) - criterion.factor * chain.T, initial), 0.0)
    else:
        back, forth = sparse.csr_array(choose.T), mdp.kernel.T
        push = lambda q: np.asarray(criterion.factor * (forth @ (back @ q)))  # noqa: E731
        if criterion.contracts:
            visits = discounted_visits(push, initial, criterion.total, initial * criterion.total)
        else:
            visits = settle(push, initial)
    return np.asarray(np.repeat(visits, np.diff(mdp.offsets)) * probabilities)


def _direct_up_to(criterion: Criterion, dense_up_to: int) -> int:
    """Return the number of states up to which visits are found directly."""
    # Where the total is large, so is what a residual does to values.
    return CLASSES_UP_TO if not criterion.contracts or criterion.total > LARGE_TOTAL else dense_up_to


def visiting_work(criterion: Criterion, num_states: float, push: float) -> float:
    """Return the operations that visits take, about: of an average at the most, since slow chains take all of them.

    Args:
        criterion: the criterion.
        num_states: number of states of the chain.
        push: operations that a step of its distribution takes.
    """
    if not criterion.is_stationary:
        return criterion.num_layers * push
    if num_states <= _direct_up_to(criterion, DENSE_UP_TO):
        return 0.01 * num_states**3  # products of matrices
    return push * (100 if criterion.contracts else MOST_CORRECTIONS * 5 * 40)  # restarts and steps of GMRES


def check_policy_table(mdp: TabularMDP, probabilities: Floats) -> None:
    """Raise InvalidInputError unless these are the probabilities of a policy."""
    check_shape(probabilities, {"pair": mdp.num_pairs}, "probabilities")
    sums = np.add.reduceat(probabilities, mdp.offsets[:-1])
    if not (probabilities.min() >= 0 and np.abs(sums - 1).max() <= 1e-8):
        raise InvalidInputError("probabilities: expected none negative, and a sum of 1 over the pairs of each state")


def _push_forward(mdp: TabularMDP, probabilities: Floats) -> Floats:
    """(step, pair) visits, step by step."""
    check_memory(8.0 * probabilities.size, f"visits of {len(probabilities)} steps", "Use fewer steps.")
    visits = np.zeros(probabilities.shape)
    distribution, forth = mdp.initial, mdp.kernel.T
    for step, chances in enumerate(probabilities):
        check_policy_table(mdp, chances)
        visits[step] = np.repeat(distribution, np.diff(mdp.offsets)) * chances
        moved = np.bincount(mdp.outcomes, weights=visits[step], minlength=mdp.kernel.shape[0])
        distribution = mdp.criterion.factor * (forth @ moved)
    return visits


def discounted_visits(push: Callable[[Floats], Floats], initial: Floats, total: float, start: Floats) -> Floats:
    """(state,) discounted visits q = mu + gamma P^T q of a chain that is not written out.

    By BiCGSTAB, and from wherever it stops by the plain iteration, which contracts.

    Args:
        push: from the (state,) distribution of a state to that of the next, discounted.
        initial: (state,) initial distribution.
        total: sum of all visits.
        start: (state,) a first guess.
    """
    size = len(initial)
    operator = sparse.linalg.LinearOperator((size, size), matvec=lambda q: q - push(q), dtype=np.float64)
    q, _ = sparse.linalg.bicgstab(operator, initial, x0=start, rtol=1e-13, atol=0.0, maxiter=300)
    # BiCGSTAB can break down.
    if not np.isfinite(q).all():
        q = initial * total
    while np.abs((following := initial + push(q)) - q).sum() > RESIDUAL * total:
        q = following
    return np.asarray(following)


def settle(push: Callable[[Floats], Floats], initial: Floats) -> Floats:
    """(state,) the Cesaro limit of the distribution of a chain that is not written out.

    Args:
        push: from the (state,) distribution of a state to that of the next.
        initial: (state,) initial distribution.

    Raises:
        NotConvergedError: the chain moves too slowly; says how much of its time is still uncertain.
    """
    size = len(initial)
    operator = sparse.linalg.LinearOperator(
        (size, size), matvec=lambda distribution: distribution - push(distribution), dtype=np.float64
    )
    distribution, slowness = initial, 1.0
    for _ in range(MOST_CORRECTIONS):
        moved = push(distribution) - distribution
        correction, unsolved = sparse.linalg.gmres(operator, moved, rtol=1e-3, atol=0.0, restart=40, maxiter=5)
        distribution = distribution + correction
        off, step = float(np.abs(correction).sum()), float(np.abs(moved).sum())
        # What a step moves says how far there is to go by the chain's slowness, and so does a rounding of it.
        slowness = max(slowness, off / step if step > ROUNDED else 0.0)
        off += slowness * ROUNDED
        if not unsolved and off <= SETTLED:
            distribution = np.maximum(distribution, 0.0)
            return np.asarray(distribution / distribution.sum())
    raise NotConvergedError(f"the long-run shares of states are uncertain by {off:.2g}, for the arms move very slowly")


# -- from visits to a policy ------------------------------------------------------------------------------------------


def policy_of(mdp: TabularMDP, measure: Floats, fallback: Ints | None = None) -> Floats:
    """The policy of an occupancy measure.

    Args:
        mdp: the problem.
        measure: (pair,) visits, or (step, pair).
        fallback: (state,) or (step, state) the pair to take where a state is never visited; its first by default.

    Returns:
        (pair,) or (step, pair) probabilities.
    """
    if measure.ndim == 2:
        pairs = fallback if fallback is not None and fallback.ndim == 2 else [fallback] * len(measure)
        return np.stack([policy_of(mdp, step, pair) for step, pair in zip(measure, pairs, strict=True)])
    fallback = mdp.offsets[:-1] if fallback is None else fallback
    if not np.array_equal(mdp.state_of_pair[fallback], np.arange(mdp.num_states)):
        raise InvalidInputError("fallback: expected one pair of each state, in the order of the states")
    clean = np.maximum(measure, 0.0)
    visits = np.repeat(np.add.reduceat(clean, mdp.offsets[:-1]), np.diff(mdp.offsets))
    otherwise = np.zeros(mdp.num_pairs)
    otherwise[fallback] = 1.0
    return np.where(visits > 0, clean / np.where(visits > 0, visits, 1.0), otherwise)


def values(mdp: TabularMDP, measure: Floats) -> Floats:
    """(objective,) expected rewards of an occupancy measure, (pair,) or (step, pair)."""
    return np.asarray(total_visits(measure) @ mdp.rewards)


def total_visits(measure: Floats) -> Floats:
    """(pair,) visits of all steps together."""
    return measure.sum(axis=0) if measure.ndim == 2 else measure


def parts_of(mdp: TabularMDP, measure: Floats, fallback: Ints, seldom: float = SELDOM) -> list[tuple[float, Floats]]:
    """Policies and their shares, drawn at the start, that together have an occupancy measure.

    Args:
        mdp: the problem.
        measure: (pair,) or (step, pair) visits of some policy.
        fallback: (state,) or (step, state) the pair to take where a state is never visited and nothing better is known.
        seldom: the share of visits up to which a state counts as never visited. Slow chains need it to be 0: what is
            done in states that are next to never visited may decide for ages.

    Returns:
        One policy with share 1 but for `average`, which has one per closed class of the measure.
    """
    if mdp.criterion.contracts or measure.ndim == 2:
        return [(1.0, policy_of(mdp, measure, fallback))]
    # Phase 1: strike out states and pairs that only rounding visits; they might join classes that are apart.
    visits = np.add.reduceat(np.maximum(measure, 0.0), mdp.offsets[:-1])
    visited = np.flatnonzero(visits > seldom * visits.sum())
    never = np.ones(mdp.num_states, dtype=np.bool_)
    never[visited] = False
    clean = np.where(never[mdp.state_of_pair], 0.0, np.maximum(measure, 0.0))
    clean[clean < seldom * np.repeat(visits, np.diff(mdp.offsets))] = 0.0
    policy = policy_of(mdp, clean)
    # Phase 2: the chain of the policy on the states that are visited, and its closed classes.
    pairs = np.flatnonzero(clean > 0)
    rows = sparse.csr_array(mdp.kernel[mdp.outcomes[pairs]])[:, visited]
    choose = sparse.csr_array(
        (policy[pairs], (np.searchsorted(visited, mdp.state_of_pair[pairs]), np.arange(len(pairs))))
    )
    classes, closed = label_classes(sparse.csr_array(choose @ rows))
    # Phase 3: a policy for each class, by its share of the visits.
    found = []
    for number in closed:
        inside = visited[classes == number]
        share = float(visits[inside].sum())
        if share > 1e-9 * visits.sum():
            found.append((share, _into_class(mdp, policy, inside, visited, fallback)))
    total = sum(share for share, _ in found)
    return [(share / total, policy) for share, policy in found]


def _into_class(mdp: TabularMDP, policy: Floats, inside: Ints, visited: Ints, fallback: Ints) -> Floats:
    """(pair,) the policy within a class of states, and outside the first pairs that lead towards it.

    Where none does, the policy is followed in states that it visits, and the fallback in all others.
    """
    choice, known = fallback.copy(), np.zeros(mdp.num_states)
    known[inside] = 1.0
    # Backwards from the class: states with a pair that may lead to it join, one step further each round.
    while True:
        nearer = (mdp.kernel @ known)[mdp.outcomes] > 0
        nearer &= known[mdp.state_of_pair] == 0
        # Of several such pairs the first, so that nothing hangs on rounding.
        hits = np.minimum.reduceat(np.where(nearer, np.arange(mdp.num_pairs), mdp.num_pairs), mdp.offsets[:-1])
        found = hits < mdp.num_pairs
        if not found.any():
            break
        choice[found], known[found] = hits[found], 1.0
    as_it_is = np.zeros(mdp.num_states, dtype=np.bool_)
    as_it_is[visited] = known[visited] == 0
    as_it_is[inside] = True
    probabilities = np.where(as_it_is[mdp.state_of_pair], policy, 0.0)
    probabilities[choice[~as_it_is]] = 1.0
    return probabilities
