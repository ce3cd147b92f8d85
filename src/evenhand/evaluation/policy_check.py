"""A checker that authors of policies can run on their own."""

import contextlib
import copy
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.checks import as_generator
from evenhand.errors import NotApplicableError, PolicyError, TooLargeError
from evenhand.evaluation.count_simulation import checked_allocation
from evenhand.evaluation.rollout import simulate
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.stepping import first_states
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Finite
from evenhand.model.explanations import DecisionStep
from evenhand.model.policy import (
    Exchangeable,
    HasAllocationDistribution,
    Policy,
    Remembers,
    Resuming,
    Savable,
    StatefulPolicy,
    begin,
    capabilities,
    check_actions,
    check_budget,
    checked_shape,
)
from evenhand.model.simulator import Problem, Simulator, check_problem
from evenhand.solvers.counts.reduction import count_states
from evenhand.typing import Indices, Ints, Rng

BATCHES = (1, 2, 7, 100)
"""Numbers of episodes tried."""


def check_policy(problem: Problem, policy: Policy | StatefulPolicy, rng: Rng = 0) -> None:
    """Try a policy on a problem and raise PolicyError with everything that is wrong with it.

    Checked: it acts (or starts an actor that does); actions have the shape of the states, exist, and respect the
    budget, in batches of several sizes, in random states and in states reached by acting; the same seed gives the
    same actions; the states it was given are left as they were. If it also allocates by counts, allocations treat
    every arm once and respect the budget, and any seed gives the same if it is stated to be deterministic; if their
    distribution is known, it sums to one over feasible allocations. If it resumes, it continues from its memory as if
    it had not been interrupted. If it can be saved, resized or explained, it acts alike when it is restored, acts for
    one arm more of each block, and gives a text per arm.

    Args:
        problem: the problem, or a simulator.
        policy: the policy.
        rng: seed or generator of the states that are tried.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.check_policy(problem, eh.policies.worst_first(problem))
        >>> class ServeAll:
        ...     def act(self, states, rng):
        ...         return states * 0 + 1
        >>> eh.check_policy(problem, ServeAll())
        Traceback (most recent call last):
            ...
        evenhand.errors.PolicyError: the policy breaks the rules:
          batch of 1: step 0, episode 0: the policy used 3 of resource 0, whose budget is 1
          ...
    """
    check_problem(problem, "check_policy(problem, policy)")
    generator = as_generator(rng)
    faults: list[str] = []
    can = capabilities(policy)
    if can.acts is None and can.starts is None:
        raise PolicyError("a policy needs a method act(states, rng), or start(num_episodes, rng) that returns an actor")
    # Sizes of batches matter: code that forgets the first axis works with one episode.
    for size in BATCHES:
        for states in _trial_states(problem, size, generator):
            _attempt(faults, f"batch of {size}", _try_acting, policy, problem, states)
            if can.allocates is not None:
                counts = count_states(problem, states)
                _attempt(faults, f"batch of {size}", _try_allocating, can.allocates, problem, counts, can.deterministic)
    # Then states as they come by acting, not by drawing.
    short, seed = problem.with_criterion(Finite(25, problem.discount)), int(generator.integers(2**63))
    _attempt(faults, "played", simulate, short, policy, 3, None, seed)
    if can.starts is not None and can.resumes is not None:
        _attempt(faults, "resumed", _try_resuming, can.starts, can.resumes, _trial_states(problem, 4, generator))
    if can.law is not None:
        for states in _trial_states(problem, 5, generator):
            for counts in count_states(problem, states):
                _attempt(faults, "allocation_distribution", _try_law, can.law, problem, counts)
    if isinstance(problem, CoupledMDP):
        states = _trial_states(problem, 3, generator)[1]
        if can.saves is not None and not hasattr(policy, "parts"):  # a composite is restored from its parts
            _attempt(faults, "saved", _try_saving, policy, can.saves, problem, states)
        if hasattr(policy, "resized"):
            _attempt(faults, "resized", _try_resizing, policy, problem, generator)
        if hasattr(policy, "explain"):
            _attempt(faults, "explained", _try_explaining, policy, problem, states[:1])
    if faults:
        # The same fault in several batches is reported once.
        raise PolicyError("the policy breaks the rules:\n" + "\n".join(f"  {fault}" for fault in dict.fromkeys(faults)))


def _trial_states(problem: Problem, size: int, rng: np.random.Generator) -> list[Indices]:
    """Likely states, any states, and every arm in the same state."""
    kinds = problem.type_of_arm
    sizes = problem.types.num_states[kinds]
    if isinstance(problem, Simulator):
        likely = problem.begin(size * problem.num_arms, rng).reshape(size, problem.num_arms)
    else:
        likely = first_states(kinds, problem.types.cumulative_initial, draw_keys(rng, 1)[0], 0, size)
    anything = rng.integers(0, sizes, size=(size, problem.num_arms)).astype(np.int32)
    # All arms in one state, as far as each has it: crowds and empty states are where allocations go wrong.
    same = np.minimum(rng.integers(0, sizes.max(), size=(size, 1)), sizes - 1).astype(np.int32)
    return [likely, anything, same]


def _attempt(faults: list[str], where: str, check, *arguments) -> None:  # type: ignore[no-untyped-def]
    try:
        with contextlib.suppress(TooLargeError, NotApplicableError):  # to decline is within the rules
            check(*arguments)
    except PolicyError as error:
        faults.append(f"{where}: {error}")
    except Exception as error:  # noqa: BLE001  # the policy is a stranger's: whatever it raises is a finding
        faults.append(f"{where}: raised {type(error).__name__}: {error}")


def _try_acting(policy: Policy | StatefulPolicy, problem: Problem, states: Indices) -> None:
    given = states.copy()
    # Twice with the same seed, on the same array: it must neither draw elsewhere nor write into it.
    streams = [np.random.default_rng(1) for _ in range(2)]
    seen = [checked_shape(begin(policy, len(given), rng).act(given, rng), given) for rng in streams]
    if not np.array_equal(given, states):
        raise PolicyError("act changed the states it was given")
    if not np.array_equal(seen[0], seen[1]):
        raise PolicyError("the same seed gave different actions")
    check_actions(problem, states, seen[0])


def _try_saving(policy: Policy | StatefulPolicy, saves: Savable, problem: CoupledMDP, states: Indices) -> None:
    """What is restored from its arrays acts as the policy itself."""
    if not isinstance(saves.kind, str) or not hasattr(policy, "from_arrays"):
        raise PolicyError("it has kind and to_arrays(); it also needs a text `kind`, and from_arrays(problem, arrays)")
    arrays = {name: np.asarray(array) for name, array in saves.to_arrays().items()}
    both = (policy, type(policy).from_arrays(problem, arrays))
    streams = [np.random.default_rng(1) for _ in both]
    seen = [begin(one, len(states), rng).act(states.copy(), rng) for one, rng in zip(both, streams, strict=True)]
    if not np.array_equal(seen[0], seen[1]):
        raise PolicyError("what from_arrays(problem, to_arrays()) restores acts in another way")


def _try_resizing(policy: Any, problem: CoupledMDP, rng: np.random.Generator) -> None:
    """The policy for one arm more of each block acts on them."""
    other = replace(problem, counts=problem.counts + 1, arm_names=())
    resized = policy.resized(other, list(range(other.num_types)))
    for states in _trial_states(other, 3, rng):
        _try_acting(resized, other, states)


def _try_explaining(policy: Any, problem: CoupledMDP, states: Indices) -> None:
    """It explains a decision by a text per arm."""
    rng = np.random.default_rng(1)
    before, actor = copy.deepcopy(rng), begin(policy, 1, rng)
    actions = actor.act(states.copy(), rng)
    reasons = policy.explain(DecisionStep(problem, states[0], actions[0], 0, "", before, actor))
    if len(reasons) != problem.num_arms or not all(isinstance(reason, str) for reason in reasons):
        raise PolicyError(f"explain: expected a list of {problem.num_arms} texts, one per arm, got {reasons!r:.60}")


def _try_resuming(starts: StatefulPolicy, resumes: Resuming, trials: list[Indices]) -> None:
    """Before each of a few steps, an actor made of what was remembered acts as the one that remembers."""
    rng = np.random.default_rng(1)
    actor = starts.start(len(trials[0]), rng)
    # Several steps, each from the memory before it: what goes wrong may show only after a while.
    for states in trials * 3:
        if not isinstance(actor, Remembers):
            raise PolicyError("it has resume(memory), and the actors it starts have no memory()")
        # The generator is not part of a memory, so both get the same.
        again, same = resumes.resume(actor.memory()), copy.deepcopy(rng)
        if not np.array_equal(actor.act(states.copy(), rng), again.act(states.copy(), same)):
            raise PolicyError("it continues differently from its own memory")


def _try_allocating(policy: Exchangeable, problem: Problem, counts: Ints, deterministic: bool) -> None:
    seen = [
        checked_allocation(problem, policy.allocate(counts.copy(), np.random.default_rng(seed)), counts)
        # Two equal seeds, and another one.
        for seed in (1, 1, 2)
    ]
    if not np.array_equal(seen[0], seen[1]):
        raise PolicyError("the same seed gave different allocations")
    if deterministic and not np.array_equal(seen[0], seen[2]):
        raise PolicyError("it says that it is deterministic, but another seed gave another allocation")
    check_budget(problem, np.einsum("etsa,tsak->ek", seen[0], problem.types.usage), 0)


def _try_law(policy: HasAllocationDistribution, problem: Problem, counts: Ints) -> None:
    allocations, probabilities = policy.allocation_distribution(counts)
    checked_allocation(problem, allocations, np.repeat(counts[None], len(allocations), axis=0))
    check_budget(problem, np.einsum("etsa,tsak->ek", allocations, problem.types.usage), 0)
    if not ((probabilities >= 0).all() and abs(probabilities.sum() - 1) <= 1e-9):
        raise PolicyError("allocation_distribution: probabilities must not be negative and must sum to 1")
