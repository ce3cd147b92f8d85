"""The relaxation's linear program before a welfare joins it: flow, budget, floors and members (`programs`)."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from evenhand.errors import InfeasibleError, NotConvergedError, TooLargeError
from evenhand.solvers.fluid.frontiers import FluidModel
from evenhand.solvers.fluid.price_response import excess_of
from evenhand.solvers.highs import LinearOptimum, LinearProgram, solve_program
from evenhand.typing import Bools, Floats, Ints

FLOOR_ROUNDING = 1e-7
"""The share of a floor, or of the budget that floors take, by which a solution may be out, as programs are."""

LP_TOLERANCE = 1e-10
"""Feasibility tolerance of small programs."""

INTERIOR_FROM = 3_000
"""Columns from which the interior point is faster than the simplex method; with many steps a hundred times."""


@dataclass(frozen=True)
class ProgramSizes:
    """Sizes up to which linear programs are used; those by step, which are used unasked, take about a second."""

    entries: int = 20_000_000
    """Non-zeros."""

    rank_rows: int = 200_000
    """Rows of ranks."""

    columns_by_step: int = 12_000
    """Columns with a budget at every step."""

    columns_of_weighted_steps: int = 300_000
    """The same of one weighted mean, which bounds a welfare whose own program would be larger."""

    rank_rows_by_step: int = 5_000
    """Rows of ranks with a budget at every step."""

    stages_by_step: int = 30
    """Members of leximin with a budget at every step."""

    columns_of_cuts: int = 2_000
    """Columns of an opening that is solved again and again with more cuts of the welfare."""

    rank_rows_of_opening: int = 500
    """Rows of ranks of an opening; beyond, it is solved for the weights of the plain relaxation."""


USUAL_SIZES = ProgramSizes()


def _solved(program: LinearProgram) -> LinearOptimum:
    """Solve small programs by the simplex method, large ones by an interior point."""
    if program.num_columns > INTERIOR_FROM:
        return solve_program(program, algorithm="interior-point")
    return solve_program(program, tolerance=LP_TOLERANCE)


@dataclass(frozen=True, eq=False)
class Solved:
    """A solved program, in its parts."""

    shares: Floats
    """(step, pair) shares of time."""

    more: Floats
    """(column,) the further columns."""

    prices: Floats
    """(resource,), or (step, resource): prices of weighted use."""

    duals: Floats
    """(row,) multipliers of the further rows, in units of value."""

    objective: float
    """In the units of the program."""


class Program:
    """The relaxation's columns and rows, to which a welfare adds its own."""

    def __init__(self, model: FluidModel, sizes: ProgramSizes = USUAL_SIZES) -> None:
        """Number the columns.

        Args:
            model: the types, and what they share.
            sizes: sizes up to which programs are used.
        """
        self.model, self.sizes = model, sizes
        self.type, self.state, self.action = np.nonzero(model.types.valid)
        self.layers = model.criterion.num_layers
        # Weight of a visit in each step, in shares of time.
        self.step_weights = model.criterion.layer_weights
        # The entries of the flow, and about four more a pair: it leaves a state, uses, serves, and has a value.
        support = np.count_nonzero(model.types.transitions[self.type, self.state, self.action])
        if (entries := self.layers * (support + 4 * len(self.type))) > sizes.entries:
            raise TooLargeError(
                f"the linear program of the relaxation has {entries} entries; at most {sizes.entries} are taken. "
                "Use a Gini welfare or alpha-fairness, which need none, or group similar arms into types."
            )
        rewards = model.types.rewards[self.type, self.state, self.action]
        self.unit = float(np.abs(rewards).max() * model.criterion.total) or 1.0  # of value: solvers have tolerances

    @property
    def num_columns(self) -> int:
        """Number of shares of time."""
        return self.layers * len(self.type)

    @property
    def num_members(self) -> int:
        """Number of values."""
        return len(self.model.sizes)

    @cached_property
    def flow(self) -> tuple[sparse.csr_array, Floats]:
        """The flow rows, and what they must be."""
        model, pairs = self.model, np.arange(len(self.type))
        # Padded states have no action, and so no row; real states are numbered through all types.
        real = model.types.valid.any(axis=-1)
        row_of = np.cumsum(real.reshape(-1)).reshape(real.shape) - 1
        following = model.types.transitions[self.type, self.state, self.action]
        source, target = np.nonzero(following)
        # (row, pair) 1 where the pair leaves the row's state, and the chance with which it arrives there.
        leave = sparse.csr_array((np.ones(len(pairs)), (row_of[self.type, self.state], pairs)))
        arrive = sparse.csr_array(
            (following[source, target], (row_of[self.type[source], target], source)), shape=leave.shape
        )
        # A block of rows per step. Shares of time are not discounted: the discount is in the weight of a visit.
        arrivals, start = model.criterion.flow
        rows = sparse.kron(sparse.eye_array(self.layers), leave) - sparse.kron(arrivals, arrive)
        right = np.asarray(np.kron(start, model.initial[real]), dtype=np.float64)
        if start.any():
            return sparse.csr_array(rows), right
        # One row a type more: without it x = 0 would obey the flow of an average.
        whole = sparse.csr_array((np.ones(len(pairs)), (self.type, pairs)))
        return sparse.csr_array(sparse.vstack([rows, whole])), np.concatenate([right, np.ones(len(model))])

    @cached_property
    def bought(self) -> Ints:
        """The resources of which there is something; of the others nothing can be used."""
        return np.flatnonzero(self.model.budget > 0)

    @property
    def all_used(self) -> Bools:
        """(step and resource,) whether exactly the budget is used."""
        model = self.model
        spends_all = np.zeros(len(model.budget), dtype=np.bool_) if model.spends_all is None else model.spends_all
        return np.tile(spends_all[self.bought], self.layers)

    @cached_property
    def use(self) -> sparse.csr_array:
        """(step and resource, column) the share of the budget that a pair uses, all arms of its type together."""
        model = self.model
        # In shares of the budget, so that all rows have limits of 1 whatever the units of the resources.
        usage = model.types.usage[self.type, self.state, self.action][:, self.bought] / model.budget[self.bought]
        each = sparse.csr_array((model.counts[self.type, None] * usage).T)
        return sparse.csr_array(sparse.kron(sparse.eye_array(self.layers), each))

    @cached_property
    def service(self) -> tuple[sparse.csr_array, Ints]:
        """The share of time in which arms with a floor are served, and their types."""
        floored = np.zeros(0, dtype=np.int64) if self.model.floors is None else np.flatnonzero(self.model.floors)
        served = self.model.types.served[self.type, self.state, self.action].astype(np.float64)
        each = sparse.csr_array((served, (self.type, np.arange(len(self.type)))), shape=(len(self.model), len(served)))
        # What a share of time in each step counts for, of the criterion's total: together 1.
        weights = self.step_weights / self.model.criterion.total
        return sparse.csr_array(sparse.kron(weights[None], sparse.csr_array(each[floored]))), floored

    @cached_property
    def values(self) -> sparse.csr_array:
        """(member, column) values in units."""
        model = self.model
        rewards = model.types.rewards[self.type, self.state, self.action] / self.unit
        groups = np.arange(len(model)) if model.groups is None else model.groups
        # A group's value is the mean of its arms', so each type counts by its share of the group.
        if model.groups is not None:
            rewards = rewards * (model.counts / np.bincount(groups, weights=model.counts)[groups])[self.type]
        shape = (self.num_members, len(self.type))
        each = sparse.csr_array((rewards, (groups[self.type], np.arange(len(self.type)))), shape=shape)
        return sparse.csr_array(sparse.kron(self.step_weights[None], each))

    def solve(
        self,
        gains: Floats,
        rows: sparse.csr_array | None = None,
        row_lower: Floats | float = -np.inf,
        row_upper: Floats | float = np.inf,
        lower: Floats | float = -np.inf,
        *,
        most_use: float | None = 1.0,
        floors: Floats | None = None,
    ) -> Solved:
        """Maximise over shares of time, members' values and further columns, under further rows.

        Args:
            gains: (member + column,) what is maximised.
            rows: (row, member + column) further rows.
            row_lower: (row,) the least each may be.
            row_upper: (row,) the most each may be.
            lower: (member + column,) the least that values and further columns may be.
            most_use: share of the budget that may be used; None if the last column is that share.
            floors: (floored type,) in place of the model's; NaN if the last column is the floor.
        """
        service, floored = self.service
        own = self.model.floors[floored] if self.model.floors is not None else np.zeros(0)
        floors = own if floors is None else floors
        # Columns: shares of time, members' values, whatever the welfare adds. Rows in the order of the blocks below.
        flow, start = self.flow
        wide = len(gains)
        rows = sparse.csr_array((0, wide)) if rows is None else rows
        tied = sparse.csr_array(sparse.eye_array(self.num_members, wide))
        # If the last column is the share that may be used, the row is use - column <= 0; floors likewise.
        use_tie = _last_column(np.full(self.use.shape[0], -float(most_use is None)), wide)
        floor_tie = _last_column(-np.isnan(floors).astype(np.float64), wide)
        matrix = sparse.block_array(
            [
                [flow, sparse.csr_array((flow.shape[0], wide))],
                [self.use, use_tie],
                [service, floor_tie],
                [self.values, -tied],
                [None, rows],
            ]
        )
        number = rows.shape[0]
        zeros = np.zeros(self.num_members)
        limit = np.full(self.use.shape[0], 0.0 if most_use is None else most_use)
        open_use = np.where(self.all_used, limit, -np.inf)
        least = np.where(np.isnan(floors), 0.0, floors)
        program = LinearProgram(
            gains=np.concatenate([np.zeros(self.num_columns), gains]),
            matrix=sparse.csc_array(matrix),
            row_lower=np.concatenate([start, open_use, least, zeros, np.broadcast_to(row_lower, number)]),
            row_upper=np.concatenate(
                [start, limit, np.full(len(least), np.inf), zeros, np.broadcast_to(row_upper, number)]
            ),
            lower=np.concatenate([np.zeros(self.num_columns), np.broadcast_to(lower, wide)]),
        )
        try:
            return self._read(_solved(program), number)
        except InfeasibleError:  # infeasible floors are refused before (`check_floors`)
            raise NotConvergedError(
                "the linear program of the relaxation has a solution, but its numbers are of too different a size for "
                "the solver to find one"
            ) from None

    def _read(self, optimum: LinearOptimum, number: int) -> Solved:
        # The multipliers of the budget rows are in units, for a share of the budget; prices are for weighted use.
        begin = self.flow[0].shape[0]
        duals = optimum.duals[begin : begin + self.use.shape[0]]
        duals = np.where(self.all_used, duals, np.maximum(duals, 0.0)).reshape(self.layers, -1)
        prices = np.zeros((self.layers, len(self.model.budget)))
        # A step without weight (discount 0) has no price.
        weights = np.where(self.step_weights > 0, self.step_weights, np.inf)[:, None]
        prices[:, self.bought] = self.unit * duals / self.model.budget[self.bought] / weights
        end = self.num_columns + self.num_members
        return Solved(
            shares=optimum.primal[: self.num_columns].reshape(self.layers, -1),
            more=optimum.primal[end:],
            prices=prices[0] if self.model.criterion.is_stationary else prices,
            duals=optimum.duals[len(optimum.duals) - number :],
            objective=optimum.objective,
        )

    def _follow(self, solved: Solved) -> Floats:
        """The occupancy measures of the policies that a solution shows."""
        # (step, type, state, action) as the columns are; arms have the type first.
        raw = np.zeros((self.layers, *self.model.types.rewards.shape))
        raw[:, self.type, self.state, self.action] = solved.shares
        raw = raw[0] if self.model.criterion.is_stationary else np.moveaxis(raw, 0, 1)
        return self.model.arms.follow(np.arange(len(self.model)), raw)

    def spent(self, measure: Floats) -> Floats:
        """(step and resource,) the share of the budget that measures use; by steps if there are."""
        by_step = measure[:, None] if measure.ndim == 3 else measure
        use = np.einsum("t,tusa,tsak->uk", self.model.counts.astype(np.float64), by_step, self.model.types.usage)
        allowance = self.step_weights[:, None] * self.model.budget
        return np.asarray((use / np.where(allowance > 0, allowance, np.inf)).reshape(-1))

    def measure(self, solved: Solved) -> Floats:
        """The occupancy measures of the policies that a solution shows, mixed with some of least use to fit the budget.

        Floors may take the whole budget, and then nothing uses less: so their constraints hold as closely as in a
        linear program.
        """
        # With floors the budget may hold to rounding only: nothing that keeps them may use less.
        measure = self._follow(solved)
        exact = self.model.floors is None and self.model.spends_all is None
        spent, most = self.spent(measure), 1.0 if exact else 1.0 + FLOOR_ROUNDING
        if (spent <= most).all():
            return measure
        least = self.spent(self.frugal)
        # (1 - share) spent + share least = most, for the row that needs most of it; and a hair more.
        share = excess_of(spent, least, np.full(len(spent), most))
        return (1 - share) * measure + share * self.frugal

    @cached_property
    def frugal(self) -> Floats:
        """Measures that use little: nothing, but for the floors."""
        if self.model.floors is not None:
            return self._least_use[1]
        idle = np.arange(self.model.types.valid.shape[2]) == self.model.types.idle[..., None]
        idle = (idle & self.model.types.valid).astype(np.float64)
        # The same choice at every step.
        idle = idle if self.model.criterion.is_stationary else idle[:, None]
        shape = (len(self.model), *self.model.arms.shape)
        return self.model.arms.follow(np.arange(len(self.model)), np.broadcast_to(idle, shape))

    @cached_property
    def _least_use(self) -> tuple[float, Floats]:
        """Return the least share of the budget with which the floors are reached, and the measures that do it."""
        gains = np.append(np.zeros(self.num_members), -1.0)
        solved = self.solve(gains, most_use=None, lower=np.append(np.full(self.num_members, -np.inf), 0.0))
        return float(solved.more[0]), self._follow(solved)

    def check_floors(self) -> None:
        """Raise Infeasible if the floors cannot be reached."""
        model = self.model
        if model.floors is None:
            return
        # Two ways to fail: an arm that cannot be served so often even alone, and arms that together would use too much.
        most = model.served(model.most_served) / model.criterion.total
        if (most < model.floors * (1 - FLOOR_ROUNDING)).any() or self._least_use[0] > 1 + FLOOR_ROUNDING:
            raise InfeasibleError(out_of_floors(model))


def _last_column(entries: Floats, width: int) -> sparse.csr_array:
    """(row, column) nothing but these entries in the last column."""
    rows = np.flatnonzero(entries)
    return sparse.csr_array((entries[rows], (rows, np.full(len(rows), width - 1))), shape=(len(entries), width))


def out_of_floors(model: FluidModel) -> str:
    """Return the message about infeasible floors, with the largest feasible common one.

    Args:
        model: types, of which some have floors.
    """
    assert model.floors is not None
    floored = np.flatnonzero(model.floors)
    marks = np.where(model.floors > 0, 1e-300, 0.0)  # any floor that is no constraint, so that there are rows
    try:
        # One column is the floor of all that have one, and it is made as large as can be.
        program = Program(replace(model, floors=marks))
        gains = np.append(np.zeros(program.num_members), 1.0)
        lower = np.append(np.full(program.num_members, -np.inf), 0.0)
        largest = float(program.solve(gains, lower=lower, floors=np.full(len(floored), np.nan)).more[0])
    except (TooLargeError, NotConvergedError):
        return "the floors are infeasible within the budget, even in expectation. Lower them, or raise the budget."
    whose = "every arm" if len(floored) == len(model) else "every arm that has a floor"
    shown = np.floor(max(largest, 0.0) * 1e4 + 1e-3) / 1e4  # rounded down, but not for the sake of a last bit
    return (
        f"the floors are infeasible within the budget, even in expectation: {whose} can be served at most {shown:.4g} "
        "of the time. Lower the floors, or raise the budget."
    )
