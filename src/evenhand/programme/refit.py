"""The model anew, from the programme's own log: what arms were seen in, and what was done with them.

A row of the log is an arm at a step at which it was seen, with what was done then: what was recorded, else what was
accepted, else idling. Steps at which an arm was not seen are summed out as `evenhand.fit` does it, which takes them to
be idle; where an arm was served unseen, the log is cut there, and nothing is learned from that gap. Types with the same
names of states and actions are fitted together, so that sparse rows lean on the other types.

The present model counts as some observations of every pair (`TRUST`): a row that was seen n times becomes

    Dirichlet(counts and prior of the fit + trust p)      where steps were not missed, whatever is leaned on
    (n drawn + trust p) / (n + trust)                     for each draw of the posterior, where gaps were summed out

with p the present row, so that one odd observation does not overturn a model.

Only transitions are learned. Pairs (state, action) that no arm of a type was seen to leave stay as they are in the
present model; rewards, usage, budget, first laws and names stay as they are, too.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from evenhand.checks import is_number
from evenhand.errors import InvalidInputError
from evenhand.fitting.fit import fit
from evenhand.fitting.options import LogOptions
from evenhand.fitting.pooled_posterior import Pooled
from evenhand.fitting.posterior import Dirichlet, Drawn, Posterior
from evenhand.fitting.posterior_files import Named, load_posterior, save_posterior
from evenhand.fitting.result import FitResult
from evenhand.fitting.transition_counts import log_likelihood
from evenhand.model.coupled import CoupledMDP
from evenhand.programme import schema
from evenhand.programme.belief import done_between
from evenhand.programme.named_model import Words
from evenhand.programme.roster import RosterArm
from evenhand.typing import Floats, Ints

HOW: dict[str, Any] = {"arm": "arm", "time": "step", "state": "state", "action": "action", "type": "type"}
"""The columns of a log."""

TRUST = 10.0
"""Observations of every pair that the present model counts as, by default."""

ENOUGH = 10
"""Times that a pair is to be seen before a difference is called beyond chance.

An interval leans on the other types and on the form of the prior: from one or two observations it may leave out the
present model, or a next state that the present model excludes, by no more than that."""

SHOWN_DIGITS = 6
"""Digits of reported probabilities."""


@dataclass(frozen=True)
class Moved:
    """One probability, before and after."""

    type: str
    state: str
    action: str
    next_state: str
    before: float
    after: float
    lower: float
    """Lower end of the 95 % credible interval."""

    upper: float
    """Upper end of the interval."""

    seen: int
    """Number of observed transitions from this state under this action."""

    @property
    def is_beyond_chance(self) -> bool:
        """The present model lies outside the interval, given enough observations (`ENOUGH`)."""
        return self.seen >= ENOUGH and not self.lower - 1e-9 <= self.before <= self.upper + 1e-9


@dataclass(frozen=True)
class Refitted:
    """A model fitted to the programme's own log, and what it would change."""

    id: int
    """Its number; `Programme.adopt` takes it."""

    event: int
    before: str
    """The digest of the model that it would replace."""

    model: str
    """The digest of the new model."""

    policy: str
    """The digest of a policy that was solved for it."""

    rows: int
    """Rows of the log: arms that were seen at a step."""

    likelihood: tuple[float | None, float | None]
    """The log-likelihood of the log under the present model, and under the new one; None where a model says that what
    was recorded cannot be."""

    moved: tuple[Moved, ...]
    """Every probability of a pair that was seen, before and after."""

    unseen: tuple[tuple[str, str, str], ...]
    """(type, state, action) pairs that were never seen, and stay as they are."""

    plan: tuple[tuple[str, str, str], ...]
    """(arm, action now, action then) what would change in a plan of the present step."""

    welfare: tuple[float | None, float | None]
    """What the present policy is worth in the new model, None where it cannot be played there; and what the new one
    is."""

    adopted_event: int | None = None
    """The event by which it was adopted; None where it was not."""

    why: tuple[str, ...] = ()
    """Evidence against the model in use, if a server proposed the refit; else empty."""

    declined_event: int | None = None
    """The event by which it was declined; None where it was not."""

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        content = asdict(self)
        for name in ("likelihood", "unseen", "plan", "welfare", "why"):
            content[name] = [list(row) if isinstance(row, tuple) else row for row in content[name]]
        return content | {"moved": [asdict(row) for row in self.moved]}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Refitted":
        """Read the JSON form."""
        stored = dict(content) | {"moved": tuple(Moved(**row) for row in content["moved"])}
        for name in ("unseen", "plan"):
            stored[name] = tuple(tuple(row) for row in content[name])
        return cls(**stored | {name: tuple(content.get(name, ())) for name in ("likelihood", "welfare", "why")})


def beginning(model: str, before: str) -> Refitted:
    """The model that a programme began with, as number 0 of its refits: there is nothing that it was fitted to.

    Args:
        model: its digest.
        before: the digest of the one in use.
    """
    return Refitted(0, 1, before, model, "", 0, (None, None), (), (), (), (None, None))


# The log


def log_of(tx: Connection, words: Words, arms: Sequence[RosterArm], step: int) -> list[dict[str, Any]]:
    """Return observations and actions up to a step as rows of a log.

    Args:
        tx: a transaction.
        words: of the model.
        arms: every arm that ever joined.
        step: the present one.
    """
    table = schema.observations
    query = select(table.c.arm, table.c.step, table.c.state).where(table.c.step <= step)
    seen: dict[int, dict[int, str]] = {}
    for row in tx.execute(query.order_by(table.c.event, table.c.id)):
        seen.setdefault(row.arm, {})[row.step] = row.state
    done = done_between(tx, [arm.id for arm in arms], 0, step)
    labels = fit_types(words)
    return [
        line
        for arm in arms
        for line in _lines(arm, words, labels, dict(sorted(seen.get(arm.id, {}).items())), done, step)
    ]


def _lines(
    arm: RosterArm,
    words: Words,
    labels: Sequence[str],
    seen: Mapping[int, str],
    done: Mapping[tuple[int, int], str],
    step: int,
) -> Iterator[dict[str, Any]]:
    """The rows of one arm; where it was served unseen it goes on under another name."""
    block = words.blocks[arm.type, arm.group]
    idle = idle_name(words, block)
    last, part = None, 0
    for at, state in seen.items():
        if last is not None and any(done.get((arm.id, gap), idle) != idle for gap in range(last + 1, at)):
            part += 1
        action = done.get((arm.id, at), idle) if at < step else None
        yield {"arm": f"{arm.id}.{part}", "step": at, "state": state, "action": action, "type": labels[block]}
        last = at


def idle_name(words: Words, block: int) -> str:
    """Return the name of the idle action in the first state of a block."""
    return words.actions(block)[int(words.model.tables.idle[block, 0])]


def fit_types(words: Words) -> list[str]:
    """(block,) what each is called in a log: blocks of one name that move alike are one type."""
    tables = words.model.tables
    first: dict[str, list[int]] = {}
    for (name, _), block in words.blocks.items():
        first.setdefault(name, []).append(block)
    alike = {
        name: all(np.array_equal(tables.transitions[own[0]], tables.transitions[block]) for block in own)
        for name, own in first.items()
    }
    groups = [words.model.group_names[number] for number in words.model.group_of_block]
    names = [label[0] for label in tables.labels]
    return [name if alike[name] else f"{name} ({group})" for name, group in zip(names, groups, strict=True)]


# The fit


@dataclass(frozen=True, eq=False)
class Family:
    """Blocks whose states and actions have the same names, fitted together."""

    blocks: tuple[int, ...]
    fitted: FitResult


def fit_families(words: Words, log: Sequence[Mapping[str, Any]], prior: float | None, seed: int) -> list[Family]:
    """Fit the types of each family of which there are moves.

    Args:
        words: of the model.
        log: from `log_of`.
        prior: how many observations the other types are worth to a row; by default found by the records.
        seed: of what is drawn.

    Raises:
        InvalidInputError: no arm was seen at two steps.
    """
    labels = fit_types(words)
    kinds: dict[Any, list[int]] = {}
    for block in range(len(labels)):
        name = (words.states(block), words.actions(block), idle_name(words, block))
        kinds.setdefault(name, []).append(block)
    found = []
    for (states, _, idle), blocks in kinds.items():
        own = {labels[block] for block in blocks}
        rows = [row for row in log if row["type"] in own]
        if not _moves_in(rows):
            continue
        options = LogOptions(states=list(states), idle=idle, step=1, layout="snapshots")
        fitted = fit(rows, **HOW, prior=prior, records=options, rng=seed)
        found.append(Family(tuple(blocks), fitted))
    if not found:
        raise InvalidInputError("there is nothing to learn from yet: no arm was seen at two steps")
    return found


def _moves_in(rows: Sequence[Mapping[str, Any]]) -> bool:
    names = [row["arm"] for row in rows]
    return len(set(names)) < len(names)


@dataclass(frozen=True, eq=False)
class Learned:
    """Result of fitting all families."""

    model: CoupledMDP
    moved: tuple[Moved, ...]
    unseen: tuple[tuple[str, str, str], ...]
    likelihood: tuple[float, float]
    posterior: bytes


def check_trust(trust: float) -> float:
    """A number of observations that a person gave."""
    if not is_number(trust) or not 0 <= float(trust) < np.inf:
        raise InvalidInputError(f"trust: expected a number from 0, got {trust!r}")
    return float(trust)


def lean(posterior: Posterior, present: Floats, seen: Ints, trust: float) -> Posterior:
    """A posterior that also knows the present model, as if it was some observations of every pair.

    Args:
        posterior: of a fit.
        present: (type, state, action, next_state) the present transitions.
        seen: (type, state, action) how often pairs were seen.
        trust: how many observations the present model is worth.
    """
    if trust == 0:
        return posterior
    if isinstance(posterior, Pooled):
        return posterior.with_more(trust * present)
    if isinstance(posterior, Dirichlet):
        return replace(posterior, concentration=posterior.concentration + trust * present)
    assert isinstance(posterior, Drawn)
    share = (seen / (seen + trust))[..., None]
    rest = (1 - share) * present
    return Drawn(share * posterior.mean + rest, share * posterior.draws + rest)


def learn(words: Words, families: Sequence[Family], trust: float = TRUST) -> Learned:
    """The model with what the families say, beside the present one.

    Args:
        words: of the present model.
        families: from `fit_families`.
        trust: how many observations of every pair the present model is worth.
    """
    transitions = np.array(words.model.tables.transitions)
    moved: list[Moved] = []
    unseen: list[tuple[str, str, str]] = []
    before = after = 0.0
    named = []
    for family in families:
        placed = _Placed(words, family, trust)
        for block in family.blocks:
            placed.write(block, transitions)
        moved += placed.moved()
        unseen += placed.unseen()
        before += log_likelihood(family.fitted.moves, placed.present)
        after += log_likelihood(family.fitted.moves, placed.rows)
        named.append(placed.named())
    model = replace_transitions(words.model, transitions)
    return Learned(model, tuple(moved), tuple(unseen), (before, after), _pack(named))


class _Placed:
    """A fit beside the present model, both in the order of the fit."""

    def __init__(self, words: Words, family: Family, trust: float) -> None:
        self.words, self.family, self.log = words, family, family.fitted.log
        labels = fit_types(words)
        self.type_of = {
            block: self.log.types.index(labels[block]) for block in family.blocks if labels[block] in self.log.types
        }
        first = {kind: block for block, kind in reversed(list(self.type_of.items()))}
        self.first = [first[kind] for kind in range(len(self.log.types))]
        own = words.actions(family.blocks[0])
        self.actions = [own.index(name) for name in self.log.actions]
        self.present = self._of(words.model.tables.transitions)
        moves, fitted = family.fitted.moves, family.fitted.posterior
        self.known = moves.unseen | np.isnan(fitted.mean).any(axis=-1)
        self.posterior = lean(fitted, self.present, moves.departures, trust).settled(self.present, self.known)
        self.rows: Floats = self.posterior.mean
        valid = words.model.tables.valid[self.first][:, : len(self.log.states)][:, :, self.actions]
        self.valid = np.asarray(valid)

    def _of(self, tables: Floats) -> Floats:
        size = len(self.log.states)
        return np.asarray(tables[self.first][:, :size][:, :, self.actions][..., :size])

    def write(self, block: int, transitions: Floats) -> None:
        """Put the rows of a block in their place; pairs that cannot be done have none."""
        if block not in self.type_of:
            return
        kind, size = self.type_of[block], len(self.log.states)
        for place, action in enumerate(self.actions):
            valid = self.words.model.tables.valid[block, :size, action]
            transitions[block, :size, action, :size][valid] = self.rows[kind, :, place][valid]

    def moved(self) -> list[Moved]:
        """Every probability of a pair that was seen."""
        lower, upper = self.posterior.interval()
        seen = self.family.fitted.moves.departures
        places = np.argwhere(~self.known[..., None] & ((self.rows > 0) | (self.present > 0)))
        return [
            Moved(
                type=self.log.types[t],
                state=self.log.states[s],
                action=self.log.actions[a],
                next_state=self.log.states[n],
                before=round(float(self.present[t, s, a, n]), SHOWN_DIGITS),
                after=round(float(self.rows[t, s, a, n]), SHOWN_DIGITS),
                lower=round(float(lower[t, s, a, n]), SHOWN_DIGITS),
                upper=round(float(upper[t, s, a, n]), SHOWN_DIGITS),
                seen=int(seen[t, s, a]),
            )
            for t, s, a, n in places.tolist()
        ]

    def unseen(self) -> list[tuple[str, str, str]]:
        """Pairs that were never seen; also actions that no row has."""
        log = self.log
        content = [
            (log.types[t], log.states[s], log.actions[a]) for t, s, a in np.argwhere(self.known & self.valid).tolist()
        ]
        block = self.family.blocks[0]
        strange = [name for name in self.words.actions(block) if name not in log.actions]
        return content + [(kind, state, name) for kind in log.types for state in log.states for name in strange]

    def named(self) -> Named:
        """Return the posterior of the transitions."""
        return Named(self.posterior, self.log.types, self.log.states, self.log.actions)


def replace_transitions(model: CoupledMDP, transitions: Floats) -> CoupledMDP:
    """A settled model with other transitions."""
    return CoupledMDP(
        arms=replace(model.tables, transitions=transitions),
        budget=model.budget,
        discount=model.discount,
        counts=model.counts,
        resources=model.resources,
        groups=model.groups,
        floors=model.floors,
        criterion=model.criterion,
        over=model.over,
    )


# Posteriors as bytes


def _pack(named: Sequence[Named]) -> bytes:
    """Posteriors, one file each, in one archive."""
    body = io.BytesIO()
    with TemporaryDirectory() as folder, zipfile.ZipFile(body, "w") as archive:
        for number, one in enumerate(named):
            file = Path(folder) / f"{number}.posterior.npz"
            save_posterior(one, file)
            archive.write(file, file.name)
    return body.getvalue()


def unpack(body: bytes) -> list[Named]:
    """The posteriors of an archive."""
    with TemporaryDirectory() as folder, zipfile.ZipFile(io.BytesIO(body)) as archive:
        found = []
        for number in range(len(archive.namelist())):
            file = Path(folder) / f"{number}.posterior.npz"
            file.write_bytes(archive.read(file.name))
            found.append(load_posterior(file))
        return found
