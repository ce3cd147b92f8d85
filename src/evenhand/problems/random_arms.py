"""Random problems of any size, reproducible from a seed.

For every type, state and action the next state is drawn from a Dirichlet(1, …, 1) row in which a share of the
entries is struck out (never all of them); rewards are uniform on [0, 1]; the first state has a Dirichlet
distribution too. Action 0 is idle. Every other action uses a random non-empty set of the resources: one
resource for sure, each other one with probability 1/2, and of each a random amount.
"""

import numpy as np

from evenhand.checks import check_memory
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.problems._arguments import Arguments
from evenhand.typing import Floats, Ints


def random_coupled(
    num_arms: int = 5,
    num_states: int = 3,
    num_actions: int = 2,
    num_resources: int = 1,
    num_types: int = 1,
    budget: float | None = None,
    sparsity: float = 0.0,
    discount: float = 0.95,
    seed: int = 0,
    integer_usage: bool = True,
    state_dependent_usage: bool = False,
) -> CoupledMDP:
    """Arms with random transitions, rewards and usage; the same seed gives the same problem.

    Args:
        num_arms: number of arms.
        num_states: number of states of an arm.
        num_actions: number of actions of an arm; the first is idle.
        num_resources: number of shared resources.
        num_types: number of different arms; 1 makes them all alike, num_arms makes them all different.
        budget: amount of each resource; by default a third of what all arms could use.
        sparsity: share of the transitions that are impossible; at 1 an action leads to one state surely.
        discount: value of a reward one step later.
        seed: seed of the random numbers.
        integer_usage: an action uses 1, 2 or 3 of a resource; otherwise any amount from 0.5 to 3.
        state_dependent_usage: usage of an action depends on the state.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.random_coupled(num_arms=4, num_states=3, seed=1)
        CoupledMDP(4 arms, identical, 1 resource, discount 0.95)
    """
    given = Arguments()
    sound = given.whole("num_arms", num_arms, most=MOST_ARMS)
    given.whole("num_states", num_states)
    given.whole("num_actions", num_actions, least=2)
    given.whole("num_resources", num_resources)
    given.whole("num_types", num_types, most=num_arms if sound else None, why="a type has at least one arm")
    if budget is not None:
        given.number("budget", budget)
    given.number("sparsity", sparsity, most=1)
    given.number("discount", discount, below=1)
    given.whole("seed", seed, least=0)
    given.boolean("integer_usage", integer_usage)
    given.boolean("state_dependent_usage", state_dependent_usage)
    given.raise_if_any("random")

    shape = (num_types, num_states, num_actions)
    size = 8.0 * num_types * num_states * num_actions * (3 * num_states + 2 * num_resources)
    check_memory(size, f"{num_types} random arms of {num_states} states", "Use fewer types.")
    rng = np.random.default_rng(seed)
    arms = ArmTables(
        transitions=_transitions(rng, shape, sparsity),
        rewards=rng.random(shape),
        usage=_usage(rng, shape, num_resources, integer_usage, state_dependent_usage),
        initial=_dirichlet(rng, (num_types, num_states)),
    )
    counts = even_split(num_arms, num_types)
    amounts = _third(arms.usage, counts, integer_usage) if budget is None else np.full(num_resources, float(budget))
    return CoupledMDP(arms=arms, budget=amounts, discount=discount, counts=counts)


def even_split(total: int, parts: int) -> Ints:
    """(part,) whole numbers that sum to the total and differ by at most one, the larger ones first."""
    shares = np.full(parts, total // parts, dtype=np.int64)
    shares[: total % parts] += 1
    return shares


def _dirichlet(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Uniform on the simplex along the last axis: exponential variables over their sum."""
    weights = rng.standard_exponential(shape)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _transitions(rng: np.random.Generator, shape: tuple[int, int, int], sparsity: float) -> Floats:
    """(type, state, action, next_state) Dirichlet rows, a share of whose entries is zero."""
    weights = rng.standard_exponential((*shape, shape[1]))
    if sparsity > 0:
        draws = rng.random(weights.shape)
        possible = (draws >= sparsity) | (draws == draws.max(axis=-1, keepdims=True))
        weights *= possible
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _usage(
    rng: np.random.Generator, shape: tuple[int, int, int], num_resources: int, integer: bool, by_state: bool
) -> Floats:
    """(type, state, action, resource) usage, nothing for action 0."""
    num_types, num_states, num_actions = shape
    drawn = (num_types, num_states if by_state else 1, num_actions, num_resources)
    amounts = rng.integers(1, 4, drawn).astype(np.float64) if integer else rng.uniform(0.5, 3, drawn)
    touched = rng.random(drawn) < 0.5
    surely = rng.integers(num_resources, size=drawn[:-1])[..., None]
    np.put_along_axis(touched, surely, True, axis=-1)
    amounts *= touched
    amounts[:, :, 0] = 0
    return np.array(np.broadcast_to(amounts, (*shape, num_resources)))


def _third(usage: Floats, counts: Ints, integer: bool) -> Floats:
    """(resource,) a third of what all arms could use at most, and at least the smallest use there is.

    Args:
        usage: (type, state, action, resource) usage.
        counts: (type,) number of arms of each type.
        integer: whether to round down to whole units.
    """
    third = counts @ usage.max(axis=(1, 2)) / 3
    least = np.where(usage > 0, usage, np.inf).min(axis=(0, 1, 2))
    amounts = np.maximum(np.floor(third) if integer else third, least)
    return np.where(np.isfinite(least), amounts, 0.0)  # a resource that no arm uses
