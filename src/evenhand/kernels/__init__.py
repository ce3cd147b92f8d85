"""Inner loops on plain arrays, most of them written twice: in NumPy, to be read, and compiled by Numba, to be fast.

randomness (numbers from counters), stepping (arms move), choosing (who is served), crowds (counts move), lattice and
lattice_sweeps (value functions on counts), products (operators of independent arms). The `compiled*` files hold what
Numba compiles; they are imported only when the work is large enough to be worth it.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.kernels.boxes import Best, Joined, Leaves, Pairs, Rows
    from evenhand.kernels.compilation import compile_now
    from evenhand.kernels.count_step import step_crowds, step_crowds_fast
    from evenhand.kernels.env_step import serve_greedily, serve_greedily_fast, step_copies_fast, step_sampled_fast
    from evenhand.kernels.exponentials import Exponentials
    from evenhand.kernels.greedy_service import assign_uniformly
    from evenhand.kernels.jit import njit
    from evenhand.kernels.lattice import (
        interpolate,
        lattice_below,
        lattice_index,
        lattice_neighbours,
        lattice_points,
        lattice_size,
        lattice_tables,
        multinomial_law,
        number_points,
    )
    from evenhand.kernels.lattice_laws import law_of_movers, support_of_movers
    from evenhand.kernels.priorities import priority_law, sample_by_priority, sample_by_priority_fast
    from evenhand.kernels.products import ActionKernel, ProductKernel, kronecker_rows
    from evenhand.kernels.randomness import bits_at, draw_keys, grid, uniforms_at
    from evenhand.kernels.rank_tables import fixed
    from evenhand.kernels.splits import Bands, Lines, Listed, Steps
    from evenhand.kernels.stepping import World, first_states
    from evenhand.kernels.threads import ALONE_BELOW, idle_threads_sleep, in_threads, threads_for
    from evenhand.kernels.whittle_pivots import sweep_arms

__getattr__, __dir__ = attach(__name__, __file__)
