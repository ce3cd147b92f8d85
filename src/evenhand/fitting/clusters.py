"""Types of arms from data: a mixture of Markov chains.

Arm n is of type k with probability share[k], and then moves by the rows p[k]. Its records are a row of counts x[n, c],
one for each cell c = (state, action, time in between; next state):

    p(records of n) = sum over k of share[k] prod over c of p[k, c]^x[n, c]

EM, with responsibilities r and a prior of one pseudo-count per row, shared by the K types and spread as all arms
together move (p̄):

    r[n, k] ∝ share[k] exp(x[n] · log p[k])
    share[k] = mean over n of r[n, k]
    p[k, c] = (sum over n of r[n, k] x[n, c] + p̄[c] / K) / (the same over its row)

Initial states and actions are not modelled: types differ in how they move, not in when their records begin or which
arms were served. Arms with the same counts are one row with a weight, which makes a million
short histories a few hundred rows. Runs differ in their weights (folds of a cross-validation) and in their initial
mixtures (restarts), and are iterated together, as columns of the same matrices.

The number of types is found by cross-validation: for each number, a mixture is fitted
five times to four fifths of the arms and scored by the log-likelihood of the others. More types always fit their own
training arms better; they predict held-out arms better only if they exist. The result is the smallest number that is
not clearly worse than the best, by two standard errors of the paired difference. Reported beside it is Schwarz's
criterion on all arms,

    BIC = -2 log-likelihood + (parameters) log(arms)            smaller is better

Types are named by their size, the largest first. An arm has its most likely type; its probability is stored.

The rows of different actions are matched to one type by arms that had both. If each arm had one action throughout, a
mixture of the arms of each action explains as much as the mixture of all: which type of one belongs to which type of
another is arbitrary, and no effect of an action on a type is identified.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, softmax

from evenhand.checks import as_generator, check_memory, is_whole
from evenhand.display import FrameLibrary, Shown, as_frame, counted, progress_or_none, with_progress_bar
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.model.io import Location, write_atomically
from evenhand.model.io.text_table import csv_text
from evenhand.typing import Array, Floats, Indices, Ints, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 400
"""Iterations of the final runs."""

SAMPLE, LEAST_MOVES = 4_000, 2
"""Arms by which the number is found and on which runs begin, and the moves that each must have: a single move is
explained by one type as well as by many. The final iterations are of all arms."""

CLEARLY = 2.0
"""Standard errors by which a smaller number has to be worse to be rejected."""

UNSURE = 0.8
"""Probability of the likeliest type of an arm below which its membership is weak."""

UNIDENTIFIED = (
    "arms had one action throughout, so that a type found under one action cannot be matched with one found under "
    "another: effects on types are not identified"
)
"""Why no effects are reported."""


FOUND = (
    "they were found in these records because arms differ, so a test would find the same; arms left out of the fit "
    "helped to find them, too, so that scores on them flatter a little"
)
"""Why types that were found are not tested."""

PRIOR = 1.0
"""Pseudo-counts per row, of all types together, spread as all arms move: equal types are then as good as one."""

SMOOTHING = 0.5
"""Counts that are added to each cell of the rows of all arms together, so that none is impossible."""

CLOSE = 1e-8
"""Relative gain of an iteration at which a run is done."""


# Mixtures by EM


@dataclass(frozen=True, eq=False)
class Histories:
    """Transition histories of arms, equal ones together."""

    counts: sparse.csr_array
    """(history, cell) numbers of moves."""

    row_of: Ints
    """(cell,) row of the cell: a state, an action and a time; never falls."""

    history_of: Ints
    """(arm,) history of each."""

    @property
    def num_moves(self) -> Floats:
        """(history,) moves."""
        return np.asarray(self.counts.sum(axis=1), float).ravel()

    def weights(self, arms: Array | None = None) -> Floats:
        """(history,) number of arms.

        Args:
            arms: arms that count; all by default.
        """
        which = self.history_of if arms is None else self.history_of[arms]
        return np.bincount(which, minlength=self.counts.shape[0]).astype(np.float64)

    def only(self, arms: Ints) -> "Histories":
        """Those of some arms, in their order; the cells stay."""
        histories, position = np.unique(self.history_of[arms], return_inverse=True)
        return Histories(self.counts[histories], self.row_of, position.ravel().astype(np.int64))

    def pooled(self, weights: Floats) -> Floats:
        """(cell, run) the rows of all arms together.

        Args:
            weights: (history, run).
        """
        return self.shares(self.counts.T @ weights + SMOOTHING)

    def shares(self, counts: Floats) -> Floats:
        """(cell, ...) the same, divided by the sums of their rows."""
        # Cells are sorted by their rows: each row is one stretch.
        starts = np.flatnonzero(np.diff(self.row_of, prepend=-1))
        sums = np.add.reduceat(counts, starts, axis=0) if len(starts) else counts
        return np.asarray(counts / sums[self.row_of])


def read_histories(log: Log) -> Histories:
    """The moves of each arm as counts.

    Args:
        log: valid records. Times in between are distinguished by powers of two of a step.
    """
    # A move is two rows of one arm, one after the other.
    first = np.flatnonzero(log.has_next)
    arm, state, action = log.arm[first], log.state[first].astype(np.int64), log.action[first]
    pause = (log.time[first + 1] - log.time[first]) / (1.0 if log.regular else log.step)
    # Times in between by powers of two: 50 minutes and an hour are one kind, a day is another.
    octave = np.rint(np.log2(pause)).astype(np.int64)
    octave -= octave.min(initial=0)
    width = int(octave.max(initial=0)) + 1
    # (state, action, octave) as one number, and with the next state a cell.
    row = (state * len(log.actions) + action) * width + octave
    cells, cell = np.unique(row * len(log.states) + log.state[first + 1], return_inverse=True)
    check_memory(64.0 * len(first), "the histories of the arms", "Give a sample of the arms.")
    table = sparse.coo_array((np.ones(len(first)), (arm, cell.ravel())), shape=(log.num_arms, len(cells))).tocsr()
    rows = np.unique(cells // len(log.states), return_inverse=True)[1].ravel()
    return _grouped(table, rows.astype(np.int64))


def _grouped(table: sparse.csr_array, row_of: Ints) -> Histories:
    """Arms with the same counts together, in the order in which they first come."""
    table.sum_duplicates()
    # A hash of each row; equal rows are summed in the same order.
    hashes = table @ np.random.default_rng(0).random(table.shape[1])
    _, begin, group = np.unique(hashes, return_index=True, return_inverse=True)
    if abs(table[begin][group.ravel()] - table).sum() != 0:  # two histories with one hash: about never
        return Histories(table, row_of, np.arange(table.shape[0]))
    # In the order in which histories first come, so that nothing hangs on the hash.
    order = np.argsort(begin)
    return Histories(table[begin[order]], row_of, np.argsort(order)[group.ravel()].astype(np.int64))


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Mixtures, one per run."""

    shares: Floats
    """(run, type) shares of the arms."""

    rows: Floats
    """(cell, run, type) probabilities."""

    objective: Floats
    """(run,) the log-likelihood with the prior."""

    def only(self, runs: Array) -> "Mixtures":
        """Some of the runs."""
        return Mixtures(self.shares[runs], self.rows[:, runs], self.objective[runs])

    def log_likelihoods(self, histories: Histories) -> Floats:
        """(history, run) of each."""
        return np.asarray(logsumexp(self.joint(histories), axis=2))

    def joint(self, histories: Histories) -> Floats:
        """(history, run, type) log-likelihoods, with the shares."""
        num_runs, number = self.shares.shape
        # All runs and types as columns of one product.
        logs = np.log(self.rows).reshape(len(self.rows), num_runs * number)
        with np.errstate(divide="ignore"):
            shares = np.log(self.shares)
        return np.asarray(histories.counts @ logs).reshape(-1, num_runs, number) + shares


def iterate(histories: Histories, weights: Floats, begin: Mixtures, iterations: int) -> Mixtures:
    """EM until no run gains.

    Args:
        histories: of the arms.
        weights: (history, run) numbers of arms.
        begin: one mixture per run.
        iterations: at most.
    """
    pooled = histories.pooled(weights)
    found = begin
    for _ in range(iterations):
        before, found = found, _em_step(histories, weights, pooled, found)
        # Every run must have stopped gaining: they are iterated together.
        if (found.objective - before.objective <= CLOSE * np.abs(found.objective)).all() and before is not begin:
            break
    return found


def _em_step(histories: Histories, weights: Floats, pooled: Floats, now: Mixtures) -> Mixtures:
    """One step; its objective is that of the mixture it began with."""
    joint = now.joint(histories)
    # From the largest, so that exponentials do not vanish.
    largest = joint.max(axis=2, keepdims=True)
    parts = np.exp(joint - largest)
    total = parts.sum(axis=2)
    value = (weights * (np.log(total) + largest[:, :, 0])).sum(axis=0)
    # p̄[c] / K of the head.
    prior = (PRIOR / now.shares.shape[1] * pooled)[:, :, None]
    value += (prior * np.log(now.rows)).sum(axis=(0, 2))
    # Responsibilities, times how many arms have the history.
    parts *= (weights / total)[:, :, None]
    counts = np.asarray(histories.counts.T @ parts.reshape(len(parts), -1)).reshape(now.rows.shape)
    rows = histories.shares(counts + prior)
    return Mixtures(parts.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)[:, None], rows, value)


def begin_apart(histories: Histories, weights: Floats, number: int, generator: np.random.Generator) -> Mixtures:
    """Mixtures to begin with: the histories of arms that explain each other badly (as k-means++ does).

    Args:
        histories: of the arms.
        weights: (history, run) numbers of arms.
        number: types of each.
        generator: source of randomness.
    """
    pooled = histories.pooled(weights)
    # The best that any rows could do for a history: what it lacks is measured from that.
    own = _own_likelihoods(histories)
    # The first seed by the number of moves: a long history says most.
    lack = np.where(weights > 0, histories.num_moves[:, None], 0.0)
    best = np.full(weights.shape, -np.inf)
    rows = np.empty((*pooled.shape, number))
    for place in range(number):
        seeds = _drawn(weights * lack, weights, generator)
        counts = np.asarray(histories.counts[seeds].todense(), float).T
        # A seed alone would make what it has not seen impossible.
        rows[:, :, place] = histories.shares(counts + 2 * PRIOR * pooled)
        best = np.maximum(best, np.asarray(histories.counts @ np.log(rows[:, :, place])))
        lack = np.maximum(own[:, None] - best, 0.0)
    shares = np.full((weights.shape[1], number), 1 / number)
    return Mixtures(shares, rows, np.full(weights.shape[1], -np.inf))


def _own_likelihoods(histories: Histories) -> Floats:
    """(history,) the log-likelihood of each under its own shares: no rows explain it better."""
    table = histories.counts.tocoo()
    keys = table.coords[0] * (int(histories.row_of.max(initial=0)) + 1) + histories.row_of[table.coords[1]]
    _, group = np.unique(keys, return_inverse=True)
    totals = np.bincount(group, table.data)[group] if len(group) else table.data
    logs = table.data * np.log(table.data / totals)
    return np.bincount(table.coords[0], logs, histories.counts.shape[0]).astype(np.float64)


def _drawn(chances: Floats, weights: Floats, generator: np.random.Generator) -> Array:
    """(run,) a history each, by these chances; by their weights if all are 0."""
    # All histories are explained: any will do.
    chances = np.where(chances.sum(axis=0) > 0, chances, weights)
    ladder = np.cumsum(chances, axis=0)
    marks = generator.random(chances.shape[1]) * ladder[-1]
    return np.asarray(np.minimum((ladder <= marks).sum(axis=0), len(chances) - 1))


# Types


@dataclass(frozen=True, eq=False)
class Tried:
    """A number of types, and how well it explains the arms."""

    number: int
    """Of types."""

    held_out: float
    """Mean log-likelihood of a held-out arm."""

    behind: float
    """Mean difference to the best number, per arm."""

    error: float
    """Standard error of that difference."""

    bic: float
    """Schwarz's criterion on all arms that were tried; smaller is better."""


@dataclass(frozen=True, eq=False)
class Clusters(Shown):
    """Types that were found, and the type of each arm."""

    names: tuple[str, ...]
    """(type,) `type 1`, the largest, and so on; `all` if there is one."""

    arms: tuple[str, ...]
    """(arm,) names."""

    type_of: Indices
    """(arm,) likeliest type."""

    probabilities: Floats
    """(arm, type) probabilities of membership."""

    tried: tuple[Tried, ...]
    """Numbers that were tried; empty if the number was given."""

    notes: tuple[str, ...]
    """Remarks."""

    log_likelihood: float
    """Of all arms under the mixture."""

    bic: float
    """Schwarz's criterion on all arms; smaller is better."""

    identifies_effects: bool
    """True if enough arms had several actions for the rows of actions to be matched to one type."""

    @property
    def reasons(self) -> dict[str, str]:
        """Analyses of these types that must not be made, with the reason."""
        return {"types": FOUND} if self.identifies_effects else {"types": FOUND, "effects": UNIDENTIFIED}

    @property
    def weak(self) -> float:
        """The share of arms whose likeliest type has a probability below 0.8."""
        return float((self.probabilities.max(axis=1) < UNSURE).mean())

    @property
    def words(self) -> str:
        """Fit of the mixture, and the share of weak memberships."""
        weak = f"{100 * self.weak:.1f} % of the arms are of their type with a probability below {UNSURE}"
        fit = f"log-likelihood {self.log_likelihood:.2f}, BIC {self.bic:.2f}"
        return f"{counted(self.number, 'type')}: {fit}; {weak}"

    @property
    def number(self) -> int:
        """Number of types."""
        return len(self.names)

    def relabelled(self, log: Log) -> Log:
        """The same records with these types.

        Args:
            log: the records the types were found in.
        """
        if log.arms != self.arms:
            raise InvalidInputError("log: these types were found among other arms")
        return replace(log, types=self.names, type_of=self.type_of, notes=log.notes + self.notes)

    def write(self, path: Location) -> None:
        """Write the types of the arms: a CSV file with the columns arm, type, probability.

        Args:
            path: a file; an existing one is replaced.
        """
        members = self._members()
        write_atomically(path, csv_text([list(members), *zip(*members.values(), strict=True)]).encode())

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per arm: its type, and the probability of that.

        Args:
            library: `pandas` or `polars`; by default pandas if installed, else polars.
        """
        return as_frame(self._members(), library)

    def to_dict(self) -> dict[str, Any]:
        """JSON form: the numbers that were tried, and the type of each arm."""
        figures = {key: getattr(self, key) for key in ("number", "log_likelihood", "bic", "weak", "identifies_effects")}
        members = self._members()
        rows = [dict(zip(members, row, strict=True)) for row in zip(*members.values(), strict=True)]
        return {**figures, "tried": [asdict(one) for one in self.tried], "members": rows}

    def plot(self) -> "Figure":
        """Figure of the held-out log-likelihood and the BIC of each number of types."""
        from evenhand.display import from_report

        figure: Figure = from_report("fit_plots", "clusters_figure")(self)
        return figure

    def _members(self) -> dict[str, list[Any]]:
        chances = np.round(self.probabilities[np.arange(len(self.arms)), self.type_of], 4)
        types = [self.names[kind] for kind in self.type_of]
        return {"arm": list(self.arms), "type": types, "probability": chances.tolist()}

    def __repr__(self) -> str:
        sizes = np.bincount(self.type_of, minlength=self.number)
        listed = ", ".join(f"{name}: {size}" for name, size in zip(self.names, sizes, strict=True))
        return f"Clusters({counted(self.number, 'type')} of {counted(len(self.arms), 'arm')}; {listed})"


@with_progress_bar
def find_clusters(
    log: Log, number: int | Literal["auto"] = "auto", rng: Rng = 0, progress: Progress | bool | None = None
) -> Clusters:
    """Find types of arms that move alike.

    Args:
        log: valid records; their types are ignored.
        number: number of types, or `auto`; either may be text.
        rng: a seed, or a generator.
        progress: function of the current task and its completed share; True for a bar.

    Raises:
        InvalidInputError: the number is neither `auto` nor an integer from 1 to that of the arms.
    """
    wanted = int(number) if isinstance(number, str) and number.isascii() and number.strip().isdecimal() else number
    if not (is_whole(wanted) and 1 <= int(wanted) <= log.num_arms) and str(wanted).strip() != "auto":
        expected = f"auto, or a number of types from 1 to {log.num_arms} (the arms)"
        raise InvalidInputError(f"clusters: expected {expected}, got {number!r}")
    generator = as_generator(rng)
    report: Progress = progress_or_none(progress) or (lambda doing, share: None)
    histories = read_histories(log)
    # Arms that are informative on types, in random order.
    moves = histories.num_moves[histories.history_of]
    informative = np.flatnonzero(moves >= min(LEAST_MOVES, moves.max(initial=0.0)))
    sample = histories.only(generator.permutation(informative)[:SAMPLE].astype(np.int64))
    tried: tuple[Tried, ...] = ()
    if isinstance(wanted, str):
        tried = _try_numbers(sample, generator, report)
        wanted = chosen(tried)
    begin = _best_mixture(sample, sample.weights()[:, None], wanted, generator)
    found = iterate(histories, histories.weights()[:, None], begin, LONG)
    report("types of arms", 1.0)
    chances = softmax(found.joint(histories)[:, 0], axis=1)[histories.history_of]
    chances = chances[:, np.argsort(-np.round(found.shares[0], 9), kind="stable")]
    # Types that have arms, the largest first; of equal ones that of the first arm.
    kinds, first, sizes = np.unique(_likeliest(chances), return_index=True, return_counts=True)
    chances = chances[:, kinds[np.lexsort((first, -sizes))]]
    chances = chances / chances.sum(axis=1, keepdims=True)
    names = ("all",) if len(kinds) == 1 else tuple(f"type {place + 1}" for place in range(len(kinds)))
    identified = len(kinds) == 1 or _has_mixed_arms(log)
    notes = tuple(_notes(moves, chances, wanted, identified))
    value, bic = _fit_of(histories, found)
    return Clusters(names, log.arms, _likeliest(chances), chances, tried, notes, value, bic, identified)


def _best_mixture(
    sample: Histories, weights: Floats, number: int, rng: np.random.Generator, restarts: int = 10
) -> Mixtures:
    """The best of several restarts with each column of (history, run) weights; of equal runs the first."""
    restarts = 1 if number == 1 and weights.shape[1] == 1 else restarts
    runs = np.repeat(weights, restarts, axis=1)
    found = iterate(sample, runs, begin_apart(sample, runs, number, rng), iterations=20)
    objective = found.objective.reshape(-1, restarts)
    top = objective.max(axis=1, keepdims=True)
    first = np.argmax(objective >= top - 1e-9 * np.abs(top), axis=1) + restarts * np.arange(len(objective))
    return iterate(sample, weights, found.only(first), LONG)


def _try_numbers(sample: Histories, rng: np.random.Generator, report: Progress, folds: int = 5) -> tuple[Tried, ...]:
    """Held-out likelihoods of 1, 2, ... types, at most 8, until two numbers in a row are worse than the best."""
    held: list[Floats] = []
    bics: list[float] = []
    # A type without an arm in some fold cannot be scored.
    most = min(8, len(sample.history_of) // folds) if (sample.num_moves >= LEAST_MOVES).any() else 0
    fold = np.arange(len(sample.history_of)) % folds
    train = np.stack([sample.weights(fold != k) for k in range(folds)], axis=1)
    for number in range(1, most + 1):
        report(f"{number} types of arms", (number - 1) / most)
        final = _best_mixture(sample, train, number, rng, restarts=4)
        # (arm,) log-likelihoods under mixtures that were fitted without the arm.
        held.append(final.log_likelihoods(sample)[sample.history_of, fold])
        bics.append(_fit_of(sample, _best_mixture(sample, sample.weights()[:, None], number, rng))[1])
        if number - 1 - int(np.argmax([one.mean() for one in held])) >= 2:
            break
    tried = []
    for k, one in enumerate(held):
        behind = max(held, key=lambda other: float(other.mean())) - one
        error = float(behind.std() / np.sqrt(len(one)))
        tried.append(Tried(k + 1, float(one.mean()), max(float(behind.mean()), 0.0), error, bics[k]))
    return tuple(tried)


def chosen(tried: tuple[Tried, ...]) -> int:
    """The smallest number that is not clearly worse than the best; 1 if none could be tried."""
    return next((one.number for one in tried if one.behind <= CLEARLY * one.error), 1)


def _fit_of(histories: Histories, found: Mixtures) -> tuple[float, float]:
    """Log-likelihood and BIC of a mixture."""
    number, num_rows = found.shares.shape[1], int(histories.row_of.max(initial=-1)) + 1
    parameters = number * (len(histories.row_of) - num_rows) + number - 1
    value = float(found.log_likelihoods(histories)[histories.history_of, 0].sum())
    return value, float(-2 * value + parameters * np.log(len(histories.history_of)))


def _has_mixed_arms(log: Log) -> bool:
    """Return whether actions occur in the same arms: always if there is one action."""
    moves = np.flatnonzero(log.has_next)
    pairs = np.unique(log.arm[moves].astype(np.int64) * len(log.actions) + log.action[moves])
    several = np.bincount(pairs // len(log.actions))[np.bincount(log.arm[moves]) > 1] > 1
    # One arm in twenty: protocols have exceptions.
    return len(np.unique(pairs % len(log.actions))) < 2 or bool(several.size and several.mean() >= 0.05)


def _likeliest(chances: Floats) -> Indices:
    """(arm,) the first type that is as likely as any, up to rounding."""
    return np.asarray(np.argmax(chances >= chances.max(axis=1, keepdims=True) - 1e-9, axis=1), dtype=np.int32)


def _notes(moves: Floats, chances: Floats, wanted: int, identified: bool) -> Iterable[str]:
    number = chances.shape[1]
    if number < wanted:
        yield f"{counted(wanted, 'type')} were requested, but arms are distinguishable as {number} only"
    if (still := int((moves == 0).sum())) and number > 1:
        yield f"{counted(still, 'arm has', 'arms have')} no move, and counted as the commonest type"
    if (few := float(np.median(moves))) < 4:
        yield f"half of the arms have at most {counted(int(few), 'move')}: too few to distinguish types of arms well"
    if not identified:
        yield f"{UNIDENTIFIED}; the model's rows of different actions do not belong to the same arms"
    if number > 1 and (sure := float(chances.max(axis=1).mean())) < UNSURE:
        yield f"types are unsure: the likeliest type of an arm has a probability of {sure:.2f} on average"
