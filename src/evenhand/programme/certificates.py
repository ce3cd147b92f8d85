"""Policies of a programme: what is solved, whom it can serve, what it is worth for the arms that take part now.

A policy is solved for the *numbers* of a roster: how many arms there are of each type and group, each beginning as the
model says. By default it is one that ranks conditions, or a mixture of such (the method `fluid`), and serves any number
of the same kinds of arms: arms come and go, and it stays. Tables (the exact methods) serve just their own numbers.

The numbers *drift*. A policy is to be solved again (`drifted`)

    if it cannot serve the roster: an unknown kind, or other numbers than a table's
    if the arms of a kind, or of all, are more than `DriftBounds.change` = 10 % more or fewer than it was solved for
    if its gap for the present roster is known and more than `DriftBounds.gap` = 0.02 above the gap at its solution
"""

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import NotApplicableError
from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.model import CoupledMDP, quoted, read_welfare
from evenhand.model.policy import described
from evenhand.planning import Plan, Solution, relax, save_solution, tightest
from evenhand.planning.solution import check_bound
from evenhand.programme.ledger import Result
from evenhand.programme.named_model import names_of
from evenhand.programme.roster import RosterArm

if TYPE_CHECKING:
    from evenhand.programme.decisions import PlanRow

METHOD = "fluid"
"""Default method, whose policies serve any number of arms."""

Numbers = tuple[tuple[str, str, int], ...]
"""(type, group, how many), in the order of the names."""


@dataclass(frozen=True)
class Solved(Result):
    """A policy that was found."""

    event: int
    """The number of the event."""

    policy: str
    """Its digest."""

    method: str
    """Method."""

    any_number: bool
    """Whether it serves other numbers of the same kinds of arms."""

    welfare: float
    """Welfare for the roster it was solved for."""

    upper_bound: float
    """Upper bound of the welfare of any policy."""

    gap: float
    """(upper bound - welfare) / |upper bound|."""

    seconds: float
    """Seconds of computation."""


@dataclass(frozen=True)
class TypeValue:
    """Value of an arm of a type and group."""

    type: str
    group: str
    value: float


@dataclass(frozen=True)
class Certificate(Result):
    """Certificate: welfare of a policy for a roster, with an upper bound for any policy.

    Values are those of arms that begin as the model says, and not from where they happen to be today.
    """

    policy: str
    """The digest of the policy."""

    numbers: Numbers
    """The roster: (type, group, how many)."""

    welfare: float
    """The policy's; an estimate where `stderr` is not 0."""

    stderr: float
    """The standard error of the welfare."""

    upper_bound: float
    """Upper bound of the welfare of any policy, by the relaxation."""

    gap: float
    """(upper bound - welfare) / |upper bound|."""

    prices: dict[str, float] | None
    """Dual price per resource: welfare per unit more at every step; None if unknown."""

    values: tuple[TypeValue, ...]
    """Value of an arm, by type and group."""

    groups: dict[str, float]
    """The mean value of the arms of each group."""

    for_roster: bool
    """Whether the policy was solved for this roster; else it was evaluated for it by simulation."""


@dataclass(frozen=True)
class Drift(Result):
    """Drift of roster or gap beyond its bounds."""

    needed: bool
    """Whether a new policy is needed."""

    why: tuple[str, ...]
    """Drifts beyond a bound, in words."""

    policy: str | None
    """The digest of the policy that would be used now; None where none can be."""

    improvable: bool = False
    """True if a time limit ended the first search for the policy, and none was made since."""


def numbers_of(arms: "Sequence[RosterArm | PlanRow]") -> Numbers:
    """Return the number of arms of each type and group."""
    times = Counter((arm.type, arm.group) for arm in arms)
    return tuple((*kind, number) for kind, number in sorted(times.items()))


# Policies as bytes


def to_bytes(solution: Solution) -> tuple[str, bytes]:
    """The digest and the bytes of the file of a solution's policy."""
    stream = io.BytesIO()
    save_solution(solution, stream)
    return hashlib.sha256(stream.getvalue()).hexdigest(), stream.getvalue()


def policy_of(
    solution: Solution, arms: Sequence[RosterArm], terms: str, improvable: bool = False
) -> tuple[bytes, dict[str, Any]]:
    """Return the policy of a solution as stored: its file, and facts with its certificate.

    Args:
        solution: of the problem of some arms.
        arms: their roster.
        terms: `Library.terms_digest` of the problem.
        improvable: whether a further search for a better one is due.
    """
    digest, body = to_bytes(solution)
    try:
        described(solution.policy).resized(solution.problem, range(solution.problem.num_types))
        serves_any_number = True
    except NotApplicableError:
        serves_any_number = False
    return body, {
        "method": solution.method,
        "reason": solution.reason,
        "any_number": serves_any_number,
        "terms": terms,
        "improvable": improvable,
        "seconds": sum(solution.seconds.values()),
        "parts": [{"policy": part.name, "share": part.share} for part in solution.parts],
        "certificate": certificate_of(solution, digest, numbers_of(arms)).to_dict(),
    }


def certificate_of(solution: Solution, digest: str, numbers: Numbers) -> Certificate:
    """Return the certificate of a solution for its own roster.

    Args:
        solution: of the roster's problem.
        digest: of its policy.
        numbers: of the roster.
    """
    bound = {"upper_bound": solution.upper_bound, "gap": solution.gap, "prices": solution.prices, "for_roster": True}
    return _certificate(solution, solution.problem, policy=digest, numbers=numbers, **bound)


def certificate_for(plan: Plan, digest: str, numbers: Numbers, problem: CoupledMDP) -> Certificate:
    """Return the certificate of a policy for another roster: the bound of the relaxation, and a simulation.

    Args:
        plan: the policy, and what it was made for.
        digest: its digest.
        numbers: of the roster.
        problem: of the roster.
    """
    bound = tightest(problem, None, relax(problem, None)).upper_bound
    horizon = problem.criterion.judging_steps()
    episodes = int(np.clip(2e6 / (problem.num_arms * horizon), 20, 2000))  # some two million steps of arms
    steps = problem.criterion.fixed_steps(horizon)
    found = evaluate(problem, plan.fitted(problem), None, episodes, steps, 0)
    check_bound(problem, found.welfare, found.welfare_stderr, found.num_episodes, bound)
    short = max(0.0, bound - found.welfare)
    gap = 0.0 if not short else short / abs(bound) if bound else np.inf
    more = {"upper_bound": bound, "gap": gap, "prices": None, "for_roster": False}
    return _certificate(found, problem, policy=digest, numbers=numbers, **more)


def _certificate(found: Solution | Evaluation, problem: CoupledMDP, **more: Any) -> Certificate:
    """Return a certificate, with values by type and group, and more fields as they are."""
    of_arm = found.unit_values[problem.type_of_arm] if found.by_type else found.unit_values
    block_of_arm = np.repeat(np.arange(len(problem.counts)), problem.counts)
    means = np.bincount(block_of_arm, weights=of_arm) / problem.counts
    of_group = problem.group_of_block
    groups = np.bincount(of_group, weights=problem.counts * means) / np.bincount(of_group, weights=problem.counts)
    more["gap"] = min(more["gap"], 1e300)  # as JSON can hold it: a bound of 0 that is not met
    return Certificate(
        welfare=found.welfare,
        stderr=found.welfare_stderr,
        values=tuple(TypeValue(*kind, value) for kind, value in zip(names_of(problem), means.tolist(), strict=True)),
        groups=dict(zip(problem.group_names, groups.tolist(), strict=True)),
        **more,
    )


def plan_in_use(plan: Plan, found: Certificate, problem: CoupledMDP) -> Plan:
    """A policy for a roster, with what it is worth there.

    Args:
        plan: the policy, and what it was made for.
        found: its certificate for the roster, by the programme's own welfare.
        problem: of the roster.
    """
    about: dict[str, Any] = {
        **{name: plan.about[name] for name in ("method", "parts") if name in plan.about},
        "welfare": read_welfare(problem, None).name,
        "criterion": problem.criterion.name,
        "over": problem.over,
        "value": found.welfare,
        "stderr": found.stderr,
        "upper_bound": found.upper_bound,
        "by": "arm",
        "values": np.repeat([row.value for row in found.values], problem.counts).tolist(),
    }
    same = plan.problem.signature == problem.signature and np.array_equal(plan.problem.max_waits, problem.max_waits)
    policy = plan.policy if same else plan.fitted(problem)
    return Plan(policy, problem, about)


def drifted(numbers: Numbers, wanted: Numbers, change: float) -> list[str]:
    """Return relative changes between two rosters beyond a bound, in words.

    Args:
        numbers: those that a policy was solved for.
        wanted: those of the present roster.
        change: the share, `DriftBounds.change`.
    """
    before, now = ({(kind, group): many for kind, group, many in rows} for rows in (numbers, wanted))
    content = []
    for kind in sorted({*before, *now}):
        then, there = before.get(kind, 0), now.get(kind, 0)
        if abs(there - then) > change * then:
            content.append(f"there are {there} of type {quoted(kind[0])} in {quoted(kind[1])}, solved for {then}")
    then, there = sum(before.values()), sum(now.values())
    if abs(there - then) > change * then:
        content.append(f"there are {counted(there, 'arm')}, solved for {then}")
    return content
