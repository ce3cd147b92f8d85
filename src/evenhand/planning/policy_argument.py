"""The argument `policy`: a name, the file of a saved policy, or a policy itself.

evaluate(problem, "oldest-first")              a name of the registry, or the paper's abbreviation
evaluate(problem, "plan.zip")                  a file that `save_policy`, `save_solution` or `train` wrote
evaluate(problem, policy)                      anything that acts; a Solution or a Training stands for its policy
compare(problem, ["whittle", "plan.zip", mine])    all of them side by side
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from evenhand import evaluation
from evenhand.errors import Fault, InvalidInputError, ModelError, PolicyError
from evenhand.model.criterion import Criterion
from evenhand.model.parquet import StoredArms
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.simulator import Problem, check_problem
from evenhand.model.welfare import Welfare
from evenhand.planning.plan import load_policy
from evenhand.planning.policy_registry import REGISTRY, NamedPolicy, find_policy, is_file
from evenhand.policies.resize import fitted

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class HasPolicy(Protocol):
    """A result of `solve` or `train`."""

    @property
    def policy(self) -> Policy | StatefulPolicy:
        """The policy."""
        ...


Chosen: TypeAlias = str | PathLike[str] | Policy | StatefulPolicy | HasPolicy
"""A name, a file, a policy, or what has one."""

Several: TypeAlias = Chosen | Iterable[Chosen] | Mapping[str, Chosen]
"""One, several, or some under names of one's own."""


def read_policy(policy: Chosen, problem: Problem, welfare: str | Welfare | None) -> Policy | StatefulPolicy:
    """Return the policy of an argument, for a problem.

    Args:
        policy: a name, a file, a policy, or what has one.
        problem: what it is for, under its criterion.
        welfare: welfare for which named policies are made; by default the problem's own.

    Raises:
        UnknownNameError: no policy has this name.
        PolicyError: it is not a policy, its file is not sound, or it was made for other arms.
        NotApplicableError: the policy of this name cannot treat this problem.
    """
    found = _find(policy, problem)
    return found.build(problem, welfare) if isinstance(found, NamedPolicy) else fitted(found, problem)


def read_policies(policies: "Several | None", problem: Problem) -> dict[str, NamedPolicy | Policy | StatefulPolicy]:
    """Return policies by the names of a comparison; named policies as their registry entries.

    Args:
        policies: one, several, or some under names of one's own; None for all that have a name, but the optimal one.
        problem: what files are read for.

    Raises:
        ModelError: some are not policies; lists all of them.
    """
    if policies is None:
        # The optimal one may take hours: only by its name.
        return {entry.name: entry for entry in REGISTRY if entry.name != "optimal"}
    found: dict[str, NamedPolicy | Policy | StatefulPolicy] = {}
    wrong: list[tuple[str | None, InvalidInputError]] = []
    # All are checked, so that every mistake is reported at once.
    for name, policy in _listed(policies):
        try:
            meant = _find(policy, problem)
        except InvalidInputError as error:
            wrong.append((name, error))
            continue
        if name is None and isinstance(meant, NamedPolicy):
            found[meant.name] = meant  # a repeated name is one row
        else:
            found[_another(_called(policy) if name is None else name, found)] = meant
    # A single mistake without a name is raised as it is.
    if len(wrong) == 1 and wrong[0][0] is None:
        raise wrong[0][1]
    if wrong:
        raise ModelError([Fault("" if name is None else repr(name), str(error)) for name, error in wrong], "policies")
    if not found:
        raise InvalidInputError("policies: expected at least one; leave it out to compare all that apply")
    return found


def _listed(policies: Several) -> list[tuple[str | None, Chosen]]:
    """The arguments, each with its name if it has one."""
    if isinstance(policies, Mapping):
        if strange := [name for name in policies if not isinstance(name, str)]:
            raise InvalidInputError(f"policies: expected texts as names, got {strange[0]!r}")
        return list(policies.items())
    # A text is iterable, and a policy may be: each is one all the same.
    if isinstance(policies, (str, PathLike)) or _is_one(policies) or not isinstance(policies, Iterable):
        return [(None, cast(Chosen, policies))]
    return [(None, policy) for policy in policies]


def _is_one(given: object) -> bool:
    return isinstance(given, (Policy, StatefulPolicy)) or isinstance(
        getattr(given, "policy", None), (Policy, StatefulPolicy)
    )


def _find(policy: Chosen, problem: Problem) -> NamedPolicy | Policy | StatefulPolicy:
    """An entry of the registry, or a policy."""
    # A file before a name: only what looks like a file is one (`is_file`).
    if isinstance(policy, PathLike) or (isinstance(policy, str) and is_file(policy)):
        return load_policy(Path(policy), problem)
    if isinstance(policy, str):
        return find_policy(policy)
    if isinstance(policy, type):
        raise PolicyError(f"policy: {policy.__name__} is a class; make an object of it")
    if isinstance(policy, (Policy, StatefulPolicy)):
        return policy
    # What `solve` and `train` return stands for its policy.
    inner = getattr(policy, "policy", None)
    if isinstance(inner, (Policy, StatefulPolicy)):
        return inner
    if callable(policy):
        raise PolicyError("policy: this is a function; policies.from_function(problem, function) makes a policy of it")
    raise PolicyError(
        f"policy: expected a name, a file or an object with a method act(states, rng), got {type(policy).__name__}; "
        "see check_policy"
    )


def _called(policy: Chosen) -> str:
    """Name of a policy that was given without one."""
    return str(Path(policy)) if isinstance(policy, (str, PathLike)) else type(policy).__name__


def _another(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with a number where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def _by_name(
    function: Callable[Concatenate[Problem, Policy | StatefulPolicy, Arguments], Result],
) -> Callable[Concatenate[Problem, Chosen, Arguments], Result]:
    """Extend a function of a problem and a policy to names and files of policies."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(problem: Problem, policy: Chosen, *arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        bound = signature.bind(problem, policy, *arguments, **keywords)
        bound.apply_defaults()
        if isinstance(problem, StoredArms):
            given = bound.arguments
            model = problem.with_criterion(given["criterion"], given["over"])
            if model.is_large:
                from evenhand.planning.stored_models import evaluate_stored

                report = given["progress"] if callable(given["progress"]) else None
                chosen = {name: given[name] for name in ("welfare", "num_episodes", "horizon", "rng", "backend")}
                return evaluate_stored(model, policy, progress=report, **chosen)
            return called(model.problem(), policy, *arguments, **keywords)
        check_problem(problem, f"{function.__name__}(problem, policy)")
        # Named policies are made for the criterion of the evaluation.
        evaluated = problem.with_criterion(bound.arguments["criterion"], bound.arguments["over"])
        actor = read_policy(policy, evaluated, bound.arguments["welfare"])
        return function(problem, actor, *arguments, **keywords)

    return called  # type: ignore[return-value]  # arguments may be given by name, too


def make_policy(
    problem: Problem,
    policy: Chosen,
    welfare: str | Welfare | None = None,
    criterion: str | Criterion | None = None,
    over: str | None = None,
) -> Policy | StatefulPolicy:
    """Return the policy of a name or a file.

    Args:
        problem: the problem.
        policy: a name, such as `fair-index`, `occupancy-priority`, `re-solving` or `optimal`; or the file of a saved
            policy. A policy, or a result that has one, is returned unchanged if it was made for these arms, else
            resized.
        welfare: welfare for which fair policies are made, as text or object; by default the problem's own.
        criterion: criterion, as text or object; by default the problem's own.
        over: members of the welfare, `arms` or `groups`; by default the problem's own.

    Raises:
        UnknownNameError: no policy has this name; says which there are.
        NotApplicableError: the policy of this name cannot treat this problem.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.make_policy(machines, "re-solving", "gini:2")
        >>> eh.simulate(machines, policy, num_episodes=10, horizon=50)
        Rollout(10 episodes of 50 steps)
    """
    check_problem(problem, "make_policy(problem, policy)")
    return read_policy(policy, problem.with_criterion(criterion, over), welfare)


evaluate = _by_name(evaluation.evaluate)
"""`evaluation.evaluate`, by name or file, too."""
