"""Fitting: models from records of states and actions.

A table of records is read into a `Log` (sorted and coded, with every fault reported by row), counted into `Moves`, and
estimated into a `Posterior` of transition rows. Unobserved pairs are reported, never filled in silently.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.fitting.clusters import (
        UNIDENTIFIED,
        Tried,
        begin_apart,
        chosen,
        find_clusters,
        iterate,
        read_histories,
    )
    from evenhand.fitting.ctmc.fit import fit_generators, step_transitions
    from evenhand.fitting.ctmc.likelihood import MOST_DURATIONS, read_panel
    from evenhand.fitting.diagnostics import diagnose
    from evenhand.fitting.diagnostics.effects import effects
    from evenhand.fitting.diagnostics.format import probability, probability_texts
    from evenhand.fitting.diagnostics.homogeneity import (
        HomogeneityTest,
        InTime,
        between_types,
        holm,
        homogeneity,
        in_time,
    )
    from evenhand.fitting.diagnostics.markov_order import gains
    from evenhand.fitting.diagnostics.selection import CANNOT, Choices, choices
    from evenhand.fitting.diagnostics.state_shares import Shares, shares_over_time
    from evenhand.fitting.diagnostics.steps import Steps, late, one_steps
    from evenhand.fitting.hierarchical_dirichlet import ALIKE, estimate_prior, variational_row
    from evenhand.fitting.log import NOTHING, Log, read_log, with_layout
    from evenhand.fitting.missing_steps import Missed, draw_rows, fill, log_likelihood, with_paths
    from evenhand.fitting.model_terms import Terms, read_rewards, read_usage
    from evenhand.fitting.options import LogOptions, ModelOptions
    from evenhand.fitting.posterior import Dirichlet, Drawn, mixture_quantile
    from evenhand.fitting.posterior_files import Named, load_posterior, matched, posterior_path, save_posterior
    from evenhand.fitting.result import FitResult
    from evenhand.fitting.table_reader import cut
    from evenhand.fitting.transition_counts import Gaps, Moves, count_moves, recorded_shares

__getattr__, __dir__ = attach(__name__, __file__)
