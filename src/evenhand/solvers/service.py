"""Effect of service on single arms: reachable states, arms that can be served, and the gain of service.

Each arm is considered alone, with the whole budget. An action can be *afforded* in a state if what it
uses there is within the budget. A state is *reached* if some afforded actions lead there from the first states, under
`finite:T` within the T steps. With V the value from the first states, the gain of service is

    gain = max of V over policies of afforded actions  -  max of V over policies that use nothing,

the most that it can ever add to the arm's value. Where that is 0 no budget is well spent on the arm.

Values are exact but for rounding: policy iteration (`single_arm`) for discounted rewards, backward induction for a
finite horizon, and for the average policy iteration where the mean does not depend on the start. Where it does, the
linear program of Markov decision processes of several chains (Puterman, 9.3) has the best mean from the first states:

    minimise  mu.g    subject to    g(s) >= sum_s' p(s' | s, a) g(s')
                                    g(s) + h(s) >= r(s, a) + sum_s' p(s' | s, a) h(s')
"""

import numpy as np
from scipy import sparse

from evenhand.model.arm import ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.single_arm import SingleArms, are_communicating, gains_at
from evenhand.typing import Bools, Floats, Ints

MOST_STEPS = 20_000
"""Steps of the longest horizon over which values are found."""

MOST_PROGRAMS = 1000
"""Arms whose means are found by linear programs, one by one."""


# -- where an arm can get ---------------------------------------------------------------------------------------------


def reached(types: ArmTables, allowed: Bools, criterion: Criterion) -> Bools:
    """(type, state) which states are reached from the first ones.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen.
        criterion: its steps, if they end, are all there are.
    """
    # (type, state, next_state) where some allowed action may lead.
    edges = ((types.transitions > 0) & allowed[..., None]).any(axis=2)
    now = types.initial > 0
    # The reward of the last of T steps is earned after T - 1 moves; and S moves lead wherever any number of moves does.
    steps = types.rewards.shape[1] if criterion.is_stationary else criterion.num_layers - 1
    for _ in range(min(steps, types.rewards.shape[1])):
        now = now | (now[..., None] & edges).any(axis=1)
    return np.asarray(now)


# -- gain of service --------------------------------------------------------------------------------------------------


def worth_of_service(problem: CoupledMDP) -> Floats:
    """(type,) the most that service can add to the value of an arm; not a number where that is not known.

    Args:
        problem: the arms, under their criterion.
    """
    types, can = problem.types, problem.types.valid
    free = best_values(types, can, problem.criterion)
    # More actions never reduce the value, but for rounding.
    return np.asarray(np.maximum(free - best_values(types, can & ~types.served, problem.criterion), 0.0))


def best_values(
    types: ArmTables,
    allowed: Bools,
    criterion: Criterion,
    most_steps: int = MOST_STEPS,
    most_programs: int = MOST_PROGRAMS,
) -> Floats:
    """(type,) the value of the best policy of each arm from its first states; not a number where it is not known.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen; some action in every state.
        criterion: criterion of rewards over time.
        most_steps: steps of the longest horizon over which values are found.
        most_programs: arms whose means are found by linear programs, one by one.
    """
    if not criterion.is_stationary:
        return _backwards(types, allowed, criterion, most_steps)
    if criterion.contracts:
        return _by_iteration(types, allowed, criterion, np.arange(len(types)))
    return _best_means(types, allowed, criterion, most_programs)


def _by_iteration(types: ArmTables, allowed: Bools, criterion: Criterion, rows: Ints) -> Floats:
    gains = gains_at(types, np.ones(len(types)), np.zeros(types.usage.shape[-1]), criterion)
    arms = SingleArms(types, allowed, types.initial, criterion)
    # The bound is the value itself where policy iteration has ended.
    return arms.best(rows, gains[rows]).bound


def _backwards(types: ArmTables, allowed: Bools, criterion: Criterion, most_steps: int) -> Floats:
    """Backward induction that keeps no step but the last."""
    if criterion.num_layers > most_steps:
        return np.full(len(types), np.nan)
    real, values = allowed.any(axis=-1), np.zeros(types.rewards.shape[:2])
    for _ in range(criterion.num_layers):
        action_values = types.rewards + criterion.factor * np.einsum("tsaj,tj->tsa", types.transitions, values)
        values = np.where(real, np.where(allowed, action_values, -np.inf).max(axis=-1), 0.0)
    return np.asarray((types.initial * values).sum(axis=-1))


# -- average, if the mean may depend on the start ---------------------------------------------------------------------


def _best_means(types: ArmTables, allowed: Bools, criterion: Criterion, most_programs: int) -> Floats:
    simple = are_communicating(types, allowed)
    found = np.full(len(types), np.nan)
    rows = np.flatnonzero(simple)
    if len(rows):
        found[rows] = _by_iteration(types, allowed, criterion, rows)
    for row in np.flatnonzero(~simple)[:most_programs]:
        means, _ = best_chains(types, allowed, int(row))
        found[row] = float(types.initial[row, : len(means)] @ means)
    return found


def best_chains(types: ArmTables, allowed: Bools, row: int) -> tuple[Floats, Floats]:
    """(state,) the best means g and relative values h of one arm, by the program of several chains.

    They are what they should be where the arm can come from its first states.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen.
        row: which of the types it is.
    """
    from evenhand.solvers.highs import LinearProgram, solve_program  # few models need it

    size = int(types.num_states[row])
    # Rows, a pair each: g - P g >= 0, then g + h - P h >= r. Minimised, so gains are negative.
    states, actions = np.nonzero(allowed[row])
    flow = np.eye(size)[states] - types.transitions[row][states, actions, :size]
    away = np.hstack([flow, np.zeros_like(flow)])
    bias_rows = np.hstack([np.eye(size)[states], flow])
    program = LinearProgram(
        gains=np.concatenate([-types.initial[row, :size], np.zeros(size)]),
        matrix=sparse.csr_array(np.vstack([away, bias_rows])),
        row_lower=np.concatenate([np.zeros(len(states)), types.rewards[row][states, actions]]),
        lower=-np.inf,
    )
    found = solve_program(program).primal
    return found[:size], found[size:]
