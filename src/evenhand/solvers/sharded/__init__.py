"""The fair fluid relaxation of arms that are in shards, on one machine or many.

    sources   where the arms are: in memory, or in a table that is read by shards
    stops     how far an arm follows its frontier: the answer to prices, told in a few numbers
    shard     what a shard keeps, and the questions it answers
    grid      ranks without a sort of all vertices: how many arms would cost how much at each level
    search    the driver: `price_search` over shards
    kept      how far a search has come, as a file
    solve     `solve_sharded`

Bits. Arms are worked on in blocks of fixed size, by their place in the whole, and a shard is whole blocks. What shards
add up is added without rounding (`kernels.exact_sums`). So results are the same to the last bit for every number of
shards, every executor and every order in which answers come.
"""

from evenhand.solvers.sharded.search import ShardedSolution
from evenhand.solvers.sharded.solve import solve_sharded

__all__ = ["ShardedSolution", "solve_sharded"]
