"""Summaries of problems, arms, policies and opened models, and the description of a problem in sentences."""

from collections.abc import Mapping, Sequence
from functools import singledispatch

import numpy as np

from evenhand.display import Shown, counted
from evenhand.model.arm import Arm
from evenhand.model.composite import MixturePolicy, TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.labels import type_names
from evenhand.model.parquet import StoredArms
from evenhand.model.policy import capabilities
from evenhand.model.simulator import Problem, Simulator
from evenhand.model.welfare import Welfare
from evenhand.planning.stored_models import Relaxation, StoredCheck, TableDecisions, TablePlan
from evenhand.policies.index import RowIndices
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.policies.priority import PriorityPolicy
from evenhand.report.format import amount, decimals_of, duration, few, fixed, number, percent, shortened
from evenhand.report.summary import MOST_ROWS, Section, Summary, Table, summary_of, table

MOST_STATES, MOST_ACTIONS = 12, 6
"""States and actions up to which the tables of an arm are shown."""


# -- summaries --------------------------------------------------------------------------------------------------------


@summary_of.register(CoupledMDP)
@summary_of.register(Simulator)
def problem_summary(problem: Problem) -> Summary:
    """Return the description of a problem, in a notebook and on pages."""
    unnamed = problem.num_resources == 1 and not problem.resources
    facts = [
        ("budget" if unnamed else f"budget: {name}", f"{amount(b)} per step, for all arms together")
        for name, b in zip(problem.resource_names, problem.budget, strict=True)
    ]
    if _same_choices(problem):
        facts += [("states", _states_text(problem, 0)), ("actions", _actions_text(problem, 0))]
    facts.append(("value of an arm", problem.criterion.description))
    kinds = "all identical" if problem.is_symmetric else f"of {counted(problem.num_types, 'type')}"
    if problem.over == "groups":
        groups = f"{counted(len(problem.group_names), 'group')} ({', '.join(few(problem.group_names))})"
        meaning = "the value of a group is the mean of its arms' values, and each group counts once"
        facts.append(("welfare over", f"{groups}: {meaning}"))
    if isinstance(problem, Simulator):
        kinds += ", known by samples only"
        facts.append(("sampled by", getattr(problem.sample, "__qualname__", type(problem.sample).__name__)))
    shows_choices = isinstance(problem, CoupledMDP) and problem.is_symmetric and _is_small(problem.types[0])
    folded = [_choices_table(problem.types[0])] if shows_choices else []
    return Summary(counted(problem.num_arms, "arm"), kinds, facts, tables=[_types_table(problem)], folded=folded)


def problem_section(problem: Problem) -> Section:
    """Return the section of a page that describes the problem."""
    found = problem_summary(problem)
    meaning = "An arm is whatever competes for the resources: a machine, a patient, a customer."
    return Section("The problem", [f"{found.title}, {found.aside}. {meaning}"], facts=found.facts, tables=found.tables)


def _types_table(problem: Problem) -> Table:
    """Return the types with their arms; with states and actions if these differ."""
    names, alike, grouped = type_names(problem), _same_choices(problem), problem.over == "groups"
    rows = []
    for kind in range(min(problem.num_types, MOST_ROWS)):
        row = [shortened(names[kind], 40), f"{problem.type_counts[kind]:,}"]
        row += [] if alike else [_states_text(problem, kind), _actions_text(problem, kind)]
        row += [problem.group_names[problem.group_of_type[kind]]] if grouped else []
        rows.append(row + ([percent(float(problem.type_floors[kind]))] if problem.has_floors else []))
    words = ["states", "actions"] * (not alike) + ["group"] * grouped
    heads = ["type", "arms", *words, *["floor"] * problem.has_floors]
    floors = "; each arm is served at least in the share of the time of its floor" if problem.has_floors else ""
    return table(f"Types of arms{floors}", heads, rows, problem.num_types - MOST_ROWS, words)


def _same_choices(problem: Problem) -> bool:
    """Return whether all types have the same states and actions, by name and by usage."""
    types = problem.types
    labels = {label[1:] for label in types.labels}
    alike = (types.num_states == types.num_states[0]).all() and (types.num_actions == types.num_actions[0]).all()
    return len(labels) <= 1 and bool(alike) and bool((types.usage == types.usage[0]).all())


def _states_text(problem: Problem, kind: int) -> str:
    """Return `3 (new, worn, failed)`."""
    labels = problem.types.labels[kind][1] if problem.types.labels else ()
    return str(problem.types.num_states[kind]) + (f" ({', '.join(few(labels))})" if labels else "")


def _actions_text(problem: Problem, kind: int) -> str:
    """Return `2: wait (uses nothing), call (uses 1)`."""
    types, size = problem.types, int(problem.types.num_actions[kind])
    labels = _labels(types.labels[kind][2] if types.labels else (), size, "action")
    usage = types.usage[kind, : types.num_states[kind]]  # real states only: padding uses nothing
    texts = []
    for action, label in enumerate(labels):
        uses = []
        for name, own in zip(problem.resource_names, usage[:, action].T, strict=True):
            low, high = amount(own.min()), amount(own.max())
            of = f" of {name}" if problem.num_resources > 1 else ""
            uses += [] if high == "0" else [f"{low}{of}" if low == high else f"{low} to {high}{of}, by state"]
        texts.append(f"{label} (uses {' and '.join(uses) or 'nothing'})")
    return f"{size}: {', '.join(few(texts))}"


def _is_small(arm: Arm) -> bool:
    return arm.num_states <= MOST_STATES and arm.num_actions <= MOST_ACTIONS


@summary_of.register
def arm_summary(arm: Arm) -> Summary:
    """Return the summary of an arm."""
    sizes = (arm.num_states, "state"), (arm.num_actions, "action"), (arm.usage.shape[2], "resource")
    aside = ", ".join(counted(*size) for size in sizes)
    title = arm.name or "An arm"
    if not _is_small(arm):
        return Summary(title, aside, notes=["Its arrays: transitions, rewards, usage, initial."])
    moves = [_transitions_table(arm, action) for action in range(arm.num_actions)]
    return Summary(title, aside, tables=[_choices_table(arm)], folded=moves)


def _labels(given: Sequence[str], size: int, what: str) -> list[str]:
    """Return labels, or numbers from 0 if there are none."""
    return [shortened(label, 24) for label in given] if given else [f"{what} {index}" for index in range(size)]


def _choices_table(arm: Arm) -> Table:
    """Return rewards and usage per state and action."""
    actions = _labels(arm.actions, arm.num_actions, "action")
    decimals = decimals_of(arm.rewards.reshape(-1).tolist())
    rows = []
    for state, name in enumerate(_labels(arm.states, arm.num_states, "state")):
        pairs = zip(arm.rewards[state], arm.usage[state], strict=True)
        cells = [
            fixed(float(reward), decimals) + (f" ({', '.join(amount(float(a)) for a in use)})" if use.any() else "")
            for reward, use in pairs
        ]
        rows.append([name, percent(float(arm.initial[state])), *cells])
    return table("Rewards, and in brackets the usage of an action", ["state", "at first", *actions], rows)


def _transitions_table(arm: Arm, action: int) -> Table:
    states = _labels(arm.states, arm.num_states, "state")
    rows = [
        # Impossible transitions are left empty.
        [name, *(percent(float(chance)) if chance else "" for chance in arm.transitions[state, action])]
        for state, name in enumerate(states)
    ]
    name = _labels(arm.actions, arm.num_actions, "action")[action]
    return table(f"Transitions under {name}", ["from", *states], rows)


@summary_of.register(object)
def policy_summary(policy: object) -> Summary:
    """Return the summary of a policy: its class, its problem and its abilities."""
    opening = (type(policy).__doc__ or "").strip().partition("\n")[0]
    problem = getattr(policy, "problem", None) or getattr(getattr(policy, "reduction", None), "problem", None)
    facts = [("made for", repr(problem))] if isinstance(problem, Shown) else []
    can = capabilities(policy)
    abilities = ["act on the states of arms" if can.starts is None else "act, with a memory"]
    abilities += ["be simulated by counts"] if can.by_counts else []
    abilities += ["be evaluated exactly"] if can.law or can.table or can.tabulates else []
    facts.append(("can", ", ".join(abilities)))
    return Summary(type(policy).__name__, opening, facts, tables=policy_tables(policy))


@singledispatch
def policy_tables(policy: object) -> list[Table]:
    """Return the tables of a policy by its class; none by default."""
    return []


@policy_tables.register
def _(policy: MixturePolicy) -> list[Table]:
    rows = [[repr(part), percent(float(w))] for part, w in zip(policy.parts, policy.shares, strict=True)]
    return [table("", ["part of the mixture", "share"], rows[:MOST_ROWS], len(rows) - MOST_ROWS)]


@policy_tables.register
def _(policy: TimeVaryingPolicy) -> list[Table]:
    rows = [[str(step), repr(part)] for step, part in enumerate(policy.parts[:MOST_ROWS])]
    return [table("", ["step", "policy"], rows, len(policy.parts) - MOST_ROWS, ["policy"])]


@policy_tables.register(CountNetworkPolicy)
@policy_tables.register(JointNetworkPolicy)
def _(policy: CountNetworkPolicy | JointNetworkPolicy) -> list[Table]:
    if not isinstance(policy.network, Network):
        return []
    layers = [[str(layer), str(w.shape[0]), str(w.shape[1])] for layer, w in enumerate(policy.network.weights)]
    return [table("", ["layer", "inputs", "outputs"], layers)]


@policy_tables.register
def _(policy: PriorityPolicy) -> list[Table]:
    """Return the order of service: the first cells by falling score."""
    problem, ranks = policy.problem, policy.ranks
    cells = np.argwhere(ranks >= 0)
    order = np.argsort(ranks[tuple(cells.T)], kind="stable")
    types, names = problem.types, type_names(problem)
    labels = types.labels or [("", (), ())] * problem.num_types
    rows = []
    for kind, state, action in cells[order[:MOST_ROWS]].tolist():
        where = _labels(labels[kind][1], state + 1, "state")[state]
        what = _labels(labels[kind][2], action + 1, "action")[action]
        place, score = str(ranks[kind, state, action] + 1), number(float(policy.scores[kind, state, action]))
        rows.append([place, shortened(names[kind], 30), where, what, score])
    heads = ["rank", "type", "in", "gets", "score"]
    return [table("Order of service", heads, rows, len(cells) - MOST_ROWS, heads[1:4])]


# -- opened models in Parquet -----------------------------------------------------------------------------------------


@summary_of.register
def stored_summary(model: StoredArms) -> Summary:
    """Return the size and the budget of an opened model."""
    facts = [("arms", f"{model.num_arms} in {model.num_rows} rows"), ("criterion", model.criterion.name)]
    budgets = [(f"budget of {name}", f"{budget:g}") for name, budget in model.named_budget.items()]
    return Summary(model.path, facts=[*facts, *budgets])


@summary_of.register
def relaxation_summary(found: Relaxation) -> Summary:
    """Return the certificate of a relaxation."""
    facts = [
        ("relaxation", f"{fixed(found.welfare, 6)}, with a budget that holds on average"),
        ("upper bound", f"{fixed(found.upper_bound, 6)}, for every policy"),
        ("gap", f"{found.gap:.2g} of the relaxation"),
        *((f"one unit of {n}", f"raises the bound by at most {fixed(p)} (per step)") for n, p in found.prices.items()),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("found in", f"{found.rounds} rounds on {found.backend}, {counted(found.num_blocks, 'block')}"),
        ("time", duration(found.seconds)),
    ]
    return Summary(f"Relaxation, welfare {found.objective.welfare.name}", counted(found.model.num_arms, "arm"), facts)


@summary_of.register
def stored_check_summary(found: StoredCheck) -> Summary:
    """Return the facts of a sound model, and its oddities."""
    ranges = {"states": found.states, "actions": found.actions}
    facts = [
        ("arms", f"{found.model.num_arms} in {found.model.num_rows} rows"),
        *((name, str(low) if low == high else f"{low} to {high}") for name, (low, high) in ranges.items()),
        ("rewards", f"{fixed(found.rewards[0])} to {fixed(found.rewards[1])}"),
    ]
    facts += [(f"budget of {r.name}", f"{r.budget:g} of at most {r.most_used:g}") for r in found.resources]
    return Summary(found.model.path, facts=facts, notes=found.notes)


@summary_of.register
def row_indices_summary(found: RowIndices) -> Summary:
    """Return totals of Whittle indices per row."""
    figures = found.to_dict().items()
    facts = [(name.replace("_", " "), fixed(v) if isinstance(v, float) else str(v)) for name, v in figures]
    return Summary("Whittle indices", counted(len(found.indexable), "row"), facts)


@summary_of.register
def table_decisions_summary(found: TableDecisions) -> Summary:
    """Return the totals of a step."""
    used = [(f"used of {name}", f"{amount:g} of {found.budget[name]:g}") for name, amount in found.used.items()]
    facts = [("arms", str(found.num_arms)), ("served", str(found.num_served)), *used, ("written to", found.out)]
    return Summary("Decisions", counted(found.num_arms, "arm"), facts)


@summary_of.register
def table_plan_summary(plan: TablePlan) -> Summary:
    """Return the policy and the model of a plan."""
    return Summary(f"Plan, {plan.policy.name}", facts=[("model", plan.model.path), ("arms", str(plan.model.num_arms))])


# -- a problem in sentences -------------------------------------------------------------------------------------------


def setting(problem: Problem | StoredArms) -> str:
    """Return the continuation of a title: criterion and groups, if they are not the default."""
    criterion = "" if problem.criterion.name == "discounted" else f", criterion {problem.criterion.name}"
    return criterion + (f", over {counted(len(problem.group_names), 'group')}" if problem.over == "groups" else "")


def budget_text(budget: Mapping[str, float]) -> str:
    """Return `bays 4, technicians 4`, or `4` for one resource without a name."""
    if list(budget) == ["resource 0"]:
        return amount(budget["resource 0"])
    return ", ".join(f"{name} {amount(value)}" for name, value in budget.items())


def weights_of_time(problem: Problem) -> str:
    """Return the end of a sentence on the weights of steps; empty if they are equal."""
    if problem.criterion.factor < 1:
        return ", early steps counting for more"
    return ", in the long run" if problem.criterion.is_stationary else ""


def member(problem: Problem) -> str:
    """Return `arm` or `group`, the member that welfare is over."""
    return "group" if problem.over == "groups" else "arm"


def welfare_meaning(welfare: Welfare, who: str = "arm") -> str:
    """Return the meaning of a welfare.

    Args:
        welfare: the welfare.
        who: its members, `arm` or `group`.
    """
    say = getattr(welfare, "meaning", None)
    if say is None:
        return f"It is one number for the values of all {who}s."
    return f"{say(who)} It is in the same unit as the values, and if all {who}s are equal it is simply their value."
