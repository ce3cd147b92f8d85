"""Diagnostics of records and fitted models: `diagnose` a fit, get `Diagnostics`.

One file per question: does the state predict the next one (`markov_order`), do all times and types move alike
(`homogeneity`, with the test behind most questions), do the fitted rows reproduce the shares of states
(`state_shares`), what does an action change (`effects`), and which arms were served (`selection`). `rate_tests` has the
tests and the shares at irregular times.
"""

from evenhand.fitting.diagnostics.diagnose import Diagnostics, diagnose

__all__ = ["Diagnostics", "diagnose"]
