"""From records to a model, stage by stage: read, cluster, count, estimate, settle, price."""

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

    A row says: at this time this arm was in this state and then got this action; the next row of the arm says where it
    came. Rows may be in any order.

    Args:
        log: the name of a file (CSV, Parquet, JSON), a frame (pandas, polars, pyarrow), a list of rows, or columns.
        arm: the column that names the arm.
        time: the column of times: whole numbers, numbers, dates, moments, months (2026-05) or weeks (2026-W05).
        state: the column of states.
        action: the column of actions; an entry may be missing in the last row of an arm.
        type: the column of types; all arms are of one type when absent.
        group: the column of groups, such as wards or districts: arms of one type share their rows, whatever their
            group, and are a block of the model for each group. That of an arm's last row counts; every type is a group
            when absent.
        clusters: or how many types of arms that move alike are to be found, or `auto`.
        layout: `snapshots` if rows are states at chosen times, `events` if they are changes and a state stays until the
            next row. Snapshots by default; a log in which hardly any row repeats a state needs it.
        reward: the column of rewards; their means are taken.
        rewards: or a file or table with the columns state, action, type (any may be absent) and reward or cost.
        reward_of: or rewards of states, `good=1,poor=0.3`, or of states and actions, `poor/replace=-2`.
        cost_of: what actions cost, `replace=9.75`; taken from the rewards.
        usage: a file or table with the columns action, state, type (any may be absent) and one column a resource.
        usage_of: or `service=1,overhaul=2`; every action but the idle one uses 1 when nothing is said.
        resources: names of the resources, in the order of the budget.
        used: the columns of what was used, one a resource.
        idle: the idle action; found by its name, or because it uses nothing, when absent. A name that no row has is
            what a missing action means.
        step: how long a step is: a number, or `7 days`, `month`, `12 hours`; found when absent.
        bins: how to cut a numeric column of states: a width, cuts, or `quantile:10`.
        states: the states in their order, by name; rows may have no others.
        actions: the actions by name; rows may have no others.
        gone_after: arms that were last seen more than so many steps before the end of the records no longer take part:
            they are not counted in the model. All are when absent.
        carry_action: whether an action goes on through steps that were missed; they are idle when not.
        prior: how many observations the other types are worth to a row; found by the records when absent, and 0 for
            maximum likelihood.
        unseen: what pairs do that were never seen: `idle` (as the idle action), `forbid` (never), or a file or table
            with the columns state, action, next_state, probability and perhaps type.
        only_worse: whether a state never improves under the idle action, in the order of the states.
        mask: a file or table of transitions that cannot be: state, next_state and perhaps action.
        absorbing: states that nobody leaves.
        exact: states of which every entry is a row at its very time, as of a death, if times are irregular.
        budget: what there is of each resource at every step; the most that was used in a step when absent.
        discount: what a reward one step later is worth; 0.95 when absent.
        criterion: what rewards over time are worth: `discounted`, `average` or `finite:T`.
        welfare: how values are weighed, as text.
        over: whose values welfare weighs, `arms` or `groups`; every type is a group, unless `group` says else.
        format: csv, parquet or json; by the name of the file when absent.
        rng: a seed, or a generator.
        progress: told what is being done; True for a bar.

    Raises:
        TableError: the records are not sound; with every fault and its row.
        InvalidInput: something has to be said first, such as which action is idle.

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
    # Bins are of readings: a measurement that always changes is no sign of events.
    records = with_layout(records, "snapshots" if layout is None and bins else layout, carry_action, entered)
    if layout == "events" and not records.regular:
        entered = tuple(range(len(records.states)))
    found = None if clusters is None else _clusters(records, clusters, rng, tell)
    records = without_dropouts(records if found is None else found.relabelled(records), gone_after)
    kept = _listed(absorbing)
    possible = possible_transitions(records, only_worse, mask, kept)
    tell("counting moves", 0.7)
    moves = count_moves(records, carry_action)
    tell("estimating transitions", 0.8)
    estimated = _estimate(
        records, moves, possible, prior, rng, lambda doing, share: tell(doing, 0.8 + 0.1 * share), entered
    )
    settled = settle(records, estimated.posterior, unseen, kept, possible)
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
    tell("weighing the records", 0.9)
    told = (*estimated.notes, *state_notes(records, kept), *dropout_notes(records), *settled.notes)
    if mask is None:
        told = (*told, *recovery_notes(records, moves, settled.posterior))
    final = forbid(terms, settled.forbidden)
    return Fitted(records, moves, settled.posterior, final, estimated.log_likelihood, found, told, estimated.passed)


class _Estimate(NamedTuple):
    """What is known of the transitions, how likely they make the records, and what should be known of them."""

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
    """Transitions by whole steps, or by rates where times are irregular."""
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
        raise InvalidInput("types are either a column (--type) or found in the records (--clusters), not both")


def _clusters(log: Log, number: int | str, rng: Rng, tell: Progress) -> "Clusters":
    from evenhand.fitting.clusters import find_clusters, read_number

    return find_clusters(log, read_number(number, log.num_arms), rng, lambda doing, share: tell(doing, 0.7))


def _places(exact: str | Sequence[str], log: Log) -> tuple[int, ...]:
    """States that are entered at the time of their row, by their places."""
    names = _listed(exact)
    if names and log.regular:
        raise InvalidInput(
            "--exact is for times that are no whole steps apart: in whole steps a state is entered during the step "
            "before its row"
        )
    for name in names:
        if name not in log.states:
            raise UnknownName("state", name, log.states)
    return tuple(log.states.index(name) for name in names)


def _listed(names: str | Sequence[str]) -> list[str]:
    given = names.split(",") if isinstance(names, str) else names
    return [name.strip() for name in given if name.strip()]
