"""Summaries of opened Parquet models and their results."""

from evenhand.display import counted
from evenhand.model.parquet import StoredArms
from evenhand.planning.stored_models import Relaxation, StoredCheck, TableDecisions, TablePlan
from evenhand.policies.index import RowIndices
from evenhand.report.format import duration, fixed, percent
from evenhand.report.summary import Summary


def model_summary(model: StoredArms) -> Summary:
    """Return the size and the budget of an opened model."""
    facts = [("arms", f"{model.num_arms} in {model.num_rows} rows"), ("criterion", model.criterion.name)]
    budgets = [(f"budget of {name}", f"{budget:g}") for name, budget in model.named_budget.items()]
    return Summary(model.path, facts=[*facts, *budgets])


def relaxation_summary(found: Relaxation) -> Summary:
    """Return the certificate of a relaxation."""
    facts = [
        ("relaxation", f"{fixed(found.welfare, 6)}, with a budget that holds on average"),
        ("upper bound", f"{fixed(found.upper_bound, 6)}, for every policy"),
        ("gap", f"{found.gap:.2g} of the relaxation"),
        *(
            (f"one unit of {name}", f"raises the bound by at most {fixed(price)} (per step)")
            for name, price in found.prices.items()
        ),
        ("budget used", ", ".join(percent(share) for share in found.budget_used)),
        ("found in", f"{found.rounds} rounds on {found.backend}, {counted(found.num_blocks, 'block')}"),
        ("time", duration(found.seconds)),
    ]
    return Summary(f"Relaxation, welfare {found.objective.welfare.name}", counted(found.model.num_arms, "arm"), facts)


def check_summary(found: StoredCheck) -> Summary:
    """Return the facts of a sound model, and its oddities."""
    model = found.model
    facts = [
        ("arms", f"{model.num_arms} in {model.num_rows} rows"),
        ("states", _range(found.states)),
        ("actions", _range(found.actions)),
        ("rewards", f"{fixed(found.rewards[0])} to {fixed(found.rewards[1])}"),
        *(
            (f"budget of {one['name']}", f"{one['budget']:g} of at most {one['most_used']:g}")
            for one in found.resources
        ),
    ]
    return Summary(model.path, facts=facts, notes=found.notes)


def _range(both: tuple[int, int]) -> str:
    return str(both[0]) if both[0] == both[1] else f"{both[0]} to {both[1]}"


def indices_summary(found: RowIndices) -> Summary:
    """Return totals of Whittle indices per row."""
    facts = found.to_dict()
    rows = [(name.replace("_", " "), fixed(v) if isinstance(v, float) else str(v)) for name, v in facts.items()]
    return Summary("Whittle indices", counted(len(found.indexable), "row"), rows)


def decisions_summary(found: TableDecisions) -> Summary:
    """Return the totals of a step."""
    used = [(f"used of {name}", f"{amount:g} of {found.budget[name]:g}") for name, amount in found.used.items()]
    facts = [("arms", str(found.num_arms)), ("served", str(found.num_served)), *used, ("written to", found.out)]
    return Summary("Decisions", counted(found.num_arms, "arm"), facts)


def plan_summary(plan: TablePlan) -> Summary:
    """Return the policy and the model of a plan."""
    return Summary(f"Plan, {plan.policy.name}", facts=[("model", plan.model.path), ("arms", str(plan.model.num_arms))])


SUMMARIES = (
    (StoredArms, model_summary),
    (Relaxation, relaxation_summary),
    (StoredCheck, check_summary),
    (RowIndices, indices_summary),
    (TableDecisions, decisions_summary),
    (TablePlan, plan_summary),
)
