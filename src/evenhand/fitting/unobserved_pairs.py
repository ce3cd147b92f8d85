"""State-action pairs without records: stated by the user, never filled in silently.

    idle     the pair moves as the idle action does in the same state, in every draw, and keeps its own usage
    forbid   the pair is never chosen: it uses FORBIDDEN of every resource, more than any budget
    a table  columns state, action, next_state, probability and optionally type: known rows; those of a type override
             those of all types

An absorbing state has known rows under every action. The idle action itself can be neither idle nor forbidden: if it
has no records, a table must state its rows, or the state must be absorbing. Structural zeros must hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import LARGEST, NEARLY_ONE, Faults, plain
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.model_terms import Terms
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.stated_values import KEYS, Names, broadcast, raise_faults, read_statements, source_name
from evenhand.fitting.structural_zeros import absorbing_states
from evenhand.model.places import quoted
from evenhand.typing import Bools

FORBIDDEN = LARGEST
"""Usage of a forbidden pair; no budget is as large."""


@dataclass(frozen=True, eq=False)
class Settled:
    """A posterior with the stated rows of unobserved pairs."""

    posterior: Posterior
    """Rows without a statement are still NaN."""

    forbidden: Bools
    """(type, state, action) pairs that must never be chosen."""

    notes: tuple[str, ...]
    """Statements that were applied."""


def settle(
    log: Log,
    posterior: Posterior,
    unseen: Any = None,
    absorbing: Sequence[str] = (),
    possible: Bools | None = None,
) -> Settled:
    """Apply the user's statements on unobserved pairs.

    Args:
        log: the records, with the names.
        posterior: NaN in the mean of unobserved pairs.
        unseen: `idle`, `forbid`, or a file or table of rows.
        absorbing: names of absorbing states.
        possible: (state, action, next_state) possible transitions; all by default.

    Raises:
        TableError: a table is invalid, or states an impossible transition; with all faults.
        InvalidInputError: `unseen` is neither a known word nor a file.
    """
    notes = []
    if absorbing:
        known = np.zeros(posterior.mean.shape[:-1], dtype=bool)
        known[:, absorbing_states(log, absorbing)] = True
        stay = np.broadcast_to(np.eye(len(log.states))[None, :, None], posterior.mean.shape)
        posterior = posterior.settled(stay, known)
        notes.append(f"{', '.join(map(quoted, absorbing))}: absorbing, as stated")
    unknown = np.asarray(np.isnan(posterior.mean).any(axis=-1))
    forbidden = np.zeros_like(unknown)
    if unseen is None or not unknown.any():
        return Settled(posterior, forbidden, tuple(notes))
    if isinstance(unseen, str) and unseen in ("idle", "forbid"):
        like = np.broadcast_to(np.arange(unknown.shape[2], dtype=np.int32), unknown.shape).copy()
        settled = unknown & ~unknown[:, :, :1]
        like[settled] = 0
        posterior = posterior.settled(np.zeros(posterior.mean.shape), np.zeros_like(unknown), like)
        forbidden = settled if unseen == "forbid" else forbidden
        notes += _notes(log, "as the idle action" if unseen == "idle" else "forbidden", settled, unknown[:, :, 0])
    else:
        posterior = _stated_rows(log, posterior, unseen, unknown)
        notes.append(f"{counted(int(unknown.sum()), 'unobserved pair')}: as stated by {source_name(unseen)}")
    if possible is not None:
        rows = np.where((unknown & ~forbidden)[..., None], np.nan_to_num(posterior.mean), 0.0)
        faults = Faults()
        for s, a, j in np.argwhere(((rows > 0) & ~possible).any(axis=0)).tolist():
            names = (quoted(name) for name in (log.states[s], log.actions[a], log.states[j]))
            faults.add("", "from {} under {} to {}: stated to be impossible".format(*names))
        raise_faults(faults, f"unseen: {source_name(unseen)}")
    return Settled(posterior, forbidden, tuple(notes))


def _notes(log: Log, how: str, settled: Bools, idle: Bools) -> list[str]:
    notes = []
    if settled.any():
        named = "; ".join(log.pair_names(settled, 5))
        notes.append(f"{counted(int(settled.sum()), 'unobserved pair')} {how}, as stated: {named}")
    if idle.any():
        named = "; ".join(log.pair_names(idle[..., None], 5))
        notes.append(f"the idle action has no records: {named}. State its rows in a table, or an absorbing state")
    return notes


def _stated_rows(log: Log, posterior: Posterior, source: Any, unknown: Bools) -> Posterior:
    if isinstance(source, str) and not Path(source).suffix and not Path(source).exists():
        raise InvalidInputError(f"unseen: expected idle, forbid, or a file, got {source!r}")
    names, faults, title = Names(log), Faults(), source_name(source)
    rows, _ = read_statements(source, names, "unseen", ("probability",), KEYS, KEYS[1:], KEYS[1:])
    for row in rows:
        kind, *rest = row.cell
        if not 0 <= row.figures[0] <= 1:
            faults.add(row.where, f"expected a probability from 0 to 1, got {plain(row.figures[0])}")
        elif not unknown[slice(None) if kind is None else kind, rest[0], rest[1]].any():
            faults.add(row.where, "this pair has records; only unobserved pairs may be stated")
    whole = not faults
    own, common = (
        broadcast([row for row in rows if (row.cell[0] is None) == is_common], names.shape, title)[..., 0]
        for is_common in (False, True)
    )
    stated = np.where(np.isfinite(own).any(axis=-1, keepdims=True), own, common)
    given = np.isfinite(stated).any(axis=-1) & unknown
    sums = np.nan_to_num(stated).sum(axis=-1)
    if whole:  # else the rest of a sum may be in an invalid row
        for t, s, a in np.argwhere(given & (np.abs(sums - 1) > NEARLY_ONE)).tolist():
            faults.add(log.pair_name(t, s, a), f"probabilities sum to {plain(sums[t, s, a])}, not 1")
    raise_faults(faults, title)
    return posterior.settled(np.nan_to_num(stated) / np.where(given, sums, 1.0)[..., None], given)


def forbid(terms: Terms, forbidden: Bools) -> Terms:
    """The same terms, in which forbidden pairs use more than any budget.

    Args:
        terms: of the model.
        forbidden: (type, state, action) pairs.
    """
    return replace(terms, usage=np.where(forbidden[..., None], FORBIDDEN, terms.usage)) if forbidden.any() else terms
