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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenhand.display import counted
from evenhand.errors import NotApplicableError
from evenhand.evaluation.evaluate import evaluate
from evenhand.model.base_policy import described
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import Objective, read_welfare
from evenhand.model.places import quoted
from evenhand.planning.certificate import check_bound
from evenhand.planning.plan import Plan, load_plan, save_solution
from evenhand.planning.relaxation import relax, tightest
from evenhand.planning.solution import Solution
from evenhand.programme.ledger import digest_of
from evenhand.programme.roster import RosterArm
from evenhand.typing import Floats

METHOD = "fluid"
"""Default method, whose policies serve any number of arms."""

PLAYED = 2e6
"""Steps of arms that are played to see what a policy is worth for another roster."""

Numbers = tuple[tuple[str, str, int], ...]
"""(type, group, how many), in the order of the names."""


@dataclass(frozen=True)
class Solved:
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

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class TypeValue:
    """Value of an arm of a type and group."""

    type: str
    group: str
    value: float


@dataclass(frozen=True)
class Certificate:
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

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self) | {
            "numbers": [list(row) for row in self.numbers],
            "values": [asdict(row) for row in self.values],
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Certificate":
        """Read the JSON form."""
        return cls(**fields_of(content))


def fields_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a certificate from its JSON form."""
    rows = tuple(TypeValue(**row) for row in content["values"])
    return dict(content) | {"numbers": as_numbers(content["numbers"]), "values": rows}


@dataclass(frozen=True)
class Drift:
    """Drift of roster or gap beyond its bounds."""

    needed: bool
    """Whether a new policy is needed."""

    why: tuple[str, ...]
    """Drifts beyond a bound, in words."""

    policy: str | None
    """The digest of the policy that would be used now; None where none can be."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self) | {"why": list(self.why)}


def as_numbers(rows: Iterable[Sequence[Any]]) -> Numbers:
    """Numbers from their JSON form."""
    return tuple((str(kind), str(group), int(many)) for kind, group, many in rows)


def numbers_of(arms: Sequence[RosterArm]) -> Numbers:
    """Return the number of arms of each type and group."""
    times = Counter((arm.type, arm.group) for arm in arms)
    return tuple((*kind, number) for kind, number in sorted(times.items()))


# Policies as bytes


def to_bytes(solution: Solution) -> tuple[str, bytes]:
    """The digest and the bytes of the file of a solution's policy."""
    stream = io.BytesIO()
    save_solution(solution, stream)
    return hashlib.sha256(stream.getvalue()).hexdigest(), stream.getvalue()


def plan_from_bytes(body: bytes) -> Plan:
    """A policy and the problem it was made for."""
    return load_plan(body)


def serves_any_number(solution: Solution) -> bool:
    """Return whether a policy also serves other numbers of the same kinds of arms."""
    try:
        described(solution.policy).resized(solution.problem, range(solution.problem.num_types))
    except NotApplicableError:
        return False
    return True


def facts_of(solution: Solution, digest: str, numbers: Numbers) -> dict[str, Any]:
    """Return the stored facts of a solution."""
    return {
        "method": solution.method,
        "reason": solution.reason,
        "any_number": serves_any_number(solution),
        "seconds": sum(solution.seconds.values()),
        "parts": [{"policy": part.name, "share": part.share} for part in solution.parts],
        "certificate": certificate_of(solution, digest, numbers).to_dict(),
    }


def certificate_of(solution: Solution, digest: str, numbers: Numbers) -> Certificate:
    """Return the certificate of a solution for its own roster.

    Args:
        solution: of the roster's problem.
        digest: of its policy.
        numbers: of the roster.
    """
    found = certify(solution.problem, digest, numbers, solution.objective, solution.unit_values, solution.by_type)
    content = found | {
        "welfare": solution.welfare,
        "stderr": solution.welfare_stderr,
        "upper_bound": solution.upper_bound,
        "gap": _finite(solution.gap),
        "prices": solution.prices,
        "for_roster": True,
    }
    return Certificate.of(content)


def _finite(gap: float) -> float:
    """A gap that JSON can hold: an upper bound of 0 that is not met has an infinite one."""
    return gap if np.isfinite(gap) else 1e300


def certify(
    problem: CoupledMDP, digest: str, numbers: Numbers, objective: Objective, values: Floats, by_type: bool
) -> dict[str, Any]:
    """Return the values of a certificate by type and group.

    Args:
        problem: of a roster, from `of_roster`.
        digest: of the policy.
        numbers: of the roster.
        objective: of the problem.
        values: (unit,) the value of an arm of each unit.
        by_type: whether units are types; else they are arms.
    """
    of_arm = values[problem.type_of_arm] if by_type else values
    block_of_arm = np.repeat(np.arange(len(problem.counts)), problem.counts)
    many = problem.counts
    mean = np.bincount(block_of_arm, weights=of_arm) / many
    names = [label[0] for label in problem.tables.labels]
    groups = [problem.group_names[number] for number in problem.group_of_block]
    rows = list(zip(names, groups, mean.tolist(), strict=True))
    totals: dict[str, list[float]] = {}
    for group, number, value in zip(groups, many.tolist(), mean.tolist(), strict=True):
        total = totals.setdefault(group, [0.0, 0.0])
        total[0] += number * value
        total[1] += number
    return {
        "policy": digest,
        "numbers": [list(row) for row in numbers],
        "values": [{"type": kind, "group": group, "value": value} for kind, group, value in rows],
        "groups": {group: total / number for group, (total, number) in totals.items()},
    }


# Another roster


def certificate_for(plan: Plan, digest: str, numbers: Numbers, problem: CoupledMDP) -> Certificate:
    """Return the certificate of a policy for another roster: the bound of the relaxation, and a simulation.

    Args:
        plan: the policy, and what it was made for.
        digest: its digest.
        numbers: of the roster.
        problem: of the roster.
    """
    bound = tightest(problem, None, relax(problem, None))
    horizon = problem.criterion.judging_steps()
    episodes = int(np.clip(PLAYED / (problem.num_arms * horizon), 20, 2000))
    steps = problem.criterion.fixed_steps(horizon)
    found = evaluate(problem, plan.fitted(problem), None, episodes, steps, 0)
    check_bound(problem, found.welfare, found.welfare_stderr, found.num_episodes, bound.upper_bound)
    gap = max(0.0, bound.upper_bound - found.welfare)
    content = certify(problem, digest, numbers, found.objective, found.unit_values, found.by_type)
    content |= {
        "welfare": found.welfare,
        "stderr": found.welfare_stderr,
        "upper_bound": bound.upper_bound,
        "gap": _finite(gap / abs(bound.upper_bound) if bound.upper_bound else np.inf) if gap else 0.0,
        "prices": None,
        "for_roster": False,
    }
    return Certificate.of(content)


def plan_in_use(plan: Plan, found: Certificate, problem: CoupledMDP) -> Plan:
    """A policy for a roster, with what it is worth there.

    Args:
        plan: the policy, and what it was made for.
        found: its certificate for the roster, by the programme's own welfare.
        problem: of the roster.
    """
    values = np.repeat([row.value for row in found.values], problem.counts)
    about = {
        "welfare": read_welfare(problem, None).name,
        "criterion": problem.criterion.name,
        "over": problem.over,
        "value": found.welfare,
        "stderr": found.stderr,
        "upper_bound": found.upper_bound,
        "by": "arm",
        "values": values.tolist(),
    }
    policy = plan.policy if plan.problem.signature == problem.signature else plan.fitted(problem)
    return Plan(policy, problem, about)


def can_serve(numbers: Numbers, facts: Mapping[str, Any], wanted: Numbers) -> bool:
    """Return whether a policy can serve a roster.

    Args:
        numbers: those that it was solved for.
        facts: what is stored of it.
        wanted: of the roster.
    """
    known = {(kind, group) for kind, group, _ in numbers}
    return numbers == wanted or (facts["any_number"] and all((kind, group) in known for kind, group, _ in wanted))


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


def roster_digest(policy: str, numbers: Numbers) -> str:
    """Stands for a policy with a roster."""
    return digest_of([policy, [list(row) for row in numbers]])
