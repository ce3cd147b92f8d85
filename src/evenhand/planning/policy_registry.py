"""Policies by name, by file, or as objects: the registry, and the argument `policy` of every function.

evaluate(problem, "oldest-first")              a name of the registry, or the paper's abbreviation
evaluate(problem, "plan.zip")                  a file that `save_policy`, `save_solution` or `train` wrote
evaluate(problem, policy)                      anything that acts; a Solution or a Training stands for its policy
compare(problem, ["whittle", "plan.zip", mine])    all of them side by side

Add one entry to `REGISTRY`, and `compare`, `evaluate` and the command line know it. A heuristic (`is_heuristic`) is
then also a candidate of `solve` by the method fluid and of plans for scenarios. Makers and models are imported when
they are called, so that names are checked and completed without loading solvers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from evenhand.errors import Fault, InvalidInputError, ModelError, PolicyError, UnknownNameError

if TYPE_CHECKING:
    from evenhand.model.criterion import Criterion
    from evenhand.model.policy import Policy, StatefulPolicy
    from evenhand.model.simulator import Problem
    from evenhand.model.welfare import Welfare


class HasPolicy(Protocol):
    """A result of `solve` or `train`."""

    @property
    def policy(self) -> "Policy | StatefulPolicy":
        """The policy."""
        ...


Chosen: TypeAlias = "str | PathLike[str] | Policy | StatefulPolicy | HasPolicy"
"""A name, a file, a policy, or what has one."""

Several: TypeAlias = "Chosen | Iterable[Chosen] | Mapping[str, Chosen]"
"""One, several, or some under names of one's own."""


# -- the registry ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedPolicy:
    """A policy that has a name."""

    name: str
    """Name that a user types."""

    abbreviation: str
    """The paper's name, also accepted."""

    summary: str
    """Description in one line."""

    maker: str
    """Function of (problem), or of (problem, welfare, name) if it depends on the welfare: `module:name` here."""

    @property
    def is_heuristic(self) -> bool:
        """True if it needs neither a relaxation nor a trained network: it depends on the problem alone."""
        return self.maker.startswith("policies:")

    @property
    def is_fair(self) -> bool:
        """True if the policy depends on the welfare."""
        return self.maker.startswith(("planning.solve:", "planning.relaxation:"))

    def build(self, problem: "Problem", welfare: "str | Welfare | None" = None) -> "Policy | StatefulPolicy":
        """Make the policy.

        Args:
            problem: the problem.
            welfare: welfare that it is made for; the problem's own by default.

        Raises:
            NotApplicableError: it cannot treat this problem.
            TooLargeError: it would need too much memory or time.
        """
        module, name = self.maker.split(":")
        make = getattr(import_module(f"evenhand.{module}"), name)
        if problem.has_max_wait and self.name != "optimal":
            from evenhand.policies.deadlines import keep_promises, without_promises

            return keep_promises(problem, self.build(without_promises(problem), welfare))  # type: ignore[arg-type]
        policy: Policy | StatefulPolicy = make(problem, welfare, self.name) if self.is_fair else make(problem)
        return policy


_FLUID = "planning.relaxation:fluid_policy"

REGISTRY: tuple[NamedPolicy, ...] = (
    NamedPolicy("optimal", "OPT", "the best for this welfare, by an exact method", "planning.solve:optimal_policy"),
    NamedPolicy("fair-index", "FIP", "highest gain per price first, by the welfare", _FLUID),
    NamedPolicy("occupancy-priority", "FOP", "draws actions from the relaxation, repairs and fills up", _FLUID),
    NamedPolicy("re-solving", "FRP", "as fair-index, at prices found again from the present states", _FLUID),
    NamedPolicy("lp-update", "LPU", "a linear program over the next steps, from the present states", _FLUID),
    NamedPolicy("lp-index", "LPI", "highest reduced cost of the relaxation first", _FLUID),
    NamedPolicy("id", "IDP", "actions drawn from the relaxation, in the order of random ids", _FLUID),
    NamedPolicy("set-expansion", "SEP", "the same, first a set of arms as the relaxation spreads them", _FLUID),
    NamedPolicy("two-set", "TSP", "a set of arms by classes of service, the others by ids", _FLUID),
    NamedPolicy("ftva", "VAP", "actions drawn for virtual copies that follow the relaxation", _FLUID),
    NamedPolicy("whittle", "WIP", "highest Whittle index first, only if it is positive", "policies:whittle"),
    NamedPolicy("cp-drl", "CPD", "a trained network that ships with the package", "planning.shipped:shipped_network"),
    NamedPolicy("random", "RDM", "random choice among stopping and all that fits", "policies:random_feasible"),
    NamedPolicy("oldest-first", "OFT", "the arm in the worst state for its type first", "policies:worst_first"),
    NamedPolicy("myopic", "MYP", "the largest gain of this step first, only if there is one", "policies:myopic"),
    NamedPolicy("equal-resources", "EQR", "every arm in turn, whatever its state", "policies:RoundRobin"),
    NamedPolicy("never-act", "IDLE", "every arm idles", "policies:never_act"),
)
"""All named policies, in the order of a comparison."""


_NAMES = {name.lower(): entry for entry in REGISTRY for name in (entry.name, entry.abbreviation)}


def find_policy(name: str) -> NamedPolicy:
    """Return the entry of a name or abbreviation, in any case.

    Raises:
        UnknownNameError: it is neither.
    """
    if name.lower() not in _NAMES:
        raise UnknownNameError("policy", name, [entry.name for entry in REGISTRY])
    return _NAMES[name.lower()]


def is_file(policy: str) -> bool:
    """Return whether a text means a saved policy rather than a name; `./whittle` means a file of that name."""
    is_path = Path(policy).exists() or bool(Path(policy).suffix) or "/" in policy
    return is_path and policy.lower() not in _NAMES


# -- the argument `policy` -------------------------------------------------------------------------------------------


def read_policies(policies: "Several | None", problem: "Problem") -> "dict[str, NamedPolicy | Policy | StatefulPolicy]":
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
            continue
        own = str(Path(policy)) if isinstance(policy, (str, PathLike)) else type(policy).__name__
        label = own if name is None else name
        numbered = chain([label], (f"{label} {number}" for number in count(2)))
        found[next(free for free in numbered if free not in found)] = meant
    # A single mistake without a name is raised as it is.
    if len(wrong) == 1 and wrong[0][0] is None:
        raise wrong[0][1]
    if wrong:
        raise ModelError([Fault("" if name is None else repr(name), str(error)) for name, error in wrong], "policies")
    if not found:
        raise InvalidInputError("policies: expected at least one; leave it out to compare all that apply")
    return found


def _listed(policies: "Several") -> "list[tuple[str | None, Chosen]]":
    """The arguments, each with its name if it has one."""
    if isinstance(policies, Mapping):
        if strange := [name for name in policies if not isinstance(name, str)]:
            raise InvalidInputError(f"policies: expected texts as names, got {strange[0]!r}")
        return list(policies.items())
    # A text is iterable, and a policy may be: each is one all the same.
    if isinstance(policies, (str, PathLike)) or _policy_of(policies) or not isinstance(policies, Iterable):
        return [(None, cast(Chosen, policies))]
    return [(None, policy) for policy in policies]


def _policy_of(given: object) -> "Policy | StatefulPolicy | None":
    """A policy itself, or that of a result of `solve` or `train`; None for anything else."""
    from evenhand.model.policy import Policy, StatefulPolicy

    for one in (given, getattr(given, "policy", None)):
        if isinstance(one, (Policy, StatefulPolicy)) and not isinstance(one, type):
            return one
    return None


def _find(policy: "Chosen", problem: "Problem") -> "NamedPolicy | Policy | StatefulPolicy":
    """An entry of the registry, or a policy."""
    # A file before a name: only what looks like a file is one (`is_file`).
    if isinstance(policy, PathLike) or (isinstance(policy, str) and is_file(policy)):
        from evenhand.model.coupled import CoupledMDP
        from evenhand.planning.plan import load_plan, load_policy

        try:
            return load_policy(Path(policy), problem)
        except PolicyError:
            if not isinstance(problem, CoupledMDP) or not problem.arm_names:
                raise
        return load_plan(policy).fitted(problem)  # the same types of arms, in other initial states
    if isinstance(policy, str):
        return find_policy(policy)
    if isinstance(policy, type):
        raise PolicyError(f"policy: {policy.__name__} is a class; make an object of it")
    if (found := _policy_of(policy)) is not None:
        return found
    if callable(policy):
        raise PolicyError("policy: this is a function; policies.from_function(problem, function) makes a policy of it")
    raise PolicyError(
        f"policy: expected a name, a file or an object with a method act(states, rng), got {type(policy).__name__}; "
        "see check_policy"
    )


def make_policy(
    problem: "Problem",
    policy: "Chosen",
    welfare: "str | Welfare | None" = None,
    criterion: "str | Criterion | None" = None,
    over: str | None = None,
) -> "Policy | StatefulPolicy":
    """Return the policy of a name or a file.

    Args:
        problem: the problem.
        policy: a name, such as `fair-index`, `occupancy-priority`, `re-solving` or `optimal`; or the file of a saved
            policy. A policy, or a result that has one, is returned unchanged if it was made for these arms, else
            resized. If the problem promises waits, every policy is under the deadline rule (`policies.deadlines`).
        welfare: welfare for which fair policies are made, as text or object; by default the problem's own.
        criterion: criterion, as text or object; by default the problem's own.
        over: members of the welfare, `arms` or `groups`; by default the problem's own.

    Raises:
        UnknownNameError: unknown name of a policy.
        PolicyError: it is not a policy, its file is damaged, or it was made for other arms.
        NotApplicableError: the policy of this name cannot treat this problem.

    Example:
        >>> import evenhand as eh
        >>> machines = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.make_policy(machines, "re-solving", "gini:2")
        >>> eh.simulate(machines, policy, num_episodes=10, horizon=50)
        Rollout(10 episodes of 50 steps)
    """
    from evenhand.model.simulator import check_problem
    from evenhand.policies.deadlines import keep_promises
    from evenhand.policies.resize import fitted

    check_problem(problem, "make_policy(problem, policy)")
    problem = problem.with_criterion(criterion, over)
    found = _find(policy, problem)
    if isinstance(found, NamedPolicy):
        return found.build(problem, welfare)
    return keep_promises(problem, fitted(found, problem))
