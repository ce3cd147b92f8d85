"""Verdict of an audit: who was in need and not served, services against their forecast, power, deviations.

An arm is in need in a state of need of the programme (`Books.need`), observed or most likely. It is *unserved* if a
stretch of steps in need did not end by service: it lasts, or went away by itself.

The forecast is the number of services of each group under the policies, budgets and rosters of the window, played M
times in the model from the states at its begin. The realised number is exchangeable with these M if the model is right
and plans are followed. So the interval from the k-th least to the k-th largest of them contains it with

    probability at least 1 - 2 k / (M + 1)

for any number of arms and steps. Its power against services that are missed with probability f, each by itself, is the
mean over the M forecast numbers n of P(Binomial(n, 1 - f) < lower end).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr

from evenhand.display import counted
from evenhand.errors import NotApplicableError
from evenhand.model.composite import components
from evenhand.model.policy import begin
from evenhand.model.state_table import find_arms
from evenhand.planning.effects import ActionEffects, longest_first
from evenhand.planning.plan import PlacedArms
from evenhand.programme.audit_window import Books, given
from evenhand.programme.expectations import UNKNOWN, Account
from evenhand.programme.vocabulary import Noun, Vocabulary
from evenhand.report.format import amount, listed, number, percent
from evenhand.typing import Bools, Ints

if TYPE_CHECKING:
    from evenhand.programme.audit import Audit

DEFINITIONS = {
    "set": "as set for this programme",
    "promise": "the conditions with a promised longest wait",
    "relaxation": "the conditions in which a fair plan would serve; set your own conditions of need to change this",
}
"""Origins of the states of need, in words."""


@dataclass(frozen=True)
class UnservedRow:
    """An arm that was in need and was not served, by its longest such stretch within the window."""

    arm: str
    type: str
    group: str
    state: str
    """State at the end of the stretch."""
    since: int
    """First step of the stretch."""
    steps: int
    """Length of the stretch."""
    lasts: bool
    """Whether the stretch lasts at the end of the window."""
    served: int
    """Services while in need, at other steps of the window."""


@dataclass(frozen=True)
class NeedRow:
    """Arms of a group in a state of need."""

    group: str
    state: str
    arms: int
    """Arms that were in need in this state."""
    unserved: int
    """Arms that were not served, by the state at the end of their longest stretch."""
    steps: int
    """Steps in need in this state, of all arms."""
    served: int
    """Services at these steps."""
    longest: int
    """Longest stretch in need without service, up to a step in this state."""


@dataclass(frozen=True)
class ServiceRow:
    """Services of a group: planned, done, and forecast at the begin of the window."""

    group: str
    planned: int
    """Services of the plans, before overrides."""
    done: int
    promised: float | None
    """Mean of the forecast; None if it was not computed."""
    lower: int | None
    """Lower end of the prediction interval."""
    upper: int | None
    """Upper end of the prediction interval."""
    detectable: float | None
    """Least share of missed services that brings the number below the interval with a probability of 80 %; None if
    none does."""


@dataclass(frozen=True)
class BudgetDeviation:
    """A step planned with another budget than the usual one."""

    step: int
    resource: str
    usual: float
    planned: float


@dataclass(frozen=True)
class OverrideRow:
    """An override and its cost."""

    step: int
    arm: str
    group: str
    planned: str
    accepted: str
    who: str
    why: str
    cost: float
    """Value of the planned action minus that of the accepted one."""


@dataclass(frozen=True)
class UndoneRow:
    """A decision that was not carried out as accepted."""

    step: int
    arm: str
    group: str
    accepted: str
    done: str


@dataclass(frozen=True)
class Verdict:
    """Sentences of an audit, in the words of the programme."""

    need: tuple[str, ...]
    """Arms that were in need and not served."""
    services: tuple[str, ...]
    """Services against promises."""
    tests: tuple[str, ...]
    """Tests of shortfalls, each with its power."""
    deviations: tuple[str, ...]
    """Deviations from the usual budget and from the plans."""


# Need


def find_unserved(books: Books, sums: Account) -> tuple[int, tuple[UnservedRow, ...], tuple[NeedRow, ...]]:
    """Return the number of arms in need, the unserved ones, the longest in need first, and needs by group and state.

    Groups are those of then: one that closed since has its own rows.

    Args:
        books: accounts of the window.
        sums: `Books.between` of the whole window.
    """
    span, names = books.span, books.state_names
    groups, group = span.groups_then
    need, served = sums["need"] & span.present, sums["served"] & span.present
    answered = (need & served).sum(axis=1)
    longest, ended, spell = np.zeros((3, len(span.arms)), dtype=np.int64)
    waits = np.zeros((len(groups), len(names)), dtype=np.int64)
    for step in range(span.horizon + 1):
        goes_on = need[:, step] if step < span.horizon else np.zeros_like(need[:, 0])
        longer = ~goes_on & (spell > longest)
        longest, ended = np.where(longer, spell, longest), np.where(longer, step - 1, ended)
        if step < span.horizon:
            spell = np.where(goes_on & ~served[:, step], spell + 1, 0)
            np.maximum.at(waits, (group[:, step], sums["state"][:, step]), spell)
    rows = []
    for n in np.flatnonzero(longest).tolist():
        arm, last, steps = span.arms[n], int(ended[n]), int(longest[n])
        where = (arm.name, arm.type, groups[group[n, last]], names[sums["state"][n, last]])
        lasts = last == span.horizon - 1
        rows.append(UnservedRow(*where, span.first + last + 1 - steps, steps, lasts, int(answered[n])))
    many = Counter((row.group, row.state) for row in rows)
    code = group * len(names) + sums["state"]
    owners = np.unique(np.stack([np.nonzero(need)[0], code[need]]), axis=1)[1]  # once per arm
    arms, steps, got = (
        np.bincount(own, minlength=waits.size).tolist() for own in (owners, code[need], code[need & served])
    )
    cells = []
    for place in np.flatnonzero(arms).tolist():
        cell = groups[place // len(names)], names[place % len(names)]
        cells.append(NeedRow(*cell, arms[place], many[cell], steps[place], got[place], int(waits.flat[place])))
    ordered = sorted(rows, key=lambda row: (-row.steps, row.arm))
    return (
        int(need.any(axis=1).sum()),
        tuple(ordered),
        tuple(sorted(cells, key=lambda row: (-row.unserved, row.group, row.state))),
    )


# Services


def compare_services(books: Books, sums: Account) -> tuple[ServiceRow, ...]:
    """Return planned, done and promised services by group.

    Args:
        books: accounts of the window.
        sums: `Books.between` of the whole window.
    """
    drawn, rows = forecast(books), []
    numbers = [
        np.bincount(books.group, (sums[name] & books.span.present).sum(axis=1)) for name in ("planned", "served")
    ]
    for g, group in enumerate(books.groups):
        found = (None, None, None, None) if drawn is None else _interval(np.sort(drawn[:, g]), books.level)
        rows.append(ServiceRow(group, *(int(number[g]) for number in numbers), *found))
    return tuple(rows)


def _interval(drawn: Ints, level: float) -> tuple[float, int, int, float | None]:
    """Mean, prediction interval and detectable share of sorted numbers."""
    place = int(np.floor((len(drawn) + 1) * (1 - level) / 2 + 1e-9))
    lower, upper = int(drawn[place - 1]), int(drawn[-place])
    return float(drawn.mean()), lower, upper, detectable_share(drawn, lower)


def detectable_share(drawn: Ints, lower: int, power: float = 0.8) -> float | None:
    """Return the least whole percentage of missed services that is found with some probability; None if none is.

    Args:
        drawn: (episode,) forecast numbers of services.
        lower: lower end of the prediction interval.
        power: that probability.
    """
    missed = np.arange(1, 101)[:, None] / 100
    below = np.where(drawn < lower, 1.0, bdtr(lower - 1, np.maximum(drawn, lower), 1 - missed)) if lower else 0 * missed
    found = np.flatnonzero(below.mean(axis=1) >= power)
    return float(missed[found[0], 0]) if len(found) else None


def forecast(books: Books, episodes: int = 399, most: int = 10_000_000, seed: int = 0) -> Ints | None:
    """(episode, group) services in the window, played from its begin; None if it is too large, or a table is in use.

    Args:
        books: accounts of the window.
        episodes: number of episodes, unless the level needs more or the size fewer.
        most: maximum number of episodes x arms x steps x states.
        seed: of all draws.
    """
    span, tables = books.span, books.models[books.span.runs()[0][2]][0].tables
    fewest = int(np.ceil(2 / (1 - books.level) - 1e-9)) - 1  # the interval then ends at the least and the largest
    fit = most // (span.present.size * tables.rewards.shape[1])
    if fit < fewest:
        return None
    rng = np.random.default_rng(seed)
    total = np.zeros((max(fewest, min(episodes, fit)), len(books.groups)), dtype=np.int64)
    try:
        for order, served in _played(books, len(total), rng):
            own = books.group[order][:, None] == np.arange(len(books.groups))
            total += np.rint(served.astype(np.float64) @ own).astype(np.int64)
    except NotApplicableError:
        return None
    return total


def _played(books: Books, episodes: int, rng: np.random.Generator) -> Iterator[tuple[Ints, Bools]]:
    """Arms present at each step in the order of the policy's problem, and (episode, arm) whether each is served."""
    span, before = books.span, None
    words = books.models[span.runs()[0][2]][1]
    arms = span.trajectories(words, span.first, span.last)
    first = arms.state[np.arange(len(arms.block)), np.minimum(arms.begin, span.horizon - 1)]
    start = np.where((first != UNKNOWN)[:, None], np.arange(arms.start.shape[1]) == first[:, None], arms.start)
    ends = np.cumsum(start, axis=1)[None, :, :-1]
    states = (rng.random((episodes, len(start), 1)) >= ends).sum(axis=2).astype(np.int32)
    waits = np.repeat(books.waits[:, None], episodes, axis=1)
    for column in range(span.horizon):
        there, made = np.flatnonzero(span.present[:, column]), span.policies[column]
        if not len(there):
            continue
        if before is None or before[0] != made or not np.array_equal(before[1], there):
            (policy, budget, part), before = made, (made, there)
            plan = books.plans[policy]
            own = [span.arm_at(n, span.first + column) for n in there.tolist()]
            table = {"arm": [arm.name for arm in own], "type": [arm.type for arm in own]}
            table |= {"group": [arm.group for arm in own]}
            table |= {"state": [words.states[block][0] for block in words.blocks_of(own).tolist()]}
            placed = PlacedArms(plan, find_arms(plan.problem, table), np.array(budget))
            order, types = np.empty(len(there), dtype=np.int64), placed.problem.types
            order[placed.places] = there
            place = 0 if part is None else plan.parts[part - 1].place
            kinds, actor = placed.problem.type_of_arm, begin(components(placed.policy)[0][place], episodes, rng)
            effects = ActionEffects(placed.problem, range(len(types)))
            if (skip := getattr(actor, "skip_to", None)) is not None:
                skip(span.first + column)
        now = states[:, order]
        if hasattr(actor, "waiting"):
            actor.waiting = waits[0][:, order]
        actions = longest_first(effects, kinds, now, np.asarray(actor.act(now, rng)), waits[:, :, order])
        served = types.served[kinds, now, actions]
        yield order, served
        waiting = np.stack([placed.problem.type_max_waits[kinds, now] >= 0, np.ones_like(served)]) & ~served
        waits[:, :, order] = np.where(waiting, waits[:, :, order] + 1, 0)
        draw = rng.random((*now.shape, 1))
        states[:, order] = (draw >= types.cumulative[kinds, now, actions]).sum(axis=2)


# Deviations


def find_deviations(
    books: Books, sums: Account
) -> tuple[tuple[OverrideRow, ...], tuple[BudgetDeviation, ...], tuple[UndoneRow, ...]]:
    """Return overrides, steps planned with another budget than the usual one, and decisions not done as accepted.

    Args:
        books: accounts of the window.
        sums: `Books.between` of the whole window.
    """
    span, budgets, undone = books.span, [], []
    for column, (_, budget, _) in enumerate(span.policies):
        since = [at for at in span.budgets if at <= span.first + column]
        model = books.models[span.digests[column + span.first - span.since]][0]
        usual = span.budgets[since[-1]] if since else model.named_budget
        for name, planned in zip(model.resource_names, budget, strict=True):
            if usual[name] != planned:
                budgets.append(BudgetDeviation(span.first + column, name, usual[name], planned))
    accepted, done = (span.texts[name][:, span.columns] for name in ("accepted", "done"))
    for n, column in np.argwhere(span.present & given(done) & (done != accepted)).tolist():
        texts, arm = (accepted[n, column] or "", done[n, column]), span.arms[n]
        undone.append(UndoneRow(span.first + column, arm.name, arm.group, *texts))
    return _overrides(books, sums), tuple(budgets), tuple(sorted(undone, key=lambda row: (row.step, row.arm)))


def _overrides(books: Books, sums: Account) -> tuple[OverrideRow, ...]:
    span, rows = books.span, []
    values = {digest: books.continuation(digest).long_run() for digest in dict.fromkeys(span.digests) if digest}
    for place, one in span.overrides:
        arm, digest = span.arms[place], span.digests[one.step - span.since]
        words = books.models[digest][1]
        block, state = words.blocks[arm.type, arm.group], sums["mode"][place, one.step - span.first]
        actions = [words.actions[block].index(name) for name in (one.planned, one.accepted)]
        planned, accepted = values[digest][block, state, actions]
        texts = (one.planned, one.accepted, one.who or "", one.why or "")
        rows.append(OverrideRow(one.step, arm.name, arm.group, *texts, cost=float(planned - accepted)))
    return tuple(rows)


# Sentences


def put_into_words(found: "Audit", books: Books, most: int = 10) -> Verdict:
    """Return the sentences of an audit.

    Args:
        found: the audit.
        books: its accounts.
        most: names and deviations that are listed, and half of the sentences on groups; all are in the tables.
    """
    words, model = books.words, books.models[books.span.runs()[-1][2]][0]
    # One unit of the only resource per service: services then have the name of the resource, if it was given one.
    plain = len(model.resource_names) == 1 and set(np.unique(model.tables.usage)) <= {0.0, 1.0}
    noun = words.resources.get(model.resource_names[0]) if plain else None
    service = (noun or Noun("service", "services")).counted
    return Verdict(
        (*_need_sentences(found, words, most), *_promise_sentences(books, most)),
        (*islice(_service_sentences(found, service), 2 * most), *_closed_sentences(books, service)),
        tuple(islice(_test_sentences(found, words, service), 2 * most)),
        tuple(_deviation_sentences(found, words, most)),
    )


def _need_sentences(found: "Audit", words: Vocabulary, most: int) -> Iterator[str]:
    rows, span = found.unserved, words.step.counted(found.last + 1 - found.first)
    if not found.in_need:
        yield f"No {words.arm.one} was in need in {span}."
    elif not rows:
        longest = max(row.longest for row in found.needs)
        waited = f"after up to {words.step.counted(longest)}" if longest else "at once"
        yield f"{words.arm.counted(found.in_need)} in need in {span}: every need ended by service, {waited}."
    else:
        of = f"{len(rows)} of {words.arm.counted(found.in_need)} in need in {span}"
        never = sum(not row.served for row in rows)
        some = f"left unserved{f', {never} of them never served while in need' if never else ''}"
        left = "never served while in need" if never == len(rows) else some
        yield f"{of} {'was' if len(rows) == 1 else 'were'} {left}; the longest for {words.step.counted(rows[0].steps)}."
    cells = [row for row in found.needs if row.unserved]
    if cells:
        texts = [f"{row.group}, {row.state}: {row.unserved} of {row.arms}" for row in cells]
        yield f"By {words.group.one} and condition: {_first(texts, most, '; ')}"
    if rows:
        names = [f"{row.arm} ({words.step.counted(row.steps)}, at last {row.state})" for row in rows]
        yield f"The longest: {_first(names, most)}"
    states = f"{listed(found.need)}, " if found.need else ""
    yield f"In need means: {states}{DEFINITIONS[found.need_by]}."


def _promise_sentences(books: Books, most: int) -> Iterator[str]:
    """Say if promised waits were kept; those from before the window, or before the promise, count."""
    span, words = books.span, books.words
    promises, waits = books.promises
    known = [names for _, names in sorted(promises.items()) if names.promised]
    if not known:
        return
    # Waits from before a promise count towards it.
    sums, names, in_force = books.between(span.first, span.last), known[0], False
    over, due = np.zeros((2, len(span.arms)), dtype=np.int64)
    for step in range(span.horizon):
        if (changed := promises.get(span.first + step)) is not None:
            names, in_force = changed if changed.promised else names, bool(changed.promised)
        limits = names.model.max_waits[names.blocks_of(span.arms), sums["mode"][:, step]]
        limits = np.where(span.present[:, step], limits, -1)
        waits = np.where(limits >= 0, waits, 0)
        if in_force:
            over, due = (
                np.maximum(over, np.where(limits >= 0, waits - limits, 0)),
                due + (waits >= limits) * (limits >= 0),
            )
        waits = np.where(sums["served"][:, step], 0, (waits + 1) * (limits >= 0))
    late = np.flatnonzero(over > 0)
    if not len(late):
        services = counted(int(due.sum()), "service")
        yield f"Promised waits: all were met in this time ({listed(names.promised)}); {services} came due."
        return
    rows = sorted(late.tolist(), key=lambda arm: (-over[arm], span.arms[arm].name))
    texts = [f"{span.arms[arm].name} (by {words.step.counted(int(over[arm]))})" for arm in rows]
    yield f"Promised waits: {words.arm.counted(len(late))} waited longer than promised: {_first(texts, most)}"


def _service_sentences(found: "Audit", service: Callable[[float], str]) -> Iterator[str]:
    for row in found.services:
        missed = row.planned - row.done
        planned = "as planned" if not missed else f"{row.planned} planned"
        text = f"{row.group}: {service(row.done)} done, {planned}"
        if missed > 0:
            text += f", {missed} decided or done otherwise"
        if row.lower is None or row.upper is None or row.promised is None:
            yield f"{text}."
            continue
        is_low, is_high = row.done < row.lower, row.done > row.upper
        judged = ": fewer than chance explains" if is_low else ": more than chance explains" if is_high else ""
        judged = judged or ("" if missed > 0 else ": within chance")  # what people decided is not chance
        yield f"{text}; {amount(round(row.promised, 1))} promised ({row.lower} to {row.upper}){judged}."
    if any(row.lower is None for row in found.services):
        yield "Promised numbers were not computed: the plan is a table, or there is too much to play through."


def _test_sentences(found: "Audit", words: Vocabulary, service: Callable[[float], str]) -> Iterator[str]:
    value = f"{words.value} per {words.step.one}"
    for row in found.services:
        if row.lower is not None and row.done >= row.lower and not 0 == row.done < row.planned:
            least = None if row.detectable is None else percent(row.detectable, 0)
            short = f"a shortfall of less than {least}" if least else "any shortfall"
            yield f"{row.group}: {service(row.done)}, too few to decide {short}."
    for group in found.groups:
        it = group.earned
        is_low = it.realised - it.overrides - it.undone < it.lower
        short = "short beyond chance" if group.behind else "low, but not enough to warn" if is_low else "within chance"
        got = f"{number(it.realised, 3)} {value} where {number(it.promised, 3)} was promised"
        if (lost := -it.overrides - it.undone) > 0.005 * abs(it.promised):
            short = f"{number(lost, 2)} lost by what was decided or done otherwise, the rest {short}"
        short_of = group.detectable or 0.0
        least = percent(short_of / it.promised, 0) if it.promised > 0 else number(short_of, 2)
        power = "" if least.startswith("0 ") else f"; a shortfall of less than {least} would hardly be noticed"
        yield f"{group.name}: {got}, {short} (p = {group.corrected:.2g}){power}."


def _closed_sentences(books: Books, service: Callable[[float], str]) -> Iterator[str]:
    """Services of groups that no arm is in at the end, for the time in which they existed."""
    span, words = books.span, books.words
    closed = {group: until for until, kinds in span.moves for _, group in kinds.values() if group not in books.groups}
    sums = books.between(span.first, span.last) if closed else {}
    for group, until in sorted(closed.items(), key=lambda one: (one[1], one[0])):
        steps = range(span.first, until)
        own = np.array([[span.arm_at(place, step).group == group for step in steps] for place in range(len(span.arms))])
        there = own & span.present[:, : len(steps)]
        planned, done = (int((sums[name][:, : len(steps)] & there).sum()) for name in ("planned", "served"))
        arms = words.arm.counted(int(there.any(axis=1).sum()))
        there_now = "counted above where they are now"
        yield f"{group}, until {words.name(until)}, {arms}: {service(done)} done, {planned} planned; {there_now}."


def _deviation_sentences(found: "Audit", words: Vocabulary, most: int) -> Iterator[str]:
    if found.budgets:
        there = [
            f"{words.the(row.step)}: {words.resource(row.resource).counted(row.planned)}, usually {amount(row.usual)}"
            for row in found.budgets
        ]
        yield f"Other than the usual budget in {_first(there, most, '; ')}"
    if found.overrides:
        changed = [f"{row.arm} {row.accepted} for {row.planned} ({words.name(row.step)})" for row in found.overrides]
        yield f"Changed before acceptance, {len(changed)}: {_first(changed, most, '; ')}"
    if found.undone:
        other = [f"{row.arm} {row.done} for {row.accepted} ({words.name(row.step)})" for row in found.undone]
        yield f"Done otherwise than accepted, {len(other)}: {_first(other, most, '; ')}"
    if not (found.budgets or found.overrides or found.undone):
        yield "All was planned with the usual budget, accepted as planned, and done as accepted as far as is recorded."


def _first(texts: Sequence[str], most: int, joint: str = ", ") -> str:
    more = f"{joint}and {len(texts) - most} more" if len(texts) > most else ""
    return f"{joint.join(texts[:most])}{more}."
