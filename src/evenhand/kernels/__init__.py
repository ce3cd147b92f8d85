"""Inner loops on plain arrays, most of them written twice: in NumPy, to be read, and compiled by Numba, to be fast.

randomness (numbers from counters), stepping (arms move), choosing (who is served), crowds (counts move), lattice and
lattice_sweeps (value functions on counts), products (operators of independent arms). The `compiled*` files hold what
Numba compiles; they are imported only when the work is large enough to be worth it.
"""
