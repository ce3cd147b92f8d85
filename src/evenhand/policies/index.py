"""The Whittle index policy: serve the highest indices first, as long as they are positive and the budget lasts.

Indices are those of the problem's criterion. Those of a finite horizon depend on the step: there the policy is made of
one priority policy for each step.

For arms with an idle and one active action that share one resource. The index of a state is the charge per active
step at which acting and idling are equally good; divided by the active action's usage it is a price per unit of the
resource, so arms with different usage compete on one scale. Where the index is not positive, idling is at least as
good even if the resource is free.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report
from evenhand.errors import NotApplicableError
from evenhand.model import CoupledMDP, Criterion, TimeVaryingPolicy, own_names
from evenhand.model.parquet import BATCH_ROWS, RowRange, StoredArms
from evenhand.model.simulator import Problem, needs_tables
from evenhand.parallel import Pool, Report
from evenhand.policies.fluid import read_relaxation
from evenhand.policies.priority import NOISE, ExchangeablePriority, serveable_cells, settle
from evenhand.solvers.single_arm import action_values
from evenhand.solvers.whittle import WhittleResult, whittle_indices
from evenhand.typing import ArrayLike, Bools, Floats, Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUNCATED_AT = 2.0
"""The paper's search looked for charges in [-2, 2]; an index outside stayed 0."""


@dataclass(frozen=True, eq=False)
class _Indices(Shown):
    """Whittle indices of types or rows."""

    result: WhittleResult
    """Indices by (type or row, state), for a finite horizon by (type, step, state), and the verdicts."""

    @property
    def indices(self) -> Floats:
        """(type or row, state) indices, or (type, step, state); nan if not indexable, or only idling is affordable."""
        return self.result.indices

    @property
    def indexable(self) -> Bools:
        """(type or row,) whether each is indexable."""
        return self.result.indexable


@dataclass(frozen=True, eq=False)
class TypeIndices(_Indices):
    """Whittle indices of all types of a problem."""

    active: Indices
    """(type, state) the action that is not idle; the idle one if the budget allows no other."""

    problem: CoupledMDP
    """The problem."""

    @cached_property
    def names(self) -> list[str]:
        """(type,) what the types are called; empty if they have no name."""
        return own_names(self.problem)

    def __repr__(self) -> str:
        sound = int(self.indexable.sum())
        return f"TypeIndices({counted(len(self.indexable), 'type')}, {sound} indexable, {self.problem.criterion.name})"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per type and state, with a finite horizon also per step: labels and the index.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        types = self.problem.types
        # Padding is left out; with a horizon, every step has the same real states.
        real = np.arange(self.indices.shape[-1]) < types.num_states[:, None]
        rows = np.argwhere(np.broadcast_to(real if self.indices.ndim == 2 else real[:, None], self.indices.shape))
        kinds, states = rows[:, 0], rows[:, -1]
        columns: dict[str, Any] = {"type": kinds}
        columns["name"] = [self.names[kind] for kind in kinds]
        if self.indices.ndim == 3:
            columns["step"] = rows[:, 1]
        columns["state"] = states
        named = [types.labels[kind][1] if types.labels else () for kind in kinds]
        columns["label"] = [own[s] if own else str(s) for own, s in zip(named, states, strict=True)]
        columns |= {"indexable": self.indexable[kinds], "index": self.indices[tuple(rows.T)]}
        return as_frame(columns, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"criterion": self.problem.criterion.name, "arms": [self._type_dict(t) for t in range(len(self.names))]}

    def _type_dict(self, kind: int) -> dict[str, Any]:
        indexable, size = bool(self.indexable[kind]), self.problem.types.num_states[kind]
        return {
            "name": self.names[kind],
            "count": int(self.problem.type_counts[kind]),
            "indexable": None if kind in self.result.refused else indexable,
            "indices": self.indices[kind, ..., :size].tolist() if indexable else None,
            "reason": None if indexable else self.result.explain(kind),
        }

    def plot(self) -> "Figure":
        """Return a figure: the index of each state; for a finite horizon by the steps that are left."""
        figure: Figure = from_report("plots", "indices_figure")(self)
        return figure


@dataclass(frozen=True, eq=False)
class RowIndices(_Indices):
    """Whittle indices of all rows of a large opened model."""

    model: StoredArms
    """The model."""

    def __repr__(self) -> str:
        sound = int(self.indexable.sum())
        return f"RowIndices({counted(len(self.indexable), 'row')}, {sound} indexable, {self.model.criterion.name})"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per row and state: the index.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        rows, states = np.nonzero(np.isfinite(self.indices))
        columns: dict[str, Any] = {"row": rows, "state": states, "index": self.indices[rows, states]}
        return as_frame(columns, library)

    def to_dict(self) -> dict[str, Any]:
        """Return totals in JSON form."""
        real = self.indices[np.isfinite(self.indices)]
        return {
            "criterion": self.model.criterion.name,
            "rows": len(self.indexable),
            "indexable": int(self.indexable.sum()),
            "undefined": len(self.result.refused),
            "first_without": (np.flatnonzero(~self.indexable)[:5] + 1).tolist(),
            "lowest": float(real.min(initial=np.inf)),
            "highest": float(real.max(initial=-np.inf)),
        }


def indices(
    problem: CoupledMDP | StoredArms,
    criterion: str | Criterion | None = None,
    backend: str | Pool | None = None,
    progress: Report | None = None,
) -> TypeIndices:
    """The Whittle indices of every type of arm, with a proved verdict on indexability.

    Args:
        problem: arms with two actions, one of them idle; or an opened Parquet model. Of more than 100,000 rows the
            result has indices per row (`RowIndices`).
        criterion: `discounted`, `average` or `finite:T`; by default the problem's own.
        backend: where the rows of a large opened model are computed.
        progress: called with the current activity and the completed share, for a large opened model.

    Raises:
        NotApplicableError: some arm has other than two actions.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> found = eh.indices(problem)
        >>> found
        TypeIndices(1 type, 1 indexable, discounted)
        >>> found.indices.round(4).tolist()
        [[-0.6767, 0.2923, 5.0112]]
    """
    if isinstance(problem, StoredArms):
        model = problem.with_criterion(criterion)
        if not model.is_large:
            return indices_of(model.problem())
        return indices_by_row(model, backend, progress)  # type: ignore[return-value]  # documented above
    return indices_of(needs_tables(problem, "Whittle indices").with_criterion(criterion))


def indices_by_row(model: StoredArms, backend: str | Pool | None = None, progress: Report | None = None) -> RowIndices:
    """The Whittle indices of every row of an opened model.

    Args:
        model: the model.
        backend: where rows are computed.
        progress: called with the current activity and the completed share.

    Raises:
        NotApplicableError: some arm has other than two actions, or the horizon is finite.
    """
    if not model.criterion.is_stationary:
        raise NotApplicableError("indices of a finite horizon differ by step; read the model into memory")
    starts = range(0, model.num_rows, BATCH_ROWS)
    shared = (model.budget, model.discount, model.criterion)
    tasks = [(model.row_reader(row, min(row + BATCH_ROWS, model.num_rows)), *shared) for row in starts]
    with Pool(backend) as pool:
        parts = pool.map(_indices_of_rows, tasks, [f"rows from {row}" for row in starts], progress)
    width = max(part.indices.shape[1] for part in parts)
    wide = [
        np.pad(part.indices, ((0, 0), (0, width - part.indices.shape[1])), constant_values=np.nan) for part in parts
    ]
    others = [(part.indexable, part.regained, part.witnesses) for part in parts]
    indexable, regained, witnesses = (np.concatenate(column) for column in zip(*others, strict=True))
    every = zip(starts, parts, strict=True)
    refused = {row + arm: text for row, part in every for arm, text in part.refused.items()}
    return RowIndices(WhittleResult(np.concatenate(wide), indexable, regained, witnesses, refused=refused), model)


def _indices_of_rows(task: tuple[RowRange, Floats, float, Criterion], progress: Report | None = None) -> WhittleResult:
    """The indices of some rows."""
    reader, budget, discount, criterion = task
    rows = reader()
    problem = CoupledMDP(rows.tables, budget, discount, criterion=criterion)
    result, kinds = indices_of(problem).result, problem.type_of_block
    refused = {row: result.refused[kind] for row, kind in enumerate(kinds.tolist()) if kind in result.refused}
    columns = (result.indices[kinds], result.indexable[kinds], result.regained[kinds], result.witnesses[kinds])
    return WhittleResult(*columns, refused=refused)


def indices_of(problem: CoupledMDP) -> TypeIndices:
    """The Whittle indices of every type of arm, under the problem's criterion.

    Raises:
        NotApplicableError: some arm has other than two actions.
    """
    types = problem.types
    # The most actions that a state offers, of those that the budget allows; an arm of two has two.
    choices = np.where(types.num_actions == 2, 2, types.valid.sum(axis=2).max(axis=1))
    if len(odd := np.flatnonzero(choices != 2)):
        called = types.labels[odd[0]][0] if types.labels else ""
        choice = f"type {odd[0]} has {choices[odd[0]]}" + (
            f" ({called})" if called and not called.startswith("type ") else ""
        )
        raise NotApplicableError(f"Whittle indices are for arms with two actions; {choice}")
    others = serveable_cells(problem)
    only_idle = np.asarray(~others.any(axis=2))
    active = np.where(only_idle, types.idle, others.argmax(axis=2)).astype(np.int32)
    # The solver wants the idle action first, in every state. Where it is the only one it stands for both: nothing is
    # gained by it at any charge from 0 on, and no index below 0 is used.
    order = np.stack([types.idle, active], axis=-1)
    transitions = np.take_along_axis(types.transitions, order[..., None], axis=2)
    rewards = np.take_along_axis(types.rewards, order, axis=2)
    found = whittle_indices(transitions, rewards, problem.criterion, types.num_states)
    by_state: Bools = only_idle if found.indices.ndim == 2 else only_idle[:, None]
    return TypeIndices(replace(found, indices=np.where(by_state, np.nan, found.indices)), active, problem)


def whittle(
    problem: Problem, paper_compat: bool = False, allow_not_indexable: bool = False
) -> ExchangeablePriority | TimeVaryingPolicy:
    """The Whittle index policy (WIP); for a finite horizon one for each step.

    Ties are broken at random; budget is spent on positive indices only.

    Args:
        problem: two actions per arm, one resource.
        paper_compat: read indices as the paper's truncated search gives them: those outside [-2, 2] count as 0, and
            indices of 0 are served. Explains the published WIP column; not advised for anything else.
        allow_not_indexable: treat arms without an index as if all their indices were 0, instead of refusing them.

    Raises:
        NotApplicableError: the problem has no Whittle indices; the message names the arm and the reason.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.whittle(problem)
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    problem = needs_tables(problem, "whittle")
    # With several resources a charge per step is not a price.
    if problem.num_resources != 1:
        raise NotApplicableError(f"Whittle indices are for one resource; this problem has {problem.num_resources}")
    found = indices_of(problem)
    use = _active_use(problem, found.active)
    bad = np.flatnonzero(~found.result.indexable)
    if len(bad) and not allow_not_indexable:
        raise NotApplicableError(f"type {bad[0]} has no Whittle index: {found.result.explain(int(bad[0]))}")
    # An arm without an index counts as 0: it is not served, for only what is above 0 is.
    indices = np.where(np.isnan(found.result.indices), 0.0, found.result.indices)
    indices = settle(indices, axis=tuple(range(1, indices.ndim)))  # all states, and all steps if there are any
    if paper_compat:
        indices = np.where(np.abs(indices) <= TRUNCATED_AT, indices, 0.0)
    # At or below the threshold no arm is served: just below 0 lets indices of 0 through.
    threshold = float(np.nextafter(0.0, -1.0)) if paper_compat else 0.0
    if indices.ndim == 2:
        return _by_index(problem, indices / use[:, None], found.active, threshold)
    # (step, type, state) prices per unit of the resource.
    steps = np.moveaxis(indices, 1, 0) / use[:, None]
    return TimeVaryingPolicy([_by_index(problem, now, found.active, threshold) for now in steps])


def lp_index(
    problem: CoupledMDP, weights: ArrayLike, prices: ArrayLike, floor_prices: ArrayLike | None = None
) -> ExchangeablePriority | TimeVaryingPolicy:
    """Serve by the reduced costs of the relaxation's linear program, the LP index; by step with a finite horizon.

    The index of an action is Q(s, a) - Q(s, idle), net of its price: 0 where the program both serves and idles. The
    loss per arm vanishes as arms become many if the fixed point of this order attracts from everywhere (Verloop,
    "Asymptotically optimal priority policies for indexable and nonindexable restless bandits", 2016), and is
    exponentially small if moreover the point is not degenerate (Gast, Gaujal and Yan, 2023). If the budget need not be
    spent, actions that gain nothing even for free are not chosen.

    Args:
        problem: the problem.
        weights: (type,) weights of arms' values in the welfare, from the relaxation.
        prices: (resource,) or (step, resource) dual prices of the resources, from the relaxation.
        floor_prices: (type,) value of being served in itself; none by default.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.lp_index(problem, np.ones(1) / 3, np.array([1.0]))
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    types = problem.types
    weights, prices, floor_prices = read_relaxation(weights, prices, floor_prices)
    worth = action_values(types, weights, prices, problem.criterion, floor_prices)
    by_step = [worth] if problem.criterion.is_stationary else list(np.moveaxis(worth, 1, 0))
    costs = np.broadcast_to(types.usage @ np.atleast_2d(prices).T, (*types.valid.shape, len(by_step)))
    parts = []
    for step, values in enumerate(by_step):
        values = np.where(types.valid, values, 0.0)
        index = settle(values - np.take_along_axis(values, types.idle[..., None], axis=2), axis=(0, 1, 2))
        gains = (index + costs[..., step] > NOISE * np.abs(values).max()) | problem.spends_all.any()
        parts.append(ExchangeablePriority(problem, np.where(gains, index, -np.inf)))
    return parts[0] if problem.criterion.is_stationary else TimeVaryingPolicy(parts)


def _by_index(problem: CoupledMDP, indices: Floats, active: Indices, threshold: float) -> ExchangeablePriority:
    """Return the policy of (type, state) indices, the highest first."""
    scores = np.zeros(problem.types.valid.shape)
    # Scores stand at the active action; idle ones are not used.
    kinds, states = np.indices(active.shape)
    scores[kinds, states, active] = indices
    return ExchangeablePriority(problem, scores, threshold=threshold)


def _active_use(problem: CoupledMDP, active: Indices) -> Floats:
    """(type,) what one active step uses; it must not depend on the state."""
    types = problem.types
    kinds, states = np.indices(active.shape)
    use = types.usage[kinds, states, active, 0]
    # Where only idling is possible, nothing is priced.
    priced = types.real.any(axis=2) & (active != types.idle)
    most = np.where(priced, use, 0.0).max(axis=1)
    # The price of a unit must be one number per type, or indices of its states would not compare.
    if (priced & ((use != most[:, None]) | (use <= 0))).any():
        raise NotApplicableError(
            "Whittle indices need an active action that uses the same positive amount in every state"
        )
    return np.where(most > 0, most, 1.0)
