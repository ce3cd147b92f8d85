"""Tables as HTML: headers with a scope, numbers aligned right, everything that came from outside escaped."""

from collections.abc import Sequence
from html import escape

from evenhand.evaluation.evaluate import Evaluation
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.compare import Comparison
from evenhand.report.words import (
    UNKNOWN,
    abbreviation_and_summary,
    actions_text,
    bound_title,
    capitalised,
    decimals_of,
    duration,
    gap_to,
    is_nameless,
    member,
    number,
    number_text,
    percent,
    same_choices,
    states_text,
    type_names,
    values_by_type,
)

MOST_TYPES = 12
"""Types that are shown one by one."""


def results_table(comparison: Comparison, problem: CoupledMDP) -> str:
    """A row a policy, the bound on top."""
    columns = _columns(comparison, problem)
    heads = [f'<th scope="col">{escape(title)}</th>' for title, _, _ in columns]
    rows = [
        _row(_policy_cell(row.policy), [cells[index] for _, _, cells in columns])
        for index, row in enumerate(comparison.rows)
    ]
    if comparison.upper_bound is not None:
        rows.insert(0, _row(_bound_cell(comparison), [top for _, top, _ in columns], "bound"))
    return _table("Best first; policies are ranked by welfare", ['<th scope="col">Policy</th>', *heads], rows)


Column = tuple[str, str, list[str]]
"""Title, the bound's entry, and an entry for each policy."""


def _columns(comparison: Comparison, problem: CoupledMDP) -> list[Column]:
    found = [row.evaluation for row in comparison.rows]
    bound = comparison.upper_bound
    welfare = [each.welfare for each in found] + ([] if bound is None else [bound])
    decimals = decimals_of(welfare)
    columns: list[Column] = [
        (
            "Welfare",
            "" if bound is None else number_text(bound, decimals),
            [f"<b>{number_text(each.welfare, decimals)}</b>" for each in found],
        ),
        ("±\u00a0error", "", [_error(each) for each in found]),
    ]
    if bound is not None:
        columns.append(_bound_column(bound, bound_title(comparison), found))
    columns += [
        ("Mean", "", [number_text(each.mean, decimals) for each in found]),
        (f"Worst {member(problem)}", "", [number_text(each.worst, decimals) for each in found]),
        ("Gini coefficient", "", [number_text(each.gini_coefficient, 3) for each in found]),
    ]
    columns += [_budget_column(found, resource, problem) for resource in range(problem.num_resources)]
    return [*columns, ("Time", "", [duration(each.seconds) for each in found])]


def _error(found: Evaluation) -> str:
    return '<span class="quiet">exact</span>' if found.exact else f"±\u00a0{number(found.welfare_stderr, 2)}"


def _bound_column(bound: float, title: str, found: Sequence[Evaluation]) -> Column:
    """The share of the bound that is reached; for a bound that is not positive, what is missing."""
    if bound > 0:
        return f"Of the {title}", percent(1.0, 2), [percent(1 - gap_to(bound, each.welfare), 2) for each in found]
    missing = [bound - each.welfare for each in found]
    decimals = decimals_of(missing)
    return f"Below the {title}", number_text(0.0, decimals), [number_text(gap, decimals) for gap in missing]


def _budget_column(found: Sequence[Evaluation], resource: int, problem: CoupledMDP) -> Column:
    title = "Budget used" if problem.num_resources == 1 else f"Used of resource {resource + 1}"
    none = problem.budget[resource] == 0
    return title, "", [UNKNOWN if none else percent(float(each.budget_used[resource])) for each in found]


def _policy_cell(policy: str) -> str:
    abbreviation, summary = abbreviation_and_summary(policy)
    short = f' <abbr title="{escape(policy)}">{escape(abbreviation)}</abbr>' if abbreviation else ""
    line = f"<small>{escape(summary)}</small>" if summary else ""
    return f"{escape(policy)}{short}{line}"


def _bound_cell(comparison: Comparison) -> str:
    kind = comparison.bound_name if comparison.bound_name not in ("optimum", "") else ""
    line = f"{kind}: no policy can have more" if kind else "no policy can have more"
    return f"{capitalised(bound_title(comparison))}<small>{escape(line)}</small>"


def types_table(problem: CoupledMDP) -> str:
    """The types: how many arms, and their states and actions where these differ; empty where it would say nothing."""
    names, alike = type_names(problem), same_choices(problem)
    if problem.is_symmetric or (alike and is_nameless(problem)):
        return ""
    heads = ['<th scope="col">Type</th>', '<th scope="col">Arms</th>']
    if not alike:
        heads += [f'<th scope="col" class="text">{title}</th>' for title in ("States", "Actions")]
    rows = []
    for kind in range(min(problem.num_types, MOST_TYPES)):
        texts = [] if alike else [states_text(problem, kind), actions_text(problem, kind)]
        cells = [f"{int(problem.type_counts[kind]):,}"]
        rows.append(_row(escape(names[kind]), cells, texts=[escape(text) for text in texts]))
    return _table("Types of arms", heads, rows) + _and_more(problem)


def values_table(comparison: Comparison, problem: CoupledMDP) -> str:
    """The mean value of the arms of each type under each policy; empty where there is one type, or very many."""
    if not 2 <= problem.num_types <= MOST_TYPES or not comparison.rows:
        return ""
    by_policy = [values_by_type(row.evaluation, problem) for row in comparison.rows]
    decimals = decimals_of([float(value) for values in by_policy for value in values])
    heads = [f'<th scope="col">{escape(name)}</th>' for name in type_names(problem)]
    rows = [
        _row(escape(row.policy), _marked([number_text(value, decimals) for value in values], int(values.argmin())))
        for row, values in zip(comparison.rows, by_policy, strict=True)
    ]
    return _table("Mean value of an arm, by type", ['<th scope="col">Policy</th>', *heads], rows)


def groups_table(comparison: Comparison, problem: CoupledMDP) -> str:
    """The value of each group under each policy; empty where welfare is over arms, or there are very many groups."""
    if problem.over != "groups" or len(problem.group_names) > MOST_TYPES or not comparison.rows:
        return ""
    by_policy = [list(row.evaluation.groups.values()) for row in comparison.rows]
    decimals = decimals_of([value for values in by_policy for value in values])
    heads = [f'<th scope="col">{escape(name)}</th>' for name in problem.group_names]
    rows = [
        _row(escape(row.policy), _marked([number_text(value, decimals) for value in values], values.index(min(values))))
        for row, values in zip(comparison.rows, by_policy, strict=True)
    ]
    return _table("Value of a group, the mean of its arms", ['<th scope="col">Policy</th>', *heads], rows)


def floors_list(comparison: Comparison, problem: CoupledMDP) -> str:
    """The policies that serve some arms less often than they must, each with whom and how often; else empty."""
    items = []
    for row in comparison.rows:
        found, names = row.evaluation, type_names(problem)
        whose = [names[m.unit if found.by_type else int(problem.type_of_arm[m.unit])] for m in found.floors_missed]
        told = [
            f"{name} in {percent(missed.served)} of the time, not {percent(missed.floor)}"
            for name, missed in dict(zip(whose, found.floors_missed, strict=True)).items()
        ]
        if told:
            items.append(f"<dt>{escape(row.policy)}</dt><dd>serves {escape('; '.join(told[:MOST_TYPES]))}</dd>")
    return f'<dl class="left-out">{"".join(items)}</dl>' if items else ""


def _marked(texts: list[str], worst: int) -> list[str]:
    """The worst in bold, and all that read the same."""
    return [f"<b>{text}</b>" if text == texts[worst] else text for text in texts]


def left_out_list(comparison: Comparison) -> str:
    """The policies that do not apply, each with the reason; empty if there is none."""
    if not comparison.left_out:
        return ""
    items = [f"<dt>{escape(name)}</dt><dd>{escape(why)}</dd>" for name, why in sorted(comparison.left_out.items())]
    return f'<dl class="left-out">{"".join(items)}</dl>'


def _and_more(problem: CoupledMDP) -> str:
    more = problem.num_types - MOST_TYPES
    return f'<p class="quiet">… and {more:,} more type{"s" if more > 1 else ""}.</p>' if more > 0 else ""


def _row(head: str, cells: Sequence[str], kind: str = "", texts: Sequence[str] = ()) -> str:
    css = f' class="{kind}"' if kind else ""
    data = [f"<td>{cell}</td>" for cell in cells] + [f'<td class="text">{text}</td>' for text in texts]
    return f'<tr{css}><th scope="row">{head}</th>{"".join(data)}</tr>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    lines = "\n".join(rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{''.join(heads)}</tr></thead>\n"
        f"<tbody>\n{lines}\n</tbody></table></div>"
    )
