"""Several budgets at once: the tables of `evenhand solve` and `evenhand compare` with more than one --budget."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from evenhand.cli.console import number, objective_words, print_table, say
from evenhand.cli.refusals import OptionError
from evenhand.model.coupled import CoupledMDP

if TYPE_CHECKING:
    from evenhand.planning.compare import Comparison
    from evenhand.planning.solution import Solution
    from evenhand.planning.what_if import BudgetComparison, BudgetRow, Step


def refuse_with_several(budgets: Sequence[str], options: Mapping[str, object]) -> None:
    """Raise InvalidInput for options that are about one plan only.

    Args:
        budgets: what was given as --budget.
        options: values by option; those that are None were not given.
    """
    for option, value in options.items():
        if len(budgets) > 1 and value is not None:
            raise OptionError(option, f"goes with one --budget, and here are {len(budgets)}")


def budget_words(problem: CoupledMDP, budgets: Sequence[str]) -> str:
    """How a title goes on where the budget is not the model's own; else nothing."""
    return "" if not budgets else f", budget {_amounts(problem.named_budget)}"


def _amounts(budget: Mapping[str, float]) -> str:
    """`bays 4, technicians 4`, or `4` where there is one resource without a name."""
    if list(budget) == ["resource 0"]:
        return f"{budget['resource 0']:.10g}"
    return ", ".join(f"{name} {amount:.10g}" for name, amount in budget.items())


def solutions_as_dict(
    rows: "Sequence[BudgetRow]", solution_as_dict: "Callable[[Solution, str | None], dict[str, Any]]"
) -> dict[str, Any]:
    """The JSON form of several solutions: each as `solve` tells it, with its budget and its step."""
    told = []
    for row in rows:
        step = {**_step_as_dict(row.step), "kept_from": row.kept_from}
        told.append({"budget": row.budget, **step, **solution_as_dict(row.solution, None)})
    return {"welfare": rows[0].solution.objective.welfare.name, "budgets": told}


def comparisons_as_dict(
    rows: "Sequence[BudgetComparison]", comparison_as_dict: "Callable[[Comparison], dict[str, Any]]"
) -> dict[str, Any]:
    """The JSON form of several comparisons: each as `compare` tells it, with its budget, its best and its step."""
    told = []
    for row in rows:
        best = {
            "policy": row.best,
            "welfare": row.evaluation.welfare,
            "welfare_stderr": row.evaluation.welfare_stderr,
        }
        told.append(
            {"budget": row.budget, "best": best, **_step_as_dict(row.step), **comparison_as_dict(row.comparison)}
        )
    return {"welfare": rows[0].comparison.welfare.name, "budgets": told}


def _step_as_dict(step: "Step | None") -> dict[str, Any]:
    return {
        "step": None if step is None else step.welfare,
        "step_stderr": None if step is None else step.stderr,
        "step_from": None if step is None else step.since,
        "step_measurable": None if step is None else step.measurable,
    }


def _estimate(row: "BudgetRow | BudgetComparison") -> tuple[float, float, float | None]:
    """The welfare of a row, its standard error and its bound."""
    from evenhand.planning.what_if import BudgetRow

    if isinstance(row, BudgetRow):
        return row.solution.welfare, row.solution.welfare_stderr, row.solution.upper_bound
    return row.evaluation.welfare, row.evaluation.welfare_stderr, row.comparison.upper_bound


def _is_above(row: "BudgetRow | BudgetComparison") -> bool:
    """Whether a welfare was estimated above what no policy exceeds, which only chance can do: it ties with that."""
    welfare, error, bound = _estimate(row)
    return bound is not None and error > 0 and welfare > bound


def _shown(row: "BudgetRow | BudgetComparison") -> float:
    """The welfare as people are told it: an estimate above the bound is at the bound."""
    welfare, _, bound = _estimate(row)
    return bound if bound is not None and _is_above(row) else welfare


def _tell_ties(rows: "Sequence[BudgetRow | BudgetComparison]") -> None:
    for row in rows:
        if _is_above(row):
            welfare, error, _ = _estimate(row)
            played = f"{number(welfare)} ± {number(error)}"
            say(f"tie at {_amounts(row.budget)}: with the upper bound; it played {played}, more only by chance")


def show_solutions(rows: "Sequence[BudgetRow]", model: str) -> None:
    """The table of `solve`."""
    first = rows[0].solution
    resources, amounts = _resource_columns([row.budget for row in rows])
    since, steps = _steps(rows)
    columns = [*resources, *_right("welfare", "±", "upper bound", "gap", *since), ("plan", "left")]
    cells = []
    for row, own, step in zip(rows, amounts, steps, strict=True):
        found = row.solution
        error = number(found.welfare_stderr) if found.welfare_stderr else "exact"
        figures = (number(_shown(row)), error, number(found.upper_bound), f"{found.gap:.2g}")
        cells.append([*own, *figures, *step, _plan_words(row)])
    title = f"{model}, welfare {first.objective.welfare.name}{objective_words(first.problem)}: what a budget is worth"
    print_table(title, columns, cells)
    _tell_ties(rows)


def _plan_words(row: "BudgetRow") -> str:
    """Where the plan is from, shortly; --json has the whole reason."""
    if row.kept_from is not None:
        return f"that for {_amounts(row.kept_from)}"
    parts = row.solution.parts
    if len(parts) > 1:
        return f"a mixture of {len(parts)}"
    return parts[0].name if parts else f"by {row.solution.method}"


def show_comparisons(rows: "Sequence[BudgetComparison]", model: str) -> None:
    """The tables of `compare`: the best under each budget, and every policy under each."""
    first = rows[0].comparison
    resources, amounts = _resource_columns([row.budget for row in rows])
    since, steps = _steps(rows)
    columns = [*resources, *_right("bound", "welfare", "±", *since), ("best policy", "left")]
    cells = []
    for row, own, step in zip(rows, amounts, steps, strict=True):
        found = row.evaluation
        error = "exact" if found.exact else number(found.welfare_stderr)
        bound = number(row.comparison.upper_bound)
        cells.append([*own, bound, number(_shown(row)), error, *step, row.best])
    title = f"{model}, welfare {first.welfare.name}{objective_words(first.problem)}: what a budget is worth"
    print_table(title, columns, cells)
    _tell_ties(rows)
    _show_every_policy(rows)


def _show_every_policy(rows: "Sequence[BudgetComparison]") -> None:
    found = [{row.policy: row.evaluation.welfare for row in one.comparison.as_shown().rows} for one in rows]
    names = list(dict.fromkeys(name for one in found for name in one))
    columns = [("policy", "left"), *((f"at {_amounts(row.budget)}", "right") for row in rows)]
    print_table(
        "welfare of every policy", columns, [[name, *(number(one.get(name)) for one in found)] for name in names]
    )
    for row in rows:
        at = f" at {_amounts(row.budget)}"
        for line in left_out_lines(row.comparison, at):
            say(line)


def left_out_lines(comparison: "Comparison", at: str = "") -> list[str]:
    """What is not in the table, and why, a line each.

    Args:
        comparison: what came out.
        at: under which budget, as ` at bays 2`, where there are several.
    """
    told = [f"left out{at}: {name}: {reason}" for name, reason in comparison.policies_left_out.items()]
    return told + ([f"no upper bound{at}: {comparison.no_bound}"] if comparison.no_bound else [])


def _resource_columns(budgets: Sequence[Mapping[str, float]]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """A column a resource, and the (row, resource) amounts as they are shown."""
    names = list(budgets[0])
    heads = ["budget"] if names == ["resource 0"] else names
    return _right(*heads), [[f"{budget[name]:.10g}" for name in names] for budget in budgets]


def _right(*names: str) -> list[tuple[str, str]]:
    return [(name, "right") for name in names]


def _steps(rows: "Sequence[BudgetRow | BudgetComparison]") -> tuple[list[str], list[list[str]]]:
    """The columns of steps, and their (row, column) cells; from which budget, where one is not from the row before."""
    cells, shown = [], {tuple(row.budget.values()): _shown(row) for row in rows}
    for row in rows:
        step = row.step
        error = "" if step is None else number(step.stderr) if step.stderr else "exact"
        since = "" if step is None else ",".join(f"{amount:.10g}" for amount in step.since.values())
        worth = "" if step is None else f"{_shown(row) - shown[tuple(step.since.values())]:+.4f}"
        if step is not None and not step.measurable:
            worth = "no measurable difference"
        cells.append([worth, error, since])
    plain = all(row.step is not None and row.step.since == last.budget for last, row in pairwise(rows))
    heads = ["step", "± of step", "step from"]
    return (heads[:2], [own[:2] for own in cells]) if plain else (heads, cells)
