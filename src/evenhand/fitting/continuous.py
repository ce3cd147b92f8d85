"""Records at irregular times: a generator for each type and action, cut to the steps of the model.

    transitions[τ, s, a, :] = exp(Q[τ, a] d)[s, :]                      d the length of a step

The likelihood is in `panels`, the mode and the draws in `rates`. What is decided here is what is believed beforehand.

One type: in w steps of time in each state under each action, w jumps, to all possible states alike. That is, for m
possible jumps and w = 1 unless told,

    q[a, i, j] ~ Gamma(w / m, w d)

the counterpart of one pseudo-count a row. Several types lean on each other: of each rate, what the other types say is
their jumps J over their time R, expected under the rates that fit all types together, and each type is taken to have
been seen to jump at that rate for w steps, or for less where the others were hardly seen themselves

    q[τ, a, i, j] ~ Gamma(v J / R, v)        1 / v = 1 / (w d) + 1 / (f R)

where f is the share of the information that is left when paths are not seen. So nothing is counted twice, and however
strong the pooling, a type is known no better than all types together are. The strength w is told, or tried in powers
of 4 (empirical Bayes): the weakest under which the records, each type's after those of the others, are not clearly
less likely than under the best, so that types are taken for alike only where they were seen to be. With w = 0 there
is no prior: rates are those of maximum likelihood, and those of jumps that were never needed to explain a record are 0.
Draws then have the weakest prior there is, w = 1 over the jumps that the maximum has: a likelihood alone is no
distribution, and where a record can be explained by either of two jumps it would let one of them fall to 0 for good.

What is told. A state that is left at once: its rates are beyond what the times between rows can tell, and an action
that acts at once is not a matter of rates. And records that no generator explains (a matrix of one step need have no
logarithm that is a generator, e.g. where arms go round in a circle at every step): where a pair was seen often over
one duration, the numbers of next states are compared with the expected ones by Pearson's statistic.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from evenhand.checks import as_generator, check_positive_int, is_number, plain
from evenhand.display import heard, in_turn
from evenhand.errors import InvalidInput, TooLarge
from evenhand.fitting.log import Log
from evenhand.fitting.moves import Moves
from evenhand.fitting.panels import TINY, Panel, read_panel, with_diagonal
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.rates import Prior, Problem, Scores, draw_rates, most_likely, spread_times
from evenhand.fitting.rows import HALF_A_VISIT
from evenhand.kernels.exponentials import Exponentials
from evenhand.model.places import quoted
from evenhand.typing import Array, Bools, Floats, Progress, Rng

NUM_DRAWS = 400
"""Draws from the posterior, unless told."""

MOST_RATES = 4000
"""Rates of one type: their curvature is a square table."""

STRENGTHS = tuple(2.0**power for power in range(-1, 10, 2))
"""Strengths of pooling that are tried, in steps of time."""

CLEARLY = 2.0
"""Log evidence by which a weaker strength has to be worse to be left."""

NEEDED = 1e-3
"""Expected jumps above which a rate of maximum likelihood is more than what the optimiser left of it."""

AT_ONCE = 15.0
"""Jumps a step out of a state from which it counts as left at once."""

OFTEN = 40
"""Moves of one kind of beginning that are worth comparing with what is expected."""

SHOWN = 5
"""Places of a kind that are named."""

SURPRISE = 1e-4
"""The chance below which a difference is told."""


@dataclass(frozen=True, eq=False)
class Misfit:
    """Moves that rates do not explain."""

    type: int
    """Of the arms."""

    state: int
    """Before."""

    action: int
    """What they got."""

    time: float
    """How long it took."""

    seen: Floats
    """(next_state,) how often each came."""

    expected: Floats
    """(next_state,) how often it should have."""

    chance: float
    """Of a difference as large, if the rates were true."""


@dataclass(frozen=True, eq=False)
class Generators(Drawn):
    """Transitions of a step, with the rates behind them."""

    rates: Floats
    """(type, action, state, next_state) jumps in the unit of time; 0 on the diagonal."""

    log_likelihood: float
    """Of the records under these rates."""

    strength: float
    """Of the prior, in steps of time; chosen by the records unless told."""

    expected_jumps: Floats
    """(type, action, state, next_state) on the paths that the records leave open."""

    at_once: tuple[tuple[int, int, int], ...]
    """(type, action, state) what is left faster than the records can tell."""

    misfits: tuple[Misfit, ...]
    """What no rates explain, the clearest first."""

    passed: Bools
    """(type, state, action) pairs without a row that arms were in between rows for long enough to be known."""


def fit_generators(
    moves: Moves,
    step: float,
    exact: tuple[int, ...] = (),
    possible: Bools | None = None,
    prior: float | None = None,
    rng: Rng = 0,
    *,
    num_draws: int = NUM_DRAWS,
    progress: Progress | bool | None = None,
) -> Generators:
    """Estimate generators from records at irregular times.

    Rows of pairs that were never seen are NaN: in no type, or with no prior in this one.

    Args:
        moves: counted; `gaps.time` in the same unit as `step`. Moves in `counts` took one step. Whether actions are
            carried on is theirs.
        step: how long a step of the model is.
        exact: states of which every entry is a row at its very time, as of a death; all of an event history.
        possible: (state, action, next_state) or (type, state, action, next_state) jumps that can be; all, when absent.
        prior: its strength, in steps of time; 0 for maximum likelihood, chosen by the records when absent.
        rng: a seed, or a generator.
        num_draws: from the posterior.
        progress: True for a bar, or a function that is told what is being done and the share that is done.

    Raises:
        InvalidInput: the step or the prior is no such number, or no path of jumps, or hardly any, makes a move.
        TooLarge: there are too many rates.
        NotConverged: the rates did not settle.
    """
    # Check, believe, find the mode, then measure and draw around it.
    generator = as_generator(rng)
    _check(step, prior)
    check_positive_int(num_draws, "num_draws")
    free = _free(moves, possible)
    panel = read_panel(moves, step, exact)
    _check_reachable(panel, free)
    told = heard(progress)
    problem, begin, strength = _with_prior(panel, free, step, prior, told)
    rates = most_likely(problem, begin)
    # Maximum likelihood has no distribution to draw from: the weakest prior stands in.
    scores = Scores.around(*((problem, rates) if strength else _weakly(problem, rates)), _silent)
    top = scores.top()
    curvature = scores.curvature(top, _silent)
    drawn = draw_rates(scores, top, curvature, num_draws, generator, _saying(told, "draws of rates", 1, 2))
    return _told(problem, problem.unpacked(rates), strength, drawn, moves.unseen)


# What is believed beforehand


def _with_prior(
    panel: Panel, free: Bools, step: float, prior: float | None, told: Progress | None
) -> tuple[Problem, Floats, float]:
    """The problem with its prior, rates to begin with, and the strength of the prior."""
    # One type leans on nobody.
    if prior == 0 or panel.num_types == 1:
        strength = 1.0 if prior is None else prior
        problem = Problem(panel, _alike(free, strength, step), free, step)
        return problem, _crude(problem), strength
    others = _others(panel, free, step)
    problems = {
        strength: Problem(panel, others.prior(free, strength * step), free, step)
        # All strengths are tried, unless one is told.
        for strength in (STRENGTHS if prior is None else (prior,))
    }
    strength = prior if prior is not None else _most_evident(problems, others.rates, told)
    problem = problems[strength]
    return problem, problem.packed(others.rates), strength


@dataclass(frozen=True, eq=False)
class Others:
    """What the other types say of the rates of each."""

    rates: Floats
    """(type, action, state, next_state) jumps over time."""

    times: Floats
    """(type, action, state, next_state) the time in which they would have been seen, had the paths been."""

    def prior(self, free: Bools, strength: float) -> Prior:
        """So much time at these rates, or less where the others were hardly seen.

        Args:
            free: (type, action, state, next_state) the rates that are estimated.
            strength: in the unit of time.
        """
        # The harmonic sum of the head: never more time than the others themselves had.
        times = 1 / (1 / strength + 1 / self.times)
        return Prior(np.where(free, times * self.rates, 0.0), times)


def _others(panel: Panel, free: Bools, step: float) -> Others:
    # A rate is shared where any type has it.
    shared: Bools = np.asarray(free.any(axis=0, keepdims=True))
    together = Problem(panel.pooled(), _alike(shared, 1.0, step), shared, step)
    packed = most_likely(together, _crude(together))
    rates = together.unpacked(packed)
    scores = Scores.around(together, packed, _silent)
    # What each type expects under the rates that fit all of them.
    each = panel.expect(np.broadcast_to(rates, free.shape))
    # All others: the sum without the type's own. The prior of the pooled fit keeps rates above 0.
    jumps = each.jumps.sum(axis=0) - each.jumps + together.prior.shapes
    times = spread_times(each).sum(axis=0) - spread_times(each) + together.prior.times
    whole = together.packed(each.jumps.sum(axis=0)[None] + together.prior.shapes)
    # f of the head: the shape of the posterior over that of paths that were seen.
    left = together.unpacked(np.minimum(scores.shapes / whole, 1.0))
    # Differences of sums may fall below 0 by rounding; a little information is always left.
    return Others(np.maximum(jumps, 0.0) / times, np.maximum(left, 1e-3) * times)


def _alike(free: Bools, strength: float, step: float) -> Prior:
    """So many jumps in as many steps, to all possible states alike."""
    # (type, action, state, 1) the m of the head.
    exits = free.sum(axis=-1, keepdims=True)
    shapes = np.where(free, strength / np.maximum(exits, 1), 0.0)
    return Prior(shapes, np.full(free.shape, strength * step))


def _weakly(problem: Problem, rates: Floats) -> tuple[Problem, Floats]:
    """The same records with the weakest prior, over the jumps that these rates need; and its mode.

    Args:
        problem: without a prior.
        rates: (type, parameter) of maximum likelihood.
    """
    _, jumps, _ = problem.expect(rates)
    # What the optimiser left of a rate that fell to 0 is not needed.
    needed = problem.free & (problem.unpacked(jumps) > NEEDED)
    weak = Problem(problem.panel, _alike(needed, 1.0, problem.step), needed, problem.step)
    return weak, most_likely(weak, weak.packed(problem.unpacked(rates)))


def _most_evident(problems: dict[float, Problem], centre: Floats, told: Progress | None) -> float:
    """The weakest strength under which the records are not clearly less likely than under the best."""
    evidence = {}
    for turn, (strength, problem) in enumerate(problems.items()):
        rates = most_likely(problem, problem.packed(centre))
        saying = _saying(told, "strength of pooling", turn, 2 * len(problems))
        scores = Scores.around(problem, rates, saying)
        top = scores.top()
        evidence[strength] = scores.evidence(top, scores.curvature(top, _silent))
    # Strengths rise: the first that is nearly as good is the weakest.
    best = max(evidence.values())
    return next(strength for strength, value in evidence.items() if value >= best - CLEARLY)


def _crude(problem: Problem) -> Floats:
    """(type, parameter) rates to begin with: moves between two rows over the time between them."""
    panel, shape = problem.panel, problem.free.shape
    # A tenth of a jump in a step of time, so that no rate begins at 0.
    jumps, times = np.full(shape, 0.1), np.full(shape[:-1], problem.step)
    whole = panel.times[panel.first] + panel.times[panel.second]
    # A move counts for the action and for the idle time after it by the time of each.
    for stretch in (panel.first, panel.second):
        place, time = (panel.type, panel.which[stretch] % panel.num_actions, panel.state), panel.times[stretch]
        np.add.at(jumps, (*place, panel.next_state), panel.number * time / whole)
        np.add.at(times, place, panel.number * time)
    return problem.packed(jumps / times[..., None])


# What is told


def notes_of(found: Generators, log: Log) -> tuple[str, ...]:
    """What should be known of generators, in words.

    Args:
        found: the generators.
        log: the records they were fitted to, with the names.
    """
    notes = ["jumps have rates, which are fitted; transitions are what they make of a step"]
    if len(log.types) > 1:
        notes.append(f"rates of a type lean on those of the others with the weight of {found.strength:g} steps")
    if found.at_once:
        listed = "; ".join(_place(log, kind, state, action) for kind, action, state in found.at_once[:SHOWN])
        more = f"; and {len(found.at_once) - SHOWN} more" if len(found.at_once) > SHOWN else ""
        notes.append(f"left faster than the times between rows can tell: {listed}{more}")
    for misfit in found.misfits[:SHOWN]:
        worst = int(np.argmax(np.abs(misfit.seen - misfit.expected)))
        notes.append(
            f"no rates explain what came after {_place(log, misfit.type, misfit.state, misfit.action)} in a time of "
            f"{misfit.time:g}: {quoted(log.states[worst])} came {misfit.seen[worst]:,.0f} times, and "
            f"{misfit.expected[worst]:,.1f} were expected"
        )
    return tuple(notes)


def _place(log: Log, kind: int, state: int, action: int) -> str:
    own = "" if len(log.types) == 1 else f"type {quoted(log.types[kind])}, "
    return f"{own}state {quoted(log.states[state])}, action {quoted(log.actions[action])}"


def _told(problem: Problem, rates: Floats, strength: float, drawn: Floats, unseen: Bools) -> Generators:
    expected, step = problem.panel.expect(rates), problem.step
    if expected.least_likely <= TINY:
        # Its likelihood has underflowed, and the rates are those of the other moves alone.
        longest = (problem.panel.times[problem.panel.first] + problem.panel.times[problem.panel.second]).max()
        raise InvalidInput(
            f"some move is less likely than {TINY:g} under rates that explain the others; check the longest times "
            f"between two rows, up to {plain(longest)}"
        )
    # The idle action has rates even if every row is a visit: arms idle between them.
    passed = unseen & (expected.times.swapaxes(1, 2) >= HALF_A_VISIT * step)
    unknown = unseen & ~passed
    # Under a prior a pair is known as soon as any type was seen there.
    unknown = unknown if strength == 0 else np.broadcast_to(unknown.all(axis=0), unknown.shape)
    # (type, action, state) out of which the rate is too fast to be told.
    fast = np.argwhere(rates.sum(axis=-1) * step > AT_ONCE)
    visited = [(kind, action, state) for kind, action, state in fast.tolist() if expected.times[kind, action, state]]
    # The exponential once for all draws of all types.
    draws = cut(drawn.reshape(-1, *rates.shape[1:]), step).reshape(len(drawn), *_turned(rates.shape))
    return Generators(
        mean=np.where(unknown[..., None], np.nan, cut(rates, step)),
        draws=np.where(unknown[..., None], np.nan, draws),
        rates=rates,
        log_likelihood=float(expected.values.sum()),
        strength=strength,
        expected_jumps=expected.jumps,
        at_once=tuple(visited),
        misfits=find_misfits(problem.panel, rates),
        passed=passed,
    )


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    num_types, num_actions, num_states, _ = shape
    return num_types, num_states, num_actions, num_states


def cut(rates: Floats, step: float) -> Floats:
    """(type, state, action, next_state) transitions of a step.

    Args:
        rates: (type, action, state, next_state) of jumps.
        step: how long it is.
    """
    flat = with_diagonal(rates.reshape(-1, *rates.shape[-2:]))
    laws = np.empty_like(flat)
    # About a million numbers at a time.
    chunk = 1 + (1 << 20) // flat.shape[-1] ** 2
    for start in range(0, len(flat), chunk):
        some = flat[start : start + chunk]
        which = np.arange(len(some), dtype=np.int32)
        # Small transitions are read off by people: no digit of them is lost, and those that cannot be stay 0.
        laws[start : start + chunk] = Exponentials(some, which, np.full(len(some), step), positive=True).values
    # Rows sum to 1 but for rounding; models want them closed.
    laws /= laws.sum(axis=-1, keepdims=True)
    turned: Floats = np.ascontiguousarray(laws.reshape(rates.shape).swapaxes(-3, -2))
    return turned


def find_misfits(panel: Panel, rates: Floats) -> tuple[Misfit, ...]:
    """Where a pair was seen often over one duration, and came to other states than the rates say.

    Args:
        panel: the records.
        rates: (type, action, state, next_state) of jumps.
    """
    plain = ~panel.entered
    keys = np.stack([panel.first, panel.second, panel.state])[:, plain]
    if not keys.size:
        return ()
    # Moves from one state over the same two durations are one table of next states.
    distinct, group = np.unique(keys, axis=1, return_inverse=True)
    seen = np.zeros((distinct.shape[1], panel.num_states))
    np.add.at(seen, (group.ravel(), panel.next_state[plain]), panel.number[plain])
    often = seen.sum(axis=1) >= OFTEN
    distinct, seen = distinct[:, often], seen[often]
    laws = panel.between(rates.reshape(-1, *rates.shape[-2:])).values
    # First the action's law, then the idle time's; given that no exact state was entered, which is another move.
    law = np.einsum("gk,gkm->gm", laws[distinct[0], distinct[2]], laws[distinct[1]])
    law /= law.sum(axis=1, keepdims=True)
    chances = _chances(seen, law * seen.sum(axis=1, keepdims=True))
    # By Bonferroni: many tables are looked at.
    order = [place for place in np.argsort(chances, kind="stable") if chances[place] < SURPRISE / max(len(chances), 1)]
    return tuple(_misfit(panel, distinct[:, place], seen[place], law[place], chances[place]) for place in order)


def _misfit(panel: Panel, key: Array, seen: Floats, law: Floats, chance: float) -> Misfit:
    kind, action = divmod(int(panel.which[key[0]]), panel.num_actions)
    time = float(panel.times[key[0]] + panel.times[key[1]])
    return Misfit(kind, int(key[2]), action, time, seen, law * seen.sum(), float(chance))


def _chances(seen: Floats, expected: Floats) -> Floats:
    """By Pearson's statistic; states that were hardly expected are taken together as one class."""
    rare = expected < 1.0
    lump_seen, lump_expected = (np.where(rare, table, 0.0).sum(axis=1) for table in (seen, expected))
    terms = np.where(rare, 0.0, (seen - expected) ** 2 / np.where(rare, 1.0, expected)).sum(axis=1)
    terms += (lump_seen - lump_expected) ** 2 / np.maximum(lump_expected, 1.0)
    classes = (~rare).sum(axis=1) + rare.any(axis=1)
    chances: Floats = chi2.sf(terms, np.maximum(classes - 1, 1))
    return chances


# Arguments


def _check(step: float, prior: float | None) -> None:
    if not is_number(step) or not 0 < step < np.inf:
        raise InvalidInput(f"step: expected how long a step is, above 0, got {step!r}")
    if prior is not None and (not is_number(prior) or not 0 <= prior < np.inf):
        raise InvalidInput(f"prior: expected its strength in steps, from 0, got {prior!r}")


def _free(moves: Moves, possible: Bools | None) -> Bools:
    """(type, action, state, next_state) the rates to be estimated."""
    num_types, num_states, num_actions, _ = moves.counts.shape
    shape = (num_types, num_states, num_actions, num_states)
    table = np.ones(shape, bool) if possible is None else np.broadcast_to(np.asarray(possible, bool), shape)
    # From (state, action) to (action, state), without staying.
    free: Bools = table.swapaxes(1, 2) & ~np.eye(num_states, dtype=bool)
    if free[0].sum() > MOST_RATES:
        raise TooLarge(
            f"{num_states} states and {num_actions} actions have {int(free[0].sum()):,} rates, and {MOST_RATES:,} can "
            "be estimated: take fewer states, or say which jumps can be (--only-worse, or a mask)"
        )
    return free


def _check_reachable(panel: Panel, free: Bools) -> None:
    """Refuse records of moves that no path of possible jumps makes."""
    if not panel.has_path(free).all():
        raise InvalidInput(
            "some moves were recorded that no path of possible jumps makes: check the mask (--only-worse), and which "
            "states are entered at the time of their row (--exact)"
        )


def _saying(told: Progress | None, name: str, turn: int, total: int) -> Callable[[float], None]:
    part = in_turn(told, name, turn, total)
    return _silent if part is None else lambda share: part("", share)


def _silent(share: float) -> None:
    """Tell nobody."""
