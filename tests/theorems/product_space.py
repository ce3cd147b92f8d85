"""An oracle: the product of all arms by plain enumeration, dense and slow, sharing no code with what it checks."""

from collections.abc import Callable
from functools import cached_property, reduce
from itertools import permutations, product

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.model import Arm, CoupledMDP
from evenhand.solvers import Joint


class ProductSpace:
    """Every joint state and every joint action that the budget allows.

    A policy is a (pair,) array that sums to 1 over the pairs of a state; a measure is a (pair,) array of visits.
    """

    def __init__(self, problem: CoupledMDP) -> None:
        self.problem = problem
        self.arms = [problem.arms[block] for block, count in enumerate(problem.counts) for _ in range(count)]
        self.discount = problem.discount
        self.states = list(product(*(range(arm.num_states) for arm in self.arms)))
        actions = list(product(*(range(arm.num_actions) for arm in self.arms)))
        self.pairs = [(s, a) for s in self.states for a in actions if self._fits(s, a)]
        self.number = {pair: i for i, pair in enumerate(self.pairs)}
        place = {state: i for i, state in enumerate(self.states)}
        self.state_of_pair = np.array([place[s] for s, _ in self.pairs])
        self.initial = reduce(np.kron, [arm.initial for arm in self.arms])
        self.rewards = np.array([[arm.rewards[x] for arm, x in self._cells(*pair)] for pair in self.pairs])
        rows = ([arm.transitions[x] for arm, x in self._cells(*pair)] for pair in self.pairs)
        self.rows = np.array([reduce(np.kron, row) for row in rows])

    def _cells(self, state: tuple, action: tuple) -> list:
        return list(zip(self.arms, zip(state, action, strict=True), strict=True))

    def _fits(self, state: tuple, action: tuple) -> bool:
        used = sum(arm.usage[cell] for arm, cell in self._cells(state, action))
        return bool((used <= self.problem.budget + 1e-9).all())

    @property
    def num_arms(self) -> int:
        return len(self.arms)

    @cached_property
    def belongs(self) -> np.ndarray:
        """(state, pair) 1 where the pair is of the state."""
        return (np.arange(len(self.states))[:, None] == self.state_of_pair).astype(float)

    @cached_property
    def flow(self) -> np.ndarray:
        """(state, pair) F with F q = initial exactly for the occupancy measures q >= 0."""
        return self.belongs - self.discount * self.rows.T

    def random_policy(self, rng: np.random.Generator, sparse: bool = False) -> np.ndarray:
        weights = rng.exponential(size=len(self.pairs))
        if sparse:
            weights *= rng.random(len(self.pairs)) < 0.3
            weights[np.searchsorted(self.state_of_pair, np.arange(len(self.states)))] += 1e-3
        return weights / (self.belongs @ weights)[self.state_of_pair]

    def values(self, policy: np.ndarray) -> np.ndarray:
        """(arm,) from the value functions v = r + gamma P v; no occupancy measure is involved."""
        choose = self.belongs * policy
        matrix = np.eye(len(self.states)) - self.discount * choose @ self.rows
        return self.initial @ np.linalg.solve(matrix, choose @ self.rewards)

    def visits(self, policy: np.ndarray) -> np.ndarray:
        """(pair,) discounted visits, step by step until nothing is left to add."""
        law, total = self.initial.copy(), np.zeros(len(self.pairs))
        while law.sum() > 1e-14:
            now = law[self.state_of_pair] * policy
            total += now
            law = self.discount * now @ self.rows
        return total

    def policy_of(self, measure: np.ndarray) -> np.ndarray:
        """(pair,) the policy of a measure, NaN where a state is never visited."""
        with np.errstate(invalid="ignore"):
            return measure / (self.belongs @ measure)[self.state_of_pair]

    def renamed(self, per_pair: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        """(pair,) the array whose entry at (s, a) is the given one's at (Qs, Qa), where (Qs)_n = s_order[n]."""
        return per_pair[[self.number[tuple(s[n] for n in order), tuple(a[n] for n in order)] for s, a in self.pairs]]

    def renamings(self) -> list[tuple[int, ...]]:
        return list(permutations(range(self.num_arms)))

    def in_joint_order(self, joint: Joint, per_pair: np.ndarray) -> np.ndarray:
        """(joint pair,) an array over our pairs in the order of the library's."""
        states = joint.states[joint.mdp.state_of_pair].tolist()
        places = [self.number[tuple(s), tuple(a)] for s, a in zip(states, joint.actions.tolist(), strict=True)]
        assert len(set(places)) == len(places) == len(self.pairs)
        return per_pair[places]

    def induced(self, policy) -> np.ndarray:
        """(pair,) the joint policy of one on counts: who within a type and state gets an action is equally likely."""
        probabilities = np.zeros(len(self.pairs))
        for i, state in enumerate(self.states):
            here = np.flatnonzero(self.state_of_pair == i)
            allocations, law = policy.allocation_distribution(
                self._counts([(state, self.pairs[p][1]) for p in here[:1]])[0]
            )
            ours = self._allocations([self.pairs[p] for p in here])
            for allocation, probability in zip(allocations, law, strict=True):
                hits = here[(ours == allocation).all(axis=(1, 2, 3))]
                assert len(hits), "an allocation that no joint action has"
                probabilities[hits] += probability / len(hits)
        return probabilities

    def _allocations(self, pairs: list) -> np.ndarray:
        """(pair, type, state, action) how many arms of each type are where and do what."""
        shape = (self.problem.num_types, *self.problem.types.rewards.shape[1:])
        allocations = np.zeros((len(pairs), *shape), dtype=np.int64)
        for i, (state, action) in enumerate(pairs):
            np.add.at(allocations[i], (self.problem.type_of_arm, list(state), list(action)), 1)
        return allocations

    def _counts(self, pairs: list) -> np.ndarray:
        return self._allocations(pairs).sum(axis=-1)


def best_weighted(space: ProductSpace, weights: np.ndarray) -> float:
    """The largest weighted sum of the arms' values."""
    solution = linprog(-space.rewards @ weights, A_eq=space.flow, b_eq=space.initial, method="highs")
    assert solution.status == 0, solution.message
    return -solution.fun


def best_gini(space: ProductSpace, weights: np.ndarray) -> float:
    """The largest sum_i w_i v_(i), by the sums of the k least values instead of the paper's program.

    With L_k(v) = max_t k t - sum_n (t - v_n)^+ the sum of the k least,  sum_i w_i v_(i) = sum_k (w_k - w_{k+1}) L_k.
    """
    return -_solve(space, np.append(weights[:-1] - weights[1:], weights[-1]), []).fun


def best_leximin(space: ProductSpace) -> np.ndarray:
    """(arm,) the leximin optimum in ascending order: the largest L_1, then L_2 with that L_1 kept, and so on."""
    floors: list[float] = []
    for k in range(space.num_arms):
        floors.append(-_solve(space, np.eye(space.num_arms)[k], floors).fun)
    return np.diff(floors, prepend=0.0)


def _solve(space: ProductSpace, gains: np.ndarray, floors: list[float]):
    """Maximise sum_k gains_k L_k over all policies with L_k >= floors_k; columns q, t_k, d_kn >= t_k - v_n."""
    N, P = space.num_arms, len(space.pairs)
    width = P + N + N * N
    shortfalls, rhs = np.zeros((N * N, width)), np.zeros(N * N)
    sums = np.zeros((N, width))
    for k in range(N):
        sums[k, P + k] = k + 1
        sums[k, P + N + k * N : P + N + (k + 1) * N] = -1
        for n in range(N):
            shortfalls[k * N + n, :P] = -space.rewards[:, n]
            shortfalls[k * N + n, P + k] = 1
            shortfalls[k * N + n, P + N + k * N + n] = -1
    slack = 1e-9 * np.maximum(1.0, np.abs(floors)) if floors else []
    solution = linprog(
        -gains @ sums,
        A_ub=np.vstack([shortfalls, -sums[: len(floors)]]),
        b_ub=np.concatenate([rhs, slack - np.array(floors)]) if floors else rhs,
        A_eq=np.hstack([space.flow, np.zeros((len(space.states), width - P))]),
        b_eq=space.initial,
        bounds=[(0, None)] * P + [(None, None)] * N + [(0, None)] * (N * N),
        method="highs",
    )
    assert solution.status == 0, solution.message
    return solution


def best_concave(space: ProductSpace, measure: Callable) -> float:
    """The largest value of a concave measure of the arms' values, by cvxpy.

    Args:
        space: the product space.
        measure: from a cvxpy vector of values to a concave expression.
    """
    import cvxpy as cp

    visits = cp.Variable(len(space.pairs), nonneg=True)
    objective = cp.Maximize(measure(space.rewards.T @ visits))
    program = cp.Problem(objective, [space.flow @ visits == space.initial])
    for gap in (1e-9, 1e-8):  # the smaller is not always reached; what is compared is known to 1e-6
        program.solve(solver=cp.CLARABEL, tol_gap_abs=gap, tol_gap_rel=gap)
        if program.status == "optimal":
            return float(program.value)
    if program.status == "optimal_inaccurate":
        reject()  # the oracle cannot tell: Hypothesis draws another problem, and any other test fails
    raise AssertionError(program.status)


def random_arm(
    rng: np.random.Generator, num_states: int, num_actions: int, num_resources: int, sparse: bool = False
) -> Arm:
    """An arm whose usage depends on the state, with one idle action somewhere in each state."""
    transitions = rng.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    initial = rng.dirichlet(np.ones(num_states))
    if sparse:
        transitions = np.eye(num_states)[transitions.argmax(axis=2)]
        initial = np.eye(num_states)[initial.argmax()]
    usage = rng.integers(0, 3, size=(num_states, num_actions, num_resources)).astype(float)
    usage[np.arange(num_states), rng.integers(num_actions, size=num_states)] = 0.0
    return Arm(transitions, rng.random((num_states, num_actions)), usage, initial)


def random_symmetric(
    seed: int,
    num_arms: int = 2,
    num_states: int = 2,
    num_actions: int = 2,
    num_resources: int = 1,
    sparse: bool = False,
    discount: float = 0.8,
) -> CoupledMDP:
    """Identical arms with random numbers, whose budget is for some of them."""
    rng = np.random.default_rng(seed)
    arm = random_arm(rng, num_states, num_actions, num_resources, sparse)
    budget = rng.integers(0, 2 * num_arms, size=num_resources).astype(float)
    return CoupledMDP([arm], budget, discount, [num_arms])


def symmetric_problems() -> st.SearchStrategy[CoupledMDP]:
    """Identical arms, several actions and resources, sometimes with states that are never visited."""
    return st.builds(
        random_symmetric,
        seed=st.integers(0, 2**32 - 1),
        num_arms=st.integers(2, 3),
        num_states=st.integers(2, 3),
        num_actions=st.integers(2, 3),
        num_resources=st.integers(1, 2),
        sparse=st.booleans(),
        discount=st.sampled_from([0.0, 0.5, 0.8]),
    )


def gini_weights(rng: np.random.Generator, num_arms: int) -> np.ndarray:
    """(rank,) random weights that do not increase, with sum 1; sometimes some are 0 or equal."""
    weights = rng.exponential(size=num_arms) * (rng.random(num_arms) < 0.8)
    weights[0] += 1e-3
    weights = np.sort(np.round(weights, int(rng.integers(1, 12))) + 1e-3 * (np.arange(num_arms) == 0))[::-1]
    return weights / weights.sum()


def two_by_two(**changes) -> CoupledMDP:
    """Two arms, one treatment a step: an untreated arm fails and stays so, a treated one works again.

    Args:
        changes: fields of the second arm that differ, which make the problem asymmetric.
    """
    fields = {
        "transitions": [[[0.6, 0.4], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]],
        "rewards": [[1.0, 0.8], [0.0, -0.2]],
        "usage": [[0.0], [1.0]],
        "initial": [0.5, 0.5],
    }
    arms = [Arm(**fields), Arm(**(fields | changes))]
    return CoupledMDP(arms, [1.0], 0.9)
