"""The fair fluid relaxation of a problem, and the policies that it gives.

The relaxation serves several purposes at once (a bound, three policies, prices), so the last few are remembered, by the
problem and the welfare themselves: two objects of one name are two welfares.
"""

import contextlib
from collections import deque
from dataclasses import replace
from typing import Literal, overload

import numpy as np

from evenhand.checks import whole_fault
from evenhand.errors import InvalidInputError, NotApplicableError, UnknownNameError
from evenhand.model import CoupledMDP, Criterion, Objective, Opening, Policy, StatefulPolicy, read_welfare
from evenhand.model.parquet import StoredArms
from evenhand.model.simulator import Problem, needs_tables
from evenhand.model.welfare import MOST_APART, Welfare, check_welfare, is_named
from evenhand.planning.task import FAILURES
from evenhand.policies.deadlines import extend, with_service_due
from evenhand.policies.fluid import Resolving, fair_index, occupancy_priority
from evenhand.policies.ideal_actions import IdPolicy, SetExpansion, TwoSet, VirtualAdvice
from evenhand.policies.index import lp_index
from evenhand.policies.look_ahead import look_ahead
from evenhand.solvers.fluid import FluidSolution, homogeneous_weights, model_of, solve_fluid, solve_opening
from evenhand.solvers.information_relaxation import InformationBound, check_size, estimate_bound
from evenhand.solvers.service import best_values
from evenhand.typing import Floats, Rng

FLUID_TOLERANCE = 1e-5
"""Relative gap at which the fluid relaxation stops, unless a wider one is requested."""

MOST_FOLLOWED = 200_000
"""Arms up to which policies that look at every arm are tried."""

REMEMBERED = 8
"""Relaxations that are remembered."""

_memory: deque[tuple[CoupledMDP, Welfare, float, FluidSolution]] = deque(maxlen=REMEMBERED)
_tightest: deque[tuple[FluidSolution, FluidSolution]] = deque(maxlen=REMEMBERED)


def relax(problem: CoupledMDP, welfare: str | Welfare | None, tolerance: float = FLUID_TOLERANCE) -> FluidSolution:
    """Solve the fair fluid relaxation of a problem; the last few are remembered, since several policies use one.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object.
        tolerance: the relative gap to stop at.
    """
    weighed_by = read_welfare(problem, welfare)
    # A tuple: another thread may add to the memory meanwhile.
    for known, stored, at, solution in tuple(_memory):
        # Named welfares are equal by value, others are the same object.
        same = stored is weighed_by or (is_named(stored) and bool(stored == weighed_by))
        if known is problem and at == tolerance and same:
            return solution
    check_sound(problem, weighed_by)
    solution = solve_fluid(problem, weighed_by, tolerance)
    _memory.append((problem, weighed_by, tolerance, solution))
    return solution


@overload
def bound(
    problem: CoupledMDP | StoredArms,
    welfare: str | Welfare | None = None,
    method: Literal["relaxation"] = "relaxation",
    *,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    tolerance: float = FLUID_TOLERANCE,
) -> FluidSolution: ...


@overload
def bound(
    problem: CoupledMDP | StoredArms,
    welfare: str | Welfare | None = None,
    *,
    method: Literal["information"],
    criterion: str | Criterion | None = None,
    over: str | None = None,
    tolerance: float = FLUID_TOLERANCE,
    num_paths: int | None = None,
    rng: Rng = None,
) -> InformationBound: ...


def bound(
    problem: CoupledMDP | StoredArms,
    welfare: str | Welfare | None = None,
    method: str = "relaxation",
    *,
    criterion: str | Criterion | None = None,
    over: str | None = None,
    tolerance: float = FLUID_TOLERANCE,
    num_paths: int | None = None,
    rng: Rng = None,
) -> FluidSolution | InformationBound:
    """Bound the welfare of every policy.

    Args:
        problem: the problem, or an opened Parquet model, which is read into memory.
        welfare: the welfare, as text or object; by default the problem's own.
        method: `relaxation`, the fair fluid relaxation, whose budgets hold in expectation only: a proof. `information`,
            an information relaxation of few arms: an estimate with a standard error, often lower.
        criterion: criterion, as text or object; by default the problem's own.
        over: welfare over `arms` or `groups`; by default the problem's own.
        tolerance: relative gap of the relaxation.
        num_paths: paths of the method information; 200 by default.
        rng: seed or generator of the method information; 0 by default.

    Returns:
        The relaxation: `upper_bound`, dual `prices` of the resources and `weights` of the arms among others; or an
        `InformationBound`. With promised waits it bounds the policies that keep them, and its states are extended by
        waiting times.

    Raises:
        NotApplicableError: the method information does not cover this criterion or welfare.
        TooLargeError: it would take too long.

    Example:
        >>> import evenhand as eh
        >>> found = eh.bound(eh.problems.machine_replacement(num_arms=5), "gini:2")
        >>> round(found.upper_bound, 3), found.prices.shape
        (14.134, (1,))
        >>> estimate = eh.bound(eh.problems.machine_replacement(num_arms=5), "gini:2", method="information")
        >>> estimate.confidence_bound < 14.0
        True
    """
    if method not in ("relaxation", "information"):
        raise UnknownNameError("method", method, ["relaxation", "information"])
    if method == "relaxation" and not (num_paths is None and rng is None):
        raise InvalidInputError("num_paths, rng: they belong to the method information")
    if isinstance(problem, StoredArms):
        problem = problem.problem()
    known = needs_tables(problem, "bound").with_criterion(criterion, over)
    # With promised waits, of every policy that keeps them.
    relaxed = with_service_due(known, extend(known)) if known.has_max_wait else known
    if method == "relaxation":
        return relax(relaxed, welfare, tolerance)
    paths = 200 if num_paths is None else num_paths
    if fault := whole_fault(paths, least=2):
        raise InvalidInputError(f"num_paths: {fault}")
    return _estimated_bound(relaxed, read_welfare(relaxed, welfare), tolerance, paths, 0 if rng is None else rng)


def _estimated_bound(
    problem: CoupledMDP, welfare: Welfare, tolerance: float, num_paths: int, rng: Rng
) -> InformationBound:
    """Return the bound by information relaxation, at the weights and prices of the tightest relaxation."""
    model = model_of(problem)
    check_size(model, num_paths)
    plain = relax(problem, welfare, tolerance)
    found = tightest(problem, welfare, plain)
    # The tightest may be of a weighted sum instead of the welfare, whose weights bound it only over arms.
    sources = [plain] if model.groups is not None else [plain, found]
    weights = [one for source in sources if (one := homogeneous_weights(model, welfare, source)) is not None]
    if not weights:
        raise NotApplicableError(
            f"bound: the method information does not cover {welfare.name}, but rank-weighted welfare and power means. "
            "Use the method relaxation."
        )
    if problem.criterion.contracts and found.by_step:
        model = replace(model, criterion=Opening(problem.discount, len(found.prices) - 1))
    chosen = min(weights, key=lambda one: model.bound(one, found.prices)[0])
    return estimate_bound(
        model, problem.type_of_arm, chosen, found.prices, found.upper_bound, welfare.name, num_paths, rng
    )


def check_sound(problem: CoupledMDP, welfare: Welfare, values: Floats | None = None) -> None:
    """Refuse a custom welfare without the properties that bounds need, at values that the arms can have.

    Args:
        problem: whose arms they are.
        welfare: what is maximised.
        values: (arm,) values of a solution, to check there too.

    Raises:
        NotApplicableError: it is not concave, monotone, symmetric and consistent; gives two points that show it.
        OutOfDomainError: it is defined nowhere.
    """
    if is_named(welfare):
        return
    types, allowed, total = problem.types, problem.types.valid, problem.criterion.total
    worse = replace(types, rewards=-types.rewards)
    ends = [-best_values(worse, allowed, problem.criterion), best_values(types, allowed, problem.criterion)]
    # A best value that is not known is within what rewards allow.
    rewards = np.where(allowed, types.rewards, np.nan)
    spans = [total * np.nanmin(rewards, axis=(1, 2)), total * np.nanmax(rewards, axis=(1, 2))]
    objective = Objective.of_types(problem, welfare)
    low, high = (objective.members(np.where(np.isnan(e), span, e)) for e, span in zip(ends, spans, strict=True))
    sizes, number = objective.sizes, int(objective.sizes.sum())
    # As solvers ask for it; and, if they are few, one by one: then arms of one type may differ, too.
    check_welfare(welfare, number, low, high, 0, sizes).raise_if_any()
    if number <= MOST_APART and (len(sizes) < number or values is not None):
        points = None if values is None else Objective.of_arms(problem, welfare).members(values)
        check_welfare(welfare, number, np.repeat(low, sizes), np.repeat(high, sizes), points=points).raise_if_any()


def tightest(problem: CoupledMDP, welfare: str | Welfare | None, relaxed: FluidSolution | None = None) -> FluidSolution:
    """Return the solution with the least bound: plain, or with a budget that holds in each of the first steps.

    Args:
        problem: the problem.
        welfare: what is maximised.
        relaxed: a solution of the plain relaxation; solved by default.
    """
    plain = relax(problem, welfare) if relaxed is None else relaxed
    for known, found in tuple(_tightest):
        if known is plain:
            return found
    found = plain
    with contextlib.suppress(*FAILURES):
        weighed_by = read_welfare(problem, welfare)
        opening = solve_opening(problem, weighed_by, plain, FLUID_TOLERANCE)
        found = opening if opening is not None and opening.upper_bound < plain.upper_bound else plain
    _tightest.append((plain, found))
    return found


def resource_prices(problem: CoupledMDP, welfare: str | Welfare | None) -> dict[str, float] | None:
    """Return the marginal welfare of one unit more of each resource at every step, by the tightest relaxation.

    Args:
        problem: the problem.
        welfare: what is maximised.

    Returns:
        A price for each resource under its name; None without a relaxation.
    """
    try:
        worth = budget_worth(problem, tightest(problem, welfare))
    except FAILURES:
        return None
    return dict(zip(problem.resource_names, worth.tolist(), strict=True))


def budget_worth(problem: CoupledMDP, relaxed: FluidSolution) -> Floats:
    """(resource,) what one unit more of each resource at every step is worth in welfare, by the relaxation.

    Args:
        problem: the problem.
        relaxed: a solution of its relaxation, perhaps by steps.
    """
    # A unit at every step has the price times the total weight of time; prices by step are weighted by step.
    if not relaxed.by_step:
        return relaxed.prices * problem.criterion.total
    criterion, steps = problem.criterion, len(relaxed.prices)
    weights = Opening(problem.discount, steps - 1) if criterion.is_stationary else criterion
    return np.asarray(weights.time_weights(steps) @ relaxed.prices)


def fluid_policy(problem: Problem, welfare: str | Welfare | None, name: str) -> Policy | StatefulPolicy:
    """Return one policy of the relaxation.

    Args:
        problem: the problem.
        welfare: what the relaxation maximises.
        name: name of the registry.

    Raises:
        NotApplicableError: it is not for this many arms, types or resources.
    """
    known = needs_tables(problem, name)
    return build_policy(known, relax(known, welfare), name)


def build_policy(problem: CoupledMDP, relaxed: FluidSolution, name: str) -> Policy | StatefulPolicy:
    """Return one policy of a solution of the relaxation.

    Args:
        problem: the problem.
        relaxed: a solution of its relaxation.
        name: name of the registry.
    """
    weights, prices = relaxed.weights, relaxed.prices
    # None, and not zeros: policies without floors are saved without them.
    pay = relaxed.floor_prices if problem.has_floors else None
    if name == "fair-index":
        return fair_index(problem, weights, prices, pay)
    if name == "lp-index":
        return lp_index(problem, weights, prices, pay)
    if name == "lp-update":
        return look_ahead(problem, weights, prices, pay)
    # Re-solving looks at a table for every type, the others at every arm; fair-index also plays by counts.
    many = problem.num_types if name == "re-solving" else problem.num_arms
    if many > MOST_FOLLOWED:
        raise NotApplicableError(f"{name} is not for this many arms, types or resources")
    if name == "occupancy-priority":
        return occupancy_priority(problem, relaxed.occupancy, weights, prices, pay)
    for kind in (IdPolicy, SetExpansion, TwoSet, VirtualAdvice):
        if kind.kind == name:
            return kind.from_occupancy(problem, relaxed.occupancy, weights, prices, pay)
    return Resolving(problem, weights, prices, floor_prices=pay)
