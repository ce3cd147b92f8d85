"""Fit a model to records: read, cluster, count, estimate, and complete it with stated values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evenhand.display import heard, shows_bar
from evenhand.errors import InvalidInput, UnknownName
from evenhand.fitting.bins import Bins
from evenhand.fitting.dropout import dropout_notes, without_dropouts
from evenhand.fitting.estimate import estimate
from evenhand.fitting.layout import Layout, with_layout
from evenhand.fitting.log import Log, read_log
from evenhand.fitting.model_terms import read_terms
from evenhand.fitting.notes import borrowed_row_notes, recovery_notes, state_notes
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.result import Fitted
from evenhand.fitting.structural_zeros import possible_transitions, refuse_contradictions, refuse_long_gaps
from evenhand.fitting.transition_counts import Moves, count_moves, log_likelihood
from evenhand.fitting.unobserved_pairs import forbid, settle
from evenhand.model.whereabouts import TableFormat
from evenhand.typing import Bools, Floats, Progress, Rng

if TYPE_CHECKING:
    from evenhand.fitting.clusters import Clusters


@shows_bar
def fit(
    log: Any,
    *,
    arm: str,
    time: str,
    state: str,
    action: str,
    type: str | None = None,
    group: str | None = None,
    clusters: int | str | None = None,
    layout: Layout | None = None,
    reward: str | None = None,
    rewards: Any = None,
    reward_of: str | Mapping[str, float] | None = None,
    cost_of: str | Mapping[str, float] | None = None,
    usage: Any = None,
    usage_of: str | Mapping[str, float] | None = None,
    resources: Sequence[str] = (),
    used: str | Sequence[str] | None = None,
    idle: str | None = None,
    step: str | float | None = None,
    bins: Bins | None = None,
    states: str | Sequence[str] | None = None,
    actions: str | Sequence[str] | None = None,
    gone_after: float | None = None,
    carry_action: bool = False,
    prior: float | None = None,
    unseen: Any = None,
    only_worse: bool = False,
    mask: Any = None,
    absorbing: str | Sequence[str] = (),
    exact: str | Sequence[str] = (),
    budget: float | Sequence[float] | Floats | Mapping[str, float] | None = None,
    discount: float | None = None,
    criterion: str | None = None,
    welfare: str | None = None,
    over: str | None = None,
    format: TableFormat | None = None,
    rng: Rng = 0,
    progress: Progress | bool | None = None,
) -> Fitted:
    """Fit a model to records.

    A row says: at this time this arm was in this state and then got this action; the next row of the arm has its next
    state. Rows may be in any order.

    Args:
        log: a file name (CSV, Parquet, JSON), a frame (pandas, polars, pyarrow), a list of rows, or columns.
        arm: column of arm names.
        time: column of times: integers, numbers, dates, moments, months (2026-05) or weeks (2026-W05).
        state: column of states.
        action: column of actions; it may be missing in the last row of an arm.
        type: column of types; all arms are of one type by default.
        group: column of groups, such as wards or districts: arms of one type share their rows in all groups, and are
            one block of the model per group. That of an arm's last row counts; every type is a group by default.
        clusters: number of types to find by clustering, or `auto`, in place of `type`.
        layout: `snapshots` if rows are states at chosen times, `events` if they are changes and a state stays until the
            next row. Snapshots by default; a log in which hardly any row repeats a state needs it.
        reward: column of rewards; their means are taken.
        rewards: or a file or table with the columns state, action, type (each optional) and reward or cost.
        reward_of: or rewards of states, `good=1,poor=0.3`, or of states and actions, `poor/replace=-2`.
        cost_of: costs of actions, `replace=9.75`, subtracted from the rewards.
        usage: a file or table with the columns action, state, type (each optional) and one column per resource.
        usage_of: or `service=1,overhaul=2`; every action but the idle one uses 1 by default.
        resources: names of the resources, in the order of the budget.
        used: or columns of amounts used, one per resource.
        idle: the idle action; by default found by its name, or because it uses nothing. A name that no row has stands
            for missing actions.
        step: length of a step: a number, or `7 days`, `month`, `12 hours`; the greatest common divisor by default.
        bins: how to cut a numeric column of states: a width, cuts, or `quantile:10`.
        states: the states in their order; rows must have no others.
        actions: the actions; rows must have no others.
        gone_after: steps before the end of the records; arms last seen earlier have dropped out and are not counted
            in the model. None drops out by default.
        carry_action: whether an action goes on through missing steps; else they are idle.
        prior: weight of the other types in a row, in observations; estimated by default, and 0 for maximum
            likelihood.
        unseen: rows of unobserved pairs: `idle` (as the idle action), `forbid` (never chosen), or a file or table with
            the columns state, action, next_state, probability and optionally type.
        only_worse: whether a state never improves under the idle action, in the order of the states.
        mask: a file or table of impossible transitions: state, next_state and optionally action.
        absorbing: absorbing states.
        exact: states whose every entry is a row at its very time, such as death, if times are irregular.
        budget: of each resource per step; the most that was used in a step by default.
        discount: per step; 0.95 by default.
        criterion: `discounted`, `average` or `finite:T`.
        welfare: as text.
        over: whether welfare is over `arms` or `groups`; every type is a group, unless `group` is given.
        format: csv, parquet or json; by the suffix of the file by default.
        rng: a seed, or a generator.
        progress: function of the current task and its completed share; True for a bar.

    Raises:
        TableError: the records are invalid; with every fault and its row.
        InvalidInput: an argument is invalid or missing, such as the step.

    Example:
        >>> import evenhand as eh
        >>> rows = {"van": [1, 1, 1, 1], "week": [1, 2, 3, 4], "state": ["good", "poor", "good", "good"]}
        >>> rows["action"] = ["none", "mend", "none", "none"]
        >>> fitted = eh.fit(rows, arm="van", time="week", state="state", action="action", unseen="forbid")
        >>> fitted
        Fitted(4 rows, 1 arm, 1 type, 2 states, 2 actions, 2 pairs never seen)
    """
    tell: Progress = heard(progress) or (lambda doing, share: None)
    _refuse_both(type, clusters)
    records = read_log(
        log,
        arm=arm,
        time=time,
        state=state,
        action=action,
        type=type,
        group=group,
        reward=reward,
        used=used,
        idle=idle,
        step=step,
        bins=bins,
        states=states,
        actions=actions,
        format=format,
        progress=lambda doing, share: tell(doing, 0.7 * share),
    )
    entered = _places(exact, records)
    # Measurements always change, which does not indicate events.
    records = with_layout(records, "snapshots" if layout is None and bins else layout, carry_action, entered)
    if layout == "events" and not records.regular:
        entered = tuple(range(len(records.states)))
    found = None if clusters is None else _clusters(records, clusters, rng, tell)
    records = without_dropouts(records if found is None else found.relabelled(records), gone_after)
    ends = _listed(absorbing)
    possible = possible_transitions(records, only_worse, mask, ends)
    tell("counting moves", 0.7)
    moves = count_moves(records, carry_action)
    tell("estimating transitions", 0.8)
    estimated = _estimate(
        records, moves, possible, prior, rng, lambda doing, share: tell(doing, 0.8 + 0.1 * share), entered
    )
    settled = settle(records, estimated.posterior, unseen, ends, possible)
    terms = read_terms(
        records,
        moves.unseen,
        rewards=rewards,
        reward_of=reward_of,
        cost_of=cost_of,
        usage=usage,
        usage_of=usage_of,
        resources=resources,
        budget=budget,
        pool=prior != 0,
        discount=discount,
        criterion=criterion,
        welfare=welfare,
        over=over,
    )
    tell("completing the model", 0.9)
    notes = (*estimated.notes, *state_notes(records, ends), *dropout_notes(records), *settled.notes)
    if mask is None:
        notes = (*notes, *recovery_notes(records, moves, settled.posterior))
    final = forbid(terms, settled.forbidden)
    return Fitted(records, moves, settled.posterior, final, estimated.log_likelihood, found, notes, estimated.passed)


class _Estimate(NamedTuple):
    """Posterior of the transitions, log-likelihood of the records, notes, and pairs passed between rows."""

    posterior: Posterior
    log_likelihood: float
    notes: tuple[str, ...]
    passed: Bools


def _estimate(
    log: Log,
    moves: Moves,
    possible: Bools,
    prior: float | None,
    rng: Rng,
    tell: Progress,
    entered: tuple[int, ...],
) -> _Estimate:
    """Transitions by whole steps, or by rates if times are irregular."""
    if log.regular:
        refuse_long_gaps(log)
        refuse_contradictions(log, possible, moves.carry_action)
        rows = estimate(moves, prior, possible, rng, tell)
        fits = log_likelihood(moves, rows.posterior.mean)
        return _Estimate(rows.posterior, fits, tuple(borrowed_row_notes(log, rows)), moves.unseen & (rows.seen > 0))
    from evenhand.fitting.ctmc import fit_generators, generator_notes  # only irregular times need it

    found = fit_generators(moves, log.step, entered, possible, prior, rng, progress=tell)
    return _Estimate(found, found.log_likelihood, generator_notes(found, log), found.passed)


def _refuse_both(type: str | None, clusters: int | str | None) -> None:
    if type is not None and clusters is not None:
        raise InvalidInput("types are either a column (`type`) or found by clustering (`clusters`), not both")


def _clusters(log: Log, number: int | str, rng: Rng, tell: Progress) -> "Clusters":
    from evenhand.fitting.clusters import find_clusters, read_number

    return find_clusters(log, read_number(number, log.num_arms), rng, lambda doing, share: tell(doing, 0.7))


def _places(exact: str | Sequence[str], log: Log) -> tuple[int, ...]:
    """Indices of states that are entered at the time of their row."""
    names = _listed(exact)
    if names and log.regular:
        raise InvalidInput(
            "exact: applies to irregular times only; in whole steps a state is entered during the step before its row"
        )
    for name in names:
        if name not in log.states:
            raise UnknownName("state", name, log.states)
    return tuple(log.states.index(name) for name in names)


def _listed(names: str | Sequence[str]) -> list[str]:
    given = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in given if name.strip()]
