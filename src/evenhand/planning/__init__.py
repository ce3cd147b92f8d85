"""Decide: which policies there are, and which is best.

check -> Check (what a model says, and what looks odd), roster (every policy that has a name), compare -> Comparison,
solve -> Solution, budget_sweep (several budgets), saved (policies as files).
"""
