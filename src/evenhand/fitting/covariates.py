"""Covariates of rates: strata of equal type and equal values.

In the model of proportional rates, log q[i, j] = log q0[i, j] + sum over effects e of b[e, i, j] x[e], where a number x
is centred at its mean over the rows that begin a move, and a name is an indicator per level against the first one. The
values of a row hold until the next row of the arm. For planning every stratum is a type; an arm is of that of its last
row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.checks import plain
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.table_reader import natural_order
from evenhand.typing import Array, Floats, Indices

MOST_PATTERNS = 500
"""Different values of all covariates together, each of which becomes a type of the model."""


@dataclass(frozen=True, eq=False)
class Design:
    """Strata, or these by periods: the type of each, and its covariates."""

    type: Array
    """(stratum,) type."""

    values: Floats
    """(stratum, effect) centred values in units of `scale`; an effect is a number, a level of a name, or a period."""

    types: tuple[str, ...] = ()
    """(type,) names."""

    effects: tuple[str, ...] = ()
    """(effect,) names: of a number, or of a level as `sex=m`."""

    scale: tuple[float, ...] = ()
    """(effect,) standard deviation of a number; 1 for a level or a period."""

    def by_period(self, names: Sequence[str]) -> "Design":
        """Strata by periods, with an indicator of each period but the first.

        Args:
            names: of the periods but the first.
        """
        number = len(names) + 1
        later = np.tile(np.eye(number)[:, 1:], (len(self.type), 1))
        values = np.column_stack([np.repeat(self.values, number, axis=0), later])
        effects, scale = (*self.effects, *names), (*self.scale, *[1.0] * len(names))
        return Design(np.repeat(self.type, number), values, self.types, effects, scale)

    def ratios(self, effects: Floats) -> Floats:
        """(stratum, 1, state, next_state) hazard ratios.

        Args:
            effects: (effect, state, next_state) log hazard ratios per unit of `scale`.
        """
        return np.asarray(np.exp(np.tensordot(self.values, effects, 1))[:, None])


def stratify(log: Log) -> tuple[Log, Design]:
    """Return the records with strata as types, and their design.

    Args:
        log: the records, with covariates.

    Raises:
        InvalidInputError: a covariate is constant, or there are too many different values.
    """
    begins = log.has_next
    columns, codes, words, effects, scale = [], [], [], [], []
    for name, own in log.covariates.items():
        levels = np.unique(own) if own.dtype == np.float64 else np.array(natural_order(np.unique(own).tolist()))
        place = {level: number for number, level in enumerate(levels.tolist())}
        codes.append(np.array([place[value] for value in own.tolist()]))
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
    design = Design(distinct[0], values, log.types, tuple(effects), tuple(scale))
    stratum: Indices = inverse.reshape(-1).astype(np.int32)
    note = f"one type per value of {', '.join(log.covariates)}: that of an arm's last row"
    relabelled = replace(log, types=tuple(names), type_of=stratum[log.is_last], stratum=stratum)
    return replace(relabelled, notes=(*log.notes, note)), design
