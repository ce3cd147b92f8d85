"""Tables of a policy that serves by rank, as compiled loops read them (`greedy_service`, `episodes`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evenhand.typing import Array, Floats, Indices

Tables = TypeVar("Tables", bound=tuple[object, ...])


class RankTables(NamedTuple):
    """Order of service of a policy, one table per step of its period, and the budget that it keeps."""

    type_of_arm: Indices
    """(arm,)"""

    ranks: Indices
    """(period, type, state, action) rank of each cell, 0 first, -1 never."""

    drawn_ranks: Indices
    """(period, type, state, action) ranks of cells whose action was drawn, on one scale with `ranks`; empty if none."""

    drawn_sums: Floats
    """(period, type, state, action) running sums of the distribution of the drawn action; empty if none is drawn."""

    usage: Floats
    """(type, state, action, resource); see `service_limits`"""

    idle: Indices
    """(type, state) the action of arms that are not served."""

    limit: Floats
    """(resource,) the budget, with room for rounding."""

    least: Floats
    """(resource,) the least that any cell with a rank uses: with less left than that, nothing fits."""

    num_ranks: int
    """Number of ranks."""

    stop: bool
    """True if stopping competes."""

    shuffle: bool
    """True if equal ranks are in random order; otherwise the first arm comes first."""

    @property
    def keys_per_step(self) -> int:
        """Keys that a step takes: one for the draws if there are any, one for the order of equal ranks."""
        return 1 + (len(self.drawn_ranks) > 0)

    def serve(self, states: Indices, key: np.uint64, drawn: Indices | None = None) -> Indices:
        """(episode, arm) actions at the first step of the period.

        Args:
            states: (episode, arm) current states.
            key: key of the order of equal ranks.
            drawn: (episode, arm) actions drawn beforehand, if the policy draws them.
        """
        from evenhand.kernels.greedy_service import serve_batch

        chosen = np.empty((0, 0), dtype=np.int32) if drawn is None else drawn
        return np.asarray(serve_batch(self, states, key, chosen), dtype=np.int32)


def rank_tables(
    type_of_arm: Indices,
    ranks: Indices,
    usage: Floats,
    idle: Indices,
    limit: Floats,
    stop: bool = False,
    shuffle: bool = True,
    drawn: tuple[Indices, Floats] | None = None,
) -> RankTables:
    """Tables of a policy without a period.

    Arguments are the fields of `RankTables` without their first axis; `drawn` are `drawn_ranks` and `drawn_sums`.
    """
    own, sums = (ranks[None][:0], np.zeros((0, *ranks.shape))) if drawn is None else (drawn[0][None], drawn[1][None])
    ranked = ranks >= 0 if drawn is None else (ranks >= 0) | (drawn[0] >= 0)
    least = usage[ranked].min(axis=0, initial=np.inf)
    num_ranks = 1 + max(int(ranks.max()), int(own.max(initial=-1)))
    return fixed(RankTables(type_of_arm, ranks[None], own, sums, usage, idle, limit, least, num_ranks, stop, shuffle))


def in_turn(parts: Sequence[RankTables]) -> RankTables | None:
    """The tables of policies that are played one per step; None if some draw actions, stop or shuffle and others not.

    Args:
        parts: (step,) tables for the same arms.
    """
    if len({(len(part.drawn_ranks), part.stop, part.shuffle) for part in parts}) > 1:
        return None
    joined = parts[0]._replace(
        ranks=np.concatenate([part.ranks for part in parts]),
        drawn_ranks=np.concatenate([part.drawn_ranks for part in parts]),
        drawn_sums=np.concatenate([part.drawn_sums for part in parts]),
        least=np.min([part.least for part in parts], axis=0),
        num_ranks=max(part.num_ranks for part in parts),
    )
    return fixed(joined)


def fixed(tables: Tables) -> Tables:
    """The same tuple with contiguous read-only arrays, so that loops are compiled for one signature.

    Args:
        tables: a named tuple of arrays and numbers.
    """
    make: Any = type(tables)
    made: Tables = make(*(read_only(field) if isinstance(field, np.ndarray) else field for field in tables))
    return made


def read_only(array: Array) -> Array:
    """A contiguous read-only view, so that loops are compiled for one kind of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
