"""Summaries of problems, arms and policies."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import Shown, counted
from evenhand.model.arm import Arm
from evenhand.model.composite import MixturePolicy, TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import type_names
from evenhand.model.policy import capabilities
from evenhand.model.simulator import Problem, Simulator
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.policies.priority import PriorityPolicy
from evenhand.report.format import amount, decimals_of, fixed, number, percent, shortened
from evenhand.report.summary import MOST_ROWS, Summary, Table, table
from evenhand.typing import Floats

MOST_STATES, MOST_ACTIONS = 12, 6
"""States and actions up to which the tables of an arm are shown."""


def problem_summary(problem: CoupledMDP) -> Summary:
    """Return the summary of a problem."""
    kinds = "all identical" if problem.is_symmetric else f"of {counted(problem.num_types, 'type')}"
    unnamed = problem.num_resources == 1 and not problem.resources
    facts = [
        ("budget" if unnamed else f"budget: {name}", f"{amount(b)} per step")
        for name, b in zip(problem.resource_names, problem.budget, strict=True)
    ]
    facts.append(("values", criterion_text(problem)))
    if problem.over == "groups":
        facts.append(("welfare over", counted(len(problem.group_names), "group")))
    only = problem.types[0] if problem.is_symmetric else None
    folded = [_choices_table(only)] if only is not None and _is_small(only) else []
    return Summary(counted(problem.num_arms, "arm"), kinds, facts, tables=[_types_table(problem)], folded=folded)


def criterion_text(problem: Problem) -> str:
    """Return the criterion of a problem, with its discount."""
    name = problem.criterion.name
    return f"discounted by {amount(problem.discount)}" if name == "discounted" else name


def _types_table(problem: Problem) -> Table:
    types, names, grouped = problem.types, type_names(problem), problem.over == "groups"
    rows = []
    for kind in range(min(problem.num_types, MOST_ROWS)):
        row = [shortened(names[kind], 40), f"{problem.type_counts[kind]:,}"]
        row += [str(types.num_states[kind]), str(types.num_actions[kind])]
        row += [problem.group_names[problem.group_of_type[kind]]] if grouped else []
        rows.append(row + ([percent(float(problem.type_floors[kind]))] if problem.has_floors else []))
    heads = ["type", "arms", "states", "actions", *["group"] * grouped, *["floor"] * problem.has_floors]
    return table("", heads, rows, problem.num_types - MOST_ROWS, ["group"])


def _is_small(arm: Arm) -> bool:
    return arm.num_states <= MOST_STATES and arm.num_actions <= MOST_ACTIONS


def arm_summary(arm: Arm) -> Summary:
    """Return the summary of an arm."""
    sizes = (arm.num_states, "state"), (arm.num_actions, "action"), (arm.usage.shape[2], "resource")
    aside = ", ".join(counted(*size) for size in sizes)
    title = arm.name or "An arm"
    if not _is_small(arm):
        return Summary(title, aside, notes=["Its arrays: transitions, rewards, usage, initial."])
    moves = [_transitions_table(arm, action) for action in range(arm.num_actions)]
    return Summary(title, aside, tables=[_choices_table(arm)], folded=moves)


def labels_of(given: Sequence[str], size: int, what: str) -> list[str]:
    """Return labels, or numbers from 0 if there are none."""
    return [shortened(label, 24) for label in given] if given else [f"{what} {index}" for index in range(size)]


def _choices_table(arm: Arm) -> Table:
    """Return rewards and usage per state and action."""
    actions = labels_of(arm.actions, arm.num_actions, "action")
    decimals = decimals_of(arm.rewards.reshape(-1).tolist())
    rows = []
    for state, name in enumerate(labels_of(arm.states, arm.num_states, "state")):
        pairs = zip(arm.rewards[state], arm.usage[state], strict=True)
        cells = [f"{fixed(float(reward), decimals)}{_usage_text(use)}" for reward, use in pairs]
        rows.append([name, percent(float(arm.initial[state])), *cells])
    return table("Rewards, and in brackets the usage of an action", ["state", "at first", *actions], rows)


def _usage_text(use: Floats) -> str:
    return f" ({', '.join(amount(float(a)) for a in use)})" if use.any() else ""


def _transitions_table(arm: Arm, action: int) -> Table:
    states = labels_of(arm.states, arm.num_states, "state")
    rows = [
        # Impossible transitions are left empty.
        [name, *(percent(float(chance)) if chance else "" for chance in arm.transitions[state, action])]
        for state, name in enumerate(states)
    ]
    name = labels_of(arm.actions, arm.num_actions, "action")[action]
    return table(f"Transitions under {name}", ["from", *states], rows)


def simulator_summary(simulator: Simulator) -> Summary:
    """Return the summary of a problem that is known by samples."""
    facts = [
        ("budget", f"{', '.join(amount(float(b)) for b in simulator.budget)} per step"),
        ("values", criterion_text(simulator)),
        ("an arm has", f"{counted(simulator.num_states, 'state')}, {counted(simulator.num_actions, 'action')}"),
        ("sampled by", getattr(simulator.sample, "__qualname__", type(simulator.sample).__name__)),
    ]
    return Summary(counted(simulator.num_arms, "arm"), "all identical, known by samples only", facts)


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
    return Summary(type(policy).__name__, opening, facts, tables=_policy_tables(policy))


def _policy_tables(policy: object) -> list[Table]:
    if isinstance(policy, MixturePolicy):
        return [parts_table([(repr(part), float(w)) for part, w in zip(policy.parts, policy.shares, strict=True)])]
    if isinstance(policy, TimeVaryingPolicy):
        rows = [[str(step), repr(part)] for step, part in enumerate(policy.parts[:MOST_ROWS])]
        return [table("", ["step", "policy"], rows, len(policy.parts) - MOST_ROWS, ["policy"])]
    if isinstance(policy, PriorityPolicy):
        return [_ranks_table(policy)]
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)) and isinstance(policy.network, Network):
        layers = [[str(layer), str(w.shape[0]), str(w.shape[1])] for layer, w in enumerate(policy.network.weights)]
        return [table("", ["layer", "inputs", "outputs"], layers)]
    return []


def parts_table(parts: Sequence[tuple[str, float]]) -> Table:
    """Return the parts of a mixture with their shares."""
    rows = [[name, percent(share)] for name, share in parts[:MOST_ROWS]]
    return table("", ["part of the mixture", "share"], rows, len(parts) - MOST_ROWS)


def _ranks_table(policy: PriorityPolicy) -> Table:
    """Return the order of service: the first cells by falling score."""
    problem, ranks = policy.problem, policy.ranks
    cells = np.argwhere(ranks >= 0)
    order = np.argsort(ranks[tuple(cells.T)], kind="stable")
    names, labels = type_names(problem), problem.types.labels
    rows = []
    for kind, state, action in cells[order[:MOST_ROWS]].tolist():
        states, actions = (labels[kind][1], labels[kind][2]) if labels else ((), ())
        where = states[state] if states else f"state {state}"
        what = actions[action] if actions else f"action {action}"
        place, score = str(ranks[kind, state, action] + 1), number(float(policy.scores[kind, state, action]))
        rows.append([place, shortened(names[kind], 30), shortened(where, 30), shortened(what, 30), score])
    heads = ["rank", "type", "in", "gets", "score"]
    return table("Order of service", heads, rows, len(cells) - MOST_ROWS, heads[1:4])
