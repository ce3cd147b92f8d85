"""10^8 arms on paper: what a shard costs is measured, and shards that answer from a model of it are asked.

A round of the search is: the driver computes limits and sends them to all shards; shards answer with counts by bins of
value; the driver takes the answers in, one after the other through its network, and adds. Numbers of all rows come to
it at the proof and at the end, where it sorts them. With N arms on M machines of C cores, and per arm and core

    build      read from Parquet and trace the frontier, once
    round      follow a rule, locate on the frontier, sort, count, add up
    proof      marginal costs, Bellman's inequality, occupancy measures, once
    driver     values, weights, projection, welfare: at the driver, once

    time = (build + rounds x round + proof) N / (M C) + rounds x (M C x (message + bins / network) + fixed)
           + (bytes / network + driver) N

The simulation plays a search with an executor whose shards sleep for nothing: a clock of its own adds what each would
have taken, so that 64 machines cost seconds here. What it shows is from where on the driver is the limit.
"""

import heapq
import time
from typing import Any

import numpy as np

from evenhand.execution.local import InProcess
from evenhand.model.parquet.reading import StoredArms
from evenhand.solvers.sharded import grid, ranks
from evenhand.solvers.sharded.search import ShardSearch
from evenhand.solvers.sharded.solve import _kind_of, place, source_of

NETWORK = 1.25e9
"""Bytes a second into the driver: ten gigabits."""

MESSAGE = 2e-3
"""Seconds that a message to or from a worker takes beside its bytes, as measured on Ray."""

CORES = 16
"""Cores of a machine."""

COUNTS, BINS = 8.0 * grid.NUM_LEVELS * grid.NUM_BINS, 32.0 * ranks.NUM_BINS
"""Bytes that a shard tells: counts by level and cost, once; counts by bins of value, whenever it is asked."""

AT_THE_END = 40.0
"""Bytes an arm that come and go at the end: values, marginal costs and weights of the proof, values of the solution."""


class Clocked(InProcess):
    """One thread, and a clock by question."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: dict[str, float] = {}
        self.asked: dict[str, int] = {}

    def place(self, recipes: Any) -> Any:
        shards, spent, asked = super().place(recipes), self.spent, self.asked
        plain = shards.answers

        def answers(do: Any, *common: Any, each: Any = None) -> Any:
            begin = time.process_time()
            found = list(plain(do, *common, each=each))
            spent[do.__name__] = spent.get(do.__name__, 0.0) + time.process_time() - begin
            asked[do.__name__] = asked.get(do.__name__, 0) + 1
            return iter(found)

        shards.answers = answers
        return shards


def measure(small: StoredArms, large: StoredArms, welfare: str, tolerance: float) -> dict[str, float]:
    """Seconds of one processor: an arm for each kind of work; of the driver, fixed a round, and once an arm."""
    _measure_one(small, welfare, tolerance)  # loads what is loaded once
    few, many = _measure_one(small, welfare, tolerance), _measure_one(large, welfare, tolerance)
    each = (many["driver"] - few["driver"]) / (large.num_arms - small.num_arms)
    fixed = max(few["driver"] - each * small.num_arms, 0.0) / few["rounds"]
    return many | {"driver": max(each, 0.0), "fixed": fixed}


def _measure_one(arms: StoredArms, welfare: str, tolerance: float) -> dict[str, float]:
    from evenhand.execution import threads
    from evenhand.model.welfare import as_welfare

    usual, threads.num_threads = threads.num_threads, lambda: 1
    try:
        source, executor = source_of(arms), Clocked()
        kind, weighed_by = _kind_of(as_welfare(welfare, arms.num_arms), source)
        begin = time.process_time()
        asked = place(source, executor, 1)
        search: ShardSearch = kind(asked, weighed_by, tolerance)
        solution = search.by_cuts()
        whole = time.process_time() - begin
    finally:
        threads.num_threads = usual
    number, spent = arms.num_arms, executor.spent
    once = spent["survey"] + spent.get("costs", 0.0)
    proof = sum(spent.get(name, 0.0) for name in ("values", "marginals", "bound", "settled", "free_use"))
    rounds = sum(spent.get(name, 0.0) for name in ("binned", "picked", "totals"))
    memory = _bytes(asked.shards)
    return {
        "build": once / number,
        "round": rounds / number / solution.rounds,
        "proof": proof / number,
        "driver": whole - sum(spent.values()),
        "rounds": float(solution.rounds),
        "gathers": executor.asked["binned"] / solution.rounds,
        "shard_bytes": memory / number,
    }


def _bytes(shards: Any) -> float:
    """What the tables and frontiers of all shards take."""
    total = 0
    for shard in shards._shards.values():
        for block in shard.blocks:
            types = block.types
            total += sum(table.nbytes for table in (types.transitions, types.rewards, types.usage, types.initial))
        for parts in shard.traced.values():
            for part in parts:
                total += part.values.nbytes + part.uses.nbytes + part.slopes.nbytes + part.starts.nbytes
                total += 0 if part.policies is None else part.policies.nbytes
    return float(total)


class ModelShards:
    """Shards that answer from a model of their cost: they keep a clock instead of working."""

    def __init__(self, costs: dict[str, float], number: float, machines: int, cores: int = CORES) -> None:
        self.costs, self.number, self.workers = costs, number, machines * cores
        self.clock = 0.0

    def ask(self, work: str, down: float, alone: float) -> float:
        """One question: shards work side by side, their answers queue at the driver, which then works alone.

        Args:
            work: the kind of work.
            down: bytes that come back from each shard.
            alone: seconds in which the driver works alone afterwards.

        Returns:
            How much of it the driver is the one at work, or its network is.
        """
        each = self.number / self.workers
        rng = np.random.default_rng(int(self.number) + self.workers)
        ends = self.clock + self.costs[work] * each * rng.uniform(0.95, 1.1, self.workers)  # machines are not equal
        queue = ends.tolist()
        heapq.heapify(queue)
        free, busy = self.clock, 0.0
        while queue:
            arrived = heapq.heappop(queue)
            takes = MESSAGE + down / NETWORK
            free, busy = max(free, arrived) + takes, busy + takes
        self.clock = free + alone
        return busy + alone


def simulate(costs: dict[str, float], number: float, machines: int) -> dict[str, float]:
    """A whole search by shards that answer from a model."""
    shards = ModelShards(costs, number, machines)
    bins, each = costs["gathers"] * BINS, number / shards.workers
    driver = shards.ask("build", COUNTS, 0.0)
    for _ in range(int(costs["rounds"])):
        driver += shards.ask("round", bins, costs["fixed"])
    driver += shards.ask("proof", AT_THE_END * each, costs["driver"] * number)
    return {
        "arms": number,
        "machines": machines,
        "cores": shards.workers,
        "seconds": shards.clock,
        "driver_share": driver / shards.clock,
        "gigabytes_a_machine": costs["shard_bytes"] * number / machines / 1e9,
        "driver_gigabytes": 32 * number / 1e9,
        "megabytes_a_round": bins * shards.workers / 1e6,
    }


def simulate_table(costs: dict[str, float], number: float = 1e8) -> list[dict[str, float]]:
    """10^8 arms on more and more machines, printed."""
    rows = [simulate(costs, number, machines) for machines in (1, 4, 16, 64, 256)]
    print("machines   cores   minutes   driver's share   GB a machine   MB a round   GB of the driver")
    for row in rows:
        told = (f"{row['machines']:8.0f}", f"{row['cores']:7.0f}", f"{row['seconds'] / 60:9.1f}")
        share = f"{100 * row['driver_share']:14.0f} %"
        sizes = f"{row['gigabytes_a_machine']:14.1f} {row['megabytes_a_round']:12.0f} {row['driver_gigabytes']:18.1f}"
        print(*told, share, sizes)
    return rows
