"""Continuous-time Markov chains for records at irregular times.

`likelihood` holds the panel likelihood and its expected jumps; `inference` the posterior mode and its Laplace
approximation; `fit` the priors and the fit; `rates` its table of rates.
"""

from evenhand.fitting.ctmc.fit import Generators, fit_generators, generator_notes, named_rates, step_transitions

__all__ = ["Generators", "fit_generators", "generator_notes", "named_rates", "step_transitions"]
