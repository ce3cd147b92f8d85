"""Where work runs: one seam, on this machine or on a Ray cluster. Those who hand over shards do not know which.

protocol   what an executor is: shards with resident state, cells, cancelling, progress
dispatch   who has which shard, who has died and is replaced: the same for all kinds of workers
resident   the life of a worker: it builds what it is told to, keeps it, and answers questions about it
local      this process and its threads; processes beside it
on_ray     actors of a Ray cluster (extra cluster)
places     `local`, `local:2`, `ray`, `ray://host:port`: from words to an executor
threads    pieces of one computation in threads
versions   driver and workers run the same code
"""

from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor, Lost, Recipe, Shards

__all__ = ["Executor", "Lost", "Recipe", "Shards", "opened"]
