"""How many arms the rows of a problem stand for, without a further number a row."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.typing import Array, Ints


@dataclass(frozen=True, eq=False)
class RowCounts:
    """How many arms each row stands for."""

    num_rows: int
    """How many rows there are."""

    ends: Ints | None = None
    """(row,) how many arms there are up to and including each; None where each stands for one."""

    @classmethod
    def of(cls, counts: Ints) -> "RowCounts":
        """From numbers of arms.

        Args:
            counts: (row,) of each row.
        """
        return cls(len(counts), None if (counts == 1).all() else np.cumsum(counts, dtype=np.int64))

    def __len__(self) -> int:
        return self.num_rows

    @cached_property
    def num_arms(self) -> int:
        """How many arms there are in all."""
        return self.num_rows if self.ends is None else int(self.ends[-1])

    @property
    def single(self) -> bool:
        """Whether each row stands for one arm."""
        return self.ends is None

    def __getitem__(self, rows: slice | Array) -> Ints:
        """(chosen row,) how many arms some rows stand for."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.num_rows)
            if self.ends is None:
                return np.broadcast_to(np.int64(1), max(stop - start, 0))
            return np.diff(self.ends[start:stop], prepend=self.ends[start - 1] if start else 0)
        if self.ends is None:
            return np.broadcast_to(np.int64(1), len(rows))
        return np.asarray(self.ends[rows] - np.where(rows > 0, self.ends[rows - 1], 0))
