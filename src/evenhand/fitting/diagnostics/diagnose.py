"""Ask all questions of a fit, and adjust the tests of one question for each other."""

from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

from evenhand.checks import check_memory
from evenhand.display import Shown, counted
from evenhand.fitting.diagnostics.effects import Effects, effects
from evenhand.fitting.diagnostics.homogeneity import BetweenTypes, InTime, between_types, holm, in_time
from evenhand.fitting.diagnostics.markov_order import Gain, gains
from evenhand.fitting.diagnostics.selection import Choices, choices
from evenhand.fitting.diagnostics.sparse_rows import SparseRows, thin_rows
from evenhand.fitting.diagnostics.state_shares import Shares, shares_over_time
from evenhand.fitting.diagnostics.steps import one_steps
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.typing import Floats, Rng

BYTES_A_ROW = 250
"""That the questions take at most at one time, for each row of the log."""

FOUND = (
    "they were found in these records because arms differ, so a test would find the same; arms left out of the fit "
    "helped to find them, too, so that scores on them flatter a little"
)
"""Why types that were found are not tested."""

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Diagnostics(Shown):
    """Diagnostics of records and model. An analysis that was not possible is None, with its reason in `left_out`."""

    state: Gain | None
    """Predictive gain of the state: the fitted chain against one of order 0, on arms left out of the fit."""

    before: Gain | None
    """Further predictive gain of the state before last: a chain of order 2 against the fitted one, on arms left out."""

    in_time: InTime | None
    """Early records against late ones."""

    between_types: BetweenTypes | None
    """The types against each other."""

    shares: Shares | None
    """Shares of states over time, seen and predicted."""

    thin_rows: SparseRows
    """Rows that were seen seldom or never."""

    effects: Effects | None
    """Effects of the actions."""

    choices: Choices | None
    """Selection of arms for service."""

    num_tests: int
    """Tests of choices, whose p-values are adjusted together (Holm); other questions have one test each."""

    left_out: dict[str, str]
    """Analyses that were not possible, with the reason."""

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Topics, and a sentence on each; a topic may come several times."""
        topics: list[tuple[str, str]] = []
        for topic, found in (
            ("memory", self.state),
            ("memory", self.before),
            ("time", self.in_time),
            ("types", self.between_types),
            ("shares", self.shares),
            ("sparse rows", self.thin_rows),
        ):
            if found is not None:
                topics.append((topic, found.words))
        if self.effects is not None:
            topics += [("effect", overall.words) for overall in self.effects.overall]
            topics += [("effect", self.effects.words)] if self.effects.each else []
        if self.choices is not None:
            topics += [("choice", said) for said in self.choices.words]
        if self.num_tests > 1:
            topics.append(
                ("tests", f"the p-values of {self.num_tests} tests of choices are adjusted for each other (Holm)")
            )
        return (*topics, *(("not asked", f"{topic}: {why}") for topic, why in self.left_out.items()))

    def __repr__(self) -> str:
        asked = len({topic for topic, _ in self.words} - {"tests", "not asked"})
        left = f", {counted(len(self.left_out), 'question')} not asked" if self.left_out else ""
        return f"Diagnostics({counted(asked, 'topic')}, {counted(self.num_tests, 'test')}{left})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: every field, and the sentences."""
        return {**asdict(self), "words": [{"topic": topic, "said": said} for topic, said in self.words]}


def diagnose(
    log: Log,
    moves: Moves,
    posterior: Posterior,
    rng: Rng = 0,
    *,
    worth: Floats | None = None,
    types_found: bool = False,
    why_no_effects: str = "",
) -> Diagnostics:
    """Compute the diagnostics of records and a fitted model.

    Args:
        log: the records.
        moves: their transition counts.
        posterior: posterior of the transition rows.
        rng: deals arms into folds, and draws rows and tables.
        worth: (type, state) reward of a step under the idle action; by default the means of the rewards in the log,
            and without rewards gains are counted in places, if the states are ordered.
        types_found: whether the types were found in the same records, so that testing them would be circular.
        why_no_effects: the reason why effects of actions on these types are not identified, if they are not.
    """
    check_memory(BYTES_A_ROW * len(log.arm), f"The diagnosis of {counted(len(log.arm), 'row')}", "Leave it out.")
    streams = np.random.default_rng(rng).spawn(6)
    names = (log.types, log.states, log.actions)
    worth = _worth(log) if worth is None else worth
    visits = moves.departures
    left_out: dict[str, str] = {}
    steps = one_steps(log)
    if log.regular:
        compared, why_not = gains(steps, (len(log.types), len(log.states), len(log.actions)), streams[0])
        left_out |= why_not
        time = _asked("time", in_time(steps, names, streams[1]), left_out)
    else:
        compared, time = {}, None
        left_out["memory and time"] = "times are irregular, and these tests are of whole steps"
    types = None
    if len(log.types) == 1:
        left_out["types"] = "there is one type"
    elif types_found:
        left_out["types"] = FOUND
    elif not moves.counts.any():
        left_out["types"] = "no move of one step was recorded"
    else:
        types = between_types(moves.counts, names, streams[2])
    pushed = _asked("shares", shares_over_time(log, posterior.mean), left_out)
    changed = None
    if len(log.actions) == 1:
        left_out["effects"] = "no action but the idle one was recorded"
    elif why_no_effects:
        left_out["effects"] = why_no_effects
    else:
        changed = effects(visits, posterior, names, worth, log.is_ordered, streams[3])
    chosen, num_tests = _asked("choice", choices(log, worth, streams[4]), left_out), 0
    if chosen is not None:
        chosen, num_tests = _adjusted(chosen)
    return Diagnostics(
        compared.get(1),
        compared.get(2),
        time,
        types,
        pushed,
        thin_rows(visits, posterior, names),
        changed,
        chosen,
        num_tests,
        left_out,
    )


def _asked(topic: str, answer: Found | str, left_out: dict[str, str]) -> Found | None:
    """An answer; a reason why there is none is noted."""
    if isinstance(answer, str):
        left_out[topic] = answer
        return None
    return answer


def _worth(log: Log) -> Floats | None:
    """(type, state) mean reward of idle rows, over all types where a type has none; None where a state has none."""
    if log.reward is None:
        return None
    rows = np.flatnonzero(np.isfinite(log.reward) & (log.action == 0))
    types, states = len(log.types), len(log.states)
    place = log.type_of[log.arm[rows]].astype(np.int64) * states + log.state[rows]
    sums = np.bincount(place, weights=log.reward[rows], minlength=types * states).reshape(types, states)
    counts = np.bincount(place, minlength=types * states).reshape(types, states)
    if (counts.sum(axis=0) == 0).any():
        return None
    pooled = sums.sum(axis=0) / counts.sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), pooled)


def _adjusted(choice: Choices) -> tuple[Choices, int]:
    """With the p-values of its tests adjusted for each other, and their number.

    Questions are not adjusted for other questions: each is a separate analysis.
    """
    tests = {name: getattr(choice, name) for name in ("by_state", "by_before", "by_time", "by_type")}
    asked = {name: test for name, test in tests.items() if test is not None}
    adjusted: dict[str, Any] = dict(zip(asked, holm(list(asked.values())), strict=True))
    return replace(choice, **adjusted), sum(test.degrees > 0 for test in asked.values())
