"""Inner loops on plain arrays, most of them compiled by Numba (`compilation`); NumPy versions are in tests/oracles.

randomness (numbers from counters), episodes and greedy_service (arms are served and move), count_step (counts move),
env_step and priority_sampling (allocations of a network), lattice_sweeps and type_sweeps (value functions on counts),
fluid_sweeps (frontiers and levels), path_prices (bounds on revealed paths), whittle_pivots and whittle_layers
(indices), products (operators of independent arms). A file of compiled loops loads Numba, so it is imported on first
use: `kernels.step_crowds(...)`.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.kernels.boxes import Best, Joined, Leaves, Pairs, Rows
    from evenhand.kernels.compilation import compile_now, njit
    from evenhand.kernels.count_step import step_crowds
    from evenhand.kernels.env_step import serve_greedily, step_greedily, step_sampled
    from evenhand.kernels.exponentials import Exponentials
    from evenhand.kernels.fluid_sweeps import Traced, settle_levels, trace_frontiers
    from evenhand.kernels.greedy_service import assign_uniformly, serve_in_turn
    from evenhand.kernels.lattice import (
        lattice_below,
        lattice_index,
        lattice_points,
        lattice_size,
        lattice_tables,
        movers_distribution,
        multinomial_probabilities,
        number_points,
        support_of_movers,
    )
    from evenhand.kernels.path_prices import PathArms, least_duals
    from evenhand.kernels.priorities import priority_distribution
    from evenhand.kernels.priority_sampling import sample_by_priority
    from evenhand.kernels.products import ActionKernel, ProductKernel, kronecker_rows
    from evenhand.kernels.randomness import bits_at, draw_keys, grid, uniforms_at
    from evenhand.kernels.rank_tables import fixed
    from evenhand.kernels.splits import Bands, Lines, Listed, Steps
    from evenhand.kernels.stepping import World, first_states
    from evenhand.kernels.whittle_layers import Layers, index_layers
    from evenhand.kernels.whittle_pivots import CROWDED, DONE, SPLIT, STUCK, Sweeps, sweep_arms

__getattr__, __dir__ = attach(__name__, __file__)
