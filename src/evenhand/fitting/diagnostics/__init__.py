"""Diagnostics of records and fitted models: `diagnose` a fit, get `Diagnostics`.

Five questions, a file each: does the state tell the future (`orders`), do all times and types move alike (`alike`), do
the fitted rows give back the shares of states that were seen (`shares`), what does an action change (`effects`), and
who got it (`choices`). `tables` has the test behind the second and the last, `steps` what all of them count,
`thin_rows` where the records say little.
"""

from evenhand.fitting.diagnostics.diagnose import Diagnostics, diagnose

__all__ = ["Diagnostics", "diagnose"]
