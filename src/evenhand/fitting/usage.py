"""What actions use: from a file, in words, or from columns of the records.

Where nothing is said, every action but the idle one uses one unit of one resource. The idle action uses nothing, or
no arm could ever be left alone. From columns an action uses what it used on average over all rows, and whether it
varied is told: a budget then holds on average for that action, not in every case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.checks import Faults, plain
from evenhand.errors import Fault, InvalidInput, TableError, shortened
from evenhand.fitting.log import Log
from evenhand.fitting.rewards import words_of
from evenhand.fitting.told import Names, raise_faults, read_statements, read_words, spread
from evenhand.model.places import quoted
from evenhand.typing import Floats

SERVICE = "services"
"""What the one resource is called where nobody says."""


@dataclass(frozen=True, eq=False)
class Usage:
    """What each pair uses."""

    amounts: Floats
    """(type, state, action, resource) amounts."""

    resources: tuple[str, ...]
    """(resource,) names."""

    source: str
    """Where they are from, in words."""

    varying: tuple[str, ...] = ()
    """Actions whose use was not the same in every row."""


def usage_of(
    log: Log,
    *,
    file: Any = None,
    words: str | Mapping[str, float] | None = None,
    resources: Sequence[str] = (),
) -> Usage:
    """The usage that was asked for; one unit of one resource for every action but the idle one where nothing is.

    Args:
        log: the records; their columns of use count where they have some.
        file: a table with the columns action, state, type (any may be absent) and one column a resource.
        words: `service=1,overhaul=2`, or with resources `service/technicians=1,overhaul/bays=1`.
        resources: names of the resources, in the order of the budget; those of the source when absent.

    Raises:
        TableError: with every fault.
    """
    ways = {"columns of use": log.used, "a file of usage": file, "usage in words": words}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"usage: there are {' and '.join(given)}; give one of them")
    if log.used is not None:
        found = _from_columns(log)
    elif file is not None:
        found = _from_file(log, file)
    elif words is not None:
        found = _from_words(log, words, resources)
    else:
        found = _plain(log, resources)
    _check(found, log)
    return _in_order(found, tuple(resources))


def _plain(log: Log, resources: Sequence[str]) -> Usage:
    if len(resources) > 1:
        raise InvalidInput(
            f"usage: {len(resources)} resources are named, and nothing says what actions use of them; "
            "give --usage FILE or --usage-of"
        )
    amounts = np.ones((*Names(log).shape, 1))
    amounts[:, :, 0] = 0.0
    return Usage(amounts, tuple(resources) or (SERVICE,), "one unit for every action but the idle one")


def _from_file(log: Log, file: Any) -> Usage:
    names = Names(log)
    statements, columns = read_statements(file, names, None, "--usage")
    title = str(file) if isinstance(file, str) else "a table"
    said = spread(statements, names.shape, title)
    _check_all_said(said, log, title)
    return Usage(np.nan_to_num(said), columns, title)


def _from_words(log: Log, words: str | Mapping[str, float], resources: Sequence[str]) -> Usage:
    names = Names(log)
    statements, free = read_words(words, names, ("action", "resource"), "--usage-of")
    listed = tuple(resources) or tuple(dict.fromkeys(filter(None, free))) or (SERVICE,)
    faults = Faults()
    for one, resource in zip(statements, free, strict=True):
        if not resource and len(listed) > 1:
            faults.add(one.where, f"of which resource? There are {', '.join(listed)}; write ACTION/RESOURCE=NUMBER")
        if resource and resource not in listed:
            faults.add(one.where, f"there is no resource {quoted(resource)}; there are {', '.join(listed)}")
    raise_faults(faults, "--usage-of")
    amounts = np.zeros((*names.shape, len(listed)))
    unsaid = np.ones(len(log.actions), dtype=np.bool_)
    for number, resource in enumerate(listed):
        own = [one for one, of in zip(statements, free, strict=True) if (of or listed[0]) == resource]
        if own:
            said = spread(own, names.shape, "--usage-of")[..., 0]
            unsaid &= np.isnan(said).all(axis=(0, 1))
            amounts[..., number] = np.nan_to_num(said)
    silent = [log.actions[a] for a in np.flatnonzero(unsaid).tolist() if a > 0]
    raise_faults(_silent(silent), "--usage-of")
    return Usage(amounts, listed, "words")


def _silent(actions: Sequence[str]) -> Faults:
    faults = Faults()
    for action in actions:
        faults.add("", f"says nothing of the action {quoted(action)}; write {action}=0 if it uses nothing")
    return faults


def _check_all_said(said: Floats, log: Log, title: str) -> None:
    """Only the idle action may be left out."""
    missing = np.asarray(np.isnan(said).any(axis=-1))
    missing[:, :, 0] = False
    found = np.argwhere(missing)
    faults = [Fault("", f"says nothing of {words_of(log, *pair)}") for pair in found[:20].tolist()]
    if faults:
        raise TableError(shortened(faults, 20, len(found)), title)


def _from_columns(log: Log) -> Usage:
    assert log.used is not None
    known = np.isfinite(log.used).all(axis=1) & (log.action >= 0)
    amounts = np.zeros((*Names(log).shape, log.used.shape[1]))
    varying, faults = [], Faults()
    for action, name in enumerate(log.actions):
        rows = log.used[known & (log.action == action)]
        if action == 0:
            wrong = np.flatnonzero((log.action == 0) & (np.nan_to_num(log.used) != 0).any(axis=1))
            for place in wrong[:20].tolist():
                faults.add(log.row_names([int(log.row[place])])[0], f"the idle action {quoted(name)} uses something")
            if len(wrong) > 20:
                faults.found.append(
                    Fault("", f"... and {len(wrong) - 20:,} more such rows", stands_for=len(wrong) - 20)
                )
        elif not len(rows):
            faults.add("", f"no row says what the action {quoted(name)} uses")
        else:
            amounts[:, :, action] = rows.mean(axis=0)
            varying += [name] if (np.ptp(rows, axis=0) > 0).any() else []
    raise_faults(faults, "usage, from columns of the records")
    return Usage(amounts, log.resources, "columns of the records", tuple(varying))


def _check(found: Usage, log: Log) -> None:
    faults = []
    for place in np.argwhere(found.amounts < 0)[:20].tolist():
        told = plain(found.amounts[tuple(place)])
        faults.append(Fault("", f"{words_of(log, *place[:3])} uses {told} of {found.resources[place[3]]}; at least 0"))
    if (found.amounts[:, :, 0] != 0).any():
        faults.append(Fault("", f"the idle action {quoted(log.actions[0])} uses something, and must not"))
    if faults:
        raise TableError(faults, f"usage, from {found.source}")


def _in_order(found: Usage, resources: tuple[str, ...]) -> Usage:
    """Resources in the order that was asked for."""
    if not resources or resources == found.resources:
        return found
    if sorted(resources) != sorted(found.resources):
        have, want = ", ".join(found.resources), ", ".join(resources)
        raise InvalidInput(f"resources: {want} were named, and {found.source} speaks of {have}")
    order = [found.resources.index(name) for name in resources]
    return Usage(found.amounts[..., order], resources, found.source, found.varying)
