"""The tables of a comparison, as texts in their places; the templates make HTML of them, and escape."""

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.evaluation.evaluate import Evaluation
from evenhand.model.simulator import Problem
from evenhand.planning.compare import Comparison
from evenhand.report.words import (
    UNKNOWN,
    abbreviation_and_summary,
    actions_text,
    alike_but_for_starts,
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
    shortened,
    starts_words,
    states_text,
    type_names,
    values_by_type,
)

MOST_TYPES = 12
"""Types that are shown one by one."""


@dataclass(frozen=True)
class Cell:
    """A text in its place."""

    text: str
    is_strong: bool = False
    is_quiet: bool = False
    is_text: bool = False
    """Words, not a number: set from the left, in several lines."""


@dataclass(frozen=True)
class TableRow:
    """A row: what it is about, and its cells."""

    name: str
    cells: tuple[Cell, ...]
    short: str = ""
    """An abbreviation of the name."""
    note: str = ""
    """A line below the name."""
    kind: str = ""
    """`bound` for what no policy can exceed."""


@dataclass(frozen=True)
class Table:
    """A table with its caption."""

    caption: str
    heads: tuple[Cell, ...]
    rows: tuple[TableRow, ...]


# -- the results of a comparison -------------------------------------------------------------------------------------


def draws_table(comparison: Comparison) -> Table | None:
    """A row a policy: its welfare over draws of what the records allow; None where none were asked for."""
    if (draws := comparison.draws) is None:
        return None
    # Others are compared with the first, which is the best.
    first = draws.rows[0].policy
    decimals = decimals_of([row.mean for row in draws.rows])
    rows = []
    for row in draws.rows:
        spread = [*(row.quantile(share) for share in (0.05, 0.5, 0.95)), row.tail(0.1)]
        better = "" if row.policy == first else percent(draws.chance_better(row.policy, first))
        rows.append(_policy_row(row.policy, (*(Cell(number_text(it, decimals)) for it in spread), Cell(better))))
    heads = ("Policy", "5\u00a0% below", "Middle", "95\u00a0% below", "Worst tenth", f"Better than {first}")
    caption = f"Welfare over {draws.num_draws} draws of what the records allow"
    return Table(caption, tuple(map(Cell, heads)), tuple(rows))


def results_table(comparison: Comparison, problem: Problem) -> Table:
    """A row a policy, the bound on top."""
    columns = _columns(comparison, problem)
    rows = [
        _policy_row(row.policy, tuple(column.cells[index] for column in columns))
        for index, row in enumerate(comparison.rows)
    ]
    # The bound is a row of its own, above all policies.
    if comparison.upper_bound is not None:
        rows.insert(0, _bound_row(comparison, tuple(Cell(column.bound) for column in columns)))
    heads = (Cell("Policy"), *(Cell(column.title) for column in columns))
    return Table("Best first; policies are ranked by welfare", heads, tuple(rows))


@dataclass(frozen=True)
class Column:
    """A column of the results."""

    title: str
    bound: str
    """The entry of the bound."""
    cells: tuple[Cell, ...]
    """(policy,) theirs."""


def _column(title: str, texts: Sequence[str], bound: str = "") -> Column:
    return Column(title, bound, tuple(Cell(text) for text in texts))


def _columns(comparison: Comparison, problem: Problem) -> list[Column]:
    found = [row.evaluation for row in comparison.rows]
    bound = comparison.upper_bound
    # As many decimals as the largest figure needs, the same for all.
    welfare = [each.welfare for each in found] + ([] if bound is None else [bound])
    decimals = decimals_of(welfare)
    best = tuple(Cell(number_text(each.welfare, decimals), is_strong=True) for each in found)
    columns = [
        Column("Welfare", "" if bound is None else number_text(bound, decimals), best),
        Column("±\u00a0error", "", tuple(_error(each) for each in found)),
    ]
    if bound is not None:
        columns.append(_bound_column(bound, bound_title(comparison), found))
    columns += [
        _column("Mean", [number_text(each.mean, decimals) for each in found]),
        _column(f"Worst {member(problem)}", [number_text(each.worst, decimals) for each in found]),
        _column("Gini coefficient", [number_text(each.gini_coefficient, 3) for each in found]),
    ]
    columns += [_budget_column(found, resource, problem) for resource in range(problem.num_resources)]
    return [*columns, _column("Time", [duration(each.seconds) for each in found])]


def _error(found: Evaluation) -> Cell:
    return Cell("exact", is_quiet=True) if found.exact else Cell(f"±\u00a0{number(found.welfare_stderr, 2)}")


def _bound_column(bound: float, title: str, found: Sequence[Evaluation]) -> Column:
    """The share of the bound that is reached; for a bound that is not positive, what is missing."""
    # Shares of a bound that is 0 or negative mislead.
    if bound > 0:
        shares = [percent(1 - gap_to(bound, each.welfare), 2) for each in found]
        return _column(f"Of the {title}", shares, percent(1.0, 2))
    missing = [bound - each.welfare for each in found]
    decimals = decimals_of(missing)
    return _column(f"Below the {title}", [number_text(gap, decimals) for gap in missing], number_text(0.0, decimals))


def _budget_column(found: Sequence[Evaluation], resource: int, problem: Problem) -> Column:
    name = shortened(problem.resource_names[resource], 24)
    title = "Budget used" if problem.num_resources == 1 else f"Used of {name}"
    # Of a resource of which there is nothing, no share can be used.
    none = problem.budget[resource] == 0
    return _column(title, [UNKNOWN if none else percent(float(each.budget_used[resource])) for each in found])


def _policy_row(policy: str, cells: tuple[Cell, ...]) -> TableRow:
    abbreviation, summary = abbreviation_and_summary(policy)
    return TableRow(policy, cells, abbreviation, summary)


def _bound_row(comparison: Comparison, cells: tuple[Cell, ...]) -> TableRow:
    kind = comparison.bound_name if comparison.bound_name not in ("optimum", "") else ""
    line = f"{kind}: no policy can have more" if kind else "no policy can have more"
    return TableRow(capitalised(bound_title(comparison)), cells, note=line, kind="bound")


# -- who gets what ---------------------------------------------------------------------------------------------------


def types_table(problem: Problem) -> Table | None:
    """The types: how many arms, and their states and actions where these differ; None where it would say nothing.

    Types that differ in nothing but where they start are one row, which tells how many start where.
    """
    alike = same_choices(problem)
    # A table of one row, or of numbers without names, says nothing.
    if problem.is_symmetric or (alike and is_nameless(problem)):
        return None
    heads = [Cell("Type"), Cell("Arms")]
    if not alike:
        heads += [Cell(title, is_text=True) for title in ("States", "Actions")]
    rows = []
    # Types that a table of states has cut are one row again.
    for name, kinds in list(alike_but_for_starts(problem).items())[:MOST_TYPES]:
        texts = [] if alike else [states_text(problem, kinds[0]), actions_text(problem, kinds[0])]
        number_of_arms = int(problem.type_counts[kinds].sum())
        cells = [Cell(f"{number_of_arms:,}"), *(Cell(text, is_text=True) for text in texts)]
        rows.append(TableRow(name, tuple(cells), note=starts_words(problem, name, kinds)))
    return Table("Types of arms", tuple(heads), tuple(rows))


def more_types(problem: Problem) -> str:
    """How many types the table of them leaves out; empty where it has all."""
    more = len(alike_but_for_starts(problem)) - MOST_TYPES
    return f"… and {more:,} more type{'s' if more > 1 else ''}." if more > 0 else ""


def values_table(comparison: Comparison, problem: Problem) -> Table | None:
    """The mean value of the arms of each type under each policy; None where there is one type, or very many."""
    # One type is the mean itself; very many do not fit on a page.
    if not 2 <= problem.num_types <= MOST_TYPES or not comparison.rows:
        return None
    by_policy = [values_by_type(row.evaluation, problem) for row in comparison.rows]
    decimals = decimals_of([float(value) for values in by_policy for value in values])
    rows = [
        # The worst-off type is in bold.
        TableRow(row.policy, _marked([number_text(value, decimals) for value in values], int(values.argmin())))
        for row, values in zip(comparison.rows, by_policy, strict=True)
    ]
    heads = (Cell("Policy"), *(Cell(name) for name in type_names(problem)))
    return Table("Mean value of an arm, by type", heads, tuple(rows))


def groups_table(comparison: Comparison, problem: Problem) -> Table | None:
    """The value of each group under each policy; None where welfare is over arms, or there are very many groups."""
    if problem.over != "groups" or len(problem.group_names) > MOST_TYPES or not comparison.rows:
        return None
    by_policy = [list(row.evaluation.groups.values()) for row in comparison.rows]
    decimals = decimals_of([value for values in by_policy for value in values])
    rows = [
        TableRow(row.policy, _marked([number_text(value, decimals) for value in values], values.index(min(values))))
        for row, values in zip(comparison.rows, by_policy, strict=True)
    ]
    heads = (Cell("Policy"), *(Cell(name) for name in problem.group_names))
    return Table("Value of a group, the mean of its arms", heads, tuple(rows))


def floors_missed(comparison: Comparison, problem: Problem) -> list[tuple[str, str]]:
    """The policies that serve some arms less often than they must, each with whom and how often."""
    items = []
    for row in comparison.rows:
        found, names = row.evaluation, type_names(problem)
        whose = [names[m.unit if found.by_type else int(problem.type_of_arm[m.unit])] for m in found.floors_missed]
        told = [
            f"{name} in {percent(missed.served)} of the time, not {percent(missed.floor)}"
            # Arms of one type are told once, with the last of them.
            for name, missed in dict(zip(whose, found.floors_missed, strict=True)).items()
        ]
        if told:
            items.append((row.policy, f"serves {'; '.join(told[:MOST_TYPES])}"))
    return items


def _marked(texts: list[str], worst: int) -> tuple[Cell, ...]:
    """The worst in bold, and all that read the same."""
    return tuple(Cell(text, is_strong=text == texts[worst]) for text in texts)
