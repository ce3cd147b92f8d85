"""Fit a model to records: read, cluster, count, estimate, and complete it with stated values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.display import progress_or_none, with_progress_bar
from evenhand.errors import InvalidInputError
from evenhand.fitting.estimate import estimate
from evenhand.fitting.log import read_log, with_layout
from evenhand.fitting.model_terms import read_terms
from evenhand.fitting.notes import recovery_notes, state_notes, without_departed
from evenhand.fitting.options import LogOptions, ModelOptions, listed, read_options
from evenhand.fitting.result import FitResult
from evenhand.fitting.structural_zeros import FORBIDDEN, possible_transitions, settle
from evenhand.fitting.transition_counts import count_moves
from evenhand.typing import Progress, Rng


@with_progress_bar
def fit(
    log: Any,
    *,
    arm: str,
    time: str,
    state: str,
    action: str | None = None,
    type: str | None = None,
    clusters: int | str | None = None,
    prior: float | None = None,
    records: LogOptions | Mapping[str, Any] | None = None,
    model: ModelOptions | Mapping[str, Any] | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
) -> FitResult:
    """Fit a model to records.

    A row says: at this time this arm was in this state and then got this action; the next row of the arm has its next
    state. Rows may be in any order.

    Args:
        log: a file name (CSV, Parquet, JSON), a frame (pandas, polars, pyarrow), a list of rows, or columns.
        arm: column of arm names.
        time: column of times: integers, numbers, dates, moments, months (2026-05) or weeks (2026-W05).
        state: column of states.
        action: column of actions; an entry may be missing in the last row of an arm. Without it all rows are idle, and
            the model is the natural history of the arms.
        type: column of types; all arms are of one type by default.
        clusters: number of types to find by clustering, or `auto`, in place of `type`.
        prior: weight of the other types in a row, in observations; estimated by default, and 0 for maximum
            likelihood.
        records: reading of the records, as `LogOptions` or a mapping of some of its fields, such as `step`.
        model: stated parts of the model, as `ModelOptions` or a mapping of some of its fields, such as `rewards`.
        rng: a seed, or a generator.
        progress: function of the current task and its completed share; True for a bar.

    Raises:
        TableError: the records are invalid; with every fault and its row.
        InvalidInputError: an argument is invalid or missing, such as the step.

    Example:
        >>> import evenhand as eh
        >>> rows = {"van": [1, 1, 1, 1], "week": [1, 2, 3, 4], "state": ["good", "poor", "good", "good"]}
        >>> rows["action"] = ["none", "mend", "none", "none"]
        >>> fitted = eh.fit(rows, arm="van", time="week", state="state", action="action", model={"unseen": "forbid"})
        >>> fitted
        FitResult(4 rows, 1 arm, 1 type, 2 states, 2 actions, 2 pairs never seen)
    """
    report: Progress = progress_or_none(progress) or (lambda doing, share: None)
    if type is not None and clusters is not None:
        raise InvalidInputError("give either a column of types (`type`) or `clusters`", argument="clusters")
    reading, terms = read_options(LogOptions, records, "records"), read_options(ModelOptions, model, "model")
    columns = {"arm": arm, "time": time, "state": state, "action": action, "type": type}
    data = read_log(log, columns, reading, lambda doing, share: report(doing, 0.7 * share))
    exact = listed(reading.exact)
    if exact and data.regular:
        message = "exact: for irregular times only; in whole steps a state is entered during the step before its row"
        raise InvalidInputError(message, argument="exact")
    entered = tuple(data.find_states(exact))
    # Measurements always change, which does not indicate events.
    layout = "snapshots" if reading.layout is None and reading.bins else reading.layout
    layout = "intervals" if reading.stop is not None else layout
    data = with_layout(data, layout, reading.carry_action, entered)
    absorbing = listed(terms.absorbing)
    data = without_departed(data, reading.gone_after, sorted({*entered, *data.find_states(absorbing)}))
    if layout in ("events", "intervals") and not data.regular:
        entered = tuple(range(len(data.states)))
    found = strata = None
    if data.covariates:
        from evenhand.fitting.covariates import stratify

        if clusters is not None:
            raise InvalidInputError("covariates: clusters cannot be found beside them", argument="covariates")
        data, strata = stratify(data)
    if clusters is not None:
        from evenhand.fitting.clusters import find_clusters  # only this needs sparse arrays

        found = find_clusters(data, clusters, rng, lambda doing, share: report(doing, 0.7))  # type: ignore[arg-type]
        data = found.relabelled(data)
    possible = possible_transitions(data, terms)
    report("counting moves", 0.7)
    moves = count_moves(data, reading.carry_action)
    report("estimating transitions", 0.8)
    estimated = estimate(
        data, moves, possible, entered, prior, rng, lambda doing, share: report(doing, 0.8 + 0.1 * share), strata
    )
    posterior, forbidden, settled = settle(data, estimated.posterior, terms, possible)
    stated = read_terms(data, moves.unseen, terms, pool=prior != 0)
    report("completing the model", 0.9)
    notes = (*estimated.notes, *state_notes(data, terms.absorbing), *settled)
    if terms.impossible is None:
        notes = (*notes, *recovery_notes(data, moves, posterior))
    stated = replace(stated, usage=np.where(forbidden[..., None], FORBIDDEN, stated.usage))
    passed, rates = estimated.passed, estimated.rates
    return FitResult(data, moves, posterior, stated, estimated.log_likelihood, found, notes, passed, rates)
