"""Decide: which policies there are, and which is best.

roster (every policy that has a name), compare -> Comparison, solve -> Solution, saved (policies as files).
"""
