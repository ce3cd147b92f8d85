"""Continuous-time Markov chains for records at irregular times.

`likelihood` holds the panel likelihood and its expected jumps; `fit` the priors, the posterior mode, its Laplace
approximation, and the diagnostics.
"""

from evenhand.fitting.ctmc.fit import Generators, fit_generators, generator_notes, named_rates, step_transitions

__all__ = ["Generators", "fit_generators", "generator_notes", "named_rates", "step_transitions"]
