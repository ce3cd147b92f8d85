"""Inner loops on plain arrays, each written twice: in NumPy, to be read, and compiled by Numba, to be fast.

randomness (numbers from counters), stepping (arms move), choosing (who is served), binomial counts (crowds move),
`compiled` (all that Numba compiles; imported only when the work is large enough to be worth it).
"""
