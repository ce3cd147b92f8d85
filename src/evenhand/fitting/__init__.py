"""Fitting: models from records of states and actions.

A table of records is read into a `Log` (sorted and coded, with every fault reported by row), counted into `Moves`, and
estimated into a `Posterior` of transition rows. Unobserved pairs are reported, never filled in silently.
"""
