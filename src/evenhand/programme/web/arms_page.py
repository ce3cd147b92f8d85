"""Arms: the roster, one arm with its history, and the forms by which arms join, leave and are reported."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from evenhand.model.labels import quoted
from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.decisions import StoredPlan
from evenhand.programme.named_model import Words
from evenhand.programme.programme import Programme
from evenhand.programme.reports import HistoryEntry
from evenhand.programme.roster import RosterArm
from evenhand.programme.vocabulary import Vocabulary
from evenhand.programme.web.forms import Form
from evenhand.programme.web.layout import Sending, programme_of, query_of, remembers, show, submit
from evenhand.programme.web.render import Listing, TableQuery, age_of, list_rows, matches, natural
from evenhand.programme.web.today_page import uses_resource
from evenhand.report.format import percent, shortened
from evenhand.report.summary import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

router = APIRouter(include_in_schema=False)

SHOWN = {"": "who take part", "gone": "who left", "all": "everybody"}
"""Filters of the list."""

CAPTION = "Dots: seen. Rings: most likely, from what was last seen and done. Triangles: served."

LATEST = 100
"""Steps and entries of an arm that are shown; a link leads to all."""

FIELDS = ("arm", "state", "text", "kind")
"""Fields of the forms of the list that are shown again."""


# The roster


@router.get("/arms")
def show_arms(request: Request) -> Response:
    """Show the roster."""
    return _arms(request)


def _arms(
    request: Request,
    form: Form | None = None,
    refusal: ErrorView | None = None,
    sent: Any = None,
    **typed: str,
) -> Response:
    programme, query = programme_of(request), query_of(request, "/arms")
    status, arms, words = programme.status(), programme.arms(gone=True), Words(programme.model())
    view = {
        "step": status.step,
        "table": _list_arms(query, arms, status.step),
        "groups": sorted({arm.group for arm in arms}),
        "counts": status.groups,
        "kinds": [_kind_name(*kind) for kind in words.blocks],
        "first_states": next((words.states[block] for block in words.blocks.values()), ()),
        "states": dict.fromkeys(state for block in words.blocks.values() for state in words.states[block]),
    }
    entries = {name: form.text(name) if form else "" for name in FIELDS} | {"ask": ""} | typed
    return show(
        request,
        "arms",
        programme.vocabulary().say("Arms"),
        refusal,
        form,
        view=view,
        sent=sent,
        typed=entries,
        shown=SHOWN,
    )


def _kind_name(kind: str, group: str) -> str:
    return kind if kind == group else f"{kind}, {group}"


def _list_arms(query: TableQuery, arms: Sequence[RosterArm], step: int) -> Listing[RosterArm]:
    words, group, show = (query.text(name) for name in ("q", "group", "show"))

    def keep(arm: RosterArm) -> bool:
        is_here = arm.takes_part(step) or arm.joined_step > step
        fits = show == "all" or is_here == (show != "gone")
        return fits and group in ("", arm.group) and matches(words, arm.name, arm.type, arm.group)

    keys: dict[str, Callable[[RosterArm], tuple[Any, ...]]] = {
        "arm": lambda _: (),
        "group": lambda arm: (natural(arm.group), natural(arm.type)),
        "joined": lambda arm: (arm.joined_step,),
        "left": lambda arm: (arm.left_step is None, arm.left_step or 0),
    }
    return list_rows(query, arms, keys, keep, "arm", name=lambda arm: arm.name)


@router.post("/arms/join")
def join(request: Request, form: Sending) -> Response:
    """Let arms take part; names of present or former arms are to be confirmed."""
    programme, is_table = programme_of(request), form.text("how") == "table"
    doubts: tuple[str, ...] = ()

    def write(**by: Any) -> int | None:
        nonlocal doubts
        rows: Any = programme.library.table(form.table()) if is_table else [_newcomer(programme, form)]
        names = rows.columns.get("arm", []) if is_table else [form.text("arm")]
        doubts = () if form.text("sure") else _doubts(names, programme.arms(gone=True), programme.vocabulary())
        return None if doubts else programme.join(rows, **by).event

    def again(refusal: ErrorView, sent: Any) -> Response:
        return _arms(request, form, refusal, sent)

    response = submit(request, form, programme.vocabulary().say("No arm joined"), write, again, "/arms")
    if not doubts:
        return response
    question = ErrorView(
        "Nothing is changed yet", doubts, "If that is meant, tick the box below and send it again.", 409
    )
    text = form.given_table[1].decode("utf-8", errors="replace")
    return remembers(_arms(request, form, question, ask=form.text("how") or "one", text=text), form)


def _newcomer(programme: Programme, form: Form) -> dict[str, str]:
    kinds = list(Words(programme.model()).blocks)
    kind, group = kinds[min(form.number("kind"), len(kinds) - 1)]
    fields = {"arm": form.text("arm"), "type": kind, "group": group}
    return fields | ({"state": form.text("state")} if form.text("state") else {})


def _doubts(names: Sequence[str], arms: Sequence[RosterArm], words: Vocabulary) -> tuple[str, ...]:
    """Return the names to confirm: those of former arms, and those almost like the name of a present arm."""

    def plain(name: str) -> str:
        return "".join(name.casefold().split())

    known = {arm.name: arm for arm in arms}
    present = {plain(arm.name): arm for arm in arms if arm.left_step is None}
    doubts = []
    for name in names:
        before, near = known.get(name), present.get(plain(name))
        if before is not None and before.left_step is not None:
            why = f"left {words.at(before.left_step)}: {before.left_why}"
            doubts.append(f"{quoted(name)} took part before, and {why}. Joining again continues that history")
        elif before is None and near is not None:
            doubts.append(f"{quoted(name)} is written almost like {quoted(near.name)}, who takes part")
    return tuple(doubts)


# One arm


@router.get("/arms/one")
def show_arm(request: Request) -> Response:
    """Show one arm: its conditions, decisions, changes, and what was expected."""
    return _arm(request, query_of(request).text("arm"))


@router.post("/arms/seen")
def report(request: Request, form: Sending) -> Response:
    """Report the present or an earlier state of one arm."""
    row, programme = {name: form.text(name) for name in ("arm", "state", "step")}, programme_of(request)
    what = "The condition was not stored"
    return _submit(request, form, what, lambda **by: programme.observe([row], form.text("source"), **by).event)


@router.post("/arms/leave")
def leave(request: Request, form: Sending) -> Response:
    """Let one arm take part no longer."""
    programme, name = programme_of(request), form.text("arm")
    what = f"{name} takes part as before"
    return _submit(request, form, what, lambda **by: programme.leave([name], form.text("why"), **by).event)


def _submit(request: Request, form: Form, what: str, write: Callable[..., int]) -> Response:
    name = form.text("arm")

    def again(refusal: ErrorView, _: Any) -> Response:
        return _arm(request, name, form, refusal)

    return submit(request, form, what, write, again, "/arms/one", arm=name)


def _arm(request: Request, name: str, form: Form | None = None, refusal: ErrorView | None = None) -> Response:
    programme = programme_of(request)
    entries, step = programme.history(name), programme.status().step
    programme.note_view(name, request.state.holder.name)
    arm = programme.arms(gone=True, names=[name])[-1]
    words, kind, vocabulary = Words(programme.model()), (arm.type, arm.group), programme.vocabulary()
    states = words.states[words.blocks[kind]]
    rows = _step_rows(entries, words, kind, programme.current_plan(), name)
    most = None if query_of(request).text("all") else LATEST
    view = {
        "arm": arm,
        "step": step,
        "is_there": arm.left_step is None,
        "kind": list(words.blocks).index(kind),
        "states": states,
        "rows": rows[:most],
        "steps": len(rows),
        "figure": Figure(states_svg(name, rows[119::-1], states, vocabulary), CAPTION),
        "cards": _cards(arm, rows, step, vocabulary),
        "entries": list(reversed(entries))[:most],
        "said": len(entries),
    }
    return show(request, "arm", name, refusal, form, view=view)


def _step_rows(
    entries: Sequence[HistoryEntry], words: Words, kind: tuple[str, str], plan: StoredPlan | None, name: str
) -> list[dict[str, Any]]:
    """Return what is known of each step, the last first: by kind of entry the last one counts, and the open plan."""
    steps: dict[int, dict[str, Any]] = {}
    for entry in entries:
        if entry.kind in ("seen", "decided", "recorded") and entry.undone is None:
            steps.setdefault(entry.step, {})[entry.kind] = entry
    for row in plan.rows if plan is not None else ():
        if plan is not None and row.arm == name:
            steps.setdefault(plan.step, {})["proposed"] = row
    rows = []
    for step, found in sorted(steps.items(), reverse=True):
        seen, decided, recorded, proposed = (found.get(k) for k in ("seen", "decided", "recorded", "proposed"))
        first, known = seen or decided or proposed, ""
        state = (first.state if first else None) or ""
        action = (recorded.action if recorded else None) or (decided.action if decided else None) or ""
        if seen is not None:
            known = f"seen, says {seen.source}"
        elif first is not None:
            known = "most likely" + ("" if first.chance is None else f" ({percent(first.chance, 0)})")
        # A service in an unknown condition is one if it is in some other.
        served = any(
            uses_resource(words, kind, one, action) for one in ([state] if state else words.states[words.blocks[kind]])
        )
        about = {"step": step, "state": state, "known": known, "served": served, "seen": seen}
        rows.append(about | {"decided": decided, "recorded": recorded, "proposed": proposed})
    return rows


def _cards(arm: RosterArm, rows: Sequence[dict[str, Any]], step: int, words: Vocabulary) -> list[tuple[str, str, str]]:
    served = [row["step"] for row in rows if row["served"]]
    decided = sum(bool(row["decided"] or row["recorded"]) for row in rows)
    by_seen = sorted((row for row in rows if row["state"]), key=lambda row: row["seen"] is None)
    state, known = next(((row["state"], row["known"]) for row in by_seen), ("–", "never seen"))
    if by_seen and by_seen[0]["seen"]:
        known = known.replace("seen", age_of(words, step, by_seen[0]["step"]), 1)
    ago = f"{words.step.counted(step - served[0])} ago" if served else "not once so far"
    return [
        ("Condition", state, known),
        ("Served", str(len(served)), f"times in {words.step.counted(decided)}"),
        ("Last served", words.name(served[0]) if served else "–", ago),
        ("Takes part since", words.name(arm.joined_step), _kind_name(arm.type, arm.group)),
    ]


def states_svg(arm: str, rows: Sequence[Mapping[str, Any]], states: Sequence[str], words: Vocabulary) -> str:
    """Return the states of one arm by step, from the first state at the top to the last.

    Args:
        arm: its name.
        rows: what is known of each step: `step`, `state`, the observation `seen` or None, and `served`.
        states: names of the states.
        words: of the programme.
    """
    from matplotlib.ticker import MaxNLocator

    from evenhand.report.plots import BLUE, FAINT, ORANGE, Plot, svg

    places = {state: place for place, state in enumerate(states)}
    shown = [(row["step"], places[row["state"]], row) for row in rows if row["state"] in places]

    def draw(figure: "Drawing") -> None:
        axes = figure.subplots()
        axes.plot([step for step, _, _ in shown], [place for _, place, _ in shown], color=FAINT, linewidth=0.8)
        for kind, face, label in ((True, BLUE, "seen"), (False, "white", "most likely")):
            own = [(step, place) for step, place, row in shown if (row["seen"] is not None) == kind]
            at = [step for step, _ in own], [place for _, place in own]
            axes.plot(*at, "o", color=BLUE, markerfacecolor=face, markersize=4, label=label)
        served = [row["step"] for row in rows if row["served"]]
        axes.plot(served, [len(states) - 0.4] * len(served), "^", color=ORANGE, markersize=4, label="served")
        axes.set_yticks(range(len(states)), [shortened(state, 24) for state in states])
        axes.set_ylim(len(states) - 0.1, -0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter(lambda step, _: words.tick(step))
        axes.set_xlabel(words.step.one)
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=3)

    served = sum(row["served"] for row in rows)
    label = f"{arm}: condition in {words.step.counted(len(shown))}, served in {served}. The table has the same."
    return svg("states", label, Plot(1.1 + 0.3 * len(states), draw))
