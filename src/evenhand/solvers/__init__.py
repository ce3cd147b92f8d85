"""From a model or a tabular MDP to a solution.

On a tabular MDP: occupancy (exact evaluation), dynamic_programming (the weighted-sum optimum with bounds),
linear_programs (the paper's two), mixtures and pricing (any concave welfare). On the lattice of counts, without a
table: counts, a package of its own.
On single arms: whittle (indices), arms (action values), fluid with frontiers and levels (the fair fluid relaxation).
`_highs` is the only door to HiGHS.
"""
