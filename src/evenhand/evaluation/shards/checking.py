"""What a table of arms says, found shard by shard: its sizes, what it can use, and every fault with file and row."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from evenhand.display import Shown, counted, heard, shows_bar
from evenhand.errors import ClusterError, Fault, TableError
from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor, Lost
from evenhand.kernels.exact_sums import UNIT, exact_sums
from evenhand.model.arm import ArmTables
from evenhand.model.parquet.reading import BATCH_ROWS, MOST_FAULTS, Shard, StoredArms, open_arms, read_shard
from evenhand.model.parquet.schema import Header
from evenhand.typing import Bools, Floats, Progress


class Facts(NamedTuple):
    """What some rows say, or what is wrong with them."""

    states: tuple[int, int]
    """The fewest and the most."""

    actions: tuple[int, int]
    """The fewest and the most."""

    rewards: tuple[float, float]
    """The lowest and the highest."""

    most_used: tuple[int, ...]
    """(resource,) the most that all arms can use, as exact sums."""

    num_unserved: int
    """Arms that no action within the budget serves."""

    num_normalised: int
    """Rows whose probabilities were divided by their sums."""

    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class ArmsCheck(Shown):
    """What a sound table of arms says."""

    arms: StoredArms
    """The table."""

    states: tuple[int, int]
    """The fewest and the most states of an arm."""

    actions: tuple[int, int]
    """The fewest and the most actions of an arm."""

    rewards: tuple[float, float]
    """The lowest and the highest reward."""

    most_used: Floats
    """(resource,) the most that all arms together can use in a step."""

    num_unserved: int
    """Arms that no action within the budget serves."""

    num_normalised: int
    """Rows whose probabilities did not quite sum to 1, and are divided by their sums."""

    def __repr__(self) -> str:
        return f"ArmsCheck({counted(self.arms.num_arms, 'arm')}, sound)"

    @property
    def notes(self) -> tuple[str, ...]:
        """What looks odd, in words."""
        found = []
        if self.num_unserved:
            found.append(f"{counted(self.num_unserved, 'arm')} can never be served within the budget")
        names = self.arms.resource_names
        for name, most, budget in zip(names, self.most_used.tolist(), self.arms.budget.tolist(), strict=True):
            if most <= budget:
                found.append(f"the budget of {name} never binds: all arms together use at most {most:g} of {budget:g}")
        if self.num_normalised:
            rows = counted(self.num_normalised, "row")
            found.append(f"{rows} of arms had probabilities that did not quite sum to 1, and are divided by their sums")
        return tuple(found)


@shows_bar
def check_arms(
    arms: "StoredArms | str | os.PathLike[str]",
    on: str | Executor | None = None,
    progress: Progress | bool | None = None,
    rows: int = BATCH_ROWS,
) -> ArmsCheck:
    """Read a table of arms once, and tell what it says.

    Args:
        arms: the table, or its file or folder.
        on: where to run: `local`, `local:2`, `ray`, `ray://host:port`, or an executor; this process when absent.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        rows: that are read at once.

    Raises:
        TableError: with every fault up to a limit, each with its file and row.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=5), "machines.parquet")
        >>> found = eh.check_arms("machines.parquet")
        >>> found.states, found.actions, found.most_used.tolist()
        ((3, 3), (2, 2), [5.0])
    """
    table = arms if isinstance(arms, StoredArms) else open_arms(arms)
    cells = table.shards(-(-table.num_rows // rows))
    told, came = heard(progress), {}
    with opened(on) as executor:
        for got in executor.run(partial(_facts, table.header), cells):
            if got is None:
                continue
            if isinstance(got[1], Lost):
                raise ClusterError(f"a shard could not be read: {got[1].words}")
            came[got[0]] = got[1]
            if told is not None:
                told("reading", len(came) / len(cells))
            if sum(len(part.faults) for part in came.values()) >= MOST_FAULTS:
                break
    return _together(table, [came[place] for place in sorted(came)])


def _together(table: StoredArms, parts: Sequence[Facts]) -> ArmsCheck:
    faults = [fault for part in parts for fault in part.faults]
    if len(faults) > MOST_FAULTS:
        faults[MOST_FAULTS:] = [Fault("", f"... and perhaps more: reading ended at {MOST_FAULTS} faults")]
    if faults:
        raise TableError(faults, table.path)
    ranges = {
        name: (min(getattr(part, name)[0] for part in parts), max(getattr(part, name)[1] for part in parts))
        for name in ("states", "actions", "rewards")
    }
    return ArmsCheck(
        table,
        **ranges,
        most_used=np.array([sum(sums) / UNIT for sums in zip(*(part.most_used for part in parts), strict=True)]),
        num_unserved=sum(part.num_unserved for part in parts),
        num_normalised=sum(part.num_normalised for part in parts),
    )


def _facts(header: Header, shard: Shard) -> Facts:
    """What the rows of a shard say."""
    try:
        arms = read_shard(shard)
    except TableError as error:
        return Facts((0, 0), (0, 0), (0.0, 0.0), (), 0, 0, error.faults)
    tables: ArmTables = arms.tables
    counts: Floats = np.bincount(arms.kinds, weights=arms.counts, minlength=len(tables)).astype(np.float64)
    mine: Bools = np.greater(counts, 0)  # of a table of types, those that are here
    affordable: Bools = np.asarray((tables.usage <= header.budget_limit).all(axis=-1))
    served: Bools = np.asarray((tables.served & affordable).any(axis=(1, 2)))
    most = np.where(affordable[..., None], tables.usage, 0.0).max(axis=(1, 2))
    rewards = tables.rewards[mine][tables.valid[mine]]
    return Facts(
        (int(tables.num_states[mine].min()), int(tables.num_states[mine].max())),
        (int(tables.num_actions[mine].min()), int(tables.num_actions[mine].max())),
        (float(rewards.min()), float(rewards.max())),
        exact_sums(most * counts[:, None]),
        int(counts[mine & ~served].sum()),
        arms.num_normalised,
    )
