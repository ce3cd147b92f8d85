"""Continuous-time Markov chains for records at irregular times.

`likelihood` holds the panel likelihood and its expected jumps, `inference` the posterior mode and its Laplace
approximation, `fit` the priors, the fit and its diagnostics.
"""

from evenhand.fitting.ctmc.fit import Generators, fit_generators, generator_notes, step_transitions

__all__ = ["Generators", "fit_generators", "generator_notes", "step_transitions"]
