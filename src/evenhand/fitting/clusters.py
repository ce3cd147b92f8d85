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

from evenhand.checks import as_generator
from evenhand.display import FrameLibrary, Shown, as_frame, counted, heard, shows_bar
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.mixtures import Histories, Mixtures, begin_apart, iterate, read_histories
from evenhand.model.io import Location, write_atomically
from evenhand.typing import Floats, Indices, Ints, Progress, Rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8
"""Types that are tried where the number is to be found."""

FOLDS = 5
"""Parts of the arms, each held out once."""

RESTARTS = 10
"""Places from which a mixture of all arms is begun."""

FOLD_RESTARTS = 4
"""Places from which one of the other folds is begun."""

SHORT, LONG = 20, 400
"""Iterations of every run, and of the best one."""

SAMPLE = 4_000
"""Arms by which the number is found, and the runs begin; all arms have a say in the end."""

CLEARLY = 2.0
"""Standard errors by which a smaller number has to be worse to be left."""

LEAST_MOVES = 2
"""Moves of an arm that can tell types apart at all: single moves are explained by one type as well as by many."""

FEW_MOVES = 4
"""Moves below which the type of an arm is uncertain."""

UNSURE = 0.8
"""The probability of the likeliest type of an arm below which its membership is weak."""

LEAST_MIXED = 0.05
"""The share of arms with two actions below which effects on types are not identified: protocols have exceptions."""

UNIDENTIFIED = (
    "arms had one action throughout, so that a type found under one action cannot be matched with one found under "
    "another: effects on types are not identified"
)
"""Why no effects are reported."""

TIE = 1e-9
"""Probabilities that differ by less are equal: the larger type is taken."""


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
        likelihood = f"log-likelihood {self.log_likelihood:.2f}, BIC {self.bic:.2f}"
        weak = f"{100 * self.weak:.1f} % of the arms are of their type with a probability below {UNSURE}"
        return f"{counted(self.number, 'type')}: {likelihood}; {weak}"

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
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("arm", "type", "probability"))
        writer.writerows(self._members())
        write_atomically(path, text.getvalue().encode())

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """A row for each arm: its type, and how likely that is.

        Args:
            library: `pandas` or `polars`; by default pandas if installed, else polars.
        """
        arms, types, chances = zip(*self._members(), strict=True)
        columns = {"arm": arms, "type": types, "probability": [float(chance) for chance in chances]}
        return as_frame(columns, library)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the numbers that were tried, and who is of which type."""
        return {
            "number": self.number,
            "log_likelihood": self.log_likelihood,
            "bic": self.bic,
            "weak": self.weak,
            "identifies_effects": self.identifies_effects,
            "tried": [asdict(one) for one in self.tried],
            "members": [{"arm": arm, "type": kind, "probability": float(p)} for arm, kind, p in self._members()],
        }

    def plot(self) -> "Figure":
        """A figure: how well each number of types explains arms that were held out, and BIC."""
        from evenhand.display import told_by

        figure: Figure = told_by("fit_plots", "clusters_figure")(self)
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
    log: Log, number: int | Literal["auto"] = "auto", rng: Rng = 0, progress: Progress | bool | None = None
) -> Clusters:
    """Find types of arms that move alike.

    Args:
        log: valid records; their types are ignored.
        number: how many types, or `auto`.
        rng: a seed, or a generator.
        progress: function of the current task and its completed share; True for a bar.

    Raises:
        InvalidInputError: the number is neither `auto` nor a whole number from 1 to that of the arms.
    """
    asked = read_number(number, log.num_arms)
    wanted = None if asked == "auto" else asked
    generator = as_generator(rng)
    tell: Progress = heard(progress) or (lambda doing, share: None)
    histories = read_histories(log)
    sample = histories.only(_sample(histories, generator))
    tried: tuple[Tried, ...] = ()
    if wanted is None:
        tried = _try_numbers(sample, generator, tell)
        wanted = chosen(tried)
    found = _best(sample, wanted, generator)
    found = iterate(histories, histories.weights()[:, None], found, LONG)
    tell("types of arms", 1.0)
    return _clusters(log, histories, found, tried, wanted)


def chosen(tried: tuple[Tried, ...]) -> int:
    """The smallest number that is not clearly worse than the best; 1 where none could be tried."""
    return next((one.number for one in tried if one.behind <= CLEARLY * one.error), 1)


def read_number(number: object, num_arms: int) -> int | Literal["auto"]:
    """A number of types, which may be text, or `auto`.

    Args:
        number: requested number.
        num_arms: how many arms there are.

    Raises:
        InvalidInputError: it is neither `auto` nor a whole number from 1 to that of the arms.
    """
    if isinstance(number, str):
        if number.strip() == "auto":
            return "auto"
        number = int(number) if number.strip().isdecimal() else number
    if isinstance(number, (int, np.integer)) and not isinstance(number, bool) and 1 <= number <= num_arms:
        return int(number)
    raise InvalidInputError(
        f"clusters: expected auto, or a number of types from 1 to {num_arms} (the arms), got {number!r}"
    )


# Numbers of types


def _sample(histories: Histories, generator: np.random.Generator) -> Ints:
    """Arms that tell something of types, in an order of chance; no more than a sample."""
    moves = histories.num_moves[histories.history_of]
    telling = np.flatnonzero(moves >= min(LEAST_MOVES, moves.max(initial=0.0)))
    return generator.permutation(telling)[:SAMPLE].astype(np.int64)


def _try_numbers(sample: Histories, generator: np.random.Generator, tell: Progress) -> tuple[Tried, ...]:
    """The curve of held-out likelihoods, until two numbers in a row are worse than the best."""
    num_arms = len(sample.history_of)
    most = (
        min(MOST, num_arms // FOLDS) if (sample.num_moves >= LEAST_MOVES).any() else 0
    )  # a type without an arm in some fold cannot be scored
    held: list[Floats] = []
    bics: list[float] = []
    for number in range(1, most + 1):
        tell(f"{number} types of arms", (number - 1) / most)
        held.append(_held_out(sample, number, generator))
        bics.append(_bic(sample, _best(sample, number, generator)))
        means = [one.mean() for one in held]
        if number - 1 - int(np.argmax(means)) >= 2:
            break
    if not held:
        return ()
    best = max(held, key=lambda one: float(one.mean()))
    return tuple(_tried(k + 1, one, best, bic) for k, (one, bic) in enumerate(zip(held, bics, strict=True)))


def _tried(number: int, held: Floats, best: Floats, bic: float) -> Tried:
    behind = best - held
    error = float(behind.std() / np.sqrt(len(behind)))
    return Tried(number, float(held.mean()), max(float(behind.mean()), 0.0), error, bic)


def _held_out(sample: Histories, number: int, generator: np.random.Generator) -> Floats:
    """(arm,) log-likelihoods of arms under mixtures that have not seen them."""
    fold = np.arange(len(sample.history_of)) % FOLDS  # the order of the sample is one of chance
    train = np.stack([sample.weights(fold != k) for k in range(FOLDS)], axis=1)
    runs = np.repeat(train, FOLD_RESTARTS, axis=1)
    found = iterate(sample, runs, begin_apart(sample, runs, number, generator), SHORT)
    best = [k * FOLD_RESTARTS + _first_best(found.objective[k * FOLD_RESTARTS :][:FOLD_RESTARTS]) for k in range(FOLDS)]
    final = iterate(sample, train, found.only(np.array(best)), LONG)
    return final.log_likelihoods(sample)[sample.history_of, fold]


def _first_best(objective: Floats) -> int:
    """The first run that is as good as the best but for rounding."""
    best = objective.max()
    return int(np.argmax(objective >= best - 1e-9 * abs(best)))


def _best(sample: Histories, number: int, generator: np.random.Generator) -> Mixtures:
    """The best mixture of several restarts."""
    restarts = 1 if number == 1 else RESTARTS
    weights = sample.weights()[:, None]
    runs = np.repeat(weights, restarts, axis=1)
    found = iterate(sample, runs, begin_apart(sample, runs, number, generator), SHORT)
    return iterate(sample, weights, found.only(np.array([_first_best(found.objective)])), LONG)


def _bic(sample: Histories, found: Mixtures) -> float:
    number, num_rows = found.shares.shape[1], int(sample.row_of.max(initial=-1)) + 1
    parameters = number * (len(sample.row_of) - num_rows) + number - 1
    value = found.log_likelihoods(sample)[sample.history_of, 0].sum()
    return float(-2 * value + parameters * np.log(len(sample.history_of)))


# Who is of which type


def _clusters(log: Log, histories: Histories, found: Mixtures, tried: tuple[Tried, ...], wanted: int) -> Clusters:
    joint = found.joint(histories)[:, 0]
    chances = np.exp(joint - joint.max(axis=1, keepdims=True))
    chances = (chances / chances.sum(axis=1, keepdims=True))[histories.history_of]
    chances = chances[:, np.argsort(-np.round(found.shares[0], 9), kind="stable")]
    order = _by_size(_likeliest(chances), chances.shape[1])
    chances = chances[:, order]
    chances = chances / chances.sum(axis=1, keepdims=True)
    names = ("all",) if len(order) == 1 else tuple(f"type {place + 1}" for place in range(len(order)))
    identified = len(order) == 1 or _has_mixed_arms(log)
    notes = tuple(_notes(histories, chances, wanted, identified))
    value = float(found.log_likelihoods(histories)[histories.history_of, 0].sum())
    bic = _bic(histories, found)
    return Clusters(names, log.arms, _likeliest(chances), chances, tried, notes, value, bic, identified)


def _has_mixed_arms(log: Log) -> bool:
    """Return whether actions occur in the same arms: always if there is one action."""
    moves = np.flatnonzero(log.arm[1:] == log.arm[:-1])
    arm, action = log.arm[moves], log.action[moves]
    actions = np.bincount(np.unique(arm.astype(np.int64) * len(log.actions) + action) // len(log.actions))
    several = np.bincount(arm)[: len(actions)] > 1
    return len(np.unique(action)) < 2 or bool((actions[several] > 1).mean() >= LEAST_MIXED if several.any() else False)


def _likeliest(chances: Floats) -> Indices:
    """(arm,) the first type that is as likely as any."""
    return np.asarray(np.argmax(chances >= chances.max(axis=1, keepdims=True) - TIE, axis=1), dtype=np.int32)


def _by_size(type_of: Indices, number: int) -> list[int]:
    """Types that have arms, the largest first; of equal ones that of the first arm."""
    sizes = np.bincount(type_of, minlength=number)
    _, first = np.unique(type_of, return_index=True)
    firsts = dict(zip(np.unique(type_of).tolist(), first.tolist(), strict=True))
    return sorted(firsts, key=lambda kind: (-sizes[kind], firsts[kind]))


def _notes(histories: Histories, chances: Floats, wanted: int, identified: bool) -> Iterable[str]:
    moves = histories.num_moves[histories.history_of]
    number = chances.shape[1]
    if number < wanted:
        yield f"{counted(wanted, 'type')} were requested, but arms are distinguishable as {number} only"
    if (still := int((moves == 0).sum())) and number > 1:
        yield f"{counted(still, 'arm has', 'arms have')} no move, and counted as the commonest type"
    if (few := float(np.median(moves))) < FEW_MOVES:
        yield f"half of the arms have at most {counted(int(few), 'move')}: too few to tell types of arms apart well"
    if not identified:
        yield f"{UNIDENTIFIED}; the model's rows of different actions do not belong to the same arms"
    if number > 1 and (sure := float(chances.max(axis=1).mean())) < UNSURE:
        yield f"types are unsure: the likeliest type of an arm has a probability of {sure:.2f} on average"
