"""What activity is worth to two-action arms, by the policies that Whittle indices are made of.

The policies that a sweep over all charges meets (`solvers.whittle`) are the vertices of the frontier of value against
use from an initial law, and the charge at which one gives way to the next is the slope between them, whether or not the
arm is indexable (a linear program over occupancies with one price). It is concave, from all-active, whose use is the
criterion's total (1/(1 - gamma), or 1 for an average), to all-passive, use 0. For a finite horizon it is that of the
arm unrolled in time, O(T^3 S^3). The sweep gives policies and charges; what they use and are worth is solved here,
policy by policy.

Nothing in the library needs it: `solvers.frontiers` traces frontiers for any actions. Here it checks both.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.errors import NotApplicableError
from evenhand.model import ArmTables, Criterion
from evenhand.solvers import whittle
from evenhand.typing import ArrayLike, Bools, Floats, Indices, Ints


@dataclass(frozen=True)
class ActivityFrontiers:
    """What activity is worth to each arm: vertices of concave curves, arm after arm."""

    offsets: Ints
    """(arm + 1,) vertices of an arm are offsets[arm] to offsets[arm + 1]; use falls along them."""

    uses: Floats
    """(vertex,) active steps, weighed by the criterion: a discounted number, or a share of time."""

    values: Floats
    """(vertex,) rewards, the best with that use; charges are not counted."""

    charges: Floats
    """(vertex,) from this charge on the vertex is optimal, to the charge of the next; -inf for the first.

    Equals the slope between the vertex and the one before, unless both have the same use.
    """

    switched: Indices
    """(vertex,) the state in which its policy differs from the one before; -1 for the first, active everywhere."""

    num_states: Ints
    """(arm,) states of the policies; for a finite horizon state s at step t is number t S + s."""

    def vertices(self, arm: int) -> slice:
        """Where the vertices of an arm are."""
        return slice(int(self.offsets[arm]), int(self.offsets[arm + 1]))

    def policies(self, arm: int) -> Bools:
        """(vertex, state) where each vertex of an arm is active."""
        switched = self.switched[self.vertices(arm)][1:]
        flips = np.zeros((len(switched) + 1, self.num_states[arm]), dtype=np.int64)
        flips[np.arange(1, len(flips)), switched] = 1
        return np.asarray(flips.cumsum(axis=0) % 2 == 0)


def value_frontiers(
    transitions: ArrayLike,
    rewards: ArrayLike,
    criterion: Criterion | float,
    initial: ArrayLike | None = None,
    num_states: ArrayLike | None = None,
) -> ActivityFrontiers:
    """The best value of every arm for each use.

    Args:
        transitions: (arm, state, action, next_state) probabilities; action 0 is passive, 1 active.
        rewards: (arm, state, action) rewards.
        criterion: what rewards over time are worth; a number is a discount.
        initial: (arm, state) laws of the first states; uniform when absent.
        num_states: (arm,) how many states are real, the first ones; all when absent.

    Raises:
        NotApplicableError: the mean of an arm over the long run depends on its start.
    """
    arms = whittle._Arms(transitions, rewards, criterion, num_states)
    arms.initial = arms.initial if initial is None else np.array(initial, dtype=np.float64)
    if arms.criterion.num_steps is not None:
        unroll(arms, arms.criterion.num_steps)
    met, refused = whittle._sweep(arms)
    for arm, why in refused.items():
        raise NotApplicableError(f"arm {arm}: {why}")
    filled = np.arange(met.charges.shape[1] + 1) <= met.num_pivots[:, None]
    frontiers = ActivityFrontiers(
        offsets=np.append(0, np.cumsum(met.num_pivots + 1)),
        uses=np.empty(filled.sum()),
        values=np.empty(filled.sum()),
        charges=np.insert(met.charges, 0, -np.inf, axis=1)[filled],
        switched=np.insert(met.switched, 0, -1, axis=1)[filled],
        num_states=arms.num_states,
    )
    for arm in range(len(arms.num_states)):
        at = frontiers.vertices(arm)
        frontiers.uses[at], frontiers.values[at] = worth(arms, arm, frontiers.policies(arm))
    return frontiers


def worth(arms: whittle._Arms, arm: int, policies: Bools) -> tuple[Floats, Floats]:
    """(vertex,) the use and the value of some policies of an arm, by their visits."""
    states, chosen = np.arange(policies.shape[1]), policies.astype(np.int64)
    number, factor = len(states), arms.criterion.factor
    systems = np.eye(number) - factor * arms.transitions[arm, states, chosen][..., :number]
    start = arms.initial[arm, :number]
    if arms.criterion.is_average:  # the stationary law: x (I - P) = 0 and x 1 = 1, added up
        systems, start = systems + 1.0, np.ones(number)
    visits = np.linalg.solve(systems.swapaxes(1, 2), np.broadcast_to(start[:, None], (len(chosen), number, 1)))[..., 0]
    return (visits * chosen).sum(axis=1), (visits * arms.rewards[arm, states, chosen]).sum(axis=1)


def unroll(arms: whittle._Arms, num_steps: int) -> None:
    """Put (step, state) in the place of the state."""
    number, most = arms.rewards.shape[:2]
    sizes, pairs = arms.num_states.astype(np.int32), np.full(number, 2, dtype=np.int32)
    tables = ArmTables(arms.transitions, arms.rewards, np.zeros((number, most, 2, 0)), arms.initial, sizes, pairs)
    longer = unrolled(tables, num_steps)
    arms.transitions, arms.rewards, arms.initial = longer.transitions, longer.rewards, longer.initial
    arms.num_states = longer.num_states.astype(np.int64)


def unrolled(tables, num_steps):
    """The same arms in time: state s at step t is number t S + s, S the arm's own number of states.

    After the last step nothing comes: its rows are 0. Labels are left out.

    Args:
        num_steps: number of steps.
    """
    number, S, A, K = (*tables.transitions.shape[:3], tables.usage.shape[3])
    # Room for the arm with the most states; one with fewer fills the beginning of its rows.
    wide = num_steps * S
    moves, rewards = np.zeros((number, wide, A, wide)), np.zeros((number, wide, A))
    usage, start = np.zeros((number, wide, A, K)), np.zeros((number, wide))
    # Arms of one size are filled together; there are few sizes and may be many arms.
    for own in np.unique(tables.num_states):
        rows = np.flatnonzero(tables.num_states == own)
        start[rows, :own] = tables.initial[rows, :own]
        for step in range(num_steps):
            now = slice(step * own, (step + 1) * own)
            rewards[rows, now], usage[rows, now] = tables.rewards[rows, :own], tables.usage[rows, :own]
            # The last step leads nowhere.
            if step + 1 < num_steps:
                moves[rows, now, :, now.stop : now.stop + own] = tables.transitions[rows, :own, :, :own]
    num_states = (tables.num_states * num_steps).astype(np.int32)
    return ArmTables(moves, rewards, usage, start, num_states, tables.num_actions)
