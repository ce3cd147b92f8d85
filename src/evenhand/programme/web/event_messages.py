"""Events of the log as sentences: after a form the page shows its result, from the log alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenhand.display import counted
from evenhand.programme.ledger import Event
from evenhand.programme.programme import Programme

AGAIN = "The plan that is open must be made again."
"""After who takes part has changed, where a plan is open."""


@dataclass(frozen=True)
class Happened:
    """Something that was done."""

    text: str
    next: str = ""
    """Usual next step."""


def told_event(programme: Programme, number: str) -> Happened | None:
    """Describe an event by its number in an address; None if there is none.

    Args:
        programme: whose log is read.
        number: as it stands in the address.
    """
    if not (number.isascii() and number.isdecimal() and 0 < len(number) < 10):
        return None
    found = programme.events(after=int(number) - 1, most=1)
    if not found or found[0].id != int(number):
        return None
    fields = tell(found[0])
    if fields.next == AGAIN and programme.current_plan_number() is None:
        return Happened(fields.text)
    return fields


def tell(event: Event) -> Happened:
    """An event as a sentence."""
    teller = _TELLERS.get(event.kind)
    return Happened(f"Event {event.id}: {event.kind}.") if teller is None else teller(event.body)


def _observed(body: dict[str, Any]) -> Happened:
    seen = counted(len(body["seen"]), "condition")
    return Happened(f"{seen} stored, from {body['source']}.", "Next: make the plan, or make it again.")


def _planned(body: dict[str, Any]) -> Happened:
    return Happened(
        f"The plan for step {body['step']} is made.", "Look through it, change what must be changed, accept it."
    )


def _accepted(body: dict[str, Any]) -> Happened:
    changed = len(body["overrides"])
    more = f", with {counted(changed, 'change')}" if changed else " as it was"
    text = f"The plan for step {body['step']} is accepted{more}."
    return Happened(text, "Print the list, do it, and record here what was done.")


def _recorded(body: dict[str, Any]) -> Happened:
    steps = sorted({row[1] for row in body["done"]})
    when = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return Happened(
        f"What was done at {when} is recorded for {counted(len(body['done']), 'arm')}.", "Next: today's conditions."
    )


def _joined(body: dict[str, Any]) -> Happened:
    return Happened(
        f"{counted(len(body['arms']), 'arm')} joined, from step {body['step']} on.",
        AGAIN,
    )


def _left(body: dict[str, Any]) -> Happened:
    names = ", ".join(str(name) for name in body["arms"][:5])
    return Happened(f"{names} left, from step {body['step']} on.", AGAIN)


def _solved(_: dict[str, Any]) -> Happened:
    return Happened("A new policy was found; plans are made by it from now on.")


def _adopted(body: dict[str, Any]) -> Happened:
    which = f"Fit {body['refit']}" if body["refit"] else "The model that the programme began with"
    return Happened(f"{which} is in use; plans are made by it from now on.", "You can go back to the model before.")


def _declined(body: dict[str, Any]) -> Happened:
    return Happened(f"Fit {body['refit']} is declined; the model stays as it is.")


def _bounded(_: dict[str, Any]) -> Happened:
    return Happened("The bounds of drift are other ones now.")


def _refitted(_: dict[str, Any]) -> Happened:
    return Happened("The model was refitted; nothing changes before it is adopted.")


_TELLERS: dict[str, Callable[[dict[str, Any]], Happened]] = {
    "observed": _observed,
    "planned": _planned,
    "accepted": _accepted,
    "recorded": _recorded,
    "joined": _joined,
    "left": _left,
    "solved": _solved,
    "adopted": _adopted,
    "refitted": _refitted,
    "declined": _declined,
    "bounded": _bounded,
}
