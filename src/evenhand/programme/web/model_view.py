"""The view of the model: what it says, what was fitted to the programme's own records, how sure, and what to record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenhand.display import counted
from evenhand.planning.check import Check, check
from evenhand.programme.decisions import KeptPlan
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme, Status
from evenhand.programme.refit import ENOUGH, Moved, Refitted
from evenhand.report.format import number, percent
from evenhand.report.models import arm_summary
from evenhand.report.summary import Summary, Table, table

MOST_ROWS = 60
"""Maximum number of probabilities; the largest changes come first."""


@dataclass(frozen=True)
class Fit:
    """A refit as it is shown."""

    fit: Refitted
    table: Table
    """FitResult probabilities, the largest changes first."""
    wanted: tuple[str, ...]
    """Most useful next records."""
    gain: str
    is_used: bool
    """Whether it is the model in use."""
    may_adopt: bool
    """Whether it can be adopted: not in use, and compared with the model in use."""
    plan: tuple[tuple[str, str, str], ...]
    plan_title: str
    """Plan that would change."""


@dataclass(frozen=True)
class ModelView:
    """All that the view shows."""

    status: Status
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    types: tuple[Summary, ...]
    """Rewards and transitions per type and group."""
    fits: tuple[Refitted, ...]
    fit: Fit | None
    """The one that is offered, else the newest."""
    in_use: str
    """Origin of the model in use."""
    earlier: tuple[tuple[int, str], ...]
    """(number, words) of the other models that were in use, to which one may go back."""


def show_model(programme: Programme) -> ModelView:
    """The view.

    Args:
        programme: which.

    Raises:
        InvalidInputError: no arm takes part.
    """
    problem, _, _ = programme.present_problem()
    fields: Check = check(problem, problem.welfare)
    fits, status = programme.refits(), programme.status()
    used = next((one for one in fits if one.adopted_event is not None and one.model == status.model), None)
    return ModelView(
        status=status,
        facts=tuple((name.capitalize(), words) for name, words in fields.facts),
        notes=tuple(str(note) for note in fields.notes),
        types=_types(Words(programme.model())),
        fits=tuple(fits),
        fit=_fit(_shown(fits, programme), status.model, programme.current_plan()) if fits else None,
        in_use=f"It was fitted to this programme's own records (fit {used.id})." if used else _AS_GIVEN,
        earlier=_earlier(fits, used, status.model),
    )


def _shown(fits: Sequence[Refitted], programme: Programme) -> Refitted:
    offer = programme.offered()
    return next((one for one in fits if offer is not None and one.id == offer.refit), fits[0])


def _earlier(fits: Sequence[Refitted], used: Refitted | None, model: str) -> tuple[tuple[int, str], ...]:
    """The models that were in use and are not."""
    fields = [
        (one.id, f"fit {one.id}, from {counted(one.rows, 'row')} of the log")
        for one in fits
        if one.adopted_event is not None and one.model != model
    ]
    return tuple(fields if used is None else [*fields, (0, "the model that the programme began with")])


_AS_GIVEN = "It is the one that the programme began with; it was not fitted to its records."


def _types(words: Words) -> tuple[Summary, ...]:
    found = []
    for (name, group), block in words.blocks.items():
        title = name if name == group else f"{name}, {group}"
        found.append(replace(arm_summary(words.model.arms[block]), title=title))
    return tuple(found)


def _fit(fit: Refitted, model: str, plan: KeptPlan | None) -> Fit:
    used = fit.model == model
    ordered = sorted(fit.moved, key=lambda row: (-abs(row.after - row.before), row.type, row.state, row.action))
    return Fit(
        fit=fit,
        table=_table(ordered, "before" if used or fit.before != model else "in use"),
        wanted=_wanted(fit),
        gain=_gain(*fit.likelihood, "the model before" if used else "the model in use"),
        is_used=used,
        may_adopt=not used and fit.before == model,
        plan=fit.plan,
        plan_title=_TODAY if _is_about(fit, plan) else _THEN,
    )


_TODAY = "What would change in today’s plan"
_THEN = "What would change in a plan with the usual budgets, as things stood when it was fitted"


def _is_about(fit: Refitted, plan: KeptPlan | None) -> bool:
    """Return whether the compared plan is the open one."""
    if plan is None or plan.model != fit.before:
        return False
    now = {row.arm: row.action for row in plan.rows}
    return all(now.get(arm) == action for arm, action, _ in fit.plan)


def _gain(before: float | None, after: float | None, other: str) -> str:
    """Compare the log-likelihoods of the two models, in words."""
    if before is None or after is None:
        return f"By {other}, some of what was recorded cannot be."
    better = f"better than {other}" if after > before else f"no better than {other}"
    return f"It explains the records {better} (by {number(abs(after - before), 3)} in log-likelihood)."


def _table(rows: Sequence[Moved], before: str) -> Table:
    cells = [
        [f"{row.type}, {row.state}, {row.action}", row.next_state, percent(row.before), percent(row.after),
         f"{percent(row.lower, 0)} to {percent(row.upper, 0)}", str(row.seen), _note(row)]
        for row in rows[:MOST_ROWS]
    ]  # fmt: skip
    heads = ["type, state, action", "next state", before, "fitted", "95 % interval", "observations", "note"]
    caption = "FitResult probabilities, the largest changes first"
    return table(caption, heads, cells, len(rows) - MOST_ROWS, (heads[1], heads[-1]))


def _note(row: Moved) -> str:
    if row.is_beyond_chance:
        return "beyond chance"
    return "seen too seldom to tell" if row.seen < ENOUGH else ""


def _wanted(fit: Refitted) -> tuple[str, ...]:
    """Return the most useful next records: unobserved pairs, then rarely observed ones."""
    fields = [f"{kind} in {state} when it gets {action}: never seen yet" for kind, state, action in fit.unseen]
    met: dict[tuple[str, str, str], Any] = {}
    for row in fit.moved:
        met.setdefault((row.type, row.state, row.action), row.seen)
    seldom: Sequence[tuple[tuple[str, str, str], Any]] = sorted(met.items(), key=lambda item: (item[1], item[0]))
    fields += [
        f"{kind} in {state} when it gets {action}: seen {counted(int(seen), 'time')} only"
        for (kind, state, action), seen in seldom
        if seen < ENOUGH
    ]
    return tuple(fields[:20])
