"""Protocols of policies: anything that acts on a batch, and its optional capabilities; and the contract of actions.

A policy needs one method, `act`; a stateful one may have `start` in its place, and those of the library have both.
All else is optional: shown by the methods it has, or stated by a class attribute if no method shows it. Only
`capabilities` tests for these:

    Capabilities    a policy has or states                and so
    acts            act(states, rng)                      it can be simulated; states and actions are (episode, arm)
    starts          start(num_episodes, rng)              it is stateful: each batch of episodes gets a fresh actor
    resumes         resume(memory)                        that memory can be saved and resumed (`stateful_policy`)
    allocates       allocate(counts, rng)                 it needs only how many arms of a type are in each state
    law             allocation_distribution(counts)       the distribution of its allocation is known: evaluated exactly
    table           reduction, probabilities              it is a table over the pairs of a space: exact there
    tabulates       on(space)                             it can be written as such a table
    exchangeable    allocates, `exchangeable = True`      arms of one type are alike to it, and have equal values
    by_counts       allocates, `plays_by_counts = True`   it, or the actors it starts, can be simulated by counts
    saves           `kind`, to_arrays()                   it can be saved
    deterministic   allocates and `deterministic = True`  its allocation is not drawn: all states are tabulated at once

`BasePolicy` is the base class of the library's policies: defaults for being resized and explained. Each of its methods
is optional for a policy of a user's own, and `described` supplies the defaults:

    resized(problem, types)   the same policy for other numbers of the same types of arms, or another budget
    explain(decision)         (arm,) the reason for each action
    ranks_at(decision)        (arm, action) ranks behind it, 0 first and -1 never
    service_order(step)       the conditions that it serves, the first first
    decides                   description of how it decides
    does_same(other)          True if another policy surely decides alike: `solve` then tries only one of them

A policy with a text `kind`, a method `to_arrays()` and a class method `from_arrays(problem, arrays)` can be saved.
The actions of a policy must be one for each arm, exist in its state, and be within the budget (`check_actions`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from evenhand.checks import plain
from evenhand.display import ShownPolicy
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Array, ArrayLike, Floats, Indices, Ints

if TYPE_CHECKING:
    from evenhand.model.explanations import DecisionStep, ServiceOrder


@runtime_checkable
class Policy(Protocol):
    """Chooses an action for every arm, in every episode of a batch.

    Example:
        >>> import evenhand as eh
        >>> class ReplaceFirst:
        ...     def act(self, states, rng):
        ...         actions = 0 * states
        ...         actions[:, 0] = 1
        ...         return actions
        >>> isinstance(ReplaceFirst(), eh.Policy)
        True
        >>> eh.check_policy(eh.problems.machine_replacement(num_arms=3), ReplaceFirst())
    """

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Choose actions.

        Args:
            states: (episode, arm) current states.
            rng: the policy's own stream.

        Returns:
            (episode, arm) actions that together respect the budget in every episode.
        """


@runtime_checkable
class StatefulPolicy(Protocol):
    """A stateful policy; each batch of episodes begins with a fresh actor."""

    def start(self, num_episodes: int, rng: np.random.Generator) -> Policy:
        """An actor for `num_episodes` episodes, at their first step."""


@runtime_checkable
class Remembers(Protocol):
    """An actor whose memory can be stored."""

    def memory(self) -> Mapping[str, ArrayLike]:
        """Arrays under names, for the `resume` of its policy; copies that do not change later."""


@runtime_checkable
class Resuming(Protocol):
    """A stateful policy that can continue from the memory of an actor; its actors have `memory()`."""

    def resume(self, memory: Mapping[str, ArrayLike]) -> Policy:
        """Return an actor that continues where the other one was.

        Args:
            memory: arrays under names, from `memory()` of an actor; or the same as lists.
        """


@runtime_checkable
class Exchangeable(Protocol):
    """A policy that treats arms of one type alike: who within a state gets an action is drawn uniformly."""

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Choose how many arms get each action.

        Args:
            counts: (episode, type, state) arms in each state.
            rng: the policy's own stream.

        Returns:
            (episode, type, state, action) numbers of arms, which sum to `counts` over actions.
        """


@runtime_checkable
class HasAllocationDistribution(Protocol):
    """An exchangeable policy whose allocation has a known distribution."""

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """Return the distribution of `allocate`.

        Args:
            counts: (type, state) arms in each state.

        Returns:
            (choice, type, state, action) possible allocations and their (choice,) probabilities.
        """


@runtime_checkable
class Savable(Protocol):
    """A policy that can be saved as arrays; its class restores it by `from_arrays`."""

    @property
    def kind(self) -> str:
        """Name of its class in files, such as `first-worn-out`."""

    def to_arrays(self) -> Mapping[str, Array]:
        """Return all that it consists of, beside the problem: arrays of numbers by name."""


@runtime_checkable
class SavableKind(Protocol):
    """Class of policies that can be saved."""

    kind: str
    """Name of the class in files."""

    def from_arrays(self, problem: CoupledMDP, arrays: dict[str, Array]) -> "Policy | StatefulPolicy":
        """Return the policy of these arrays; a class method.

        Args:
            problem: the problem that it was made for.
            arrays: the arrays of `to_arrays()`.
        """


class Space(Protocol):
    """A space that policies are tables over: a reduction of one problem."""

    @property
    def problem(self) -> CoupledMDP:
        """The problem that was reduced."""

    @property
    def mdp(self) -> TabularMDP:
        """The problem on this space; its pairs are the rows of a table."""

    @property
    def usage(self) -> Floats:
        """(pair, resource) use of each pair."""


@runtime_checkable
class Tabulated(Protocol):
    """A policy that is a table over the pairs of a space."""

    @property
    def reduction(self) -> Space:
        """The space."""

    @property
    def probabilities(self) -> Floats:
        """(pair,) probability of the action in its state."""


@runtime_checkable
class Tabulable(Protocol):
    """A policy on joint states that can be written as a table."""

    def on(self, space: Any) -> Tabulated:
        """The same policy as a table over the joint states of a problem."""


# -- all capabilities at once ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a policy; a missing method is None. The table at the top of this file says how they are found."""

    acts: Policy | None
    """It acts on the states of all arms."""

    starts: StatefulPolicy | None
    """It is stateful, and starts actors."""

    resumes: Resuming | None
    """It is stateful, and the memory of its actors can be saved and resumed."""

    allocates: Exchangeable | None
    """It says how many arms of a state get each action."""

    law: HasAllocationDistribution | None
    """The distribution of its allocation is known."""

    table: Tabulated | None
    """It is a table."""

    tabulates: Tabulable | None
    """It can be written as one."""

    saves: Savable | None
    """It can be saved."""

    exchangeable: bool
    """Arms of one type have equal values under it."""

    by_counts: bool
    """It, or the actors it starts, can be simulated by counts."""

    deterministic: bool
    """It allocates, and draws nothing to do so."""


def capabilities(policy: object) -> Capabilities:
    """Return the capabilities of a policy, by its methods and class attributes."""

    def says(fact: str) -> bool:
        # `is True`: a stand-in object that answers every attribute with something truthy says nothing.
        return getattr(policy, fact, False) is True

    # A policy that allocates by counts cannot distinguish equal arms, so it is exchangeable without stating so.
    allocates = policy if isinstance(policy, Exchangeable) else None
    by_counts = allocates is not None or says("plays_by_counts")
    return Capabilities(
        acts=policy if isinstance(policy, Policy) else None,
        starts=policy if isinstance(policy, StatefulPolicy) else None,
        # Without `start` no actor exists whose memory could be resumed.
        resumes=policy if isinstance(policy, StatefulPolicy) and isinstance(policy, Resuming) else None,
        allocates=allocates,
        law=policy if isinstance(policy, HasAllocationDistribution) else None,
        table=policy if isinstance(policy, Tabulated) else None,
        tabulates=policy if isinstance(policy, Tabulable) else None,
        saves=policy if isinstance(policy, Savable) else None,
        exchangeable=by_counts or says("exchangeable"),
        by_counts=by_counts,
        deterministic=allocates is not None and says("deterministic"),
    )


# -- short tests of capabilities -------------------------------------------------------------------------------------


def check_acts(policy: object, name: str = "policy") -> None:
    """Raise PolicyError for an argument that is not a policy; says what to do.

    Args:
        policy: the argument.
        name: the argument.
    """
    if isinstance(policy, (Policy, StatefulPolicy)) and not isinstance(policy, type):
        return
    kind = policy.__name__ if isinstance(policy, type) else type(policy).__name__
    hint = "see check_policy"
    if isinstance(policy, str):
        hint = f"make_policy(problem, {policy!r}) makes the policy of a name or file"
    elif isinstance(policy, type):
        hint = f"make an object of the class: {kind}(...)"
    elif isinstance(getattr(policy, "policy", None), (Policy, StatefulPolicy)):  # a result of `solve` or `train`
        hint = "its policy is its attribute `policy`"
    elif callable(policy):
        hint = "policies.from_function(problem, function) makes a policy of a function"
    raise PolicyError(f"{name}: expected an object with a method act(states, rng), got {kind}; {hint}")


def is_exchangeable(policy: object) -> bool:
    """True if arms of one type have equal values under the policy."""
    return capabilities(policy).exchangeable


def plays_by_counts(policy: object) -> bool:
    """True if the policy, or the actors it starts, can be simulated by counts."""
    return capabilities(policy).by_counts


def begin(policy: Policy | StatefulPolicy, num_episodes: int, rng: np.random.Generator) -> Policy:
    """Return the actor for a batch of episodes: a fresh one of a stateful policy, else the policy itself."""
    return policy.start(num_episodes, rng) if isinstance(policy, StatefulPolicy) else policy


# -- defaults of policies of the library -----------------------------------------------------------------------------


class BasePolicy(ShownPolicy):
    """Defaults of a policy that is neither resized nor has an order of service."""

    @property
    def _described(self) -> object:
        """The policy behind the defaults."""
        return self

    @property
    def decides(self) -> str:
        """Description of how it decides."""
        return f"by the rule of {type(self._described).__name__}"

    @property
    def depends_on_step(self) -> bool:
        """True if its decisions depend on the step, and not on the states alone."""
        problem = getattr(self._described, "problem", None)
        finite = isinstance(problem, CoupledMDP) and problem.criterion.num_steps is not None
        return finite and isinstance(self._described, StatefulPolicy)

    @property
    def decision_cost(self) -> float:
        """Cost of a decision that was not made before, in simulated steps of an arm; 0 if it is one of the arms."""
        return 0.0

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> Policy | StatefulPolicy:
        """Return the same policy for other numbers of the same types of arms.

        Args:
            problem: the other problem.
            types: (type,) the policy's type of each of the problem's types; matched by default.

        Raises:
            NotApplicableError: it is a table that has no entry for them.
        """
        raise NotApplicableError("the plan is only for the numbers of arms and the budget that it was made for")

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        return False

    def explain(self, decision: "DecisionStep") -> list[str]:
        """(arm,) the reason for each action."""
        name = type(self._described).__name__
        return decision.each(f"chosen by the policy ({name})", f"not chosen by the policy ({name})")

    def ranks_at(self, decision: "DecisionStep") -> Indices | None:
        """(arm, action) ranks behind a decision, 0 first and -1 never; None if there are none."""
        return None

    def service_order(self, step: int = 0) -> "ServiceOrder | None":
        """Return the conditions that it serves, the first first; None if it has no order of its own."""
        return None


class _Described(BasePolicy):
    """A user's own policy, with defaults for the methods that it lacks."""

    def __init__(self, policy: object) -> None:
        self.policy = policy
        for method in ("resized", "explain"):
            if hasattr(policy, method):
                setattr(self, method, getattr(policy, method))

    @property
    def _described(self) -> object:
        return self.policy


def described(policy: object) -> BasePolicy:
    """Return a policy with all methods of this module: itself, or with defaults if it is a user's own."""
    return policy if isinstance(policy, BasePolicy) else _Described(policy)


def check_arrays(arrays: Mapping[str, Array], *, optional: Sequence[str] = (), **expected: str) -> None:
    """Raise PolicyError if arrays have other names, types or numbers of axes than expected.

    Args:
        arrays: from a file.
        optional: names that may be missing.
        **expected: for each name the kinds of its dtype and its possible numbers of axes, such as `iu2` or `f12`.
    """
    if not set(expected) - set(optional) <= set(arrays) <= set(expected):
        raise PolicyError(f"it must have the arrays {', '.join(expected)}, and has {', '.join(sorted(arrays))}")
    for name, array in arrays.items():
        if array.dtype.kind not in expected[name] or str(array.ndim) not in expected[name]:
            raise PolicyError(f"its array {name} has an invalid type or shape")


# -- the contract of actions -----------------------------------------------------------------------------------------


def checked_shape(actions: Array, states: Indices, step: int | None = 0) -> Indices:
    """The actions as an array of indices, if they are one for each arm of each episode.

    Args:
        actions: result of a policy.
        states: (episode, arm) states for which it acted.
        step: the step, for messages; None if it is not known.
    """
    actions = np.asarray(actions)
    if actions.dtype == np.bool_:  # a mask of served arms is a natural result if there are two actions
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
    """Raise PolicyError if some action does not exist in its arm's state, or an episode exceeds the budget.

    Args:
        problem: the problem.
        states: (episode, arm) states.
        actions: (episode, arm) chosen actions.
        step: the step, for messages; None if it is not known.
    """
    kinds, types = problem.type_of_arm, problem.types
    if actions.min() < 0 or actions.max() >= types.real.shape[2] or not types.real[kinds, states, actions].all():
        raise PolicyError(missing_action(problem, states, actions, step))
    check_budget(problem, types.usage[kinds, states, actions].sum(axis=1), step)


def missing_action(problem: Problem, states: Indices, actions: Indices, step: int | None, first: int = 0) -> str:
    """Return the message for the first action that does not exist.

    Args:
        problem: the problem.
        states: (episode, arm) states.
        actions: (episode, arm) chosen actions.
        step: the step; None if it is not known.
        first: the number of the first episode.
    """
    known = problem.types.num_actions[problem.type_of_arm]
    episode, arm = (int(i) for i in np.argwhere((actions < 0) | (actions >= known))[0])
    return (
        f"{_when(step, first + episode, arm)}the policy chose action {actions[episode, arm]}, "
        f"which does not exist in state {states[episode, arm]} (there are 0 to {known[arm] - 1})"
    )


def check_budget(problem: Problem, spent: Floats, step: int | None, first: int = 0) -> None:
    """Raise PolicyError if some episode used more than there is, or less if all of it must be used.

    Args:
        problem: the problem.
        spent: (episode, resource) use.
        step: the step; None if it is not known.
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
    under = spent < problem.least_use * (1 - 1e-9)
    if under.any():
        episode, resource = (int(i) for i in np.argwhere(under)[0])
        raise PolicyError(
            f"{_when(step, first + episode)}the policy used {plain(spent[episode, resource])} of "
            f"{problem.resource_names[resource]}, of which all {plain(problem.budget[resource])} must be used"
        )


def service_limits(problem: Problem) -> tuple[Floats, Floats]:
    """(type, state, action, resource) usage and (resource,) limits by which greedy service spends what must be spent.

    With such budgets the arms that are not needed to spend them are one resource more: an action that uses no unit of
    these budgets takes one of these arms.

    Args:
        problem: the problem.
    """
    must, types = problem.spends_all, problem.types
    if not must.any():
        return types.usage, problem.budget_limit
    own = types.usage[..., must]
    unit = np.where(types.valid[..., None] & (own > 0), own, np.inf).min(axis=(0, 1, 2))
    takes = (own == 0).all(axis=-1, keepdims=True).astype(np.float64)
    spare = problem.num_arms - np.rint(problem.budget[must] / unit).sum()
    return np.concatenate([types.usage, takes], axis=-1), np.append(problem.budget_limit, spare)


def _when(step: int | None, episode: int | None = None, arm: int | None = None) -> str:
    """Beginning of a message: `step 3, episode 7: `."""
    places = (("step", step), ("episode", episode), ("arm", arm))
    texts = [f"{name} {number}" for name, number in places if number is not None]
    return f"{', '.join(texts)}: " if texts else ""
