"""Rules for the actions of a policy: an action for each arm, that exists in its state, within the budget."""

import numpy as np

from evenhand.checks import plain
from evenhand.errors import PolicyError
from evenhand.model.simulator import Problem
from evenhand.typing import Array, Floats, Indices


def checked_shape(actions: Array, states: Indices, step: int | None = 0) -> Indices:
    """The actions as an array of indices, if they are one for each arm of each episode.

    Args:
        actions: what a policy answered.
        states: (episode, arm) states for which it acted.
        step: the step, for messages; None if it is not known.
    """
    actions = np.asarray(actions)
    if actions.dtype == np.bool_:  # a mask of who is served is a natural answer where there are two actions
        actions = actions.astype(np.int32)
    if actions.shape != states.shape or actions.dtype.kind not in "iu":
        raise PolicyError(
            f"{_when(step)}act: expected whole numbers of shape (episode={states.shape[0]}, arm={states.shape[1]}), "
            f"got {actions.dtype} of shape {actions.shape}"
        )
    if actions.dtype.itemsize > 4:
        actions = np.clip(actions, -1, np.iinfo(np.int32).max)  # other numbers are not actions either
    return np.ascontiguousarray(actions, dtype=np.int32)


def check_actions(problem: Problem, states: Indices, actions: Indices, step: int | None = 0) -> None:
    """Raise PolicyError if some action does not exist in its arm's state, or an episode used more than there is.

    Args:
        problem: the problem.
        states: (episode, arm) where the arms are.
        actions: (episode, arm) what was chosen.
        step: the step, for messages; None if it is not known.
    """
    kinds, types = problem.type_of_arm, problem.types
    if actions.min() < 0 or actions.max() >= types.real.shape[2] or not types.real[kinds, states, actions].all():
        raise PolicyError(missing_action(problem, states, actions, step))
    check_budget(problem, types.usage[kinds, states, actions].sum(axis=1), step)


def missing_action(problem: Problem, states: Indices, actions: Indices, step: int | None, first: int = 0) -> str:
    """Words for the first action that does not exist.

    Args:
        problem: the problem.
        states: (episode, arm) where the arms are.
        actions: (episode, arm) what was chosen.
        step: when; None where that is not known.
        first: the number of the first episode.
    """
    known = problem.types.num_actions[problem.type_of_arm]
    episode, arm = (int(i) for i in np.argwhere((actions < 0) | (actions >= known))[0])
    return (
        f"{_when(step, first + episode, arm)}the policy chose action {actions[episode, arm]}, "
        f"which does not exist in state {states[episode, arm]} (there are 0 to {known[arm] - 1})"
    )


def check_budget(problem: Problem, spent: Floats, step: int | None, first: int = 0) -> None:
    """Raise PolicyError if some episode used more than there is.

    Args:
        problem: the problem.
        spent: (episode, resource) what was used.
        step: when; None where that is not known.
        first: the number of the first episode.
    """
    # Sums in another order may differ in the last bits from those the policy made.
    over = spent > problem.budget_limit * (1 + 1e-9)
    if over.any():
        episode, resource = (int(i) for i in np.argwhere(over)[0])
        raise PolicyError(
            f"{_when(step, first + episode)}the policy used {plain(spent[episode, resource])} of "
            f"{problem.resource_names[resource]}, whose budget is {plain(problem.budget[resource])}"
        )


def _when(step: int | None, episode: int | None = None, arm: int | None = None) -> str:
    """Beginning of a message: `step 3, episode 7: `."""
    places = (("step", step), ("episode", episode), ("arm", arm))
    texts = [f"{name} {number}" for name, number in places if number is not None]
    return f"{', '.join(texts)}: " if texts else ""
