"""Promised waits: no arm in a promised state goes longer than its limit of steps without service.

The waiting time w of an arm is the number of steps, one after another, that it has been in promised states without
service. Service, or leaving all promised states, sets it to 0. An arm in state s with w >= limit(s) is *due*: the
promise is broken if it is not served at that step.

Extended states. (s, w), 0 <= w <= limit(s), in place of every promised state make the waiting time part of the problem
(`extend`): an ordinary problem of the same types. The promise removes the actions without service from (s, limit(s)),
for a relaxation by putting service in their place (`with_service_due`): it bounds every policy that keeps the promise.

Deadline rule. The *slack* of an arm is the number of further steps for which it surely need not be served: 0 if it is
due, else 1 + the least slack of the promised states to which idling may lead. If m arms can be served per step,
whichever they are, there are m (d + 1) services for the arms of slack at most d before they are due. A step that serves

    r = max over d of (number of arms of slack at most d - m d)

of the most urgent arms leaves enough of them: of at most m (d + 2) arms of slack at most d + 1 all but m (d + 1) are
served. Arms that were served or have just come have a slack of at least K, the least of any state at w = 0. So the rule
keeps every promise as long as at most m (K + 1) arms are in promised states at once, and surely if the problem has no
more such arms. The plan decides alone at all steps at which it serves enough of the urgent arms by itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from evenhand.checks import as_generator
from evenhand.display import counted
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.arm import ArmTables
from evenhand.model.arm_matching import all_made_for
from evenhand.model.composite import CompositePolicy, redraw_period
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Discounted
from evenhand.model.explanations import DecisionStep, ServiceOrder
from evenhand.model.labels import Labels
from evenhand.model.policy import Policy, StatefulPolicy, begin, check_arrays, described, is_exchangeable
from evenhand.model.stateful_policy import MOST, Actor, Memory, Remembered, read_memory
from evenhand.solvers.single_arm import action_values
from evenhand.typing import Array, ArrayLike, Bools, Floats, Indices, Ints, Rng

# -- the problem with and without promises -----------------------------------------------------------------------------


def without_promises(problem: CoupledMDP) -> CoupledMDP:
    """Return the problem without promised waits."""
    return replace(problem, max_waits=np.full_like(problem.max_waits, -1)) if problem.has_max_wait else problem


def place_of(limits: Indices) -> Ints:
    """(state, wait) number of each extended state of an arm; longer waits are those of the limit.

    Args:
        limits: (state,) promised waits, -1 without a promise.
    """
    first = np.cumsum(np.append(0, np.maximum(limits, 0) + 1))[:-1]
    return np.asarray(first[:, None] + np.minimum(np.arange(limits.max(initial=0) + 1), np.maximum(limits, 0)[:, None]))


def extend(problem: CoupledMDP) -> CoupledMDP:
    """Return the problem on states extended by the waiting time, without promises; actions have the same numbers."""
    tables, sizes = problem.tables, problem.tables.num_states.tolist()
    rows = zip(range(len(tables)), problem.max_waits, sizes, strict=True)
    stacked = ArmTables.stack([_extend_part(tables.select(np.array([b])), own[:size]) for b, own, size in rows])
    return replace(problem, arms=stacked, max_waits=np.full((len(stacked), 1), -1))


def _extend_part(tables: ArmTables, limits: Indices) -> ArmTables:
    """Extend an arm with (state,) promises."""
    places, size, width = place_of(limits), len(limits), tables.rewards.shape[2]
    promised, total = limits >= 0, int(places.max()) + 1
    states, waits = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
    for wait in reversed(range(places.shape[1])):
        states[places[:, wait]], waits[places[:, wait]] = np.arange(size), wait
    transitions = np.zeros((len(tables), total, width, total))
    later = places[:, np.minimum(np.arange(places.shape[1]) + 1, places.shape[1] - 1)]
    for place, (state, wait) in enumerate(zip(states.tolist(), waits.tolist(), strict=True)):
        moves, served = tables.transitions[:, state, :, :size], tables.served[:, state]
        counts = ~served & promised[state]
        transitions[:, place][:, :, places[:, 0]] += np.where(counts[..., None], 0.0, moves)
        transitions[:, place][:, :, later[:, wait]] += np.where(counts[..., None], moves, 0.0)
    initial = np.zeros((len(tables), total))
    initial[:, places[:, 0]] = tables.initial[:, :size]
    labels = []
    for name, own, actions in tables.labels:
        known = own or tuple(map(str, range(size)))
        texts = (known[s] + (f", waiting {w}" if w else "") for s, w in zip(states, waits, strict=True))
        labels.append((name, tuple(texts), actions))
    return ArmTables(
        transitions=transitions,
        rewards=tables.rewards[:, states],
        usage=tables.usage[:, states],
        initial=initial,
        num_states=np.full(len(tables), total, dtype=np.int32),
        num_actions=tables.num_actions,
        labels=tuple(labels),
    )


def is_late(problem: CoupledMDP, extended: CoupledMDP) -> Bools:
    """(type, extended state, action) actions that break the promise: no service of an arm that is due."""
    types = extended.types
    due = np.zeros(types.rewards.shape[:2], dtype=bool)
    for kind, limits in enumerate(problem.type_max_waits):
        own = np.flatnonzero(limits >= 0)
        due[kind, place_of(limits)[own, limits[own]]] = True
    return np.asarray(due[..., None] & types.real & ~types.served)


def with_service_due(problem: CoupledMDP, extended: CoupledMDP) -> CoupledMDP:
    """Return the extended problem in which arms that are due get their least service in place of none."""
    types, late = extended.types, is_late(problem, extended)
    kinds, states, _ = np.nonzero(late)
    service = least_service(problem, types)[kinds, states]
    arrays = {name: getattr(types, name).copy() for name in ("transitions", "rewards", "usage")}
    for array in arrays.values():
        array[late] = array[kinds, states, service]
    strict = replace(extended)
    # Tables of a problem have an idle action in every state, and stay; methods look at the types.
    strict.__dict__["types"] = replace(types, **arrays, usable=None).within(problem.budget)
    return strict


def least_service(problem: CoupledMDP, types: ArmTables) -> Ints:
    """(type, state) the service that uses the smallest share of the budget."""
    room = np.where(problem.budget > 0, problem.budget, 1.0)
    share = np.where(types.served & types.valid, (types.usage / room).max(axis=-1), np.inf)
    return np.asarray(share.argmin(axis=-1))


# -- the deadline rule -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Deadlines:
    """Slack of every condition, and the number of arms that can surely be served per step."""

    problem: CoupledMDP
    """A problem with promises."""

    @cached_property
    def promised(self) -> Bools:
        """(type, state) whether a wait is promised."""
        return self.problem.type_max_waits >= 0

    @cached_property
    def longest(self) -> int:
        """The longest promised wait."""
        return int(self.problem.max_waits.max())

    @cached_property
    def never(self) -> int:
        """Slack of arms without a promise, more than any other."""
        return 2 * self.longest + 2

    @cached_property
    def slack(self) -> Ints:
        """(type, state, wait) steps for which the arm surely need not be served."""
        types, limits = self.problem.types, self.problem.type_max_waits
        idles = types.valid & ~types.served
        leads = ((types.transitions > 0) & idles[..., None]).any(axis=2) & self.promised[:, None, :]
        slack = np.full((*limits.shape, self.longest + 1), self.never, dtype=np.int64)
        ahead = np.zeros(limits.shape, dtype=np.int64)
        for wait in reversed(range(self.longest + 1)):
            next_least = np.where(leads, ahead[:, None, :], self.never - 1).min(axis=2)
            ahead = np.where(wait >= limits, 0, 1 + next_least)
            slack[:, :, wait] = np.where(self.promised, ahead, self.never)
        return slack

    @cached_property
    def unservable(self) -> Ints:
        """(condition, 2) types and states with a promise in which every service takes more than the budget."""
        types = self.problem.types
        return np.argwhere(self.promised & ~(types.served & types.valid).any(axis=2))

    @cached_property
    def _least(self) -> tuple[bool, Floats, Bools]:
        """True if resources serve side by side, (resource,) use per service, (type, state, action) such services."""
        types, budget = self.problem.types, self.problem.budget_limit
        served = np.asarray(types.served & types.valid)
        kinds, states = np.nonzero(self.promised & served.any(axis=2))
        if not len(kinds):
            return True, np.full(len(budget), np.inf), served
        # Services of one resource alone: resources serve side by side.
        alone = served[..., None] & (types.usage > 0) & ((types.usage > 0).sum(axis=-1, keepdims=True) == 1)
        apart = np.where(alone, types.usage, np.inf).min(axis=2)[kinds, states].max(axis=0)
        # Or the least service of each condition, of whatever it needs.
        service = least_service(self.problem, types)[kinds, states]
        needed = types.usage[kinds, states, service].max(axis=0)
        together = np.where(needed > 0, needed, np.nan)
        if _services(True, apart, budget) >= _services(False, together, budget):
            return True, apart, np.asarray((alone & (types.usage <= apart)).any(axis=-1))
        return False, together, np.asarray(served & (types.usage <= needed).all(axis=-1))

    @property
    def capacity(self) -> int:
        """Number of arms that can be served per step, whichever they are."""
        return int(_services(*self._least[:2], self.problem.budget_limit))

    @cached_property
    def worth(self) -> Floats:
        """(type, state, action) value of each action, by which a due arm's service is chosen."""
        types, criterion = self.problem.types, Discounted(min(self.problem.discount, 0.95))
        return action_values(types, np.ones(len(types)), np.zeros(self.problem.num_resources), criterion)

    @property
    def num_promised(self) -> int:
        """Number of arms that may be in promised states."""
        return int(self.problem.type_counts[self.promised.any(axis=1)].sum())

    @property
    def most_at_once(self) -> int:
        """Number of arms in promised states at once up to which every promise is kept."""
        return self.capacity * (int(self.slack[..., 0].min()) + 1)

    @property
    def is_sure(self) -> bool:
        """True if every promise is kept, whatever happens."""
        return not len(self.unservable) and self.num_promised <= self.most_at_once

    @property
    def sure_wait(self) -> int:
        """The shortest wait that can be promised to all these arms alike and always holds."""
        return -(-self.num_promised // max(self.capacity, 1)) - 1

    def enforce(
        self, states: Indices, waits: Ints, planned: Indices, ranks: Indices | None, rng: np.random.Generator
    ) -> tuple[Indices, Bools]:
        """Return the actions, and who is served for a promise.

        Args:
            states: (episode, arm) states.
            waits: (episode, arm) waiting times.
            planned: (episode, arm) actions of the plan.
            ranks: (episode, arm) ranks of these actions in the plan, 0 first, by which arms give way; or None.
            rng: stream of lots among equal arms.
        """
        problem, kinds, forced = self.problem, self.problem.type_of_arm, np.zeros(states.shape, dtype=bool)
        slack = self.slack[kinds, states, np.minimum(waits, self.longest)]
        served = problem.types.served[kinds, states, planned]
        needed, short = np.zeros(len(states), dtype=np.int64), np.zeros(len(states), dtype=bool)
        for d in range(self.never):
            urgent = slack <= d
            need = urgent.sum(axis=1) - self.capacity * d
            short |= (urgent & served).sum(axis=1) < need
            needed = np.maximum(needed, need)
            if self.capacity * d >= self.num_promised:
                break
        rows = np.flatnonzero(short)
        if not len(rows):
            return planned, forced
        # The most urgent first, of these who is served by the plan, else by lot.
        lots = rng.random((len(rows), states.shape[1]))
        urgency = slack[rows] + np.where(served[rows], 0.0, 0.5) + 0.5 * lots
        forced[rows] = np.argsort(np.argsort(urgency, axis=1), axis=1) < needed[rows, None]
        forced &= slack < self.never
        place = lots if ranks is None else ranks[rows] + lots
        turn = np.where(forced[rows], urgency - 1e9, np.where(served[rows], place, np.inf))
        given = planned.copy()
        given[rows] = self._serve(states[rows], planned[rows], forced[rows], turn)
        return given, forced & problem.types.served[kinds, states, given]

    def _serve(self, states: Indices, planned: Indices, forced: Bools, turn: Floats) -> Indices:
        """Serve arms in turn while the budget lasts: forced ones by some service, others as planned."""
        types, kinds = self.problem.types, self.problem.type_of_arm
        side_by_side, unit, least = self._least
        actions = np.where(types.served[kinds, states, planned], types.idle[kinds, states], planned)
        services = types.usage, types.served & types.valid, least, self.worth, unit
        rules = *services, side_by_side, self.problem.budget_limit, actions
        from evenhand.kernels.greedy_service import serve_in_turn  # loads Numba

        serve_in_turn(kinds, states, planned, forced, turn, *rules)
        return actions


def _services(side_by_side: bool, unit: Floats, left: Floats) -> Ints:
    """(...,) number of services that (..., resource) amounts allow.

    Args:
        side_by_side: whether a service uses one of the resources, else it uses all.
        unit: (resource,) use per service: infinite for resources that do not serve alone, NaN for unused ones.
        left: (..., resource) amounts.
    """
    numbers = np.floor(np.maximum(left, 0.0) / unit)
    return np.asarray(numbers.sum(axis=-1) if side_by_side else np.nanmin(numbers, axis=-1)).astype(np.int64)


# -- the policy --------------------------------------------------------------------------------------------------------


class DeadlinePolicy(CompositePolicy):
    """A plan that keeps promised waits: it knows how long every arm has waited.

    By `mode` its part is a policy of the problem without promises (0) or of the extended one (1), both under the
    deadline rule; or a table of the extended problem that keeps the promise by itself (2).
    """

    kind = "deadlines"

    def __init__(self, problem: CoupledMDP, part: Policy | StatefulPolicy, mode: int = 0) -> None:
        """Store the part.

        Args:
            problem: with promises.
            part: policy of `problem_of_parts(problem, mode)`.
            mode: see the class.
        """
        self._set_parts([part])
        self.problem, self.mode, self.plays_by_counts = problem, mode, False
        self.deadlines, self.exchangeable = Deadlines(problem), is_exchangeable(part)
        limits = problem.type_max_waits
        width = int(limits.max()) + 1
        places = [np.pad(own := place_of(row), ((0, 0), (0, width - own.shape[1])), mode="edge") for row in limits]
        self.places = np.stack(places).astype(np.int32)

    @classmethod
    def problem_of_parts(cls, problem: CoupledMDP, arrays: Mapping[str, Array]) -> CoupledMDP:
        """Return the problem of its part."""
        mode = int(arrays["mode"]) if "mode" in arrays else 0
        if mode == 0 or not problem.has_max_wait:
            return without_promises(problem)
        extended = extend(problem)
        return with_service_due(problem, extended) if mode == 1 else extended

    @property
    def decides(self) -> str:
        """Description of how it decides."""
        return f"{described(self.parts[0]).decides}, within the promised waits"

    @property
    def depends_on_step(self) -> bool:
        """True if its decisions depend on the step."""
        return described(self.parts[0]).depends_on_step

    def with_parts(self, parts: Sequence[Policy | StatefulPolicy]) -> "DeadlinePolicy":
        """Return the same promises over another plan."""
        return DeadlinePolicy(self.problem, parts[0], self.mode)

    def to_arrays(self) -> dict[str, Array]:
        """Return the kind of problem that its part is for."""
        return {"mode": np.array(self.mode)}

    @classmethod
    def from_arrays(
        cls, problem: CoupledMDP, arrays: dict[str, Array], parts: Sequence[Policy | StatefulPolicy]
    ) -> "DeadlinePolicy":
        """Return the policy of these arrays and its part."""
        check_arrays(arrays, mode="iu0")
        if len(parts) != 1 or not 0 <= int(arrays["mode"]) <= 2 or not problem.has_max_wait:
            raise PolicyError("it must have one part, a mode from 0 to 2, and a problem with promised waits")
        return cls(problem, parts[0], int(arrays["mode"]))

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "Policy | StatefulPolicy":
        """Return the policy for other numbers of arms, another budget, or, if its part knows none, other promises."""
        rows = np.arange(problem.num_types) if types is None else np.asarray(types)
        if self.mode and not np.array_equal(self.problem.type_max_waits[rows], problem.type_max_waits):
            raise NotApplicableError("the plan is for the waiting times of other promises")
        own = self.problem_of_parts(problem, self.to_arrays())
        # Without promises, types may be fewer.
        part = described(self.parts[0]).resized(own, None if self.mode == 0 else types)
        return DeadlinePolicy(problem, part, self.mode) if problem.has_max_wait else part

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action: a promise, or that of the plan."""
        actor, labels = decision.actor, Labels(self.problem)
        assert isinstance(actor, _Waiting)
        inner, forced, displaced = self._before_promises(decision)
        reasons, waited = described(self.parts[0]).explain(inner), actor.true_waits[0]
        limits = self.problem.type_max_waits[decision.types, decision.states]
        slack = self.deadlines.slack[decision.types, decision.states, actor.last_waits[0]]
        planned = self.problem.types.served[decision.types, decision.states, inner.actions]
        first = np.flatnonzero(gained := decision.served & ~planned)[np.argsort(slack[gained], kind="stable")].tolist()
        for arm in np.flatnonzero((limits >= 0) | displaced).tolist():
            state = labels.being(int(decision.types[arm]), int(decision.states[arm]))
            most, so_far = counted(int(limits[arm]), "step"), counted(int(waited[arm]), "step")
            promise = f"promised {state}: served after at most {most}; waited {so_far} so far"
            if limits[arm] >= 0 and slack[arm] == 0:
                reasons[arm] = promise + ("" if decision.served[arm] else "; more arms are due than the budget serves")
            elif forced[arm]:
                reasons[arm] = promise
            elif displaced[arm]:
                due = first[0]
                who = decision.names[due] if decision.names else "another arm"
                others = f" and {len(first) - 1} more" if len(first) > 1 else ""
                rest = (
                    f"at most {counted(int(limits[due]), 'step')}, waited {waited[due]}"
                    if limits[due] >= 0
                    else "a promise is near"
                )
                reasons[arm] = f"waits: the promise to {who} ({rest}){others} goes first"
            elif not decision.served[arm]:
                reasons[arm] += f"; {promise}"
        return reasons

    def _before_promises(self, decision: DecisionStep) -> tuple[DecisionStep, Bools, Bools]:
        """Return the decision of the plan before promises, who is served for one, and who loses its turn by that.

        Arms of one type and state may have exchanged their actions since: only their numbers are compared.
        """
        actor, problem = decision.actor, next(iter(all_made_for(self.parts[0])), None)
        assert isinstance(actor, _Waiting)
        planned, waits, kinds = decision.actions.copy(), actor.last_waits[0], decision.types
        forced, displaced = np.zeros((2, len(planned)), dtype=bool)
        cells = np.stack([kinds, decision.states], axis=1)
        for cell in np.unique(cells[(actor.planned[0] != actor.given[0]) | actor.forced[0]], axis=0):
            arms = np.flatnonzero((cells == cell).all(axis=1))
            arms = arms[np.argsort(-waits[arms], kind="stable")]
            busy = arms[decision.served[arms]]
            forced[busy[: int(actor.forced[0, arms].sum())]] = True
            missing = list((Counter(actor.planned[0, arms].tolist()) - Counter(planned[arms].tolist())).elements())
            surplus = Counter(planned[arms].tolist()) - Counter(actor.planned[0, arms].tolist())
            for arm in arms[::-1].tolist():
                if surplus[action := int(planned[arm])] > 0:
                    surplus[action] -= 1
                    planned[arm] = missing.pop()
                    displaced[arm] = not decision.served[arm] and self.problem.types.served[(*cell, planned[arm])]
        facts: Any = {"states": actor.seen[0], "actions": planned, "actor": actor.part}
        facts["problem"] = problem or self.problem_of_parts(decision.problem, self.to_arrays())
        return replace(decision, **facts), forced, displaced

    def ranks_at(self, decision: DecisionStep) -> Indices | None:
        """(arm, action) ranks of the plan."""
        return described(self.parts[0]).ranks_at(self._before_promises(decision)[0])

    def service_order(self, step: int = 0) -> ServiceOrder | None:
        """Return the order of the plan, if it is one of the states without waiting times."""
        return described(self.parts[0]).service_order(step) if self.mode == 0 else None

    def _in_short(self) -> str:
        return f"{self.parts[0]!r}"

    def start(self, num_episodes: int, rng: Rng = None) -> Actor:
        """An actor at the first step, with arms that have not waited."""
        waits = np.zeros((num_episodes, self.problem.num_arms), dtype=np.int64)
        return _Waiting(self, begin(self.parts[0], num_episodes, as_generator(rng)), waits)

    def resume(self, memory: Mapping[str, ArrayLike]) -> Actor:
        """Return an actor that continues where another one was; its memory is `waiting` and, under `0.`, the part's.

        Args:
            memory: (episode, arm) waiting times of arms that stay in promised states, and the memory of the part.
        """
        own = {name: value for name, value in memory.items() if "." not in name}
        like = {"waiting": Remembered(("episode", "arm"), MOST)}
        waits = read_memory(own, like, {"arm": self.problem.num_arms})["waiting"]
        inner, part = {name[2:]: memory[name] for name in memory if name.startswith("0.")}, self.parts[0]
        if inner and not hasattr(part, "resume"):
            raise PolicyError("memory: the plan remembers nothing")
        return _Waiting(self, part.resume(inner) if hasattr(part, "resume") else begin(part, len(waits), None), waits)  # type: ignore[arg-type]


class _Waiting(Actor):
    """Counts the waiting times of one batch of episodes."""

    def __init__(self, policy: DeadlinePolicy, part: Policy, waits: Ints) -> None:
        super().__init__(len(waits))
        self.policy, self.part, self.waiting = policy, part, waits
        if not isinstance(policy.parts[0], StatefulPolicy) or hasattr(part, "skip_to"):
            self.skip_to = lambda step: getattr(part, "skip_to", int)(step)

    def memory(self) -> Memory:
        """`waiting`, and under `0.` the memory of the plan's actor."""
        own: Memory = {"waiting": self.waiting.copy()}
        if isinstance(self.policy.parts[0], StatefulPolicy):
            own |= {f"0.{name}": np.asarray(array) for name, array in self.part.memory().items()}  # type: ignore[attr-defined]
        return own

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of the plan, changed where promises require it."""
        policy, kinds = self.policy, self.policy.problem.type_of_arm
        deadlines, promised = policy.deadlines, policy.deadlines.promised[kinds, states]
        waits = np.where(promised, np.minimum(self.waiting, deadlines.longest), 0)
        seen = states if policy.mode == 0 else policy.places[kinds, states, waits]
        planned = actions = self.part.act(seen, rng)
        forced = np.zeros(states.shape, dtype=bool)
        if policy.mode < 2:
            ranks = getattr(policy.parts[0], "ranks", None)
            ranked = isinstance(ranks, np.ndarray) and len(ranks) == policy.problem.num_types
            places = ranks[kinds, seen, planned] if ranked and ranks is not None else None
            actions, forced = deadlines.enforce(states, waits, planned, places, rng)
        idle = ~policy.problem.types.served[kinds, states, actions]
        self.true_waits = np.where(promised, self.waiting, 0)
        self.waiting = np.where(promised & idle, self.true_waits + 1, 0)
        self.seen, self.planned, self.given, self.forced, self.last_waits = seen, planned, actions, forced, waits
        return actions


def keep_promises(problem: Any, policy: Any, mode: int = 0) -> Policy | StatefulPolicy:
    """Return a policy under the promises of a problem; itself if there are none, or it is under promises already.

    Args:
        problem: the problem.
        policy: the policy, of `DeadlinePolicy.problem_of_parts`.
        mode: see `DeadlinePolicy`.
    """
    if not problem.has_max_wait or isinstance(policy, DeadlinePolicy):
        return cast(Policy, policy)
    # A mixture that is drawn once stays one, part by part; one that is drawn again must not forget waiting times.
    if getattr(policy, "shares", None) is not None and redraw_period(policy) is None:
        assert isinstance(policy, CompositePolicy)
        return policy.with_parts([keep_promises(problem, part, mode) for part in policy.parts])
    return DeadlinePolicy(problem, policy, mode)


def count_broken(problem: CoupledMDP, states: Indices, actions: Indices) -> tuple[Ints, Ints]:
    """(episode,) number of steps at which a due arm was not served, and at which an arm was due.

    Args:
        problem: with promises.
        states: (episode, step, arm) paths.
        actions: (episode, step, arm) actions.
    """
    kinds, limits, served = problem.type_of_arm, problem.type_max_waits, problem.types.served
    waits = np.zeros((len(states), problem.num_arms), dtype=np.int64)
    broken = due = np.zeros(len(states), dtype=np.int64)
    for step in range(states.shape[1]):
        now, busy = limits[kinds, states[:, step]], served[kinds, states[:, step], actions[:, step]]
        waits = np.where(now >= 0, waits, 0)
        late = (now >= 0) & (waits >= now)
        due, broken = due + late.sum(axis=1), broken + (late & ~busy).sum(axis=1)
        waits = np.where((now >= 0) & ~busy, waits + 1, 0)
    return broken, due
