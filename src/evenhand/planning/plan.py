"""Plans: a policy with the problem it was made for, which can be saved, loaded, acted on and explained.

A plan acts in two steps.

    draw    a mixture draws one of its parts by the seed alone: the same seed is the same part at every step, unless
            the mixture draws again every so many steps
    act     the part acts on the present states. Lots among equal arms are drawn from the seed, the step and the table,
            so that the same table has the same decisions, and no arm loses every lot

Arms that the plan knows by name have their places in it; others take the free places in the order of their names.
"""

import copy
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model.arm_matching import subproblem
from evenhand.model.composite import components, is_mixture, is_time_varying, redraw_period, steps_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, policy_family, queue_places, served_places
from evenhand.model.io import is_stored
from evenhand.model.labels import Labels, amount_of, quantity
from evenhand.model.policy import Policy, SavableKind, StatefulPolicy, begin, described
from evenhand.model.simulator import Problem
from evenhand.model.state_table import ObservedStates, find_arms, in_order
from evenhand.planning.effects import ActionEffects, longest_first
from evenhand.planning.plan_file import OtherDynamicsWarning, Source, read_contents, save_policy
from evenhand.planning.solution import Solution
from evenhand.policies.resize import is_enough, resized_or_reordered
from evenhand.typing import Floats, Indices, Ints, Rng

MOST_VALUES = 10_000
"""Values that a plan file records; those of more arms are left out."""

MOST_CHANGED_TYPES = 5
"""Types in other numbers that a note names."""


class Decision(NamedTuple):
    """The decision for one arm."""

    arm: str
    """Name of the arm."""

    type: str
    """Its type, by name or number."""

    state: str
    """Its state."""

    action: str
    """Its action."""

    reason: str
    """The reason."""

    served: bool
    """True if the action uses any resource."""

    observations: int | None = None
    """Number of observations behind a served arm's action in its state; None if unknown."""


class PlanPart(NamedTuple):
    """One part of a plan."""

    number: int
    """From 1, the largest share first."""

    share: float
    """Probability of the part."""

    name: str
    """Name of its policy, such as fair-index; may be empty."""

    place: int
    """Its place among the parts of the policy."""

    policy: Policy | StatefulPolicy
    """The policy."""

    parts: int = 1
    """Number of parts of the plan."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: number, share and name, and the number of parts."""
        return {"number": self.number, "share": self.share, "name": self.name, "parts": self.parts}


@dataclass(frozen=True, eq=False)
class Decisions(Shown):
    """Decisions of one step."""

    rows: tuple[Decision, ...]
    """One per arm, in the order of the table."""

    used: dict[str, float]
    """Use of each resource."""

    budget: dict[str, float]
    """Budget of each resource."""

    step: int | None
    """The step, if decisions depend on it."""

    part: PlanPart | None
    """The part that was drawn, if the plan is a mixture."""

    note: str = ""
    """Differences from the problem that the plan was made for."""

    line: tuple[int | None, ...] = ()
    """(row,) place in the queue if there was more budget, 1 first; None for served arms, or without an order."""

    priority: tuple[int | None, ...] = ()
    """(row,) place of each served arm's action in the policy's order, 1 first; None for others, or without an order."""

    @property
    def by_priority(self) -> tuple[Decision, ...]:
        """The rows: served arms first, by priority; others in the order of the table."""
        places = self.priority or (None,) * len(self.rows)
        order = sorted(range(len(self.rows)), key=lambda i: (not self.rows[i].served, places[i] or len(self.rows)))
        return tuple(self.rows[i] for i in order)

    def __repr__(self) -> str:
        served = sum(row.served for row in self.rows)
        used = ", ".join(f"{quantity(self.used[name])} of {quantity(self.budget[name])} {name}" for name in self.used)
        return f"Decisions({counted(len(self.rows), 'arm')}, {served} served, {used} used)"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per arm, in the order of the table.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in Decision._fields}, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        keys = ("arm", "type", "state", "action", "reason")
        facts: dict[str, Any] = {
            "actions": [{key: getattr(row, key) for key in keys} for row in self.rows],
            "used": {name: quantity(amount) for name, amount in self.used.items()},
            "budget": {name: quantity(amount) for name, amount in self.budget.items()},
            "step": self.step,
            "part": None if self.part is None else self.part.to_dict(),
        }
        return facts | ({"note": self.note} if self.note else {})


# -- saving and loading ----------------------------------------------------------------------------------------------


def save_solution(solution: Solution, path: str | PathLike[str] | BinaryIO, asked: Sequence[str] = ()) -> None:
    """Write a solution's policy, with its certificate in the manifest: a plan, for `load_plan`.

    Args:
        solution: from `solve`.
        path: a file name, replaced as a whole if it exists; or a binary stream.
        asked: the model and the options of the solution, as words of a command line, for the manifest.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> eh.load_policy("plan.zip", problem)
        CountChoices(for 3 arms)
    """
    save_policy(solution.problem, solution.policy, path, _facts_of(solution, asked))


def load_policy(source: Source, problem: Problem, kinds: Sequence[SavableKind] = ()) -> Policy | StatefulPolicy:
    """Read a policy for a problem.

    A table plays the very problem it was made for. A trained network plays any number of such arms, with any budget.

    Args:
        source: a file name, bytes or a binary stream, from `save_policy`, `save_solution` or `Training.save`.
        problem: the problem to play.
        kinds: classes of policies of your own (`kind`, `from_arrays`), if the file holds such.

    Raises:
        PolicyError: the file is damaged, or the policy was made for another problem.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> round(eh.evaluate(problem, eh.load_policy("plan.zip", problem)).welfare, 4)
        14.0793
    """
    found = read_contents(source, kinds, problem)
    if found.other_dynamics:
        text = "this network was trained on arms with other transitions, rewards or first states"
        warnings.warn(text, OtherDynamicsWarning, stacklevel=2)
    return found.policy


def load_plan(source: Source, kinds: Sequence[SavableKind] = ()) -> "Plan":
    """Read a plan: a saved policy with the problem that its file carries.

    Args:
        source: a file name, bytes or a binary stream, from `save_solution`, `save_policy` or `Training.save`. A
            table in Parquet is a plan for an opened model (`planning.stored_models.TablePlan`).
        kinds: classes of policies of your own, if the plan holds such; see `load_policy`.

    Raises:
        PolicyError: the file is damaged, or carries no problem.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> plan = eh.load_plan("plan.zip")
        >>> plan.problem
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """
    named = isinstance(source, (str, PathLike))
    if named and is_stored(source):
        from evenhand.planning.stored_models import load_table_plan

        return load_table_plan(source)  # type: ignore[return-value, arg-type]  # documented above
    found = read_contents(source, kinds)
    return Plan(found.policy, found.problem, found.about, str(source) if named else "PLAN")


def plan_of(solution: Solution) -> "Plan":
    """Return the plan of a solution, as it would be read from its file."""
    return Plan(solution.policy, solution.problem, _facts_of(solution))


def _facts_of(solution: Solution, asked: Sequence[str] = ()) -> dict[str, Any]:
    few = len(solution.unit_values) <= MOST_VALUES
    return {
        "method": solution.method,
        "welfare": solution.objective.welfare.name,
        "criterion": solution.problem.criterion.name,
        "over": solution.problem.over,
        "value": solution.welfare,
        "upper_bound": solution.upper_bound,
        "gap": solution.gap,
        "stderr": solution.welfare_stderr,
        "parts": [{"policy": part.name, "share": part.share} for part in solution.parts],
        "selection_bias": solution.selection_bias,
        "welfare_without_redraw": solution.welfare_without_redraw,
        "prices": solution.prices,
        "by": "type" if solution.by_type else "arm",
        "values": solution.unit_values.tolist() if few else None,
        "promise": None if solution.promise is None else solution.promise._asdict(),
        "asked": list(asked),
    }


# -- a plan, and how it acts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """A policy and the problem that it was made for.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> plan = eh.Plan(eh.solve(problem).policy, problem)
        >>> today = plan.act([{"arm": "a", "state": 0}, {"arm": "b", "state": 2}, {"arm": "c", "state": 1}])
        >>> [(row.arm, row.action) for row in today.rows]
        [('a', 'operate'), ('b', 'replace'), ('c', 'operate')]
    """

    policy: Policy | StatefulPolicy = field(repr=False)
    """The policy."""

    problem: CoupledMDP
    """The problem that it was made for."""

    about: dict[str, Any] = field(default_factory=dict, repr=False)
    """Facts: method, welfare, value, upper bound, parts, prices, values, command."""

    source: str = field(default="PLAN", repr=False)
    """Name of its file."""

    def __repr__(self) -> str:
        welfare, value = self.about.get("welfare"), self.about.get("value")
        certified = f", {welfare} {value:.6g}" if isinstance(welfare, str) and isinstance(value, float) else ""
        return f"Plan({self.policy!r}{certified})"

    def act(
        self,
        states: Any,
        rng: Rng = 0,
        *,
        budget: float | Sequence[float] | Mapping[str, float] | None = None,
        step: int = 0,
        part: int | None = None,
        observations: Ints | None = None,
        waits: Ints | None = None,
    ) -> Decisions:
        """Decide on the action of every arm of a table, with reasons.

        Args:
            states: a table with the columns arm, type and state (see `CoupledMDP.with_initial_states`), of any number
                of arms that the policy can serve; if waits are promised, also `waiting`, the steps that each arm has
                been in promised states without service, 0 by default.
            rng: seed of the draws, or a generator.
            budget: the budget of this step, as in `CoupledMDP.with_budget`; by default the plan's.
            step: the step of a time-varying plan, from 0.
            part: the part of a mixture, from 1, the largest share first; drawn by default.
            observations: (row, action) number of observations behind the model of each action in the state of each
                arm, for reasons; -1 for unknown.
            waits: (row, wait) waiting times, the most important first: of arms of one type and state those that have
                waited longest are served first; by default lots decide.

        Raises:
            TableError: the table's faults, with their rows.
            NotApplicableError: the policy is a table for other numbers of arms, or another budget.
        """
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise InvalidInputError(f"step: expected a whole number from 0, got {step!r}", argument="step")
        step, found = int(step), find_arms(self.problem, states)
        given = self.problem.budget if budget is None else self.problem.with_budget(budget).budget
        placed = PlacedArms(self, found, given)
        # Three streams, so that drawing a part does not shift the lots.
        drawing, starting, acting = _streams(rng, found, step)
        chosen = self._choose_part(part, drawing, step)
        parts = components(placed.policy)[0]
        steps = steps_of(parts[chosen.place])
        policy = steps[step % len(steps)]
        decision = _decide(policy, placed, (starting, acting), step, chosen.name)
        if waits is not None:
            effects, cells = ActionEffects(decision.problem, decision.types.tolist()), (decision.types, decision.states)
            actions = longest_first(effects, *cells, decision.actions, waits[np.argsort(placed.places)].T)
            decision = replace(decision, actions=actions)
        usage = decision.problem.types.usage[decision.types, decision.states, decision.actions]
        ranks = described(policy).ranks_at(decision)
        line, priority = queue_places(decision, ranks), served_places(decision, ranks)
        note = placed.note
        if is_time_varying(parts[chosen.place]) and step >= len(steps):
            restart = f"the plan's last step is {len(steps) - 1}; it begins again, with step {step % len(steps)}"
            note = f"{note}; {restart}" if note else restart
        depends_on_step = redraw_period(placed.policy) is not None or described(parts[chosen.place]).depends_on_step
        return Decisions(
            rows=_rows(placed, decision, described(policy).explain(decision), observations),
            used=dict(zip(self.problem.resource_names, np.round(usage.sum(axis=0), 9).tolist(), strict=True)),
            budget=dict(zip(self.problem.resource_names, given.tolist(), strict=True)),
            step=step if depends_on_step else None,
            part=chosen if self.is_mixture else None,
            note=note,
            # From the order of the problem back to the rows of the table.
            line=tuple(line[place] for place in placed.places.tolist()),
            priority=tuple(priority[place] for place in placed.places.tolist()),
        )

    def show(self, step: int = 0) -> str:
        """Return the plan as text and a small picture: the order of service, and the value of more budget.

        Args:
            step: the step of a time-varying plan, from 0.
        """
        from evenhand.planning.plan_summary import show_plan  # which needs plans

        return show_plan(self, step)

    def fitted(self, problem: CoupledMDP) -> Policy | StatefulPolicy:
        """Return the policy for the same types of arms in other numbers, from other states, with another budget.

        Args:
            problem: such as `plan.problem.with_initial_states(states)`.

        Raises:
            NotApplicableError: the policy is a table for other numbers or more budget, or some arms are unknown.
        """
        return resized_or_reordered(self.policy, self.problem, problem)

    @property
    def parts(self) -> tuple[PlanPart, ...]:
        """The parts of a mixture, the largest share first; another policy as the only part."""
        policies, shares = components(self.policy)
        order = np.argsort(-shares, kind="stable").tolist()
        facts = self.about.get("parts")
        facts = facts if isinstance(facts, list) else []
        named = [str(part.get("policy", "")) if isinstance(part, dict) else "" for part in facts]
        if len(named) != len(order):
            # A plan of one policy is known by its method; the parts of a mixture are not.
            named = [""] * len(order) if self.is_mixture else [str(self.about.get("method", ""))]
        return tuple(
            PlanPart(number + 1, float(shares[place]), named[number], place, policies[place], len(order))
            for number, place in enumerate(order)
        )

    @property
    def is_mixture(self) -> bool:
        """True if one of several policies is drawn."""
        return is_mixture(self.policy)

    def _choose_part(self, number: int | None, rng: np.random.Generator, step: int) -> PlanPart:
        """The requested part, or one that is drawn."""
        parts = self.parts
        if not self.is_mixture:
            if number is not None:
                raise InvalidInputError("part: this plan is one policy, not a mixture of several", argument="part")
            return parts[0]
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 1 <= number <= len(parts):
                raise InvalidInputError(
                    f"part: expected a number from 1 to {len(parts)}, got {number!r}", argument="part"
                )
            return parts[int(number) - 1]
        # One draw per period; a mixture that is never drawn again has one period.
        draw = _nth_draw(rng, step // (redraw_period(self.policy) or step + 1))
        ends = np.cumsum(components(self.policy)[1])
        # The running sum may end just below 1.
        place = min(int(np.searchsorted(ends, draw, side="right")), len(parts) - 1)
        return next(part for part in parts if part.place == place)


def _nth_draw(rng: np.random.Generator, number: int) -> float:
    """The draw after a number of others, without drawing those if the generator can advance."""
    if (advance := getattr(rng.bit_generator, "advance", None)) is None:
        return float(rng.random(number + 1)[-1])
    advance(number)
    return float(rng.random())


def _streams(
    rng: Rng, found: ObservedStates, step: int
) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Streams for the part and for the start of an actor, by the seed alone; and for lots, by the table too."""
    if isinstance(rng, np.random.Generator):
        return rng, rng, rng
    seed = int(np.random.default_rng().integers(2**63)) if rng is None else int(rng)
    # Sorted, so that a table in another order has the same lots.
    rows = sorted(zip(found.names, found.blocks.tolist(), found.states.tolist(), strict=True))
    digest = int.from_bytes(hashlib.sha256(repr(rows).encode()).digest()[:8], "little")
    part, start, lots = (np.random.default_rng([seed, *more]) for more in ([0], [2], [1, step, digest]))
    return part, start, lots


# -- arms of a table in the order of the problem ---------------------------------------------------------------------


class PlacedArms:
    """The arms of a table in the order of the problem that is played, and the policy for it."""

    def __init__(self, plan: Plan, found: ObservedStates, budget: Floats) -> None:
        self.plan, self.found = plan, found
        made_for = plan.problem
        types = made_for.type_of_block[found.blocks]
        counts = np.bincount(types, minlength=made_for.num_types)
        same_numbers = np.array_equal(counts, made_for.type_counts)
        self.problem, self.policy = made_for, plan.policy
        self.types = list(range(made_for.num_types))
        self.note = _changes(made_for, counts, budget)
        if not (same_numbers and np.array_equal(budget, made_for.budget)):
            present = np.flatnonzero(counts).tolist()
            problem = subproblem(made_for, present, counts[present], budget.tolist())
            try:
                self.policy = described(plan.policy).resized(problem, present)
                self.problem, self.types = problem, present
            except NotApplicableError as error:
                # A table respects the smaller budget it was made for.
                if not (same_numbers and is_enough(made_for, budget.tolist())):
                    raise NotApplicableError(f"{error} ({self.note})") from None
                self.note += "; the plan is a table, and leaves the rest unused"
        self.places = self._places(types)

    def _places(self, types: Indices) -> Ints:
        """(row,) the place of each row's arm in the problem: known arms at their own, others by their names."""
        number = {kind: place for place, kind in enumerate(self.types)}
        own = [number[kind] for kind in types.tolist()]
        names, type_of_arm = self.found.names, self.problem.type_of_arm.tolist()
        known = {name: place for place, name in enumerate(self.problem.arm_names)}
        # A known arm has its place, if it still is of the type of that place.
        home = {row: place for row, name in enumerate(names) if (place := known.get(name)) is not None}
        home = {row: place for row, place in home.items() if type_of_arm[place] == own[row]}
        places = np.empty(len(own), dtype=np.int64)
        places[list(home)] = list(home.values())
        taken = set(home.values())
        # There are as many free places of a type as rows without one.
        free = sorted(
            (place for place in range(len(own)) if place not in taken), key=lambda place: (type_of_arm[place], place)
        )
        rows = [row for row in range(len(own)) if row not in home]
        places[sorted(rows, key=lambda row: (own[row], in_order(names[row])))] = free
        return places

    @property
    def states(self) -> Indices:
        """(arm,) states in the order of the problem."""
        states = np.empty(len(self.places), dtype=np.int32)
        states[self.places] = self.found.states
        return states

    @property
    def waiting(self) -> Ints:
        """(arm,) waiting times in the order of the problem; 0 if they are not known."""
        waiting = np.zeros(len(self.places), dtype=np.int64)
        waiting[self.places] = 0 if self.found.waiting is None else self.found.waiting
        return waiting


def _changes(made_for: CoupledMDP, counts: Ints, budget: Floats) -> str:
    """Return differences in the numbers of arms and in the budget; empty if there are none."""
    labels, changed = Labels(made_for), np.flatnonzero(counts != made_for.type_counts).tolist()
    shown = changed[:MOST_CHANGED_TYPES]
    texts = [f"{counts[kind]} {labels.type(kind)}, planned for {made_for.type_counts[kind]}" for kind in shown]
    texts += [f"{len(changed) - len(shown)} more types in other numbers"] if len(changed) > len(shown) else []
    rows = zip(made_for.resource_names, budget.tolist(), made_for.budget.tolist(), strict=True)
    texts += [f"{amount_of(name, now)}, planned for {quantity(then)}" for name, now, then in rows if now != then]
    return "; ".join(texts)


# -- one decision ----------------------------------------------------------------------------------------------------


def _decide(
    policy: Policy | StatefulPolicy,
    placed: PlacedArms,
    streams: tuple[np.random.Generator, np.random.Generator],
    step: int,
    name: str,
) -> DecisionStep:
    states = placed.states
    starting, rng = streams
    actor = begin(policy, 1, starting)
    if (skip := getattr(actor, "skip_to", None)) is not None:
        skip(step)
    elif isinstance(policy, StatefulPolicy):
        if step > 100_000:
            raise InvalidInputError(f"step: {type(policy).__name__} plays all steps before it; expected at most 100000")
        for _ in range(step):
            actor.act(states[None], rng)
    if hasattr(actor, "waiting"):  # promised waits
        actor.waiting = placed.waiting[None]
    before = copy.deepcopy(rng)  # explanations repeat the draw
    actions = np.asarray(actor.act(states[None], rng)[0], dtype=np.int32)
    names = tuple(placed.found.names[row] for row in np.argsort(placed.places).tolist())
    return DecisionStep(placed.problem, states, actions, step, policy_family(name), before, actor, names)


def _rows(
    placed: PlacedArms, decision: DecisionStep, reasons: Sequence[str], observations: Ints | None
) -> tuple[Decision, ...]:
    problem, found = placed.plan.problem, placed.found
    labels, names = Labels(problem), problem.tables.labels
    effects = ActionEffects(problem, problem.type_of_block[found.blocks][decision.served[placed.places]].tolist())
    rows = []
    for row, (arm, block) in enumerate(zip(found.names, found.blocks.tolist(), strict=True)):
        # Type and block are the plan's, place and action those of the problem that was played.
        place, kind = int(placed.places[row]), int(problem.type_of_block[block])
        type_name = (names[block][0] if names else "") or str(kind)
        now, act, served = int(found.states[row]), int(decision.actions[place]), bool(decision.served[place])
        seen = None if observations is None or observations[row, act] < 0 else int(observations[row, act])
        reason = f"{effects.text(kind, now, act, seen)}; {reasons[place]}" if served else reasons[place]
        known = seen if served else None
        rows.append(Decision(arm, type_name, labels.state(kind, now), labels.action(kind, act), reason, served, known))
    return tuple(rows)
