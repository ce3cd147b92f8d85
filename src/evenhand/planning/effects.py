"""Effects of actions in words: how many arms in 100 get better with an action, and how many without it.

A state is better than another if an arm on its own has more value there, with service free of charge; if that makes no
difference between states, if it is never served. Effects that mainly protect are stated by how many get worse.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from evenhand.model.coupled import CoupledMDP
from evenhand.model.labels import Labels
from evenhand.solvers.single_arm import action_values
from evenhand.typing import Floats, Indices, Ints


class ActionEffects:
    """Effects of the actions of a problem's types."""

    def __init__(self, problem: CoupledMDP, types: Sequence[int], enough: int = 10) -> None:
        """Compute the values of some types.

        Args:
            problem: the problem.
            types: numbers of the types whose effects are requested.
            enough: number of observations below which an effect is uncertain.
        """
        self.problem, self.labels, self.enough = problem, Labels(problem), enough
        self.place = {kind: place for place, kind in enumerate(sorted(set(types)))}
        self.values = _values(problem, np.array(sorted(self.place))) if self.place else np.zeros((0, 0))
        self.shares = cache(self._shares)

    def _shares(self, kind: int, state: int, action: int) -> tuple[str, float, float] | None:
        """`better` or `worse`, and the shares of arms that get so with an action and idle; None without an effect."""
        tables, worth = self.problem.types, self.values[self.place[kind]]
        size = int(tables.num_states[kind])
        scale = 1e-9 * max(float(np.abs(worth[:size]).max()), 1e-9)
        rows = tables.transitions[kind, state, [action, int(tables.idle[kind, state])], :size]
        up, down = (rows @ mask for mask in (worth[:size] > worth[state] + scale, worth[:size] < worth[state] - scale))
        gained, spared = up[0] - up[1], down[1] - down[0]
        if max(gained, spared) < 0.005:
            return None
        return ("better", float(up[0]), float(up[1])) if gained >= spared else ("worse", float(down[0]), float(down[1]))

    def help(self, kind: int, state: int, action: int) -> float:
        """Return the share of arms that an action helps, more than idling does; above 0 for every service."""
        found = self.shares(kind, state, action)
        served = 1e-6 * float(self.problem.types.served[kind, state, action])
        return served if found is None else served + abs(found[1] - found[2])

    def text(self, kind: int, state: int, action: int, observations: int | None = None) -> str:
        """Return the state, the effect of an action there, and the number of observations behind it.

        Args:
            kind: the type.
            state: the state.
            action: the action.
            observations: number of observed transitions of the type from this state with this action, if known.
        """
        labels, found = self.labels, self.shares(kind, state, action)
        named = labels.state(kind, state) if labels.state(kind, state) != str(state) else f"state {state}"
        if found is not None:
            how, share, without = found
            doing = labels.doing(kind, action)
            what = f"{doing} makes" if how == "better" else f"with {doing}"
            grows = "better" if how == "better" else "get worse"
            named = f"{named}; {what} {_in_100(share)} in 100 {grows} ({_in_100(without)} without)"
        if observations is None:
            return named
        if observations == 0:
            return f"{named}, never observed"
        only = "only " if observations < self.enough else ""
        return f"{named}, based on {only}{observations} observation{'s' if observations != 1 else ''}"


def _in_100(share: float) -> str:
    rounded = round(100 * share)
    if rounded in (0, 100) and not (share < 1e-9 or share > 1 - 1e-9):
        return "fewer than 1" if rounded == 0 else "more than 99"
    return str(rounded)


def _values(problem: CoupledMDP, kinds: Ints) -> Floats:
    """(type, state) values of arms on their own."""
    tables, criterion = problem.types.select(kinds), problem.criterion
    free = action_values(tables, np.ones(len(kinds)), np.zeros(problem.num_resources), criterion).max(axis=-1)
    dear = action_values(tables, np.ones(len(kinds)), np.full(problem.num_resources, 1e9), criterion).max(axis=-1)
    found, idle = (one if criterion.is_stationary else one[:, 0] for one in (free, dear))
    real = np.arange(found.shape[1]) < tables.num_states[:, None]
    spread = np.where(real, found, -np.inf).max(axis=1) - np.where(real, found, np.inf).min(axis=1)
    alike = spread <= 1e-9 * np.maximum(np.abs(found).max(axis=1), 1e-9)
    return np.asarray(np.where(alike[:, None], idle, found))


def longest_first(effects: ActionEffects, kinds: Indices, states: Indices, actions: Indices, waits: Ints) -> Indices:
    """Exchange actions among arms of one type and state: the longest wait, the most help.

    Nothing else changes: numbers of actions, use of the budget, and values of arms that are alike.

    Args:
        effects: of these types.
        kinds: (arm,) types.
        states: (..., arm) states.
        actions: (..., arm) actions of a policy.
        waits: (wait, ..., arm) waiting times, the most important first.
    """
    shape = effects.problem.types.valid.shape
    cells = np.asarray(kinds, dtype=np.int64) * shape[1] + states
    used, own = np.unique(cells * shape[2] + actions, return_inverse=True)
    helped = -np.array([effects.help(*map(int, np.unravel_index(code, shape))) for code in used])[
        own.reshape(cells.shape)
    ]
    # Arms that wait equally long stay as the policy has them.
    order, given = np.lexsort((helped, *-waits[::-1], cells)), np.empty_like(actions)
    np.put_along_axis(given, order, np.take_along_axis(actions, np.lexsort((helped, cells)), -1), -1)
    return given
