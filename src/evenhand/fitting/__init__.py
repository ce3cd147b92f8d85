"""Fitting: models from records of states and actions.

A table of records is read into a `Log` (sorted and coded, with every fault reported by row), counted into `Moves`, and
estimated into a `Posterior` of transition rows. Unobserved pairs are reported, never filled in silently.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.fitting.cleaning import CleanedRecords, Rules, clean_records, read_rules
    from evenhand.fitting.clusters import find_clusters
    from evenhand.fitting.diagnostics.diagnose import diagnose
    from evenhand.fitting.diagnostics.format import probability, probability_texts
    from evenhand.fitting.diagnostics.steps import one_steps
    from evenhand.fitting.hierarchical_dirichlet import estimate_prior
    from evenhand.fitting.log import NOTHING, Log, read_log, with_layout
    from evenhand.fitting.missing_steps import log_likelihood
    from evenhand.fitting.model_terms import Terms
    from evenhand.fitting.options import LogOptions, ModelOptions
    from evenhand.fitting.posterior import Dirichlet, Drawn, mixture_quantile
    from evenhand.fitting.posterior_files import Named, load_posterior, matched, posterior_path, save_posterior
    from evenhand.fitting.result import FitResult
    from evenhand.fitting.transition_counts import Gaps, Moves, count_moves, recorded_shares

__getattr__, __dir__ = attach(__name__, __file__)
