"""The policy `lp-update`: a linear program over the next steps, solved anew from the present counts of the arms.

With x the numbers of arms by type and state, y_t(k, s, a) the numbers that get action a at step t, g the weights of the
welfare, and h the values of single arms at the relaxation's prices, beyond the last step that is looked at,

    max  sum_{t < tau} beta^t sum g r y_t + beta^tau sum_{k,s,a} y_{tau-1}(k, s, a) sum_j p(j | s, a) h(k, j)
    s.t. sum_a y_0(k, s, a) = x(k, s),    sum_a y_t(k, j, a) = sum_{s,a} p(j | s, a) y_{t-1}(k, s, a),
         sum d(s, a) y_t <= b    for every t < tau.

y_0, rounded, is what is done; what rounding leaves of the budget serves the idle arms that gain most. At the next step
the program is solved again. Priority policies have the order of service of the relaxation's fixed point, and circle
around it where it does not attract; this one steers towards it. For identical arms the loss per arm is O(1/sqrt(N)),
and exponentially small if the fixed point is not degenerate (Gast, Gaujal and Yan, "Linear program-based policies for
restless bandits: necessary and sufficient conditions for (exponentially fast) asymptotic optimality", 2023; Gast and
Narasimha, "Model predictive control is almost optimal for restless bandits", 2025). They take the best static value in
place of h, which needs a longer look ahead.

Every program starts from the same basis, so that y_0 depends on x alone. Programs of the same x are solved once.
"""

from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from scipy import sparse

from evenhand.checks import as_numbers, check_positive_int, check_shape
from evenhand.errors import PolicyError, TooLargeError
from evenhand.model.arm_matching import matched_types
from evenhand.model.composite import TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep
from evenhand.model.policy import check_arrays
from evenhand.solvers.counts.reduction import ExchangeablePolicy, num_count_states
from evenhand.solvers.highs import LinearProgram, RepeatedProgram
from evenhand.solvers.single_arm import SingleArms, gains_at
from evenhand.typing import Array, ArrayLike, Floats, Indices, Ints

FEW = 1000
"""Count vectors up to which programs are solved one by one."""


def look_ahead(
    problem: CoupledMDP,
    weights: ArrayLike,
    prices: ArrayLike,
    floor_prices: ArrayLike | None = None,
    steps: int = 24,
) -> "LookAhead | TimeVaryingPolicy":
    """Solve a linear program over the next steps from the present counts; by step with a finite horizon.

    Args:
        problem: the problem.
        weights: (type,) weights of arms' values in the welfare, from the relaxation.
        prices: (resource,) or (step, resource) dual prices of the resources, from the relaxation.
        floor_prices: (type,) value of being served in itself; none by default.
        steps: number of steps ahead. A longer horizon sees more, and postpones more: a service with the same cost later
            is left for later, when chance has changed the counts. `solve` also tries 12 and 5.

    Raises:
        TooLargeError: the program would have too many columns.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.look_ahead(problem, np.ones(1) / 3, np.array([1.0]))
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    check_positive_int(steps, "steps")
    types, criterion = problem.types, problem.criterion
    weights, prices = as_numbers(weights, "weights"), as_numbers(prices, "prices")
    check_shape(weights, {"type": len(types)}, "weights")
    pay = np.zeros(len(types)) if floor_prices is None else as_numbers(floor_prices, "floor_prices")
    arms = SingleArms(types, types.valid, types.initial, criterion)
    found = arms.best(np.arange(len(types)), gains_at(types, weights, prices, criterion, pay))
    if criterion.is_stationary:
        return LookAhead(problem, weights, found.ahead, pay, steps)
    values, number = found.ahead, criterion.num_layers
    nothing = np.zeros_like(values[:, 0])
    return TimeVaryingPolicy(
        [
            LookAhead(
                problem, weights, values[:, t + steps] if t + steps < number else nothing, pay, min(steps, number - t)
            )
            for t in range(number)
        ]
    )


class LookAhead(ExchangeablePolicy):
    """Solves a linear program over the next steps, and does the first of them."""

    kind = "lp-update"
    decides = "by a linear program over the next steps"
    deterministic = True

    def __init__(self, problem: CoupledMDP, weights: Floats, ahead: Floats, pay: Floats, steps: int) -> None:
        """Check the size; `look_ahead` makes the tables from a relaxation.

        Args:
            problem: the problem.
            weights: (type,) weights of arms' values in the welfare.
            ahead: (type, state) values after the last step.
            pay: (type,) value of being served in itself.
            steps: number of steps ahead.
        """
        self.problem, self.weights, self.ahead, self.pay, self.steps = problem, weights, ahead, pay, steps
        self._known: dict[bytes, Ints] = {}
        self._lock = Lock()
        if self.num_columns > 100_000:
            raise TooLargeError(
                f"a look-ahead of {steps} steps has {self.num_columns} columns; at most 100000 are solved per step. "
                "Look ahead over fewer steps, group similar arms into types, or use fair-index."
            )

    @property
    def num_columns(self) -> int:
        """Number of columns of the program."""
        return self.steps * int(np.count_nonzero(self.problem.types.valid))

    @property
    def num_solved(self) -> int:
        """Number of count vectors whose program was solved and is remembered."""
        return len(self._known)

    @property
    def decision_cost(self) -> float:
        """Cost of a program; it grows with the power 1.5 of its size, as measured."""
        return float(3.0 * self.num_columns**1.5)

    def to_arrays(self) -> dict[str, Array]:
        """Return weights, values and number of steps."""
        return {"weights": self.weights, "ahead": self.ahead, "pay": self.pay, "steps": np.array(self.steps)}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "LookAhead":
        """Return the policy of these arrays."""
        check_arrays(arrays, weights="f1", ahead="f2", pay="f1", steps="iu0")
        weights, ahead, pay = arrays["weights"], arrays["ahead"], arrays["pay"]
        fits = weights.shape == pay.shape == (problem.num_types,) and ahead.shape == problem.types.valid.shape[:2]
        if (
            not fits
            or not all(np.isfinite(array).all() for array in arrays.values())
            or not 1 <= arrays["steps"] <= 10**4
        ):
            raise PolicyError("its weights and values do not fit the problem, or are not finite")
        return cls(problem, weights, ahead, pay, int(arrays["steps"]))

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "LookAhead":
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        rows = matched_types(self.problem, problem, types)
        ahead = self.ahead[rows][:, : problem.types.valid.shape[1]]
        return LookAhead(problem, self.weights[rows], ahead, self.pay[rows], self.steps)

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        if not isinstance(other, LookAhead) or self.steps != other.steps:
            return False
        pairs = (self.weights, other.weights), (self.ahead, other.ahead), (self.pay, other.pay)
        return all(np.array_equal(own, its) for own, its in pairs)

    def look_up(self, counts: Ints) -> Ints:
        """(episode, type, state, action) the rounded first step of the program, for each episode."""
        allocation = np.empty((*counts.shape, self.problem.types.valid.shape[2]), dtype=np.int64)
        for episode, own in enumerate(counts):
            key = own.tobytes()
            if (known := self._known.get(key)) is None:
                known = self._rounded(self._solve(own), own)
                if len(self._known) * known.nbytes > 2**27:
                    self._known.clear()
                self._known[key] = known
            allocation[episode] = known
        return allocation

    def _solve(self, counts: Ints) -> Floats:
        """(pair,) the first step of the program."""
        right = counts[self.problem.types.valid.any(axis=2)].astype(np.float64)
        with self._lock:
            return np.asarray(self._program.solve(right)[: self.num_columns // self.steps])

    @cached_property
    def _gains(self) -> Floats:
        """(type, state, action) weighted rewards."""
        types = self.problem.types
        return np.asarray(self.weights[:, None, None] * types.rewards + self.pay[:, None, None] * types.served)

    @property
    def _unit(self) -> float:
        """Largest gain, by which the program is divided: solvers have tolerances."""
        return float(max(np.abs(self._gains).max(), np.abs(self.ahead).max())) or 1.0

    @cached_property
    def _program(self) -> RepeatedProgram:
        types, problem, factor = self.problem.types, self.problem, self.problem.criterion.factor
        kind, state, action = np.nonzero(types.valid)
        pairs, real = np.arange(len(kind)), types.valid.any(axis=2)
        row_of = np.cumsum(real.reshape(-1)).reshape(real.shape) - 1
        following = types.transitions[kind, state, action]
        source, target = np.nonzero(following)
        leave = sparse.csr_array((np.ones(len(pairs)), (row_of[kind, state], pairs)))
        arrive = sparse.csr_array(
            (following[source, target], (row_of[kind[source], target], source)), shape=leave.shape
        )
        each, after = sparse.eye_array(self.steps), sparse.eye_array(self.steps, k=-1)
        use = sparse.kron(each, sparse.csr_array(types.usage[kind, state, action].T))
        matrix = sparse.vstack([sparse.kron(each, leave) - sparse.kron(after, arrive), use])
        gains = factor ** np.arange(self.steps)[:, None] * self._gains[types.valid]
        gains[-1] += factor**self.steps * (following * self.ahead[kind]).sum(axis=1)
        flows, limits = np.zeros(self.steps * leave.shape[0]), np.tile(problem.usable_budget, self.steps)
        program = LinearProgram(
            gains.reshape(-1) / self._unit,
            sparse.csr_array(matrix),
            np.concatenate([flows, np.where(np.tile(problem.spends_all, self.steps), limits, -np.inf)]),
            np.concatenate([flows, limits]),
        )
        counts = (problem.type_counts[:, None] * types.initial)[real]
        found = RepeatedProgram(program, counts, num_count_states(problem) > FEW)
        if problem.criterion.is_stationary:  # arms are seldom where they start: begin near where the program leads them
            for _ in range(2):
                counts = arrive @ found.start_at(np.asarray(counts))[-len(pairs) :]
            found.start_at(np.asarray(counts))
        return found

    def _rounded(self, amounts: Floats, counts: Ints) -> Ints:
        """(type, state, action) whole numbers of arms, the largest remainders first, within the budget."""
        from evenhand.kernels.rounding import round_within

        types, problem = self.problem.types, self.problem
        shares = np.zeros(types.valid.shape)
        shares[types.valid] = np.round(np.maximum(amounts, 0.0), 7)
        rest = (shares % 1).reshape(-1)
        order = np.argsort(-rest, kind="stable")[: np.count_nonzero(rest)]
        limits = problem.budget_limit, self._services, self._units, problem.least_use
        return np.asarray(round_within(shares, order, counts, types.idle, types.usage, *limits))

    @cached_property
    def _gain_of_service(self) -> Floats:
        """(type, state, action) gain of a free service over idling; 0 for invalid actions."""
        types = self.problem.types
        worth = self._gains + self.problem.criterion.factor * np.einsum("tsaj,tj->tsa", types.transitions, self.ahead)
        return np.where(types.valid, worth - np.take_along_axis(worth, types.idle[..., None], axis=2), 0.0)

    @cached_property
    def _services(self) -> Ints:
        """(cell, 3) types, states and actions of services that gain over idling, the largest gains first."""
        gain = self._gain_of_service
        cells = np.argwhere(self.problem.types.served & (gain > 1e-9 * self._unit))
        return cells[np.argsort(-gain[tuple(cells.T)], kind="stable")]

    @cached_property
    def _units(self) -> Ints:
        """(cell, 4) types, states, actions and resources that use one unit of what must be spent, the best first."""
        types, must = self.problem.types, self.problem.spends_all
        own = types.usage[..., must]
        least = np.where(types.valid[..., None] & (own > 0), own, np.inf).min(axis=(0, 1, 2))
        single = types.valid & (own == least).any(axis=-1) & ((types.usage > 0).sum(axis=-1) == 1)
        cells = np.column_stack([np.argwhere(single), types.usage[single].argmax(axis=-1)])
        return cells[np.argsort(-self._gain_of_service[single], kind="stable")]

    @cached_property
    def _ranks(self) -> Indices:
        """(type, state, action) ranks of services by their gain per share of the budget; -1 if they gain nothing."""
        types, there = self.problem.types, np.where(self.problem.budget > 0, self.problem.budget, np.inf)
        services = types.served & types.valid
        share = np.where(services, (types.usage / there).max(axis=-1), 1.0)
        worth = np.where(
            services, np.round(self._gain_of_service / self._unit / np.where(share > 0, share, np.inf), 9), 0.0
        )
        levels = np.unique(-worth[worth > 0])
        return np.where(worth > 0, np.searchsorted(levels, -worth), -1).astype(np.int32)

    def ranks_at(self, decision: DecisionStep) -> Indices:
        """(arm, action) ranks among waiting arms; the program alone decides on those that are served."""
        ranks = self._ranks[decision.types, decision.states]
        return np.where(decision.served[:, None], np.int32(-1), ranks)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the program and the lock, which each process makes for itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_program", "_lock", "_known")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the policy without its solved programs."""
        vars(self).update(state, _known={}, _lock=Lock())
