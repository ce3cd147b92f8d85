"""What a person says of pairs that were never seen: they are never filled in silently.

    idle     the pair does what the idle action does in the same state, in every draw, and uses what it uses
    forbid   the pair is never chosen: it uses FORBIDDEN of every resource, more than any budget can be, and moves as
             the idle action does, which nobody will see
    a file   rows with the columns state, action, next_state, probability and perhaps type: the row, as a known one;
             what it says of a type goes before what it says of all

A state that nobody leaves (`absorbing`) has known rows under every action: it stays. The idle action itself can be
neither idle nor forbidden: where it was never seen, a file has to say what it does, or that the state is absorbing.
Neither word nor file may say of a pair what was said to be impossible (`possible`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import LARGEST, NEARLY_ONE, Faults, plain
from evenhand.display import counted
from evenhand.errors import InvalidInput
from evenhand.fitting.building import pairs_in_words
from evenhand.fitting.log import Log
from evenhand.fitting.moves import Moves
from evenhand.fitting.possible import absorbing_states, table_of
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.rows import Estimated
from evenhand.fitting.terms import Terms
from evenhand.fitting.told import Names, raise_faults
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats

FORBIDDEN = LARGEST
"""The use of a pair that is forbidden; a budget cannot be larger, and none is as large."""

LONG = 10
"""Steps from which on it is told that an arm was away."""

ENOUGH = 20
"""Idle moves among which there was no recovery, from which on somebody should say whether there can be one."""

MATTERS = 0.005
"""The probability of recoveries that nobody saw from which on they are told."""

SHOWN = 5
"""Pairs and arms that a note names."""

COLUMNS = ("type", "state", "action", "next_state", "probability")


@dataclass(frozen=True, eq=False)
class Settled:
    """A posterior after what was said of pairs that were never seen."""

    posterior: Posterior
    """Rows that nobody spoke of are still NaN."""

    forbidden: Bools
    """(type, state, action) pairs that must never be chosen."""

    notes: tuple[str, ...]
    """What was done, in words."""


def settle(
    log: Log,
    posterior: Posterior,
    unseen: Any = None,
    absorbing: Sequence[str] = (),
    possible: Bools | None = None,
) -> Settled:
    """Take a person's word for pairs of which nothing is known.

    Args:
        log: names them.
        posterior: in whose mean they are NaN.
        unseen: `idle`, `forbid`, or a file or table of rows; nothing is said when absent.
        absorbing: names of states that nobody leaves.
        possible: (state, action, next_state) transitions that can be; all when absent.

    Raises:
        TableError: a file has faults, or something was said to be impossible; with all of it.
        InvalidInput: `unseen` is neither a known word nor a file.
    """
    notes = []
    if absorbing:
        posterior = _stay(log, posterior, absorbing)
        notes.append(f"nobody leaves {', '.join(map(quoted, absorbing))}, as was said")
    unknown = np.asarray(np.isnan(posterior.mean).any(axis=-1))
    forbidden = np.zeros_like(unknown)
    if unseen is None or not unknown.any():
        return Settled(posterior, forbidden, tuple(notes))
    if unseen in ("idle", "forbid"):
        posterior, settled = _as_idle(posterior, unknown)
        forbidden = settled if unseen == "forbid" else forbidden
        notes += _notes_of(log, unseen, settled, unknown & ~settled)
    else:
        posterior = _as_told(log, posterior, unseen, unknown)
        notes.append(f"{counted(int(unknown.sum()), 'pair')} never seen: as told by {_called(unseen)}")
    if possible is not None:
        _refuse_impossible(log, np.where((unknown & ~forbidden)[..., None], posterior.mean, 0.0), possible, unseen)
    return Settled(posterior, forbidden, tuple(notes))


def _stay(log: Log, posterior: Posterior, absorbing: Sequence[str]) -> Posterior:
    known = np.zeros(posterior.mean.shape[:-1], dtype=bool)
    known[:, absorbing_states(log, absorbing)] = True
    return posterior.settled(np.broadcast_to(np.eye(len(log.states))[None, :, None], posterior.mean.shape), known)


def _as_idle(posterior: Posterior, unknown: Bools) -> tuple[Posterior, Bools]:
    """Rows of the idle action in the place of unknown ones, where that one is known."""
    like = np.broadcast_to(np.arange(unknown.shape[2], dtype=np.int32), unknown.shape).copy()
    settled = unknown & ~unknown[:, :, :1]
    like[settled] = 0
    none = np.zeros_like(unknown)
    return posterior.settled(np.zeros(posterior.mean.shape), none, like), settled


def _notes_of(log: Log, word: str, settled: Bools, left: Bools) -> list[str]:
    one = int(settled.sum()) == 1
    what = (
        f"{'does' if one else 'do'} as the idle action does"
        if word == "idle"
        else f"{'is' if one else 'are'} forbidden"
    )
    told = "; ".join(pairs_in_words(log, settled, SHOWN))
    notes = [f"{counted(int(settled.sum()), 'pair')} never seen {what}, as was said: {told}"] if settled.any() else []
    if left[:, :, 0].any():
        idle = left.copy()
        idle[:, :, 1:] = False
        told = "; ".join(pairs_in_words(log, idle, SHOWN))
        notes.append(f"the idle action itself was never seen here: {told}. Say what it does in a file, or --absorbing")
    return notes


def _called(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else "a table"


def _as_told(log: Log, posterior: Posterior, source: Any, unknown: Bools) -> Posterior:
    if isinstance(source, str) and not Path(source).suffix and not Path(source).exists():
        raise InvalidInput(f"unseen: expected idle, forbid, or a file, got {source!r}")
    table, names, faults = table_of(source), Names(log), Faults()
    title = table.file or "unseen"
    for column in COLUMNS[1:]:
        if column not in table.columns:
            faults.add("", f"there is no column {column}; the columns are: {', '.join(table.columns)}")
    raise_faults(faults, title)
    kinds = table.columns.get("type", [""] * len(table.rows))
    own, of_all = (_Said.nothing(posterior.mean.shape) for _ in range(2))
    whole = True
    for number, where in enumerate(table.rows):
        given = {column: table.columns[column][number] for column in COLUMNS[1:]} | {"type": kinds[number]}
        found = _read_row(given, where, names, faults)
        whole &= found is not None
        if found is not None:
            (of_all if found.kind is None else own).add(found, where, unknown, faults)
    rows = np.where(own.pairs[..., None], own.rows, of_all.rows)
    said = (own.pairs | of_all.pairs) & unknown
    if whole:  # else what is missing from a sum may stand in a row that cannot be read
        _check_sums(log, rows, said, faults)
    raise_faults(faults, title)
    return posterior.settled(rows / np.where(said, rows.sum(axis=-1), 1.0)[..., None], said)


class _Row(NamedTuple):
    """A row of the file: of a type, or of all of them."""

    kind: int | None
    state: int
    action: int
    after: int
    chance: float


@dataclass(frozen=True, eq=False)
class _Said:
    """What the file says of types by name, or of all."""

    rows: Floats
    """(type, state, action, next_state) probabilities."""

    pairs: Bools
    """(type, state, action) whether anything is said."""

    where: dict[_Row, str]
    """Where each transition stands, whatever its probability."""

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> "_Said":
        """Nothing yet."""
        return cls(np.zeros(shape), np.zeros(shape[:-1], dtype=bool), {})

    def add(self, row: _Row, where: str, unknown: Bools, faults: Faults) -> None:
        """One row more, which may be of pairs alone that were never seen, and not be there already."""
        kinds = slice(None) if row.kind is None else slice(row.kind, row.kind + 1)
        pair = (kinds, row.state, row.action)
        if not unknown[pair].any():
            faults.add(where, "this pair was seen, and is what the records say; the file is for pairs never seen")
        if (before := self.where.setdefault(row._replace(chance=0.0), where)) != where:
            faults.add(where, f"the same transition is in {before}")
        self.rows[(*pair, row.after)] = row.chance
        self.pairs[pair] = True


def _read_row(given: dict[str, str], where: str, names: Names, faults: Faults) -> _Row | None:
    """One row of the file; None where it has faults."""
    before = len(faults.found)
    kind, state, action = (names.find(what, given[what], where, faults) for what in ("type", "state", "action"))
    after = names.find("state", given["next_state"], where, faults)
    try:
        chance = float(given["probability"])
    except ValueError:
        chance = np.nan
    if not 0 <= chance <= 1:
        faults.add(where, f"expected a probability from 0 to 1, got {given['probability']!r}")
    if any(given[column] in ("", "*") for column in ("state", "action", "next_state")):
        faults.add(where, "state, action and next_state must be named")
    if len(faults.found) > before or state is None or action is None or after is None:
        return None
    return _Row(kind, state, action, after, chance)


def _check_sums(log: Log, rows: Floats, said: Bools, faults: Faults) -> None:
    sums = rows.sum(axis=-1)
    wrong = said & (np.abs(sums - 1) > NEARLY_ONE)
    for (t, s, a), words in zip(np.argwhere(wrong).tolist(), pairs_in_words(log, wrong, int(wrong.sum())), strict=True):
        faults.add(words, f"probabilities sum to {plain(sums[t, s, a])}, not 1")


def _refuse_impossible(log: Log, rows: Floats, possible: Bools, unseen: Any) -> None:
    """Raise where what is said of pairs never seen was said to be impossible."""
    faults = Faults()
    wrong = (np.nan_to_num(rows) > 0) & ~possible
    for s, a, j in np.argwhere(wrong.any(axis=0)).tolist():
        names = tuple(quoted(name) for name in (log.states[s], log.actions[a], log.states[j]))
        told = "from {} under {} to {}: was said to be impossible (--mask, --only-worse, --absorbing)".format(*names)
        faults.add("", told)
    raise_faults(faults, f"--unseen {_called(unseen)}")


def forbid(terms: Terms, forbidden: Bools) -> Terms:
    """The same terms, in which pairs that are forbidden use more than any budget.

    Args:
        terms: of the model.
        forbidden: (type, state, action) which.
    """
    return replace(terms, usage=np.where(forbidden[..., None], FORBIDDEN, terms.usage)) if forbidden.any() else terms


# What should be known


def lent_in_words(log: Log, estimated: Estimated) -> list[str]:
    """What a person should know of rows that are other types'.

    Args:
        log: the records.
        estimated: from `estimate`.
    """
    if not estimated.lent.any():
        return []
    told = "; ".join(pairs_in_words(log, estimated.lent, SHOWN))
    number = counted(int(estimated.lent.sum()), "pair was", "pairs were")
    whose = "its type, and is" if int(estimated.lent.sum()) == 1 else "their type, and are"
    return [f"{number} not seen in {whose} what the other types do: {told}"]


def notes_of_recovery(log: Log, moves: Moves, posterior: Posterior) -> list[str]:
    """What to say of recoveries under the idle action that nobody ever saw, and the model has all the same.

    Args:
        log: the records, whose states are in order, the best first.
        moves: how often each was seen.
        posterior: of the rows.
    """
    better = np.tril(np.ones((len(log.states),) * 2, dtype=bool), -1)
    idle, mean = moves.counts[:, :, 0], np.nan_to_num(posterior.mean[:, :, 0])
    asked = int(idle.sum(axis=(0, 2))[1:].sum())
    gaps = moves.gaps
    back = idle[:, better].any() or ((gaps.action == 0) & (gaps.next_state < gaps.state)).any()
    if not log.is_ordered or not log.regular or back or asked < ENOUGH:
        return []
    mass = (mean * better).sum(axis=-1)
    t, s = (int(i) for i in np.unravel_index(int(np.round(mass, 9).argmax()), mass.shape))
    if mass[t, s] < MATTERS:
        return []
    of = f" ({quoted(log.types[t])})" if len(log.types) > 1 else ""
    return [
        f"none of {asked:,} moves under {log.actions[0]} was back towards {quoted(log.states[0])}, and the model has "
        f"up to {100 * mass[t, s]:.2g} % of it a step, in {quoted(log.states[s])}{of}. If states only get worse by "
        "themselves say --only-worse; of single transitions that cannot be, --mask FILE"
    ]


def notes_of_states(log: Log, absorbing: Sequence[str] = ()) -> list[str]:
    """What a person should know of states nobody leaves, and of arms that were away.

    Args:
        log: the records.
        absorbing: states of which it is known that nobody leaves them.
    """
    return _never_left(log, absorbing) + _away(log)


def _never_left(log: Log, known: Sequence[str]) -> list[str]:
    """States that arms came to and nobody was seen to leave."""
    following = log.arm[1:] == log.arm[:-1]
    before, after = log.state[:-1][following], log.state[1:][following]
    left = np.zeros(len(log.states), dtype=bool)
    left[before[before != after]] = True
    reached = np.zeros_like(left)
    reached[after] = True
    return [
        f"nobody was seen to leave {quoted(log.states[state])}: if nobody can, say --absorbing {log.states[state]}"
        for state in np.flatnonzero(reached & ~left).tolist()
        if log.states[state] not in known
    ]


def _away(log: Log) -> list[str]:
    """Arms that reappear after many steps."""
    if not log.regular:
        return []
    steps = np.where(log.arm[1:] == log.arm[:-1], np.rint(np.diff(log.time)), 0)
    long = np.flatnonzero(steps > LONG)
    if not len(long):
        return []
    order = long[np.argsort(-steps[long], kind="stable")][:SHOWN]
    back = log.row_names((log.row[order + 1]).tolist())
    told = ", ".join(
        f"{log.arms[log.arm[i]]} after {int(steps[i])} steps ({row})" for i, row in zip(order, back, strict=True)
    )
    return [f"{counted(len(long), 'time')} an arm reappears after more than {LONG} steps: {told}"]
