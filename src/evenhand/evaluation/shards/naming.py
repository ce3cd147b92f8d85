"""Numbers and names of the rows of a table, some at a time: what results by row begin with."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.model.parquet.reading import StoredArms


@dataclass
class Named:
    """The numbers and names of the rows of a table, some at a time."""

    batches: Iterator[Any]
    """Of names; none where rows have none."""

    row: int = 0
    """How many were taken."""

    rest: Any = None
    """Names that were read and not taken."""

    def take(self, number: int) -> dict[str, Any]:
        """The columns `row`, counted from 0, and `name`, of the next rows.

        Args:
            number: how many.
        """
        import pyarrow as pa

        columns = {"row": pa.array(np.arange(self.row, self.row + number))}
        self.row += number
        parts, missing = [], number
        while missing > 0:
            if self.rest is None or len(self.rest) == 0:
                self.rest = next(self.batches, None)
                if self.rest is None:
                    return columns
            parts.append(self.rest.slice(0, missing).cast(pa.string()))
            self.rest, missing = self.rest.slice(missing), missing - len(parts[-1])
        return columns | {"name": pa.concat_arrays(parts)}


def named(table: StoredArms) -> Named:
    """The numbers and names of the rows of a table."""
    return Named(table.read_names())
