"""Roster: arms join at a step, leave at another, and may come back."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from evenhand.errors import Fault, InvalidInputError, TableError, nearest, shortened
from evenhand.model import SHOWN_FAULTS, CoupledMDP, as_table, find_arms, quoted
from evenhand.model.io.text_table import Table
from evenhand.programme import schema
from evenhand.programme.ledger import add_rows, fault_of_text, fetch, next_id, run
from evenhand.programme.named_model import Words, names_of

MOST_STEP = 10**9
"""The last step there can be."""

MOST_NAME = 200
"""Characters of the longest name of an arm."""

_ARMS = select(schema.arms).order_by(schema.arms.c.id)
_NAMED = _ARMS.where(schema.arms.c.name.in_(bindparam("names", expanding=True)))
_OF_NAME = _ARMS.where(schema.arms.c.name == bindparam("name"))
_LAST_STEP = select(func.max(schema.plans.c.step)).where(schema.plans.c.status == schema.ACCEPTED)


def _transfers(event: int | None) -> Any:
    table = schema.transfers
    return select(table).where(*schema.valid(table, event)).order_by(table.c.from_step, table.c.id)


_TRANSFERS = _transfers(None)


@dataclass(frozen=True)
class RosterArm:
    """An arm of the roster."""

    id: int
    """Its number in the store. One that comes back has a new one."""

    name: str
    """Name, unique among the arms that take part."""

    type: str
    """Its type, by the name of a block of the model."""

    group: str
    """Its group, by the name that the model gives it."""

    joined_step: int
    """The first step at which it takes part."""

    left_step: int | None
    """The first step at which it no longer does."""

    left_why: str | None
    """Why it left."""

    def takes_part(self, step: int) -> bool:
        """Return whether it takes part at a step."""
        return self.joined_step <= step and (self.left_step is None or step < self.left_step)

    def stays(self, step: int) -> bool:
        """Return whether it takes part at a step or later."""
        return self.left_step is None or self.left_step > max(step, self.joined_step)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        content = {"arm": self.name, "type": self.type, "group": self.group, "joined": self.joined_step}
        return content if self.left_step is None else content | {"left": self.left_step, "why": self.left_why}


def arms_as_of(
    tx: Connection, event: int | None = None, names: Sequence[str] | None = None, step: int | None = None
) -> list[RosterArm]:
    """Every arm that ever joined, by number, with its type and group at a step; as of an event, or now.

    Args:
        tx: a transaction.
        event: later events are ignored; by default none.
        names: only arms of these names.
        step: by default the present one.
    """
    found, kinds = [], transferred(tx, step, event)
    if names is None or len(names) == 1:
        rows: Any = fetch(tx, _ARMS) if names is None else fetch(tx, _OF_NAME, name=names[0])
    else:
        rows = tx.execute(_NAMED, {"names": list(names)})
    for row in rows:
        if event is None or row.joined_event <= event:
            gone = row.left_event is not None and (event is None or row.left_event <= event)
            left = (row.left_step, row.left_why) if gone else (None, None)
            kind, group = kinds.get(row.id, (row.type, row.group_name))
            found.append(RosterArm(row.id, row.name, kind, group, row.joined_step, *left))
    return found


def transferred(tx: Connection, step: int | None, event: int | None = None) -> dict[int, tuple[str, str]]:
    """Type and group at a step, by default the present one, of arms that were transferred by then; as of an event."""
    rows: Any = fetch(tx, _TRANSFERS) if event is None else tx.execute(_transfers(event)).all()
    at = present_step(tx, event) if rows and step is None else step
    return {row.arm: (row.type, row.group_name) for row in rows if at is not None and row.from_step <= at}


def arms_named(
    tx: Connection, names: Sequence[str], most: int = 500, groups: Collection[str] | None = None
) -> list[RosterArm]:
    """Every arm that ever joined under some names; all arms if a name is unknown, to compare it with theirs.

    Args:
        tx: a transaction.
        names: as given.
        most: number of names up to which they are looked up one by one.
        groups: only arms that are now in these, or were last; by default of any group.
    """
    wanted = set(names)

    def known(only: Sequence[str] | None) -> list[RosterArm]:
        """Return the arms of some names, or all."""
        return [arm for arm in arms_as_of(tx, names=only) if groups is None or arm.group in groups]

    found = known(sorted(wanted)) if len(wanted) <= most else []
    return found if found and wanted == {arm.name for arm in found} else known(None)


def taking_part(tx: Connection, step: int, event: int | None = None) -> list[RosterArm]:
    """The arms that take part at a step, in the order in which they joined; as of an event, or now."""
    return [arm for arm in arms_as_of(tx, event, step=step) if arm.takes_part(step)]


def present_step(tx: Connection, event: int | None = None) -> int:
    """The step that is to be planned next, after the last that was accepted; as of an event, or now."""
    plans = schema.plans
    query = (
        _LAST_STEP
        if event is None
        else select(func.max(plans.c.step)).where(*schema.valid(plans, event, "accepted_event"))
    )
    found = run(tx, query).fetchone()[0] if event is None else tx.execute(query).scalar()
    return 0 if found is None else int(found) + 1


def check_step(step: object) -> int:
    """A step that a person gave."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MOST_STEP:
        raise InvalidInputError(f"step: expected a whole number from 0, got {step!r}")
    return step


def read_rows(given: Any, what: str, needed: Sequence[str], *, ragged: bool = False) -> Table:
    """A table that a person gave, with columns that must be there.

    Args:
        given: a file's name, a data frame, a list of rows, or a table of columns.
        what: name of the table, if it is not a file.
        needed: columns.
        ragged: whether the caller reports `Table.faults` together with its own; else they are raised here.

    Raises:
        TableError: a column or all rows are missing, or a text is invalid.
    """
    table = as_table(given)
    table = table if table.file or table.source != "states" else replace(table, source=what)
    faults = []
    for column in needed:
        if column not in table.columns:
            near = nearest(column, table.columns)
            hint = f" Did you mean {near}?" if near else ""
            listed = ", ".join(table.columns) or "none"
            faults.append(Fault("", f"missing column {column}. The columns are: {listed}.{hint}"))
    if not table.rows and not faults and not table.faults:
        faults.append(Fault("", "the table is empty"))
    faults += [
        Fault(row, f"{column} {wrong}")
        for column in table.columns
        for row, text in zip(table.rows, table.columns[column], strict=True)
        if (wrong := fault_of_text(text))
    ]
    raise_faults(faults if ragged and table.rows and not faults else in_order([*faults, *table.faults]), table.source)
    return table


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    """Faults of a table in the order of its rows, such as `line 4`; first those that are in none."""

    def number(fault: Fault) -> int:
        text = fault.place.rpartition(" ")[2]
        return int(text) if text.isascii() and text.isdecimal() else 0

    return sorted(faults, key=number)


def raise_faults(faults: Sequence[Fault], source: str) -> None:
    """Raise all faults of a table, shortened if they are many."""
    if len(faults) > SHOWN_FAULTS:
        faults = shortened(faults, SHOWN_FAULTS)
    if faults:
        raise TableError(faults, source)


@dataclass(frozen=True)
class Newcomer:
    """An arm that is about to join."""

    name: str
    type: str
    group: str
    state: str
    """State, or empty if unknown."""


def read_newcomers(model: CoupledMDP, given: Any) -> list[Newcomer]:
    """The arms of a table with the columns arm, type, and perhaps group and state.

    Args:
        model: a settled one.
        given: see `read_rows`.

    Raises:
        TableError: with every fault and its row.
    """
    table = read_rows(given, "roster", ["arm"])
    content = table.columns.get("state")
    if content is None:
        _check_states_are_not_elsewhere(model, table)
        content = [""] * len(table.rows)
    guessed = replace(table, columns=table.columns | {"state": [state or "0" for state in content]})
    long = [row for row, name in zip(table.rows, table.columns["arm"], strict=True) if len(name) > MOST_NAME]
    raise_faults([Fault(row, f"a name has at most {MOST_NAME} characters") for row in long], table.source)
    found, words = find_arms(model, guessed), Words(model)
    kinds = names_of(model)
    rows = zip(found.names, found.blocks.tolist(), found.states.tolist(), content, strict=True)
    return [
        Newcomer(name, kinds[block][0], kinds[block][1], words.states[block][state] if said else "")
        for name, block, state, said in rows
    ]


def _check_states_are_not_elsewhere(model: CoupledMDP, table: Table) -> None:
    """Refuse a roster whose states stand in a column of another name."""
    known = {state for _, states, _ in model.tables.all_labels for state in states}
    for column in table.columns.keys() - {"arm", "type", "group"}:
        entries = set(table.columns[column]) - {""}
        if entries and entries <= known:
            raise_faults([Fault("", f"missing column state. Rename {column}, which has states")], table.source)


def join(tx: Connection, newcomers: Sequence[Newcomer], step: int, event: int) -> dict[str, int]:
    """Let arms take part from a step on; the number of each by its name.

    Args:
        tx: a transaction from `Store.writing`.
        newcomers: who joins.
        step: the first at which they take part.
        event: the event that says so.

    Raises:
        InvalidInputError: some of them take part already, or left later than that.
    """
    before = arms_as_of(tx, names=[new.name for new in newcomers]) if len(newcomers) <= 500 else arms_as_of(tx)
    gone = {arm.name: arm.left_step for arm in before}
    faults = []
    for new in newcomers:
        left = gone.get(new.name, -1)
        if left is None:
            faults.append(Fault("", f"arm {quoted(new.name)} takes part already"))
        elif left > step:
            words = f"left at step {left}, and cannot come back at step {step}"
            faults.append(Fault("", f"arm {quoted(new.name)} {words}"))
    raise_faults(faults, "roster")
    first = next_id(tx, schema.arms)
    numbers = {new.name: first + place for place, new in enumerate(newcomers)}
    same = {"joined_step": step, "joined_event": event}
    rows = [
        {"id": numbers[new.name], "name": new.name, "type": new.type, "group_name": new.group} | same
        for new in newcomers
    ]
    add_rows(tx, schema.arms, rows)
    return numbers


def find_names(arms: Sequence[RosterArm], names: Sequence[str]) -> list[RosterArm]:
    """The arms of some names, which may differ in case and blanks.

    Raises:
        TableError: names that are unknown, or given twice.
    """
    known = {arm.name: arm for arm in arms}
    names = list(map(match_names(known), names))
    unknown = [name for name in names if name not in known]
    faults = [Fault("", unknown_arm(name, known, place < SHOWN_FAULTS)) for place, name in enumerate(unknown)]
    faults += [Fault("", f"arm {quoted(name)} is given twice") for name, times in Counter(names).items() if times > 1]
    if not names:
        faults.append(Fault("", "no arm is named"))
    raise_faults(faults, "arms")
    return [known[name] for name in names]


def match_names(known: Collection[str]) -> Callable[[str], str]:
    """Return a function from typed to known names: the same, else the only one that differs in case or blanks.

    Args:
        known: names; a typed name that matches none of them is returned as it is.
    """

    def folded(name: str) -> str:
        """Return a name without differences of case and blanks."""
        return " ".join(name.split()).casefold()

    @cache  # built at the first name that is not known as it stands
    def alike() -> dict[str, list[str]]:
        """Return the known names by their folded form."""
        found = defaultdict[str, list[str]](list)
        for name in known:
            found[folded(name)].append(name)
        return found

    def match(name: str) -> str:
        """Return the only known name that is alike, or the text itself."""
        near = [name] if name in known else alike().get(folded(name), [])
        return near[0] if len(near) == 1 else name

    return match


def unknown_arm(name: str, known: Any, hint: bool) -> str:
    """That an arm does not take part, and the nearest name, if a hint is called for.

    Names that differ in a digit are those of two arms, and are never proposed for each other. A hint compares the name
    with all that are known: it is for faults that are shown, `SHOWN_FAULTS` of them.
    """
    if not name:
        return "has no arm"
    near = nearest(name, known) if hint else None
    if near and re.findall(r"\d", near) != re.findall(r"\d", name):
        near = None
    other = f" The nearest name is {quoted(near)}, which is another arm." if near else ""
    return f"there is no arm {quoted(name)}.{other} If it is to take part, add it to the roster first"
