"""Diagnostics of a fit: all questions, with the tests of one question adjusted for each other; and sparse rows."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from evenhand.checks import check_memory
from evenhand.display import Shown, counted
from evenhand.fitting.diagnostics.effects import Effects, effects
from evenhand.fitting.diagnostics.homogeneity import BetweenTypes, HomogeneityTest, InTime, between_types, holm, in_time
from evenhand.fitting.diagnostics.markov_order import Gain, gains
from evenhand.fitting.diagnostics.selection import Choices, choices
from evenhand.fitting.diagnostics.state_shares import Shares, shares_over_time
from evenhand.fitting.diagnostics.steps import one_steps
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.typing import Floats, Ints, Rng

if TYPE_CHECKING:
    from evenhand.fitting.ctmc.rates import Rates
    from evenhand.fitting.diagnostics.rate_tests import RateTest

FEW = 10
"""Visits below which a row is called sparse."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class SparseRow:
    """A transition row with few moves."""

    type: str
    """Type of the arms."""

    state: str
    """State of the arms."""

    action: str
    """Action."""

    visits: int
    """Number of moves."""

    elsewhere: int
    """Number of moves in other types, towards which the row is shrunk."""

    width: float
    """Width of the widest 95 % interval of the row."""


@dataclass(frozen=True)
class SparseRows:
    """Transition rows with few moves, and the number of all rows."""

    rows: tuple[SparseRow, ...]
    """Those seen fewer than ten times, the least seen first."""

    total: int
    """Rows in all: types, states and actions multiplied."""

    @property
    def words(self) -> str:
        """A sentence."""
        if not self.rows:
            return f"every row was seen {FEW} times or more"
        never = sum(not row.visits for row in self.rows)
        nowhere = sum(not row.visits and not row.elsewhere for row in self.rows)
        few = f"{len(self.rows):,} of {counted(self.total, 'row')} were seen fewer than {FEW} times"
        none = f", {never:,} never{f' ({nowhere:,} in no type)' if 0 < nowhere < never else ''}" if never else ""
        return f"{few}{none}; their probabilities are wide guesses"


def thin_rows(visits: Ints, posterior: Posterior, names: tuple[tuple[str, ...], ...]) -> SparseRows:
    """List the rows with fewer than ten moves.

    Args:
        visits: (type, state, action) moves from each pair.
        posterior: of the transition rows.
        names: of types, states and actions.
    """
    lower, upper = posterior.interval(0.95)
    widths = (upper - lower).max(axis=3)
    everywhere = visits.sum(axis=0)
    places = np.argwhere(visits < FEW)
    places = places[np.argsort(visits[tuple(places.T)], kind="stable")]
    others = everywhere - visits
    rows = [
        SparseRow(
            names[0][t], names[1][s], names[2][a], int(visits[t, s, a]), int(others[t, s, a]), float(widths[t, s, a])
        )
        for t, s, a in places.tolist()
    ]
    return SparseRows(tuple(rows), int(visits.size))


@dataclass(frozen=True, eq=False)
class Diagnostics(Shown):
    """Diagnostics of records and model. An analysis that was not possible is None, with its reason in `left_out`."""

    state: Gain | None
    """Predictive gain of the state: the fitted chain against one of order 0, on arms left out of the fit."""

    before: Gain | None
    """Further predictive gain of the state before last: a chain of order 2 against the fitted one, on arms left out."""

    in_time: "InTime | RateTest | None"
    """Early records against late ones."""

    between_types: "BetweenTypes | RateTest | None"
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

    memory: "tuple[RateTest, ...]" = ()
    """Dependence of rates on the state before and on the time in the state, if times are irregular."""

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Topics, and a sentence on each; a topic may come several times."""
        found = (self.state, self.before, self.in_time, self.between_types, self.shares, self.thin_rows)
        names = ("memory", "memory", "time", "types", "shares", "sparse rows")
        topics = [(topic, one.words) for topic, one in zip(names, found, strict=True) if one is not None]
        topics += [("memory", one.words) for one in self.memory]
        if self.effects is not None:
            topics += [("effect", overall.words) for overall in self.effects.overall]
            topics += [("effect", self.effects.words)] if self.effects.each else []
        if self.choices is not None:
            topics += [("choice", said) for said in self.choices.words]
        if self.num_tests > 1:
            said = f"the p-values of {self.num_tests} tests of choices are adjusted for each other (Holm)"
            topics.append(("tests", said))
        return (*topics, *(("not examined", f"{topic}: {why}") for topic, why in self.left_out.items()))

    def __repr__(self) -> str:
        asked = len({topic for topic, _ in self.words} - {"tests", "not examined"})
        left = f", {counted(len(self.left_out), 'question')} not examined" if self.left_out else ""
        return f"Diagnostics({counted(asked, 'topic')}, {counted(self.num_tests, 'test')}{left})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: every field, and the sentences."""
        return {**asdict(self), "words": [{"topic": topic, "said": said} for topic, said in self.words]}


def diagnose(
    log: Log,
    moves: Moves,
    posterior: Posterior,
    rng: Rng = 0,
    worth: Floats | None = None,
    reasons: Mapping[str, str] | None = None,
    rates: "Rates | None" = None,
) -> Diagnostics:
    """Compute the diagnostics of records and a fitted model.

    Args:
        log: the records.
        moves: their transition counts.
        posterior: posterior of the transition rows.
        rng: deals arms into folds, and draws rows and tables.
        worth: (type, state) reward of a step under the idle action; by default gains are counted in places, if the
            states are ordered.
        reasons: why `types` or `effects` must not be analysed; see `Clusters.reasons`.
        rates: of jumps, if times are irregular.
    """
    check_memory(250.0 * len(log.arm), f"The diagnosis of {counted(len(log.arm), 'row')}", "Leave it out.")
    streams, given = np.random.default_rng(rng).spawn(6), reasons or {}
    names = (log.types, log.states, log.actions)
    left_out: dict[str, str] = {}
    compared: dict[int, Gain] = {}
    time: InTime | RateTest | None = None
    types: BetweenTypes | RateTest | None
    memory: tuple[RateTest, ...] = ()
    why = "there is one type" if len(log.types) == 1 else given.get("types", "")
    if rates is not None:
        from evenhand.fitting.diagnostics import rate_tests  # only irregular times need it

        options = log, rates, moves.carry_action
        time = _asked("time", rate_tests.rates_in_time(*options), left_out)
        memory = rate_tests.rates_with_memory(*options)
        types = _asked("types", why or rate_tests.rates_between_types(*options), left_out)
        pushed = _asked("shares", rate_tests.prevalence(*options), left_out)
    else:
        if log.regular:
            steps = one_steps(log)
            compared, left_out = gains(steps, log.shape, streams[0])
            time = _asked("time", in_time(steps, names, streams[1]), left_out)
        else:
            left_out["memory and time"] = "times are irregular, and rates are not given"
        why = why or ("" if moves.counts.any() else "no move of one step was recorded")
        types = _asked("types", why or between_types(moves.counts, names, streams[2]), left_out)
        pushed = _asked("shares", shares_over_time(log, posterior.mean), left_out)
    why = "no action but the idle one was recorded" if len(log.actions) == 1 else given.get("effects", "")
    changed = _asked("effects", why or effects(log, moves.departures, posterior, worth, streams[3]), left_out)
    chosen, num_tests = _asked("choice", choices(log, worth, streams[4]), left_out), 0
    if chosen is not None:
        # Questions are not adjusted for other questions: each is a separate analysis.
        tests = {name: test for name, test in vars(chosen).items() if isinstance(test, HomogeneityTest)}
        num_tests = sum(test.degrees > 0 for test in tests.values())
        adjusted: dict[str, Any] = dict(zip(tests, holm(list(tests.values())), strict=True))
        chosen = replace(chosen, **adjusted)
    thin = thin_rows(moves.departures, posterior, names)
    found = (compared.get(1), compared.get(2), time, types, pushed, thin, changed, chosen, num_tests)
    return Diagnostics(*found, left_out, memory)


def _asked(topic: str, answer: Found | str, left_out: dict[str, str]) -> Found | None:
    """An answer; a reason why there is none is noted."""
    if isinstance(answer, str):
        left_out[topic] = answer
        return None
    return answer
