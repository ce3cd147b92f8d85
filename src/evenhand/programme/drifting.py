"""Drift: by how much a roster and a model may be off before something is to be done, and whether a model still fits.

Numbers drift when arms come and go (`solving.drifted`). A model drifts when arms no longer move as it says, which is
tested on every *move*: an arm seen in a state, what was done with it since, and the state it was seen in next. With the
same type, first state and actions a move is of one *row* r, whose law p_r is the model's. The evidence against the
model is how much better others would have foretold the moves, weighed before they were seen:

    E_r(k) = mean over c in SCALES of  DirichletMultinomial(counts; c p_r) / Multinomial(counts; p_r)
    E(k)   = product over r of  (1 - 1/R) + E_r(k) / R          R the pairs of state and action that the model has
    E      = sum over k of  w_k E(k) + the weights that are left,       w_k = 1 / ((k + 1)(k + 2))

with the counts of moves that ended k steps after the model came into use or later: things may have changed at any step,
in any of the rows. What ended before, and was told after it came into use, counts for k = 0. Moves that the model
excludes are one more row, in which a share of `ERRORS` counts as errors of reporting:

    E_0(k) = mean over θ in {2, 4, 8, ...} ERRORS of  Binomial(excluded; θ) / Binomial(excluded; ERRORS)

If the model is right each factor has mean 1 at most, given all before, whichever actions were chosen. So E is a
nonnegative supermartingale that begins at 1, and exceeds 1/level *ever* with a chance of at most `level` (Ville, 1939):
one may look as often as one likes. Late reports do no harm as long as they are not late because of what they say. Those
that change moves which were counted already, corrections and what was seen between two reports, begin another such E:
each exceeds 1/level with a chance of at most `level`.

Reference: Ramdas, Grünwald, Vovk, Shafer (2023), Game-theoretic statistics and safe anytime-valid inference.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy
from sqlalchemy import Connection, select

from evenhand.checks import is_number
from evenhand.display import counted
from evenhand.errors import InvalidInput
from evenhand.model.places import quoted
from evenhand.programme import schema
from evenhand.programme.knowing import Beliefs, done_between
from evenhand.programme.modelling import Words
from evenhand.programme.refitting import fit_types
from evenhand.programme.roster import Arm, step_at
from evenhand.typing import Floats, Ints

SCALES = (2.0, 20.0, 200.0)
"""How many moves the model's row counts as, in those that might have foretold better: small ones are far from it."""

ERRORS = 0.01
"""Share of moves that are taken to be errors of reporting where the model excludes them."""

SHOWN_ROWS = 3
"""Rows that are told of where the model no longer fits."""


@dataclass(frozen=True)
class Bounds:
    """By how much things may drift before something is done about it."""

    change: float = 0.1
    """Share by which the number of arms of a kind, or of all, may change before a policy is to be solved anew."""

    gap: float = 0.02
    """How much larger a policy's gap may get with the roster before it is to be solved anew."""

    level: float = 0.01
    """The chance at most that the model is ever said not to fit although it does."""

    records: int = 100
    """Reports since the model came into use before that is asked, and then again after as many more."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def check_bounds(given: Mapping[str, Any]) -> Bounds:
    """Bounds from what a person said of some; the others are as usual.

    Raises:
        InvalidInput: with every fault.
    """
    kept = {name: value for name, value in given.items() if value is not None}
    known = [field.name for field in fields(Bounds)]
    faults = [f"{name}: there is no such bound; known are {', '.join(known)}" for name in kept if name not in known]
    faults += [
        f"{name}: expected a number from 0, got {kept[name]!r}"
        for name in ("change", "gap")
        if name in kept and not (is_number(kept[name]) and 0 <= float(kept[name]) < np.inf)
    ]
    if "level" in kept and not (is_number(kept["level"]) and 0 < float(kept["level"]) < 1):
        faults.append(f"level: expected a number between 0 and 1, got {kept['level']!r}")
    many = kept.get("records", 1)
    if isinstance(many, bool) or not isinstance(many, int) or not 0 < many < 2**31:
        faults.append(f"records: expected a whole number from 1, got {many!r}")
    if faults:
        raise InvalidInput("; ".join(faults))
    told: dict[str, Any] = {name: value if name == "records" else float(value) for name, value in kept.items()}
    return Bounds(**told)


def bounds_of(tx: Connection) -> Bounds:
    """The bounds of a programme."""
    kept = tx.execute(select(schema.programme.c.bounds_json)).scalar_one()
    try:
        return Bounds() if kept is None else check_bounds(json.loads(kept))
    except InvalidInput as fault:  # of what is kept, and of nothing that was asked
        raise ValueError(str(fault)) from None


@dataclass(frozen=True)
class ModelDrift:
    """Whether the model in use still fits what is seen."""

    needed: bool
    """Whether it does not, so that it should be fitted anew."""

    why: tuple[str, ...]
    """What speaks against it."""

    reports: int
    """Reports since it came into use, or since a fit was declined."""

    moves: int
    """Moves among them that were held against it; 0 while there are too few reports."""

    chance: float
    """If it was right, so much evidence against it would ever come with this chance at most."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self) | {"why": list(self.why)}


# Moves

Row = tuple[str, int, tuple[int | None, ...]]
"""(type, first state, actions since) what the law of a move hangs on; None is idling where nothing is known."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Where arms came, by what the laws hang on."""

    first: int
    """The step at which the model came into use: it hangs on no report, or late ones would change the weights."""

    num_steps: int
    """Steps from the first to the last at which a move ended."""

    ends: dict[Row, Ints]
    """(move, 2) how many steps after the first each move of a row ended, and in which state."""

    laws: dict[Row, Floats]
    """(state,) what the model says of each row."""

    states: dict[str, tuple[str, ...]]
    """What states are called, by type."""

    actions: dict[str, tuple[str, ...]]
    """What actions are called, by type."""

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(len(ends) for ends in self.ends.values())

    def since(self, row: Row) -> tuple[Ints, Floats]:
        """(place,) the steps after the first at which moves of a row ended; (place, state) how many then or later."""
        at, place = np.unique(self.ends[row][:, 0], return_inverse=True)
        counts = np.zeros((len(at), len(self.laws[row])))
        np.add.at(counts, (place, self.ends[row][:, 1]), 1.0)
        return at, counts[::-1].cumsum(axis=0)[::-1]


def moves_since(tx: Connection, words: Words, arms: Sequence[Arm], step: int, event: int) -> Moves | None:
    """Every move whose end was reported after an event; None where there is none.

    Args:
        tx: a transaction.
        words: of the model.
        arms: every arm that ever joined.
        step: the present one.
        event: by which the model came into use, after which moves count.
    """
    seen = _seen(tx, step)
    done = done_between(tx, [arm.id for arm in arms], 0, step)
    labels, beliefs = fit_types(words), Beliefs(words)
    block_of: dict[str, int] = {}
    ends: dict[Row, list[tuple[int, int]]] = defaultdict(list)
    for arm in arms:
        block = words.blocks[arm.type, arm.group]
        block_of.setdefault(labels[block], block)
        told = sorted(seen.get(arm.id, {}).items())
        for (start, (state, _)), (end, (next_state, reported)) in pairwise(told):
            if reported <= event:
                continue
            taken = tuple(_action(words, block, done.get((arm.id, at))) for at in range(start, end))
            row = labels[block], words.state_number(block, state), taken
            ends[row].append((end, words.state_number(block, next_state)))
    if not ends:
        return None
    first = step_at(tx, event)
    after = {row: np.array([(max(end - first, 0), state) for end, state in found]) for row, found in ends.items()}
    return Moves(
        first=first,
        num_steps=1 + max(int(found[:, 0].max()) for found in after.values()),
        ends=after,
        laws={row: beliefs.law(block_of[row[0]], row[1], row[2]) for row in after},
        states={label: words.states(block) for label, block in block_of.items()},
        actions={label: words.actions(block) for label, block in block_of.items()},
    )


def _seen(tx: Connection, step: int) -> dict[int, dict[int, tuple[str, int]]]:
    """What each arm was last said to be in at each step, and by which event."""
    table = schema.observations
    asked = select(table.c.arm, table.c.step, table.c.state, table.c.event).where(table.c.step <= step)
    found: dict[int, dict[int, tuple[str, int]]] = {}
    for arm, at, state, event in tx.execute(asked.order_by(table.c.event, table.c.id)):
        found.setdefault(arm, {})[at] = state, event
    return found


def _action(words: Words, block: int, name: str | None) -> int | None:
    return None if name is None else words.action_number(block, name)


# The test


@dataclass(frozen=True, eq=False)
class Evidence:
    """What speaks against a model."""

    total: float
    """log E."""

    since: int
    """The step of which on most speaks against it."""

    rows: tuple[tuple[float, Row], ...]
    """Rows by log E_r of that step, the largest first."""

    excluded: tuple[int, float]
    """How many moves of that step on the model excludes, and log E_0."""


def evidence(moves: Moves, num_pairs: int) -> Evidence:
    """What the moves say against the model.

    Args:
        moves: there is at least one.
        num_pairs: (type, state, action) pairs of the model, a number that does not hang on the moves.
    """
    share = np.log(1.0 / (num_pairs + 1))
    rest = np.log1p(-np.exp(share))
    by_start, number, outside = np.zeros((3, moves.num_steps))
    of_rows: dict[Row, tuple[Ints, Floats]] = {}
    for row, law in moves.laws.items():
        at, counts = moves.since(row)
        of_rows[row] = at, _against(counts, law)
        _add(by_start, at, np.logaddexp(rest, share + of_rows[row][1]))
        _add(number, at, counts.sum(axis=1))
        _add(outside, at, counts @ (law <= 0))
    of_errors = _against_errors(outside, number)
    by_start += np.logaddexp(rest, share + of_errors)
    k = np.arange(moves.num_steps)
    weighed = by_start - np.log((k + 1.0) * (k + 2.0))
    best = int(np.argmax(weighed))
    left = -np.log(moves.num_steps + 1.0)
    ordered = sorted(((_of_start(*found, best), row) for row, found in of_rows.items()), key=lambda pair: -pair[0])
    return Evidence(
        total=float(logsumexp([*weighed, left])),
        since=moves.first + best,
        rows=tuple(ordered),
        excluded=(int(outside[best]), float(of_errors[best])),
    )


def _add(sums: Floats, at: Ints, values: Floats) -> None:
    """Add to (start,) sums what a row has of each start on: the value of its next move, and 0 after its last."""
    sums[: at[-1] + 1] += np.repeat(values, np.diff(at, prepend=-1))


def _of_start(at: Ints, values: Floats, start: int) -> float:
    """The same for one start."""
    place = int(np.searchsorted(at, start))
    return float(values[place]) if place < len(at) else 0.0


def _against(counts: Floats, law: Floats) -> Floats:
    """(place,) log E_r of one row; moves that the law excludes are left out.

    Args:
        counts: (place, state) moves of some starts on.
        law: (state,) the model's.
    """
    possible = law > 0
    counts, law = counts[:, possible], law[possible]
    if possible.sum() < 2:
        return np.zeros(len(counts))
    number, plain = counts.sum(axis=1), xlogy(counts, law).sum(axis=1)
    found = [
        gammaln(c) - gammaln(c + number) + (gammaln(c * law + counts) - gammaln(c * law)).sum(axis=1) - plain
        for c in SCALES
    ]
    return np.asarray(logsumexp(found, axis=0) - np.log(len(SCALES)))


def _against_errors(outside: Floats, number: Floats) -> Floats:
    """(start,) log E_0: whether more is excluded by the model than errors explain."""
    rates = ERRORS * 2.0 ** np.arange(1, int(np.log2(0.99 / ERRORS)) + 1)
    found = [outside * np.log(rate / ERRORS) + (number - outside) * np.log((1 - rate) / (1 - ERRORS)) for rate in rates]
    return np.asarray(logsumexp(found, axis=0) - np.log(len(rates)))


def judge(moves: Moves | None, words: Words, reports: int, bounds: Bounds) -> ModelDrift:
    """Whether the model still fits.

    Args:
        moves: since it came into use; None where there are too few reports, or none.
        words: of the model.
        reports: how many came since.
        bounds: of the programme.
    """
    if moves is None:
        return ModelDrift(False, (), reports, 0, 1.0)
    found = evidence(moves, _pairs(words))
    chance = float(np.exp(-max(found.total, 0.0)))
    if chance > bounds.level:
        return ModelDrift(False, (), reports, moves.number, chance)
    return ModelDrift(True, tuple(_reasons(moves, found, chance, bounds.level)), reports, moves.number, chance)


def _pairs(words: Words) -> int:
    """How many pairs of state and action the types of a model have."""
    first = {label: block for block, label in reversed(list(enumerate(fit_types(words))))}
    return int(sum(words.model.tables.valid[block].sum() for block in first.values()))


def _reasons(moves: Moves, found: Evidence, chance: float, level: float) -> list[str]:
    sure = "less than 1 in a million" if chance < 1e-6 else f"at most {100 * chance:.2g} %"
    told = [
        f"arms do not move as the model says: if it was right, so much against it would ever be seen in "
        f"{counted(moves.number, 'move')} with a chance of {sure} (the bound is {100 * level:g} %)"
    ]
    told += [_tell_row(moves, row, found.since) for gain, row in found.rows[:SHOWN_ROWS] if gain > 0]
    excluded, gain = found.excluded
    if gain > 0:
        told.append(f"{counted(excluded, 'move')} since step {found.since} cannot be by the model")
    return told


def _tell_row(moves: Moves, row: Row, since: int) -> str:
    """What differs most in a row."""
    ends, law = moves.ends[row], moves.laws[row]
    counts = np.bincount(ends[ends[:, 0] >= since - moves.first, 1], minlength=len(law))
    number = counts.sum()
    off = np.abs(counts - number * law) / np.sqrt(np.maximum(number * law, 1e-12))
    state = int(np.argmax(np.where(law > 0, off, -1.0)))
    kind, start, actions = row
    names, done = moves.states[kind], [moves.actions[kind][a] for a in actions if a is not None]
    under = f" with {', '.join(dict.fromkeys(done))}" if done else ""
    when = "" if len(actions) == 1 else f" {len(actions)} steps later"
    return (
        f"{quoted(kind)} in {quoted(names[start])}{under} came to {quoted(names[state])}{when} {int(counts[state])} "
        f"times of {int(number)} since step {since}; the model says {100 * law[state]:.3g} %"
    )
