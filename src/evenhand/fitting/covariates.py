"""Covariates of rates: strata of equal type and equal values.

In the model of proportional rates, log q[i, j] = log q0[i, j] + sum over effects e of b[e, i, j] x[e], where a number x
is centred at its mean over the rows that begin a move, and a name is an indicator per level against the first one. The
values of a row hold until the next row of the arm. For planning every stratum is a type; an arm is of that of its last
row.
"""

from dataclasses import dataclass, replace

import numpy as np

from evenhand.checks import plain
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.table_reader import natural_order
from evenhand.typing import Array, Floats, Indices

MOST_PATTERNS = 50
"""Different values of all covariates together, each of which becomes a type of the model."""


@dataclass(frozen=True, eq=False)
class Strata:
    """Types and values of covariates."""

    type: Array
    """(stratum,) type."""

    values: Floats
    """(stratum, effect) centred values in units of `scale`."""

    types: tuple[str, ...]
    """(type,) names."""

    effects: tuple[str, ...]
    """(effect,) names: of a number, or of a level as `sex=m`."""

    scale: Floats
    """(effect,) standard deviation of a number; 1 for a level."""

    @classmethod
    def plain(cls, types: tuple[str, ...]) -> "Strata":
        """Types without covariates.

        Args:
            types: names.
        """
        return cls(np.arange(len(types)), np.zeros((len(types), 0)), types, (), np.ones(0))


def stratify(log: Log) -> tuple[Log, Strata]:
    """Return the records with strata as types, and the strata.

    Args:
        log: the records, with covariates.

    Raises:
        InvalidInputError: a covariate is constant, or there are too many different values.
    """
    begins = ~log.is_last
    columns, codes, words, effects, scale = [], [], [], [], []
    for name, own in log.covariates.items():
        levels = np.unique(own) if own.dtype == np.float64 else np.array(natural_order(np.unique(own).tolist()))
        codes.append(np.argmax(own[:, None] == levels, axis=1) if len(levels) <= MOST_PATTERNS else np.arange(len(own)))
        words.append([f"{name} {plain(one) if own.dtype == np.float64 else one}" for one in levels])
        if len(levels) == 1 or np.all(own[begins] == own[begins][0]):
            raise InvalidInputError(f"covariates: {name} is the same in every row, and has no effect to estimate")
        if own.dtype == np.float64:
            spread = own[begins].std()
            columns.append((own - own[begins].mean()) / spread)
            effects.append(name)
            scale.append(spread)
        else:
            columns += [(own == level).astype(float) for level in levels[1:]]
            effects += [f"{name}={level}" for level in levels[1:]]
            scale += [1.0] * (len(levels) - 1)
    pattern = np.unique(np.stack(codes), axis=1)
    if pattern.shape[1] > MOST_PATTERNS:
        raise InvalidInputError(
            f"covariates: {', '.join(log.covariates)} have {pattern.shape[1]:,} different values together, and the "
            f"model has a type for each of at most {MOST_PATTERNS}; bin the column",
            argument="covariates",
        )
    keys = np.stack([log.type_of[log.arm], *codes])
    distinct, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    many = len(log.types) > 1
    names = [
        ", ".join([log.types[own[0]]] * many + [word[code] for word, code in zip(words, own[1:], strict=True)])
        for own in distinct.T.tolist()
    ]
    values = np.column_stack([column[first] for column in columns])
    strata = Strata(distinct[0], values, log.types, tuple(effects), np.array(scale))
    stratum: Indices = inverse.reshape(-1).astype(np.int32)
    note = f"one type per value of {', '.join(log.covariates)}: that of an arm's last row"
    relabelled = replace(log, types=tuple(names), type_of=stratum[log.is_last], stratum=stratum)
    return replace(relabelled, notes=(*log.notes, note)), strata
