"""A plan: a policy with the problem it was made for. It says what to do now, arm by arm, and why, in two steps.

    draw    a mixture draws one of its parts, by the seed alone: the same seed is the same part, whatever the day. A
            mixture that rotates draws anew every so many steps
    act     the part acts on where the arms are. Lots among equal arms are drawn from the seed, the step and the table,
            so that the same table has the same answer, and no arm is unlucky every week

Arms that the plan knows by name have their places in it; the others take what is left, in the order of their names.
"""

import copy
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.errors import InvalidInput, NotApplicable
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import is_stored
from evenhand.model.policy import Policy, SavableKind, Starting, begin
from evenhand.model.same_arms import match_types
from evenhand.model.whereabouts import Whereabouts, find_arms, in_order
from evenhand.planning.labels import Labels, amount_of, as_key, quantity
from evenhand.planning.reasons import Moment, family_of, places_in_line, priorities_served, reasons
from evenhand.planning.saved import facts_of, load_carried
from evenhand.planning.showing import show_plan
from evenhand.planning.solution import Solution
from evenhand.policies.other_numbers import fit_policy, is_enough, other_numbers, seat_policy
from evenhand.policies.round_robin import RoundRobin, RoundRobinActor
from evenhand.typing import Floats, Indices, Ints, Rng


class Decision(NamedTuple):
    """What one arm gets."""

    arm: str
    """What it is called."""

    type: str
    """Its type, by name or number."""

    state: str
    """Where it is."""

    action: str
    """What it gets."""

    reason: str
    """Why."""

    served: bool
    """Whether the action uses anything."""


class DrawnPart(NamedTuple):
    """The part of a mixture that acts."""

    number: int
    """From 1, the largest share first."""

    share: float
    """How often it is drawn."""

    name: str
    """What made it, such as fair-index."""


@dataclass(frozen=True, eq=False)
class Decisions(Shown):
    """What to do now."""

    rows: tuple[Decision, ...]
    """One for each arm, in the order of the table."""

    used: dict[str, float]
    """What is used of each resource."""

    budget: dict[str, float]
    """What there is of each."""

    step: int | None
    """The step of a plan by steps; None where steps are alike."""

    part: DrawnPart | None
    """What was drawn, where the plan is a mixture."""

    note: str = ""
    """What differs from what the plan was made for, in words."""

    line: tuple[int | None, ...] = ()
    """(row,) who would be served next if there was more, 1 first; None for who is served, or where nobody can tell."""

    priority: tuple[int | None, ...] = ()
    """(row,) the place of what each served arm gets in the policy's order, 1 first; None for others, or without one."""

    @property
    def by_priority(self) -> tuple[Decision, ...]:
        """The rows, those that are served before the others and by priority; else in the order of the table."""
        places = self.priority or (None,) * len(self.rows)
        # Served first, by their places; those without a place after them, in the order of the table.
        order = sorted(range(len(self.rows)), key=lambda i: (not self.rows[i].served, places[i] or len(self.rows)))
        return tuple(self.rows[i] for i in order)

    def __repr__(self) -> str:
        served = sum(row.served for row in self.rows)
        used = ", ".join(f"{quantity(self.used[name])} of {quantity(self.budget[name])} {name}" for name in self.used)
        return f"Decisions({counted(len(self.rows), 'arm')}, {served} served, {used} used)"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row an arm, in the order of the table: its type and state, what it gets, and why.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in Decision._fields}, library)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        keys = ("arm", "type", "state", "action", "reason")
        told: dict[str, Any] = {
            "actions": [{key: getattr(row, key) for key in keys} for row in self.rows],
            "used": {name: quantity(amount) for name, amount in self.used.items()},
            "budget": {name: quantity(amount) for name, amount in self.budget.items()},
            "step": self.step,
            "part": None if self.part is None else self.part._asdict(),
        }
        return told | ({"note": self.note} if self.note else {})


# -- a plan, and how it acts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """A policy and the problem that it was made for."""

    policy: Policy | Starting = field(repr=False)
    """What to do."""

    problem: CoupledMDP
    """What it was made for."""

    about: dict[str, Any] = field(default_factory=dict, repr=False)
    """Facts: method, welfare, value, upper bound, parts, prices, values, what was asked."""

    source: str = field(default="PLAN", repr=False)
    """The name of its file."""

    def __repr__(self) -> str:
        welfare, value = self.about.get("welfare"), self.about.get("value")
        worth = f", {welfare} {value:.6g}" if isinstance(welfare, str) and isinstance(value, float) else ""
        return f"Plan({self.policy!r}{worth})"

    def act(
        self,
        states: Any,
        rng: Rng = 0,
        *,
        budget: float | Sequence[float] | Mapping[str, float] | None = None,
        step: int = 0,
        part: int | None = None,
    ) -> Decisions:
        """What every arm of a table gets now, and why.

        Args:
            states: a table with the columns arm, type and state (see `CoupledMDP.starting_at`), with any number of
                arms where the policy can serve them.
            rng: seed of the draws, or a generator.
            budget: what there is today, as `CoupledMDP.with_budget` takes it; as in the plan when absent.
            step: of a plan by steps, from 0.
            part: of a mixture, from 1, the largest share first; drawn when absent.

        Raises:
            TableError: the table's faults, with their rows.
            NotApplicable: the policy is a table for other numbers of arms, or another budget.
        """
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise InvalidInput(f"step: expected a whole number from 0, got {step!r}")
        # The table, then what there is today, then the problem and the policy for just these arms.
        found = find_arms(self.problem, states)
        given = self.problem.budget if budget is None else self.problem.with_budget(budget).budget
        crowd = _Crowd(self, found, given)
        # Three streams, so that drawing a part does not shift the lots.
        drawing, starting, acting = _streams(rng, found, int(step))
        number = self._number(part, drawing, int(step))
        leaf, by_steps = _leaf(crowd.policy, number, int(step))
        name = self.part_names[number] if number is not None else self.name
        moment, why, (line, priority) = _decide(leaf, crowd, (starting, acting), int(step), name)
        return Decisions(
            rows=_rows(crowd, moment, why),
            used=dict(zip(self.problem.resource_names, _use(moment).tolist(), strict=True)),
            budget=dict(zip(self.problem.resource_names, given.tolist(), strict=True)),
            step=int(step) if by_steps else None,
            part=None if number is None else self._drawn(number),
            note="; ".join(filter(None, [crowd.note, _told_step(crowd.policy, number, int(step))])),
            # From the order of the problem back to the rows of the table.
            line=tuple(line[place] for place in crowd.places.tolist()),
            priority=tuple(priority[place] for place in crowd.places.tolist()),
        )

    def show(self, step: int = 0) -> str:
        """The plan in plain words and as a small picture: who comes first, and what one unit more is worth.

        Args:
            step: of a plan by steps, from 0.
        """
        return show_plan(self, step)

    def fitted(self, problem: CoupledMDP) -> Policy | Starting:
        """The policy for the same kinds of arms in other numbers, from other states, with another budget.

        Args:
            problem: such as `plan.problem.starting_at(states)`.

        Raises:
            NotApplicable: the policy is a table for other numbers or more budget, or does not know some of the arms.
        """
        # First as a rule that does not hang on numbers, then as a table with seats.
        kinds = match_types(self.problem, problem)
        try:
            return fit_policy(self.policy, problem, kinds)
        except NotApplicable:
            pass
        try:
            return seat_policy(self.policy, self.problem, problem, kinds)
        except NotApplicable as error:
            raise NotApplicable(f"{error}. Give the name of a policy, or a plan made with the same --initial") from None

    @property
    def is_mixture(self) -> bool:
        """Whether one of several policies is drawn."""
        return isinstance(self.policy, Mixture)

    @property
    def by_size(self) -> list[int]:
        """The numbers of a mixture's parts, the largest share first."""
        assert isinstance(self.policy, Mixture)
        return [int(number) for number in np.argsort(-self.policy.shares, kind="stable")]

    @property
    def name(self) -> str:
        """The name of a plan of one policy, where it is known: fair-index, whittle."""
        # A plan of one policy has one part in its facts; exact methods have none, and are called by their method.
        named = self._named()
        return named[0] if len(named) == 1 else str(self.about.get("method", ""))

    @property
    def part_names(self) -> list[str]:
        """(part,) the names of a mixture's parts, where they are known."""
        assert isinstance(self.policy, Mixture)
        named = self._named()
        if len(named) != len(self.policy.parts):
            return [""] * len(self.policy.parts)
        # Facts have the parts by size, the policy in its own order.
        return [named[self.by_size.index(number)] for number in range(len(named))]

    def _named(self) -> list[str]:
        told = self.about.get("parts")
        told = told if isinstance(told, list) else []
        return [str(part.get("policy", "")) if isinstance(part, dict) else "" for part in told]

    def _drawn(self, number: int) -> DrawnPart:
        assert isinstance(self.policy, Mixture)
        return DrawnPart(self.by_size.index(number) + 1, float(self.policy.shares[number]), self.part_names[number])

    def _number(self, asked: int | None, rng: np.random.Generator, step: int) -> int | None:
        """The part that acts: the one that was asked for, or drawn."""
        if not isinstance(self.policy, Mixture):
            if asked is not None:
                raise InvalidInput("part: this plan is one policy, not a mixture of several")
            return None
        number = len(self.policy.parts)
        if asked is not None:
            if isinstance(asked, bool) or not isinstance(asked, (int, np.integer)) or not 1 <= asked <= number:
                raise InvalidInput(f"part: expected a number from 1 to {number}, got {asked!r}")
            return self.by_size[int(asked) - 1]
        # The draw belongs to the period: a mixture that is kept has one period, number 0.
        draw = _nth_draw(rng, 0 if self.policy.rotate is None else step // self.policy.rotate)
        drawn = int(np.searchsorted(np.cumsum(self.policy.shares), draw, side="right"))
        # The running sum may end just below 1.
        return min(drawn, number - 1)


def _nth_draw(rng: np.random.Generator, number: int) -> float:
    """The draw that comes after so many others, without drawing those where the generator can leap."""
    # PCG64 can leap; other generators must be drawn along.
    leap = getattr(rng.bit_generator, "advance", None)
    if leap is not None:
        leap(number)
        return float(rng.random())
    while number > 0:
        number -= len(rng.random(min(number, 10**6)))
    return float(rng.random())


def load_plan(path: str | Path, kinds: Sequence[SavableKind] = ()) -> Plan:
    """Read a plan: a saved policy that carries its problem.

    Args:
        path: from `save_solution`, `save_policy`, `evenhand solve --out` or `evenhand train --out`. A table in Parquet
            is a plan for an opened model (`planning.stored_models.TablePlan`).
        kinds: classes of policies of one's own, if the plan holds such; see `load_policy`.

    Raises:
        PolicyError: the file is not sound, or carries no problem.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> plan = eh.load_plan("plan.zip")
        >>> plan.problem
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """
    if is_stored(path):
        from evenhand.planning.stored_models import load_table_plan

        return load_table_plan(path)  # type: ignore[return-value]  # documented above
    return Plan(*load_carried(path, kinds), source=str(path))


def plan_of(solution: Solution) -> Plan:
    """The plan of a solution, as it would be read from its file."""
    return Plan(solution.policy, solution.problem, facts_of(solution))


# -- drawing, and seating the arms -----------------------------------------------------------------------------------


def _streams(
    rng: Rng, found: Whereabouts, step: int
) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Streams to draw a part from, and what holds for all steps, by the seed alone; and for lots, by the table too."""
    if isinstance(rng, np.random.Generator):
        return rng, rng, rng
    seed = int(np.random.default_rng().integers(2**63)) if rng is None else int(rng)
    # Sorted, so that a table in another order has the same lots.
    rows = sorted(zip(found.names, found.blocks.tolist(), found.states.tolist(), strict=True))
    digest = int.from_bytes(hashlib.sha256(repr(rows).encode()).digest()[:8], "little")
    # A generator each, told apart by a number after the seed.
    part, round_, lots = (np.random.default_rng([seed, *more]) for more in ([0], [2], [1, step, digest]))
    return part, round_, lots


class _Crowd:
    """The arms of a table in the order of the problem that is played, and the policy for it."""

    def __init__(self, plan: Plan, found: Whereabouts, budget: Floats) -> None:
        self.plan, self.found = plan, found
        made_for = plan.problem
        # Counted by type: that is what a policy is for. Names only decide who sits where.
        kinds = made_for.type_of_block[found.blocks]
        counts = np.bincount(kinds, minlength=made_for.num_types)
        same_numbers = np.array_equal(counts, made_for.type_counts)
        same_budget = np.array_equal(budget, made_for.budget)
        self.problem, self.policy = made_for, plan.policy
        self.kinds = list(range(made_for.num_types))
        self.note = "; ".join([*_told_numbers(plan, counts), *_told_budget(plan, budget)])
        # Other numbers, or another budget: the policy must be made to fit.
        if not (same_numbers and same_budget):
            self.kinds = np.flatnonzero(counts).tolist()
            self.problem = other_numbers(made_for, self.kinds, counts[self.kinds], budget.tolist())
            try:
                self.policy = fit_policy(plan.policy, self.problem, self.kinds)
            except NotApplicable as error:
                # A table keeps to the smaller budget it was made for, which is safe.
                if same_numbers and is_enough(made_for, budget.tolist()):
                    self.problem, self.kinds = made_for, list(range(made_for.num_types))
                    self.note += "; the plan is a table, and leaves the rest unused"
                    self.places = self._seats(kinds)
                    return
                raise NotApplicable(f"{error} ({self.note}). {self._plan_again(same_budget, budget)}") from None
        self.places = self._seats(kinds)

    def _seats(self, kinds: Indices) -> Ints:
        """(row,) the place of each row's arm in the problem: known arms at their own, others by their names."""
        number = {kind: place for place, kind in enumerate(self.kinds)}
        own = [number[kind] for kind in kinds.tolist()]
        names, type_of_arm = self.found.names, self.problem.type_of_arm.tolist()
        known = {name: seat for seat, name in enumerate(self.problem.arm_names)}
        # An arm that is known keeps its seat, if it still is of the type of that seat.
        home = {row: seat for row, name in enumerate(names) if (seat := known.get(name)) is not None}
        home = {row: seat for row, seat in home.items() if type_of_arm[seat] == own[row]}
        seats = np.empty(len(own), dtype=np.int64)
        seats[list(home)] = list(home.values())
        taken = set(home.values())
        # What is left, type by type; there are as many free seats of a type as rows without one.
        free = sorted(
            (seat for seat in range(len(own)) if seat not in taken), key=lambda seat: (type_of_arm[seat], seat)
        )
        rows = [row for row in range(len(own)) if row not in home]
        seats[sorted(rows, key=lambda row: (own[row], in_order(names[row])))] = free
        return seats

    def _plan_again(self, same_budget: bool, budget: Floats) -> str:
        """The command that makes a plan for the arms and the budget that there are."""
        asked = self.plan.about.get("asked")
        # As it was asked for then, so that the user need not remember.
        words = [str(word) for word in asked] if isinstance(asked, list) and asked else ["MODEL"]
        amounts = [] if same_budget else ["--budget", ",".join(f"{quantity(amount)}" for amount in budget.tolist())]
        if amounts:  # today's in the place of what was asked for then
            words = _without_budget(words, self.plan.problem.resource_names)
        files = ["--initial", self.found.source or "STATES", "--out", self.plan.source]
        return "Plan again: " + shlex.join(["evenhand", "solve", *words, *amounts, *files])

    @property
    def states(self) -> Indices:
        """(arm,) in the order of the problem."""
        states = np.empty(len(self.places), dtype=np.int32)
        states[self.places] = self.found.states
        return states


def _without_budget(words: Sequence[str], resources: Sequence[str]) -> list[str]:
    """What was asked for without what was said of the budget: `--budget`, or parameters of a built-in problem."""
    own = {as_key(name) for name in ("budget", *resources)}
    # Words with the word after each: an option and its value.
    pairs = [(word, words[at + 1] if at + 1 < len(words) else "") for at, word in enumerate(words)]
    said = [
        word == "--budget" or (word == "-p" and as_key(value.partition("=")[0].strip()) in own) for word, value in pairs
    ]
    return [word for at, word in enumerate(words) if not said[at] and not (at and said[at - 1])]


# -- what differs from what was planned, in words --------------------------------------------------------------------


def _told_numbers(plan: Plan, counts: Ints) -> list[str]:
    words = Labels(plan.problem)
    changed = np.flatnonzero(counts != plan.problem.type_counts).tolist()
    told = [f"{counts[kind]} {words.type(kind)}, planned for {plan.problem.type_counts[kind]}" for kind in changed[:5]]
    more = [f"{len(changed) - 5} more types in other numbers"] if len(changed) > 5 else []
    return told + more


def _told_budget(plan: Plan, budget: Floats) -> list[str]:
    rows = zip(plan.problem.resource_names, budget.tolist(), plan.problem.budget.tolist(), strict=True)
    return [f"{amount_of(name, now)}, planned for {quantity(then)}" for name, now, then in rows if now != then]


def _told_step(policy: Policy | Starting, number: int | None, step: int) -> str:
    """That a step is after the last one of a plan by steps, which then begins again."""
    part = policy.parts[number] if isinstance(policy, Mixture) and number is not None else policy
    last = len(part.parts) - 1 if isinstance(part, BySteps) else step
    return f"the plan's last step is {last}; it begins again, with step {step % (last + 1)}" if step > last else ""


# -- one decision ----------------------------------------------------------------------------------------------------


def _leaf(policy: Policy | Starting, number: int | None, step: int) -> tuple[Policy | Starting, bool]:
    """The part that acts at a step, neither a mixture nor by steps; and whether the step matters."""
    matters = False
    if isinstance(policy, Mixture):
        assert number is not None
        # A mixture that rotates depends on the step by which part was drawn.
        matters, policy = policy.rotate is not None, policy.parts[number]
    if isinstance(policy, BySteps):
        return policy.parts[step % len(policy.parts)], True
    return policy, matters or isinstance(policy, RoundRobin) or _horizon(policy)


def _horizon(policy: Policy | Starting) -> bool:
    problem = getattr(policy, "problem", None)
    remembers = isinstance(policy, Starting)
    return remembers and isinstance(problem, CoupledMDP) and problem.criterion.num_steps is not None


def _decide(
    policy: Policy | Starting,
    crowd: _Crowd,
    streams: tuple[np.random.Generator, np.random.Generator],
    step: int,
    name: str,
) -> tuple[Moment, list[str], tuple[list[int | None], list[int | None]]]:
    states = crowd.states
    starting, rng = streams
    actor = begin(policy, 1, starting)  # the round is the same at every step
    if isinstance(policy, RoundRobin):
        _go_round(actor, states, step, rng)
    elif (skip := getattr(actor, "skip_to", None)) is not None:
        skip(step)
    # As it was: reasons repeat the draw that was made.
    before = copy.deepcopy(rng)
    actions = np.asarray(actor.act(states[None], rng)[0], dtype=np.int32)
    moment = Moment(crowd.problem, states, actions, step, family_of(name), before)
    line = places_in_line(policy, actor, moment)  # first, for reasons may draw from the stream again
    priority = priorities_served(policy, actor, moment)
    return moment, reasons(policy, actor, moment), (line, priority)


def _go_round(actor: Policy, states: Indices, step: int, rng: np.random.Generator) -> None:
    """Whose turn it is at a step, if the arms had been where they are all the time.

    Who begins a step decides who begins the next, so that after at most as many steps as there are arms it goes in
    circles; whole circles are left out.
    """
    assert isinstance(actor, RoundRobinActor)
    met: dict[int, int] = {}
    number = 0
    while number < step:
        head = int(actor.head[0])
        if head in met:
            # From here on it goes in circles of this length: as many of them as fit are skipped.
            number += (step - number) // (number - met[head]) * (number - met[head])
            met = {}
            if number >= step:
                break
        met[head] = number
        actor.act(states[None], rng)
        number += 1


def _use(moment: Moment) -> Floats:
    """(resource,) what is used, without the dust of sums."""
    return np.asarray(np.round(moment.problem.types.usage[moment.kinds, moment.states, moment.actions].sum(axis=0), 9))


def _rows(crowd: _Crowd, moment: Moment, why: Sequence[str]) -> tuple[Decision, ...]:
    problem, found = crowd.plan.problem, crowd.found
    words, labels = Labels(problem), problem.tables.labels
    rows = []
    for row, (name, block) in enumerate(zip(found.names, found.blocks.tolist(), strict=True)):
        # Type and block are the plan's, place and action those of the problem that was played.
        place, kind = int(crowd.places[row]), int(problem.type_of_block[block])
        called = (labels[block][0] if labels else "") or str(kind)
        state, action = words.state(kind, int(found.states[row])), words.action(kind, int(moment.actions[place]))
        rows.append(Decision(name, called, state, action, why[place], bool(moment.served[place])))
    return tuple(rows)
