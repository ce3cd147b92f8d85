"""Tables and page of the price of fairness."""

from evenhand.display import counted
from evenhand.planning.price_of_fairness import FairnessRow, PriceOfFairness
from evenhand.report.format import capitalised, fixed, number, percent, spelled
from evenhand.report.html import seed_sentence
from evenhand.report.models import member, problem_section, setting, welfare_meaning
from evenhand.report.summary import (
    MOST_ROWS,
    Cell,
    Figure,
    Section,
    Summary,
    Table,
    TableRow,
    summarise,
    summary_of,
    table,
)

OWN_COLUMNS = ("utilitarian", "maximin", "leximin")
"""Welfares that the columns of the mean and the worst-off show already."""


@summary_of.register
def _(found: PriceOfFairness) -> Summary:
    notes = [f"recommended: {found.recommended.welfare}. {found.recommended.reason()}"]
    notes += [
        f"best for {row.welfare}: the plan for {row.plan_of}, which is better than its own"
        for row in found.rows
        if row.plan_of != row.welfare
    ]
    notes += [f"left out: {name}: {reason}" for name, reason in found.left_out.items()]
    title = f"Price of fairness: {counted(len(found.rows), 'welfare')} on {found.members_words}"
    return Summary(title + setting(found.problem), tables=fairness_tables(found), notes=notes)


def fairness_tables(found: PriceOfFairness) -> list[Table]:
    """Return the plans under every welfare, and the values of types or groups under every plan."""
    tables = [_plans_table(found), _values_table(found, found.who, found.counts, [row.values for row in found.rows])]
    if found.group_sizes:
        tables.append(_values_table(found, "group", found.group_sizes, [row.groups for row in found.rows]))
    return tables


def _plans_table(found: PriceOfFairness) -> Table:
    names = [row.welfare for row in found.rows if row.welfare not in OWN_COLUMNS]
    people = found.who == "group"  # else the mean is over arms already
    heads = ["best for", "mean", *(["mean of arms"] if people else []), "price", "worst", "gain", "lose", "Gini"]
    heads += [*(f"by {name}" for name in names), "±"]
    rows = []
    for row in found.rows:
        cells = (
            Cell(fixed(row.mean), is_strong=row.welfare == "utilitarian"),
            *([Cell(fixed(row.mean_of_arms))] if people else []),
            Cell(percent(row.price)),
            Cell(fixed(row.worst), is_strong=row.welfare in OWN_COLUMNS[1:]),
            *(Cell(str(sum(each.values()))) for each in (row.gaining, row.losing)),
            Cell(fixed(row.gini_coefficient)),
            *(Cell(fixed(row.by[name]), is_strong=name == row.welfare) for name in names),
            Cell("exact", is_quiet=True) if row.exact else Cell(fixed(row.by_stderr[row.welfare])),
        )
        rows.append(TableRow(row.welfare, cells, note="proved to be the best" if row.is_proved else ""))
    return Table("what fairness costs", tuple(map(Cell, heads)), tuple(rows))


def _values_table(found: PriceOfFairness, who: str, sizes: dict[str, int], plans: list[dict[str, float]]) -> Table:
    """Return values under each plan, with the gain over the first, which has the best mean."""
    first, *others = plans
    rows = []
    for name, count in list(sizes.items())[:MOST_ROWS]:
        gains = [round(values[name] - first[name], 4) + 0.0 for values in others]  # a rounded zero has no sign
        cells = [f"{fixed(v[name])} ({f'{gain:+.4f}' if gain else '0'})" for v, gain in zip(others, gains, strict=True)]
        rows.append([name, str(count), fixed(first[name]), *cells])
    each = "value of an arm of each type" if who == "type" else "value of each group, the mean of its arms"
    caption = f"{each}, and what it gains or loses beside {found.rows[0].welfare}"
    heads = [who, "arms", *(row.welfare for row in found.rows)]
    return table(caption, heads, rows, len(sizes) - MOST_ROWS)


def fairness_report(found: PriceOfFairness, title: str | None = None, seed: int | None = None) -> Summary:
    """Return the page of the price of fairness, for `html.page` and `html.write_page`.

    Args:
        found: the price of fairness.
        title: heading; by default the number of welfares.
        seed: random seed, if known.
    """
    from evenhand.report import plots

    plain = summarise(found)
    spread = "One row per welfare: the values under its best plan; the thin line runs from the worst to the best."
    figures = [Figure(plots.fairness_plot(found).svg(), spread)]
    if trade := plots.trade_svg(plots.trade_points(found), member(found.problem)):
        figures.append(Figure(trade, "Mean and worst-off of each plan. The dashed line is the best mean."))
    return Summary(
        title or f"What fairness costs: {counted(len(found.rows), 'idea')} of it",
        lead=_lead(found),
        sections=[
            Section("The plans side by side", tables=plain.tables, notes=plain.notes),
            Section("Who gets how much", figures=figures),
            problem_section(found.problem),
            Section("How to read this", facts=_glossary(found)),
        ],
        made=seed_sentence(seed),
    )


def _fairest(found: PriceOfFairness) -> FairnessRow:
    """Return the row with the largest worst value to six digits, among equals the one with the best mean."""
    return max(found.rows, key=lambda row: (float(f"{row.worst:.6g}"), row.mean))


def _lead(found: PriceOfFairness) -> list[str]:
    advice = f"Recommended: {found.recommended.welfare}. {found.recommended.reason()}"
    best, fairest, who = found.rows[0], _fairest(found), member(found.problem)
    mean = f"The best mean found is {number(best.mean)} per {who}; the worst-off {who} then has {number(best.worst)}."
    if fairest.worst <= best.worst * (1 + 1e-6) or fairest is best:
        return [mean, f"No plan here does more for the worst-off {who}: fairness costs nothing.", advice]
    price = percent(fairest.price)
    cost = f"for {price} of the mean" if found.is_dearer(fairest) else f"at a price ({price}) within the error"
    lifted = f"The plan for {fairest.welfare} lifts it to {number(fairest.worst)}, {cost}."
    return [f"{mean} {lifted}", _gains_and_losses(found, fairest), advice]


def _gains_and_losses(found: PriceOfFairness, row: FairnessRow) -> str:
    """Return the largest gain and the largest loss beyond three standard errors and rounding."""
    best, sentences = found.rows[0], []
    errors = {name: 3 * (best.values_stderr[name] + row.values_stderr[name]) for name in row.gains}
    sure = {n: g for n, g in row.gains.items() if abs(g) > errors[n] + 1e-6 * abs(best.values[n])}
    for verb, sign in (("gain", 1), ("lose", -1)):
        names = sorted((name for name, gain in sure.items() if sign * gain > 0), key=lambda name: -sign * sure[name])
        if names:
            rest = len(names) - 1
            others = f", and {spelled(rest)} other {found.who}{'s' if rest > 1 else ''}" if rest else ""
            sentences.append(f"{capitalised(names[0])} {verb}s most ({number(abs(sure[names[0]]))}){others}.")
    return " ".join(sentences) or "No gain or loss is beyond what chance explains."


def _glossary(found: PriceOfFairness) -> list[tuple[str, str]]:
    who = member(found.problem)
    entries = [
        ("Best for", "Welfare that the plan of the row maximises."),
        ("Price", "Share of the best mean that the plan gives up."),
        ("Gain, lose", "Arms whose value is above or below that under the best mean, by more than chance explains."),
        (f"Mean and worst {who}", f"The average value of the {who}s, and the smallest."),
        ("Gini", f"Gini coefficient, the inequality of the values: 0 if all {who}s are equal."),
        ("By …", "The plan under each welfare; in bold under its own."),
    ]
    if not all(row.exact for row in found.rows):
        entries.append(("±", "Standard error. All plans were simulated with the same random numbers."))
    return [*entries, *((r.welfare, welfare_meaning(r.solution.objective.welfare, who)) for r in found.rows)]
