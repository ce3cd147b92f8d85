"""Summaries of cleaned records and of backtests."""

from collections.abc import Sequence

import numpy as np

from evenhand.display import counted
from evenhand.fitting.cleaning import CleanedRecords, Finding
from evenhand.planning.backtest import Backtest
from evenhand.planning.trajectory_forecast import Forecast
from evenhand.report.format import fixed, percent
from evenhand.report.summary import Summary, Table, summary_of, table

# -- cleaned records ---------------------------------------------------------------------------------------------------


@summary_of.register
def _cleaned(cleaned: CleanedRecords) -> Summary:
    frame = cleaned.frame
    facts = [
        ("rows", f"{cleaned.num_rows:,} read, {len(frame):,} clean"),
        ("arms", f"{frame['arm'].n_unique():,}"),
        ("times", cleaned.span),
    ]
    for role in ("state", "action", "type", "group"):
        if role in frame.columns:
            names = frame[role].drop_nulls().unique(maintain_order=True)
            facts.append((f"{role}s", f"{', '.join(names.head(8))}{f' and {len(names) - 8} more' * (len(names) > 8)}"))
    odd = "oddities and proposed rules" if cleaned.is_proposal else "oddities that the rules do not cover"
    tables = [_findings_table(odd, cleaned.findings)] if cleaned.findings else []
    if cleaned.effects:
        tables.append(_findings_table("effects of the rules", cleaned.effects))
    return Summary("records", counted(len(frame), "clean row"), facts=facts, tables=tables)


def _findings_table(caption: str, findings: Sequence[Finding]) -> Table:
    rows = [
        [finding.kind, f"{finding.count:,}" if finding.count else "", finding.message, "; ".join(finding.examples)]
        for finding in findings
    ]
    return table(caption, ["kind", "rows", "", "examples"], rows, text=("", "examples"))


# -- backtests -------------------------------------------------------------------------------------------------------


@summary_of.register
def backtest_summary(found: Backtest) -> Summary:
    """Return the summary of a backtest."""
    borrowed = int(found.shares.borrowed.sum())
    decisions = f"{found.shares.numbers.sum():,} decisions"
    policy = f"shares of actions by type and state, the same at all times, from {decisions}"
    if borrowed:
        policy += f"; a type was never seen in {borrowed} of its states, and takes the shares of the others there"
    steps = f"{len(found.steps):,}, with {found.present.min():,} to {found.present.max():,} arms"
    facts = [("policy", policy), ("steps", steps)]
    for place, action in enumerate(found.actions[1:]):
        inside = found.served.inside[:, place]
        facts.append((f"{action} in a step", f"{int(inside.sum())} of {len(inside)} steps lie in their intervals"))
    for name, forecast in (("reward in a step", found.rewards), ("arms in a state", found.occupied)):
        facts.append((name, f"{percent(float(forecast.inside.mean()))} of the records lie in their intervals"))
    level = f"of {percent(found.level)}, of chance alone: the shares and the model were fitted to these records"
    facts.append(("intervals", level))
    for place, (name, budget) in enumerate(found.problem.named_budget.items()):
        used, over = found.used[:, place], int(found.over_budget[place])
        text = f"{used.mean():.3g} a step of {budget:.10g}, at most {used.max():.10g}"
        facts.append((f"used of {name}", f"{text}; {over} of {len(used)} steps used more than the budget"))
    notes = ["the behaviour policy has no budget in the model; other policies have"] if len(found.worth) > 1 else []
    aside = "the behaviour policy in the model, beside the records"
    return Summary("Backtest", aside, facts, _backtest_tables(found), notes=notes)


def _backtest_tables(found: Backtest) -> list[Table]:
    heads, rows = ["type"], []
    for action in (*found.actions[1:], "reward"):
        heads += [action, "expected", "interval"]
    for t, name in enumerate(found.types):
        row = [name]
        for place in range(len(found.actions) - 1):
            row += _forecast_cells(found.totals, (t, place), 1)
        rows.append([*row, *_forecast_cells(found.total_rewards, (t,), 4)])
    actions = table("number of each action, and the mean reward of a step; * is outside its interval", heads, rows)
    first, rows = found.worth[0], []
    for one in found.worth:
        used = ", ".join(percent(share) for share in one.budget_used.values())
        error = fixed(one.welfare_stderr) if one.welfare_stderr else "exact"
        rows.append([one.policy, fixed(one.welfare), error, used])
    caption = f"welfare in the model: {found.criterion}, from where all arms were first seen"
    welfare = table(caption, ["policy", "welfare", "±", "budget used"], rows)
    names = list(first.groups or first.values)
    values = [[name, *(fixed((one.groups or one.values)[name]) for one in found.worth)] for name in names]
    heads = ["group" if first.groups else "type", *(one.policy for one in found.worth)]
    return [actions, welfare, table("values", heads, values)]


def _forecast_cells(found: Forecast, place: tuple[int, ...], decimals: int) -> list[str]:
    mean, low, high = (fixed(float(getattr(found, name)[place]), decimals) for name in ("mean", "lower", "upper"))
    seen = fixed(float(found.seen[place]), 0 if decimals == 1 else decimals)
    return [seen + ("" if np.asarray(found.inside)[place] else " *"), mean, f"{low} to {high}"]
