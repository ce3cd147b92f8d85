"""Which policy is meant: by a name, by the file of a saved one, or the policy itself.

evaluate("oldest-first", problem)              a name of the roster, or the paper's abbreviation
evaluate("plan.zip", problem)                  a file that `save_policy`, `save_solution` or `train` wrote
evaluate(policy, problem)                      anything that acts; a Solution or a Training stands for its policy
compare(problem, ["whittle", "plan.zip", mine])    all of them side by side
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from evenhand import evaluation
from evenhand.errors import Fault, InvalidInput, ModelError, PolicyError
from evenhand.model.criterion import Criterion
from evenhand.model.parquet import StoredArms
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import Problem, check_problem
from evenhand.model.welfare import Welfare
from evenhand.planning.names import is_file
from evenhand.planning.roster import ROSTER, RosterEntry, find_policy
from evenhand.planning.saved import load_policy
from evenhand.policies.other_numbers import fitted

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class HasPolicy(Protocol):
    """What `solve` and `train` return."""

    @property
    def policy(self) -> Policy | Starting:
        """What acts."""
        ...


Chosen: TypeAlias = str | PathLike[str] | Policy | Starting | HasPolicy
"""A name, a file, a policy, or what has one."""

Several: TypeAlias = Chosen | Iterable[Chosen] | Mapping[str, Chosen]
"""One, several, or some under names of one's own."""


def read_policy(policy: Chosen, problem: Problem, welfare: str | Welfare | None) -> Policy | Starting:
    """The policy that is meant, for a problem.

    Args:
        policy: a name, a file, a policy, or what has one.
        problem: what it is for, under its criterion.
        welfare: what named policies are made for; the problem's own when absent.

    Raises:
        UnknownName: no policy has this name.
        PolicyError: it is not a policy, its file is not sound, or it was made for other arms.
        NotApplicable: the policy of this name cannot treat this problem.
    """
    found = _find(policy, problem)
    return found.build(problem, welfare) if isinstance(found, RosterEntry) else fitted(found, problem)


def read_policies(policies: "Several | None", problem: Problem) -> dict[str, RosterEntry | Policy | Starting]:
    """What is meant, under the names that a comparison shows; named policies as what makes them.

    Args:
        policies: one, several, or some under names of one's own; None for all that have a name, but the optimal one.
        problem: what files are read for.

    Raises:
        ModelError: some are no policies; all of them are told.
    """
    if policies is None:
        # The optimal one may take hours; it is asked for by name only.
        return {entry.name: entry for entry in ROSTER if entry.name != "optimal"}
    found: dict[str, RosterEntry | Policy | Starting] = {}
    wrong: list[tuple[str | None, InvalidInput]] = []
    # All are looked at, so that a user sees every mistake at once.
    for name, policy in _listed(policies):
        try:
            meant = _find(policy, problem)
        except InvalidInput as error:
            wrong.append((name, error))
            continue
        if name is None and isinstance(meant, RosterEntry):
            found[meant.name] = meant  # asked for twice, it is shown once
        else:
            found[_another(_called(policy) if name is None else name, found)] = meant
    # A single mistake without a name of its own is told as it is.
    if len(wrong) == 1 and wrong[0][0] is None:
        raise wrong[0][1]
    if wrong:
        raise ModelError([Fault("" if name is None else repr(name), str(error)) for name, error in wrong], "policies")
    if not found:
        raise InvalidInput("policies: expected at least one; leave it out to compare all that apply")
    return found


def _listed(policies: Several) -> list[tuple[str | None, Chosen]]:
    """What was given, each with its name if it has one."""
    if isinstance(policies, Mapping):
        if strange := [name for name in policies if not isinstance(name, str)]:
            raise InvalidInput(f"policies: expected texts as names, got {strange[0]!r}")
        return list(policies.items())
    # A text is iterable, and a policy may be: each is one all the same.
    if isinstance(policies, (str, PathLike)) or _is_one(policies) or not isinstance(policies, Iterable):
        return [(None, cast(Chosen, policies))]
    return [(None, policy) for policy in policies]


def _is_one(given: object) -> bool:
    return isinstance(given, (Policy, Starting)) or isinstance(getattr(given, "policy", None), (Policy, Starting))


def _find(policy: Chosen, problem: Problem) -> RosterEntry | Policy | Starting:
    """An entry of the roster, or a policy."""
    # A file before a name: only what looks like a file is one (`is_file`).
    if isinstance(policy, PathLike) or (isinstance(policy, str) and is_file(policy)):
        return load_policy(Path(policy), problem)
    if isinstance(policy, str):
        return find_policy(policy)
    if isinstance(policy, type):
        raise PolicyError(f"policy: {policy.__name__} is a class; make an object of it")
    if isinstance(policy, (Policy, Starting)):
        return policy
    # What `solve` and `train` return stands for its policy.
    inner = getattr(policy, "policy", None)
    if isinstance(inner, (Policy, Starting)):
        return inner
    if callable(policy):
        raise PolicyError("policy: this is a function; policies.from_function(function, problem) makes a policy of it")
    raise PolicyError(
        f"policy: expected a name, a file or an object with a method act(states, rng), got {type(policy).__name__}; "
        "see check_policy"
    )


def _called(policy: Chosen) -> str:
    """What a comparison calls a policy that was given without a name."""
    return str(Path(policy)) if isinstance(policy, (str, PathLike)) else type(policy).__name__


def _another(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with a number where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def _by_name(
    function: Callable[Concatenate[Policy | Starting, Asked], Answer],
) -> Callable[Concatenate[Chosen, Asked], Answer]:
    """Let a function of a policy be called with a name or a file, too: they are read for the problem that it gets."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(policy: Chosen, *arguments: Asked.args, **keywords: Asked.kwargs) -> Answer:
        # Bound by hand, for the problem and the welfare may come by position or by name.
        asked = signature.bind(policy, *arguments, **keywords)
        asked.apply_defaults()
        criterion, over = asked.arguments["criterion"], asked.arguments["over"]
        if isinstance(asked.arguments["problem"], StoredArms):
            given = asked.arguments
            model = given["problem"].under(criterion, over)
            if model.is_large:
                from evenhand.planning.stored_models import evaluate_stored

                names = ("welfare", "num_episodes", "horizon", "rng", "progress", "backend")
                return evaluate_stored(model, policy, **{name: given[name] for name in names})  # type: ignore[return-value]
            given["problem"] = model.problem()
            return called(*asked.args, **asked.kwargs)  # type: ignore[arg-type]
        check_problem(asked.arguments["problem"], f"{function.__name__}(policy, problem)")
        # Named policies are made for the criterion that they will be judged by.
        judged = asked.arguments["problem"].under(criterion, over)
        return function(read_policy(policy, judged, asked.arguments["welfare"]), *arguments, **keywords)

    return called  # type: ignore[return-value]  # `policy` may be given by name, too


def make_policy(
    policy: Chosen,
    problem: Problem,
    welfare: str | Welfare | None = None,
    criterion: str | Criterion | None = None,
    over: str | None = None,
) -> Policy | Starting:
    """The policy of a name or a file, to hold and to play.

    Args:
        policy: a name, such as `fair-index`, `occupancy-priority`, `re-solving` or `optimal`; or the file of a saved
            policy. A policy, or what has one, is given back as it is if it was made for these arms, else for them.
        problem: what it is for.
        welfare: what policies that look at it are made for, as text or object; the problem's own when absent.
        criterion: what rewards over time are worth, as text or object; the problem's own when absent.
        over: whose values are weighed, `arms` or `groups`; the problem's own when absent.

    Raises:
        UnknownName: no policy has this name; says which there are.
        NotApplicable: the policy of this name cannot treat this problem.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.make_policy("re-solving", machines, "gini:2")
        >>> eh.simulate(machines, policy, num_episodes=10, horizon=50)
        Rollout(10 episodes of 50 steps)
    """
    check_problem(problem, "make_policy(policy, problem)")
    return read_policy(policy, problem.under(criterion, over), welfare)


evaluate = _by_name(evaluation.evaluate)
"""`evaluation.evaluate`, by name or file, too."""
