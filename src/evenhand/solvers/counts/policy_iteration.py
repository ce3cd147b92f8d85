"""Modified policy iteration and backward induction on counts of identical arms.

    discounted, average   modified policy iteration: each round improves the policy once, then applies its operator
                          until the change d is a tenth as wide
    finite:T              backward induction, V_t = T V_{t+1} from V_T = 0: one sweep a step, and nothing to iterate

`evaluation` applies a policy's operator.
"""

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from evenhand.checks import check_shape
from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.kernels.lattice import interpolate
from evenhand.solvers.counts.bounds import Bounds, Certifier, certify_counts
from evenhand.solvers.counts.evaluation import Patience, advance, apply_policy, extremes
from evenhand.solvers.counts.optimum import CountOptimum
from evenhand.solvers.counts.plan import CountPlan
from evenhand.solvers.counts.post_decision import surely_one_long_run
from evenhand.typing import Array, Floats

Progress = Callable[[int, float], None]
"""Called with the number of a round and the relative gap; of a finite horizon, with the share of steps to go."""

_SHRINK = 0.1
"""Width of the change after policy evaluation, as a share of the width before it."""

_MOST_ROUNDS = 1000
"""Largest number of policy improvements."""

_COARSER, _COARSE_TOLERANCE = 4, 1e-3
"""Divisor of the number of arms in the coarse problem, and the relative gap of its solution."""

COARSE_FROM = 3000
"""Count states from which the program starts from that of fewer arms: it saves half of the time or more."""


def solve_counts(
    plan: CountPlan,
    initial: Floats,
    tolerance: float = 1e-7,
    progress: Progress | None = None,
    most_rounds: int = _MOST_ROUNDS,
) -> CountOptimum:
    """The best mean value of identical arms that share a budget.

    Args:
        plan: the problem, planned (`plan_counts`).
        initial: (state,) law of an arm's first state.
        tolerance: how far apart the bounds may be at the end, relative to the value. A finite horizon ends as close as
            rounding allows.
        progress: called after each round with its number and the relative gap; of a finite horizon, after each step,
            with the share of steps to go.
        most_rounds: when to give up (NotConvergedError).

    Raises:
        TooLargeError: it would not fit.
        NotApplicableError: under the criterion average, if the best mean depends on where the arms start.
    """
    check_shape(initial, {"state": plan.slots.num_states}, "initial")
    plan.check_solving()
    certifier = certify_counts(plan.outcomes, plan.criterion, plan.pay.most, initial)
    if plan.criterion.num_steps is not None:
        return _induce_backward(plan, certifier, plan.criterion.num_steps, progress)
    return _iterate(plan, certifier, _start(plan, initial), tolerance, progress, most_rounds)


def _start(plan: CountPlan, initial: Floats) -> Floats:
    """(count state,) the value function of a quarter of the arms at the same proportions, if there are many states."""
    if plan.num_points >= COARSE_FROM and plan.slots.num_arms >= 10 * _COARSER:
        # A quarter of the budget may be too small for a unique long run.
        with suppress(NotApplicableError, NotConvergedError):
            coarse = solve_counts(plan.with_fewer_arms(_COARSER), initial, _COARSE_TOLERANCE)
            return interpolate(coarse.value_function, coarse.num_arms, plan.outcomes.points.astype(np.int64))
    return np.zeros(plan.num_points)


# -- endless: modified policy iteration ------------------------------------------------------------------------------


def _iterate(
    plan: CountPlan,
    certifier: Certifier,
    value: Floats,
    tolerance: float,
    progress: Progress | None,
    most_rounds: int,
) -> CountOptimum:
    """Modified policy iteration from a first guess of the value function."""
    criterion, outcomes = plan.criterion, plan.outcomes
    base_rewards = outcomes.points @ plan.pay.base
    patience = Patience(criterion, surely_one_long_run(plan.arm))
    for number in range(1, most_rounds + 1):
        # Improve: T V over all allocations, the policy that is greedy in V, and what T V - V proves.
        best, choice = plan.chooser.improve(criterion.factor * outcomes.expect(value))
        improved = base_rewards + best
        least, most = extremes(improved - value)
        bounds = certifier.bound(value, improved, least, most)
        value = advance(criterion, value, improved, least, most)
        if progress is not None:
            progress(number, bounds.gap)
        if bounds.close(tolerance):
            return _found(plan, bounds, choice.amounts.astype(plan.choices_type), value, number)
        # Sweep: the greedy policy's own operator is much cheaper than the maximum over all.
        patience.note(most - least, bounds)
        follow = outcomes.follow(choice.targets)
        value = apply_policy(certifier, follow, base_rewards + choice.gains, value, _SHRINK * (most - least))
    raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g} after {most_rounds} rounds")


# -- finite: backward induction --------------------------------------------------------------------------------------


def _induce_backward(plan: CountPlan, certifier: Certifier, num_steps: int, progress: Progress | None) -> CountOptimum:
    """The best choices of the last step, of the one before it, and so on."""
    outcomes, factor = plan.outcomes, plan.criterion.factor
    base_rewards = outcomes.points @ plan.pay.base
    choices: Array = np.empty((num_steps, plan.num_points, len(plan.slots.cells)), dtype=plan.choices_type)
    value, slack = np.zeros(plan.num_points), 0.0
    for done, step in enumerate(reversed(range(num_steps)), start=1):
        # e_t = e(V_{t+1}) + gamma e_{t+1}: this step's own rounding, and what the later ones left (`bounds`).
        slack = certifier.step_error(value) + factor * slack
        best, choice = plan.chooser.improve(factor * outcomes.expect(value))
        value = base_rewards + best
        choices[step] = choice.amounts
        if progress is not None:
            progress(done, 1 - done / num_steps)
    return _found(plan, certifier.settle(value, slack), choices, value, num_steps)


def _found(plan: CountPlan, bounds: Bounds, choices: Array, value: Floats, rounds: int) -> CountOptimum:
    return CountOptimum(
        lower_bound=bounds.low,
        upper_bound=bounds.high,
        cells=plan.slots.cells,
        base=plan.slots.base,
        choices=choices,
        value_function=value,
        num_arms=plan.slots.num_arms,
        num_actions=plan.slots.num_actions,
        rounds=rounds,
    )
