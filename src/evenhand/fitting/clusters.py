"""Types from data: arms that move alike, found as a mixture of Markov chains.

The mathematics is in `mixtures`. How many types there are is asked of arms that were held out: for each number, five
times, a mixture is fitted to four fifths of the arms and scored by the log-likelihood of the others. More types
always fit better what they were fitted to; of arms that they have not seen they tell more only if they are there. The
answer is the smallest number that is not clearly worse than the best, by two standard errors of the difference, arm
by arm. Beside it stands Schwarz's criterion on all arms

    BIC = -2 log-likelihood + (parameters) log(arms)            smaller is better

Types are named by their size, the largest first. An arm has its most likely type; its probability is stored.

The rows of different actions are matched to one type by arms that had both. Where each arm had one action throughout,
a mixture of the arms of each action says as much as the mixture of all: which type of one belongs to which type of
another is arbitrary, and no effect of an action on a type is identified.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import softmax

from evenhand.checks import as_generator, is_whole
from evenhand.display import FrameLibrary, Shown, as_frame, counted, heard, shows_bar
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.mixtures import Histories, Mixtures, begin_apart, iterate, read_histories
from evenhand.model.io import Location, write_atomically
from evenhand.typing import Floats, Indices, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLEARLY = 2.0
"""Standard errors by which a smaller number has to be worse to be rejected."""

UNSURE = 0.8
"""Probability of the likeliest type of an arm below which its membership is weak."""

UNIDENTIFIED = (
    "arms had one action throughout, so that a type found under one action cannot be matched with one found under "
    "another: effects on types are not identified"
)
"""Why no effects are reported."""


@dataclass(frozen=True)
class ClusterSearch:
    """Effort of a search for types."""

    most: int = 8
    """Largest number of types that is tried."""

    folds: int = 5
    """Parts of the arms, each held out once."""

    restarts: int = 10
    """Initial mixtures of all arms."""

    fold_restarts: int = 4
    """Initial mixtures of the arms outside a fold."""

    short: int = 20
    """Iterations of every run."""

    long: int = 400
    """Iterations of the best run."""

    sample: int = 4_000
    """Arms by which the number is found, and on which runs begin; the final iterations are of all arms."""

    least_moves: int = 2
    """Moves of an arm in the sample: single moves are explained by one type as well as by many."""

    def best(
        self, sample: Histories, weights: Floats, number: int, restarts: int, rng: np.random.Generator
    ) -> Mixtures:
        """The best of several restarts with each column of weights; of equal runs, but for rounding, the first.

        Args:
            sample: histories of arms.
            weights: (history, run) numbers of arms.
            number: of types.
            restarts: initial mixtures per column of weights.
            rng: random generator.
        """
        restarts = 1 if number == 1 and weights.shape[1] == 1 else restarts
        runs = np.repeat(weights, restarts, axis=1)
        found = iterate(sample, runs, begin_apart(sample, runs, number, rng), self.short)
        objective = found.objective.reshape(-1, restarts)
        top = objective.max(axis=1, keepdims=True)
        first = np.argmax(objective >= top - 1e-9 * np.abs(top), axis=1) + restarts * np.arange(len(objective))
        return iterate(sample, weights, found.only(first), self.long)

    def try_numbers(self, sample: Histories, rng: np.random.Generator, tell: Progress) -> "tuple[Tried, ...]":
        """Held-out likelihoods of 1, 2, ... types, until two numbers in a row are worse than the best.

        Args:
            sample: histories of arms in random order.
            rng: random generator.
            tell: function of the current task and its completed share.
        """
        held: list[Floats] = []
        bics: list[float] = []
        # A type without an arm in some fold cannot be scored.
        most = (
            min(self.most, len(sample.history_of) // self.folds) if (sample.num_moves >= self.least_moves).any() else 0
        )
        fold = np.arange(len(sample.history_of)) % self.folds
        train = np.stack([sample.weights(fold != k) for k in range(self.folds)], axis=1)
        for number in range(1, most + 1):
            tell(f"{number} types of arms", (number - 1) / most)
            final = self.best(sample, train, number, self.fold_restarts, rng)
            # (arm,) log-likelihoods under mixtures that have not seen the arm.
            held.append(final.log_likelihoods(sample)[sample.history_of, fold])
            bics.append(_bic(sample, self.best(sample, sample.weights()[:, None], number, self.restarts, rng)))
            if number - 1 - int(np.argmax([one.mean() for one in held])) >= 2:
                break
        tried = []
        for k, one in enumerate(held):
            behind = max(held, key=lambda other: float(other.mean())) - one
            error = float(behind.std() / np.sqrt(len(one)))
            tried.append(Tried(k + 1, float(one.mean()), max(float(behind.mean()), 0.0), error, bics[k]))
        return tuple(tried)


@dataclass(frozen=True, eq=False)
class Tried:
    """A number of types, and how well it explains the arms."""

    number: int
    """Of types."""

    held_out: float
    """The mean log-likelihood of an arm that the mixture had not seen."""

    behind: float
    """How much worse than the best number that is, an arm."""

    error: float
    """The standard error of that difference."""

    bic: float
    """Schwarz's criterion on all arms that were tried; smaller is better."""


@dataclass(frozen=True, eq=False)
class Clusters(Shown):
    """Types that were found, and which arms are of them."""

    names: tuple[str, ...]
    """(type,) `type 1`, the largest, and so on; `all` where there is one."""

    arms: tuple[str, ...]
    """(arm,) names."""

    type_of: Indices
    """(arm,) its likeliest type."""

    probabilities: Floats
    """(arm, type) how likely each is for it."""

    tried: tuple[Tried, ...]
    """Numbers that were tried; empty if the number was given."""

    notes: tuple[str, ...]
    """What should be known of them, in words."""

    log_likelihood: float
    """Of all arms under the mixture."""

    bic: float
    """Schwarz's criterion on all arms; smaller is better."""

    identifies_effects: bool
    """Whether enough arms had several actions for the rows of actions to be matched to one type."""

    @property
    def why_no_effects(self) -> str:
        """The reason why effects of actions on these types are not identified; empty if they are."""
        return "" if self.identifies_effects else UNIDENTIFIED

    @property
    def weak(self) -> float:
        """The share of arms whose likeliest type has a probability below 0.8."""
        return float((self.probabilities.max(axis=1) < UNSURE).mean())

    @property
    def words(self) -> str:
        """Fit of the mixture to the arms, and how surely they are of their types."""
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
        """Write who is of which type: a CSV with the columns arm, type, probability.

        Args:
            path: a file; one that is there already is replaced.
        """
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("arm", "type", "probability"), *self._members()])
        write_atomically(path, text.getvalue().encode())

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """A row for each arm: its type, and how likely that is.

        Args:
            library: `pandas` or `polars`; by default pandas if installed, else polars.
        """
        members = self.to_dict()["members"]
        return as_frame({key: [one[key] for one in members] for key in ("arm", "type", "probability")}, library)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the numbers that were tried, and who is of which type."""
        figures = {key: getattr(self, key) for key in ("number", "log_likelihood", "bic", "weak", "identifies_effects")}
        members = [{"arm": arm, "type": kind, "probability": float(p)} for arm, kind, p in self._members()]
        return {**figures, "tried": [asdict(one) for one in self.tried], "members": members}

    def plot(self) -> "Figure":
        """A figure: how well each number of types explains arms that were held out, and BIC."""
        from evenhand.display import from_report

        figure: Figure = from_report("fit_plots", "clusters_figure")(self)
        return figure

    def _members(self) -> Iterable[tuple[str, str, str]]:
        chances = self.probabilities[np.arange(len(self.arms)), self.type_of]
        for arm, kind, chance in zip(self.arms, self.type_of, chances, strict=True):
            yield arm, self.names[kind], f"{chance:.4f}"

    def __repr__(self) -> str:
        sizes = np.bincount(self.type_of, minlength=self.number)
        listed = ", ".join(f"{name}: {size}" for name, size in zip(self.names, sizes, strict=True))
        return f"Clusters({counted(self.number, 'type')} of {counted(len(self.arms), 'arm')}; {listed})"


@shows_bar
def find_clusters(
    log: Log,
    number: int | Literal["auto"] = "auto",
    rng: Rng = 0,
    progress: Progress | bool | None = None,
    search: ClusterSearch = ClusterSearch(),  # noqa: B008  # frozen
) -> Clusters:
    """Find types of arms that move alike.

    Args:
        log: valid records; their types are ignored.
        number: number of types, or `auto`; either may be text.
        rng: a seed, or a generator.
        progress: function of the current task and its completed share; True for a bar.
        search: effort.

    Raises:
        InvalidInputError: the number is neither `auto` nor an integer from 1 to that of the arms.
    """
    wanted = int(number) if isinstance(number, str) and number.strip().isdecimal() else number
    if not (is_whole(wanted) and 1 <= int(wanted) <= log.num_arms) and str(wanted).strip() != "auto":
        raise InvalidInputError(
            f"clusters: expected auto, or a number of types from 1 to {log.num_arms} (the arms), got {number!r}"
        )
    generator = as_generator(rng)
    tell: Progress = heard(progress) or (lambda doing, share: None)
    histories = read_histories(log)
    # Arms that are informative on types, in random order.
    moves = histories.num_moves[histories.history_of]
    informative = np.flatnonzero(moves >= min(search.least_moves, moves.max(initial=0.0)))
    sample = histories.only(generator.permutation(informative)[: search.sample].astype(np.int64))
    tried: tuple[Tried, ...] = ()
    if isinstance(wanted, str):
        tried = search.try_numbers(sample, generator, tell)
        wanted = chosen(tried)
    begin = search.best(sample, sample.weights()[:, None], wanted, search.restarts, generator)
    found = iterate(histories, histories.weights()[:, None], begin, search.long)
    tell("types of arms", 1.0)
    return _clusters(log, histories, found, tried, wanted)


def chosen(tried: tuple[Tried, ...]) -> int:
    """The smallest number that is not clearly worse than the best; 1 if none could be tried."""
    return next((one.number for one in tried if one.behind <= CLEARLY * one.error), 1)


def _bic(sample: Histories, found: Mixtures) -> float:
    number, num_rows = found.shares.shape[1], int(sample.row_of.max(initial=-1)) + 1
    parameters = number * (len(sample.row_of) - num_rows) + number - 1
    value = found.log_likelihoods(sample)[sample.history_of, 0].sum()
    return float(-2 * value + parameters * np.log(len(sample.history_of)))


# Members of types


def _clusters(log: Log, histories: Histories, found: Mixtures, tried: tuple[Tried, ...], wanted: int) -> Clusters:
    chances = softmax(found.joint(histories)[:, 0], axis=1)[histories.history_of]
    chances = chances[:, np.argsort(-np.round(found.shares[0], 9), kind="stable")]
    # Types that have arms, the largest first; of equal ones that of the first arm.
    kinds, first, sizes = np.unique(_likeliest(chances), return_index=True, return_counts=True)
    chances = chances[:, kinds[np.lexsort((first, -sizes))]]
    chances = chances / chances.sum(axis=1, keepdims=True)
    number = len(kinds)
    names = ("all",) if number == 1 else tuple(f"type {place + 1}" for place in range(number))
    identified = number == 1 or _has_mixed_arms(log)
    notes = tuple(_notes(histories, chances, wanted, identified))
    value = float(found.log_likelihoods(histories)[histories.history_of, 0].sum())
    bic = _bic(histories, found)
    return Clusters(names, log.arms, _likeliest(chances), chances, tried, notes, value, bic, identified)


def _has_mixed_arms(log: Log) -> bool:
    """Return whether actions occur in the same arms: always if there is one action."""
    moves = np.flatnonzero(log.arm[1:] == log.arm[:-1])
    pairs = np.unique(log.arm[moves].astype(np.int64) * len(log.actions) + log.action[moves])
    several = np.bincount(pairs // len(log.actions))[np.bincount(log.arm[moves]) > 1] > 1
    # One arm in twenty: protocols have exceptions.
    return len(np.unique(pairs % len(log.actions))) < 2 or bool(several.size and several.mean() >= 0.05)


def _likeliest(chances: Floats) -> Indices:
    """(arm,) the first type that is as likely as any, up to rounding."""
    return np.asarray(np.argmax(chances >= chances.max(axis=1, keepdims=True) - 1e-9, axis=1), dtype=np.int32)


def _notes(histories: Histories, chances: Floats, wanted: int, identified: bool) -> Iterable[str]:
    moves = histories.num_moves[histories.history_of]
    number = chances.shape[1]
    if number < wanted:
        yield f"{counted(wanted, 'type')} were requested, but arms are distinguishable as {number} only"
    if (still := int((moves == 0).sum())) and number > 1:
        yield f"{counted(still, 'arm has', 'arms have')} no move, and counted as the commonest type"
    if (few := float(np.median(moves))) < 4:
        yield f"half of the arms have at most {counted(int(few), 'move')}: too few to tell types of arms apart well"
    if not identified:
        yield f"{UNIDENTIFIED}; the model's rows of different actions do not belong to the same arms"
    if number > 1 and (sure := float(chances.max(axis=1).mean())) < UNSURE:
        yield f"types are unsure: the likeliest type of an arm has a probability of {sure:.2f} on average"
