"""Where work runs: one seam, on this machine or on a Ray cluster. Those who hand over shards do not know which.

protocol   what an executor is: shards with resident state, cells, cancelling, progress
dispatch   who has which shard, who has died and is replaced: the same for all kinds of workers
resident   the life of a worker: it builds what it is told to, keeps it, and answers questions about it
local      this process and its threads; processes beside it
on_ray     actors of a Ray cluster (extra cluster)
places     `local`, `local:2`, `ray`, `ray://host:port`: from words to an executor
sweeps     the cells of one piece of work: policies, draws, seeds; here or elsewhere, with the same bits
alone      linear algebra on one thread, as workers have it
threads    pieces of one computation in threads
versions   driver and workers run the same code
"""

from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor, Lost, Recipe, Shards
from evenhand.execution.sweeps import Sweep

__all__ = ["Executor", "Lost", "Recipe", "Shards", "Sweep", "opened"]
