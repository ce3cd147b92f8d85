"""The weakly coupled Markov decision process: arms that share a budget of resources at every step."""

import hashlib
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.checks import Faults, check_amounts, check_memory, plain, read_numbers
from evenhand.model.arm import Arm, ArmTables, frozen
from evenhand.typing import Floats, Indices, Ints

MOST_ARMS = 10**9
"""The largest number of arms of a problem; simulation by counts is meant for up to this many."""


@dataclass(frozen=True, eq=False)
class CoupledMDP:
    """Arms, how many there are of each, and what they share at every step.

    At every step the chosen actions may use at most `budget` of each resource, summed over all arms.
    Blocks of identical arms are one *type*, however they were written down.
    """

    arms: Sequence[Arm]
    """One entry a block of identical arms; kept as ArmTables."""

    budget: Floats
    """(resource,) what is available of each resource at every step."""

    discount: float
    """In [0, 1): what a reward one step later is worth."""

    counts: Ints = None  # type: ignore[assignment]  # filled in below
    """(block,) how many arms each block stands for; 1 when absent."""

    def __post_init__(self) -> None:
        faults = Faults()
        tables = self._read_arms(faults)
        num_resources = tables.usage.shape[-1] if tables is not None else None
        counts = read_counts(self.counts, None if tables is None else len(tables), faults)
        budget = read_budget(self.budget, num_resources, faults)
        discount = read_discount(self.discount, faults)
        faults.raise_if_any()
        for name, value in {"arms": tables, "budget": budget, "discount": discount, "counts": counts}.items():
            object.__setattr__(self, name, frozen(value) if isinstance(value, np.ndarray) else value)

    def _read_arms(self, faults: Faults) -> ArmTables | None:
        if isinstance(self.arms, ArmTables):
            found = self.arms.find_faults().found
            faults.found.extend(found)
            return self.arms if found else self.arms.tidied()
        if not self.arms:
            faults.add("arms", "there is none; a problem needs at least one")
            return None
        resources = [arm.usage.shape[2] for arm in self.arms]
        for index, number in enumerate(resources):
            if number != resources[0]:
                faults.add(f"arms[{index}].usage", f"has {number} resources where arms[0] has {resources[0]}")
        return None if faults else ArmTables.stack(self.arms)

    @property
    def tables(self) -> ArmTables:
        """The blocks as padded arrays."""
        assert isinstance(self.arms, ArmTables)
        return self.arms

    @cached_property
    def num_arms(self) -> int:
        """How many arms there are in all."""
        return int(self.counts.sum())

    @property
    def num_resources(self) -> int:
        """How many resources the arms share."""
        return len(self.budget)

    @cached_property
    def budget_limit(self) -> Floats:
        """(resource,) the budget with room for rounding: three uses of 0.1 fit a budget of 0.3."""
        return np.asarray(frozen(self.budget * (1 + 1e-9)))

    @cached_property
    def type_of_block(self) -> Indices:
        """(block,) the type of each block, in order of first appearance."""
        first: dict[bytes, int] = {}
        types = [first.setdefault(digest, len(first)) for digest in self.tables.digests]
        return np.asarray(frozen(np.array(types, dtype=np.int32)))

    @cached_property
    def types(self) -> ArmTables:
        """The distinct arms."""
        _, first = np.unique(self.type_of_block, return_index=True)
        return self.tables if len(first) == len(self.tables) else self.tables.select(first)

    @property
    def num_types(self) -> int:
        """How many distinct arms there are."""
        return len(self.types)

    @cached_property
    def type_counts(self) -> Ints:
        """(type,) how many arms there are of each type."""
        sums = np.bincount(self.type_of_block, weights=self.counts, minlength=self.num_types)
        return np.asarray(frozen(sums.astype(np.int64)))

    @cached_property
    def type_of_arm(self) -> Indices:
        """(arm,) the type of each arm, in the order the blocks were written."""
        check_memory(4.0 * self.num_arms, f"a table of {self.num_arms} arms", "Work with counts instead.")
        return np.asarray(frozen(np.repeat(self.type_of_block, self.counts)))

    @property
    def is_symmetric(self) -> bool:
        """Whether all arms are identical."""
        return self.num_types == 1

    @cached_property
    def signature(self) -> str:
        """A fingerprint of the whole problem, without labels."""
        parts = [b"".join(self.tables.digests), self.counts.tobytes()]
        parts += [self.budget.tobytes(), np.float64(self.discount).tobytes()]
        return hashlib.blake2b(b"|".join(parts), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoupledMDP):
            return NotImplemented
        return self.signature == other.signature and self.tables.labels == other.tables.labels

    def __hash__(self) -> int:
        return hash(self.signature)

    def __repr__(self) -> str:
        kinds = "identical" if self.is_symmetric else f"{self.num_types} types"
        return f"CoupledMDP({self.num_arms} arms, {kinds}, {self.num_resources} resources, discount {self.discount})"


def read_counts(value: object, num_blocks: int | None, faults: Faults) -> Ints:
    """(block,) arms a block, each a whole number from 1, in all at most MOST_ARMS."""
    if value is None:
        return np.ones(num_blocks or 1, dtype=np.int64)
    entries: list[Any] = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if num_blocks is not None and len(entries) != num_blocks:
        faults.add("counts", f"has {len(entries)} entries for {num_blocks} arms")
    before = len(faults.found)
    for index, entry in enumerate(entries):
        if message := _count_fault(entry):
            faults.add(f"arms[{index}].count", message)
        if len(faults.found) > before + 20:
            faults.add("arms", "... and perhaps more such counts")
            break
    if len(faults.found) > before:
        return np.ones(len(entries), dtype=np.int64)
    total = sum(int(entry) for entry in entries)
    if total > MOST_ARMS and all(int(entry) <= MOST_ARMS for entry in entries):
        faults.add("arms", f"{total} arms in all; at most {MOST_ARMS} are supported")
    return np.array([int(entry) for entry in entries], dtype=np.int64)


def _count_fault(entry: object) -> str:
    if isinstance(entry, (bool, np.bool_)) or not isinstance(entry, (int, np.integer)):
        return f"expected a whole number, got {reprlib.repr(entry)}"
    if entry < 1:
        return f"expected at least 1, got {entry}"
    return f"{entry} arms are too many; at most {MOST_ARMS} are supported" if entry > MOST_ARMS else ""


def read_budget(value: object, num_resources: int | None, faults: Faults) -> Floats:
    """(resource,) amounts that are finite and not negative."""
    single = not isinstance(value, (list, tuple, np.ndarray)) or (isinstance(value, np.ndarray) and value.ndim == 0)
    entries = [value] if single else value
    budget = read_numbers(entries, ("resource",), "budget", faults, check_amounts)
    if budget is None:
        return np.zeros(num_resources or 1)
    if num_resources is not None and len(budget) != num_resources:
        faults.add("budget", f"has {len(budget)} entries where the arms' usage has {num_resources} resources")
    return budget


def read_discount(value: object, faults: Faults) -> float:
    """A number in [0, 1)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        faults.add("discount", f"expected a number from 0 to below 1, got {reprlib.repr(value)}")
        return 0.0
    if not 0 <= value < 1:
        faults.add("discount", f"expected a number from 0 to below 1, got {plain(value)}")
        return 0.0
    return float(value)
