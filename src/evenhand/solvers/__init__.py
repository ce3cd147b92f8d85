"""From a model or a tabular MDP to a solution.

occupancy (policies and their occupancy measures, exact evaluation), dynamic_programming (the weighted-sum optimum
with bounds).
"""
