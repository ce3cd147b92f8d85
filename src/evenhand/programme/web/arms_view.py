"""The view of arms: who takes part, and the history of one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenhand.display import counted
from evenhand.model.places import quoted
from evenhand.programme.decisions import KeptPlan
from evenhand.programme.history import HistoryEntry
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme
from evenhand.programme.roster import RosterArm
from evenhand.programme.web.figures import Visit, states_svg
from evenhand.programme.web.paged_table import Listing, TableQuery, list_rows, matches, natural
from evenhand.programme.web.render import age_of
from evenhand.report.format import number, percent
from evenhand.report.summary import Figure

SHOWN = {"": "who take part", "gone": "who left", "all": "everybody"}
"""Filters of the list."""

MOST_STEPS = 120
"""Steps of an arm in its figure, the last ones."""


@dataclass(frozen=True)
class Kind:
    """A type of arm within a group."""

    type: str
    group: str
    states: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name in a list of choices."""
        return self.type if self.type == self.group else f"{self.type}, {self.group}"


@dataclass(frozen=True)
class Roster:
    """All that the list shows."""

    step: int
    table: Listing[RosterArm]
    groups: tuple[str, ...]
    kinds: tuple[Kind, ...]
    counts: tuple[tuple[str, int], ...]


def show_arms(programme: Programme, request: TableQuery) -> Roster:
    """The list of arms.

    Args:
        programme: which.
        request: what the address asks of the table.
    """
    status, everybody = programme.status(), programme.arms(gone=True)
    words, group, show = (request.text(name) for name in ("q", "group", "show"))

    def keep(arm: RosterArm) -> bool:
        here = arm.takes_part(status.step) or arm.joined_step > status.step
        fits = show == "all" or here == (show != "gone")
        return fits and group in ("", arm.group) and matches(words, arm.name, arm.type, arm.group)

    keys: dict[str, Callable[[RosterArm], Any]] = {
        "arm": lambda arm: natural(arm.name),
        "group": lambda arm: (natural(arm.group), natural(arm.type), natural(arm.name)),
        "joined": lambda arm: (arm.joined_step, natural(arm.name)),
        "left": lambda arm: (arm.left_step is None, arm.left_step or 0, natural(arm.name)),
    }
    groups = tuple(sorted({arm.group for arm in everybody}))
    table = list_rows(request, everybody, keys, keep, "arm")
    return Roster(status.step, table, groups, kinds_of(programme), tuple(status.groups.items()))


def kinds_of(programme: Programme) -> tuple[Kind, ...]:
    """The kinds of arms that the model knows."""
    words = Words(programme.model())
    return tuple(Kind(kind, group, words.states(block)) for (kind, group), block in words.blocks.items())


def doubts(names: Sequence[str], arms: Sequence[RosterArm]) -> tuple[str, ...]:
    """Return the question to confirm if joining arms have names of present or former arms.

    Args:
        names: of those who are to join.
        arms: everybody who ever took part.
    """
    known = {arm.name: arm for arm in arms}
    alike = {_plain(arm.name): arm for arm in arms if arm.left_step is None}
    request = []
    for name in names:
        before, near = known.get(name), alike.get(_plain(name))
        if before is not None and before.left_step is not None:
            why = f"left at step {before.left_step}: {before.left_why}"
            request.append(f"{quoted(name)} took part before, and {why}. Joining again goes on with that history")
        elif before is None and near is not None:
            request.append(f"{quoted(name)} is written almost like {quoted(near.name)}, who takes part")
    return tuple(request)


def _plain(name: str) -> str:
    return "".join(name.casefold().split())


# One arm


@dataclass(frozen=True)
class StepRow:
    """One step of an arm."""

    step: int
    condition: str
    known: str
    """Source of the state, in words."""
    surprise: str
    """Most likely state, if another one."""
    planned: str
    action: str
    done: str
    changed: str
    """Author and reason of an override."""
    reward: str
    expected: str
    """The reward that was to be expected."""
    served: bool


@dataclass(frozen=True)
class ArmView:
    """All that the page of an arm shows."""

    arm: RosterArm
    step: int
    is_there: bool
    kind: int
    """Which of the kinds that may join it is of."""
    states: tuple[str, ...]
    rows: tuple[StepRow, ...]
    figure: Figure
    cards: tuple[tuple[str, str, str], ...]
    entries: tuple[HistoryEntry, ...]


def show_arm(programme: Programme, name: str) -> ArmView:
    """The page of one arm.

    Args:
        programme: which.
        name: of the arm.

    Raises:
        InvalidInputError: there is none of this name.
    """
    entries = programme.history(name)
    step = programme.status().step
    arm = next(arm for arm in reversed(programme.arms(gone=True)) if arm.name == name)
    words = Words(programme.model())
    states = words.states(words.blocks[arm.type, arm.group])
    rows = _steps(entries)
    served = _serving(words, arm)
    fields = tuple(_row(number, found, served) for number, found in sorted(rows.items(), reverse=True))
    fields = _with_open_plan(fields, programme.current_plan(), name)
    return ArmView(
        arm=arm,
        step=step,
        is_there=arm.left_step is None,
        kind=list(words.blocks).index((arm.type, arm.group)),
        states=states,
        rows=fields,
        figure=_figure(name, fields, states),
        cards=_cards(arm, fields, step),
        entries=tuple(reversed(entries)),
    )


def _with_open_plan(rows: tuple[StepRow, ...], plan: KeptPlan | None, name: str) -> tuple[StepRow, ...]:
    """Add the action of a proposed plan to the rows."""
    mine = next((row for row in plan.rows if row.arm == name), None) if plan is not None else None
    if plan is None or mine is None:
        return rows
    planned = f"{mine.action}, not yet accepted"
    if rows and rows[0].step == plan.step:
        return (replace(rows[0], planned=planned), *rows[1:])
    known = "believed" if mine.chance is None else f"believed, {percent(mine.chance, 0)} likely"
    return (StepRow(plan.step, mine.state, known, "", planned, "", "", "", "", "", False), *rows)


def _serving(words: Words, arm: RosterArm) -> Callable[[str, str], bool]:
    """Return whether an action uses a resource in a state."""
    block = words.blocks[arm.type, arm.group]
    usage = words.model.tables.usage

    def served(state: str, action: str) -> bool:
        here, what = words.state(block, state), words.action(block, action)
        return not isinstance(here, str) and not isinstance(what, str) and bool(usage[block, here, what].any())

    return served


def _steps(entries: Sequence[HistoryEntry]) -> dict[int, dict[str, HistoryEntry]]:
    """By step and kind the last entry: later words count."""
    found: dict[int, dict[str, HistoryEntry]] = {}
    for entry in entries:
        if entry.kind in ("seen", "decided", "recorded"):
            found.setdefault(entry.step, {})[entry.kind] = entry
    return found


def _row(step: int, found: dict[str, HistoryEntry], served: Callable[[str, str], bool]) -> StepRow:
    seen, decided, recorded = (found.get(kind) for kind in ("seen", "decided", "recorded"))
    state = (seen.state if seen else decided.state if decided else None) or ""
    done = (recorded.action if recorded else None) or ""
    action = (decided.action if decided else None) or ""
    return StepRow(
        step=step,
        condition=state,
        known=_known(seen, decided),
        surprise=_surprise(seen),
        planned=(decided.planned if decided else None) or "",
        action=action,
        done=done,
        changed=_changed(decided),
        reward="" if recorded is None or recorded.reward is None else number(recorded.reward, 3),
        expected="" if decided is None or decided.expected_reward is None else number(decided.expected_reward, 3),
        served=served(state, done or action),
    )


def _known(seen: HistoryEntry | None, decided: HistoryEntry | None) -> str:
    if seen is not None:
        return f"seen, says {seen.source}"
    if decided is None:
        return ""
    return "believed" if decided.chance is None else f"believed, {percent(decided.chance, 0)} likely"


def _surprise(seen: HistoryEntry | None) -> str:
    """Describe a state that was more likely than the observed one."""
    if seen is None or seen.expected is None or seen.expected == seen.state or seen.chance is None:
        return ""
    return f"{seen.expected} was more likely; this had {percent(seen.chance, 0)}"


def _changed(decided: HistoryEntry | None) -> str:
    if decided is None or not decided.overridden:
        return ""
    whose = f" by {decided.who}" if decided.who else ""
    return f"changed from {decided.planned}{whose}: {decided.why}"


def _figure(name: str, rows: Sequence[StepRow], states: Sequence[str]) -> Figure:
    visits = [
        Visit(row.step, row.condition, row.known.startswith("seen"), row.served)
        for row in reversed(rows[:MOST_STEPS])
        if row.condition
    ]
    caption = "Dots: observed. Rings: inferred from the last observation and the actions since. Triangles: served."
    return Figure(states_svg(name, visits, states), caption)


def _how_known(last: StepRow | None, step: int) -> str:
    """Describe source and age of a state."""
    if last is None:
        return "never seen"
    if not last.known.startswith("seen"):
        return last.known
    return last.known.replace("seen", age_of(step, last.step), 1)


def _cards(arm: RosterArm, rows: Sequence[StepRow], step: int) -> tuple[tuple[str, str, str], ...]:
    served = [row.step for row in rows if row.served]
    decided = sum(bool(row.action or row.done) for row in rows)
    seen = next((row for row in rows if row.known.startswith("seen")), None)
    last = seen or next((row for row in rows if row.condition), None)
    waits = f"{counted(step - served[0], 'step')} ago" if served else "not once so far"
    kind = arm.type if arm.type == arm.group else f"{arm.type}, {arm.group}"
    return (
        ("Condition", last.condition if last else "–", _how_known(last, step)),
        ("Served", str(len(served)), f"of {counted(decided, 'step')} decided"),
        ("Last served", f"step {served[0]}" if served else "–", waits),
        ("Takes part since", f"step {arm.joined_step}", kind),
    )
