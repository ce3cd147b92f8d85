"""What a step is worth: the mean of a column of the records, or what a file or a few words say.

From a column, y are the rewards of the rows of type t in state s with action a, n[t] of them with the mean m[t]. Types
are alike, but not the same (an empirical Bayes model; Efron and Morris, 1975):

    y = r[t] + noise of variance sigma^2,    r[t] ~ (r, tau^2)              for each pair (s, a)

    sigma^2 = what rows differ from the means of their own (t, s, a); of all pairs together where a pair cannot tell
    tau^2   = max(0, (sum_t n[t] (m[t] - m)^2 - (k - 1) sigma^2) / (N - sum_t n[t]^2 / N))        DerSimonian and Laird

over the k types that have rows, N rows and the mean m in all. With v[t] = sigma^2 / n[t] and B[t] = tau^2 / (tau^2 +
v[t]), the estimate leans on the other types the more, the fewer rows a type has of its own:

    r^ = sum_t m[t] / (tau^2 + v[t]) / sum_t 1 / (tau^2 + v[t])                              its variance V = 1 / (...)
    reward[t] = B[t] m[t] + (1 - B[t]) r^,     error^2 = B[t] v[t] + (1 - B[t])^2 V;     without rows r^ and tau^2 + V

A pair that no type has rows of has no reward: it is NaN, and reported. Without pooling every type stands for itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.errors import Fault, InvalidInput, TableError, shortened
from evenhand.fitting.log import NOTHING, Log
from evenhand.fitting.told import Names, read_statements, read_words, spread
from evenhand.model.places import quoted
from evenhand.typing import Floats, Ints

SHOWN_PAIRS = 20
"""Pairs without a reward that are named one by one."""


@dataclass(frozen=True, eq=False)
class Rewards:
    """The reward of each pair, as far as it is known."""

    means: Floats
    """(type, state, action) rewards; NaN where nothing is known."""

    errors: Floats
    """(type, state, action) standard errors: 0 where a reward was told, infinite where the records cannot say."""

    numbers: Ints
    """(type, state, action) rows behind each; 0 where it was told, or leans on other types alone."""

    source: str
    """Where they are from, in words."""

    @property
    def unknown(self) -> Ints:
        """(pair, 3) the types, states and actions without a reward."""
        return np.argwhere(np.isnan(self.means))

    @property
    def leaning(self) -> Ints:
        """(pair, 3) the types, states and actions whose reward is that of other types."""
        return np.argwhere(np.isfinite(self.means) & (self.numbers == 0) & (self.errors > 0))

    def plus(self, more: Floats, source: str) -> "Rewards":
        """The same with known amounts added.

        Args:
            more: (type, state, action) amounts.
            source: what they are.
        """
        return Rewards(self.means + more, self.errors, self.numbers, f"{self.source}, {source}")


def rewards_of(
    log: Log,
    *,
    file: Any = None,
    words: str | Mapping[str, float] | None = None,
    costs: str | Mapping[str, float] | None = None,
    pool: bool = True,
) -> Rewards | None:
    """The rewards that were asked for; None where nothing says any.

    Args:
        log: the records; their column of rewards counts where they have one.
        file: a table with the columns state, action, type (any may be absent) and reward or cost.
        words: rewards of states, `good=1,poor=0.3`, or of states and actions, `poor/replace=-2`.
        costs: what actions cost, `replace=9.75`; taken from the rewards.
        pool: whether sparse rewards of a column lean on those of other types.

    Raises:
        TableError: with every fault of the file, or of the words.
    """
    ways = {"a column of rewards": log.reward, "a file of rewards": file, "rewards in words": words}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"rewards: there are {' and '.join(given)}; give one of them")
    if not given and costs is None:
        return None
    if log.reward is not None:
        found = from_column(log, pool)
    elif file is not None:
        found = from_file(log, file)
    elif words is not None:
        found = from_words(log, words)
    else:
        found = _told(np.zeros(Names(log).shape), "nothing but costs")
    return found if costs is None else found.plus(-_costs(log, costs), "less the costs of actions")


def from_file(log: Log, file: Any) -> Rewards:
    """Rewards by the names of states, actions and types; what the file does not speak of is unknown.

    Args:
        log: the records.
        file: the name of a file, or a table.
    """
    names = Names(log)
    statements, (column,) = read_statements(file, names, ("reward", "cost"), "--rewards")
    said = spread(statements, names.shape, str(file) if isinstance(file, str) else "--rewards")[..., 0]
    return _told(said if column == "reward" else 0.0 - said, str(file) if isinstance(file, str) else "a table")


def from_words(log: Log, words: str | Mapping[str, float]) -> Rewards:
    """Rewards of states, or of states and actions.

    Args:
        log: the records.
        words: `good=1,poor=0.3,poor/replace=-2`.
    """
    names = Names(log)
    statements, _ = read_words(words, names, ("state", "action"), "--reward-of")
    return _told(spread(statements, names.shape, "--reward-of")[..., 0], "words")


def _costs(log: Log, words: str | Mapping[str, float]) -> Floats:
    names = Names(log)
    statements, _ = read_words(words, names, ("action",), "--cost-of")
    return np.nan_to_num(spread(statements, names.shape, "--cost-of")[..., 0])


def _told(means: Floats, source: str) -> Rewards:
    return Rewards(means, np.zeros(means.shape), np.zeros(means.shape, dtype=np.int64), source)


def check_known(rewards: Rewards, log: Log, needed: Any = True) -> None:
    """Raise TableError with every pair that has no reward.

    Args:
        rewards: what is known.
        log: whose names they are.
        needed: (type, state, action) the pairs that need one; all when absent.
    """
    missing = np.argwhere(np.isnan(rewards.means) & needed)
    faults = [Fault("", f"{words_of(log, *pair)} has no reward") for pair in missing[:SHOWN_PAIRS].tolist()]
    if faults:
        raise TableError(shortened(faults, SHOWN_PAIRS, len(missing)), f"rewards, from {rewards.source}")


def words_of(log: Log, kind: int, state: int, action: int) -> str:
    """A pair by its names.

    Args:
        log: whose names they are.
        kind: the type.
        state: the state.
        action: the action.
    """
    of = f"type {quoted(log.types[kind])}, " if len(log.types) > 1 else ""
    return f"{of}state {quoted(log.states[state])}, action {quoted(log.actions[action])}"


# From a column


def from_column(log: Log, pool: bool = True) -> Rewards:
    """The means of the rewards that were recorded, with their errors.

    Args:
        log: records with a column of rewards.
        pool: whether sparse ones lean on other types.
    """
    assert log.reward is not None
    return estimate(log, log.reward, pool, "a column of the records")


def estimate(log: Log, figures: Floats, pool: bool, source: str) -> Rewards:
    """The mean of a figure of rows by type, state and action, with its error.

    Args:
        log: the records.
        figures: (row,) the figure, NaN where it was not recorded.
        pool: whether sparse means lean on other types.
        source: what it is, in words.
    """
    shape = Names(log).shape
    known = np.isfinite(figures) & (log.action != NOTHING)
    place = (log.type_of[log.arm[known]], log.state[known], log.action[known])
    cells = np.ravel_multi_index(tuple(map(np.asarray, place)), shape)
    size = int(np.prod(shape))
    numbers = np.bincount(cells, minlength=size).reshape(shape)
    sums = np.bincount(cells, weights=figures[known], minlength=size).reshape(shape)
    means = np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan)
    apart = figures[known] - means.reshape(-1)[cells]
    squares = np.bincount(cells, weights=apart**2, minlength=size).astype(np.float64).reshape(shape)
    noise = _noise(numbers, squares)
    if pool and shape[0] > 1:
        return Rewards(*_pooled(numbers, means, noise), numbers.astype(np.int64), source)
    errors = np.sqrt(noise / np.maximum(numbers, 1))
    return Rewards(means, np.where(numbers > 0, errors, np.nan), numbers.astype(np.int64), source)


def _noise(numbers: Ints, squares: Floats) -> Floats:
    """(state, action) the variance of a row around its mean; that of all pairs where a pair has no two rows alike."""
    free = np.maximum(numbers - 1, 0).sum(axis=0)
    overall = squares.sum() / free.sum() if free.sum() else np.inf
    return np.where(free > 0, squares.sum(axis=0) / np.maximum(free, 1), overall)


def _pooled(numbers: Ints, means: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """(type, state, action) means that lean on other types, and their errors."""
    found, errors = means.copy(), np.full(means.shape, np.nan)
    for state, action in np.argwhere((numbers > 0).any(axis=0)).tolist():
        here = (slice(None), state, action)
        found[here], errors[here] = _lean(numbers[here], means[here], float(noise[state, action]))
    return found, errors


def _lean(numbers: Ints, means: Floats, noise: float) -> tuple[Floats, Floats]:
    """(type,) the rewards of one pair, and their errors."""
    seen = numbers > 0
    n, own = numbers[seen], means[seen]
    variance = noise / n
    tau = _between(n, own, noise)
    common, common_variance = float(n @ own / n.sum()), np.inf
    if tau + noise == 0:
        common_variance = 0.0
    elif np.isfinite(tau + noise):
        precision = 1 / (tau + variance)
        common, common_variance = float(precision @ own / precision.sum()), float(1 / precision.sum())
    found = np.full(len(numbers), common)
    errors = np.full(len(numbers), np.sqrt(tau + common_variance))
    if not np.isfinite(tau + noise) or tau + noise == 0:  # nothing to lean on, or no need to
        found[seen], errors[seen] = own, np.sqrt(variance)
    else:
        kept = tau / (tau + variance)
        found[seen] = kept * own + (1 - kept) * common
        errors[seen] = np.sqrt(kept * variance + (1 - kept) ** 2 * common_variance)
    return found, errors


def _between(numbers: Ints, means: Floats, noise: float) -> float:
    """The variance of the types' rewards around a common one, by moments; infinite where one type cannot tell."""
    kinds, total = len(numbers), float(numbers.sum())
    if kinds < 2 or not np.isfinite(noise):
        return np.inf
    apart = float(numbers @ (means - numbers @ means / total) ** 2)
    room = total - float(numbers @ numbers) / total
    return max(apart - (kinds - 1) * noise, 0.0) / room
