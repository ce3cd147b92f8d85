"""The fair fluid relaxation of a problem, its policies, and a mixture of them that keeps the floors.

The relaxation serves several purposes at once (a bound, three policies, prices), so the last few are remembered, by the
problem and the welfare themselves: two objects of one name are two welfares.

Floors. The relaxation is within its floors in expectation, but the policies that are made of it are not the relaxation:
each has some share of time served, s_i (type,), found by playing it. `meet_floors` looks for shares theta with

    maximise  sum_i theta_i sum_n g_n v_in    subject to    sum_i theta_i s_i >= floors,    theta in the simplex

where g are the relaxation's weights and v_i the values of policy i. Policies are occupancy-priority of the relaxation
with floors that are raised, step by step, for whoever was served too little: its draws follow the floors smoothly,
where an index would jump. Should no mixture of these be within the floors, fair-index policies join, paid for service
by the program's multipliers of the floors, as in column generation. Drawing a policy at the start by theta has the
mixed values and shares, under every criterion. What is promised: on the episodes that were played, every floor is met
with a margin of MARGIN standard errors.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from evenhand.errors import Infeasible, NotApplicable, NotConverged, OutOfDomain, TooLarge
from evenhand.evaluation.evaluate import mean_by_type
from evenhand.model.composite import Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import read_welfare
from evenhand.model.policy import Policy, Starting, plays_by_counts
from evenhand.model.welfare import PowerMean, RankWeighted, Welfare
from evenhand.policies.fluid import Resolving, fair_index, occupancy_priority
from evenhand.simulation import simulate, simulate_counts
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.solvers.fluid import FluidSolution, model_of, solve_fluid, solve_model
from evenhand.typing import Floats, Rng

FLUID_TOLERANCE = 1e-5
"""Relative gap at which the fluid relaxation stops, unless a wider one is asked for."""

MOST_FOLLOWED = 200_000
"""Arms up to which policies that look at every arm are tried."""

REMEMBERED = 4
"""Relaxations that are remembered."""

MARGIN = 2.0
"""Standard errors by which a played share must exceed its floor."""

STEPS, MOST_COLUMNS = 8, 25
"""Policies whose floors are raised step by step, and policies after which the search for a mixture ends."""

ARM_STEPS = 1e6
"""Simulated steps of arms by which each policy of a mixture is judged."""

_memory: deque[tuple[CoupledMDP, Welfare, float, FluidSolution]] = deque(maxlen=REMEMBERED)


def relax(problem: CoupledMDP, welfare: str | Welfare, tolerance: float = FLUID_TOLERANCE) -> FluidSolution:
    """The fair fluid relaxation of a problem; the last few are remembered, since several policies are made of one.

    Args:
        problem: the problem.
        welfare: what is maximised, as text or object.
        tolerance: the relative gap to stop at.
    """
    weighed_by = read_welfare(problem, welfare)
    for known, kept, at, solution in tuple(_memory):
        if known is problem and at == tolerance and _is_same(kept, weighed_by):
            return solution
    solution = solve_fluid(problem, weighed_by, tolerance)
    _memory.append((problem, weighed_by, tolerance, solution))
    return solution


def _is_same(first: Welfare, second: Welfare) -> bool:
    """Whether two welfares are one: the same object, or equal ones of a structure that knows equality."""
    known = isinstance(first, (RankWeighted, PowerMean)) and type(first) is type(second)
    return first is second or (known and bool(first == second))


def resource_prices(problem: CoupledMDP, welfare: str | Welfare) -> dict[str, float] | None:
    """What one unit more of each resource at every step is worth in welfare, by the relaxation.

    Args:
        problem: the problem.
        welfare: what is maximised.

    Returns:
        A price for each resource under its name; None where there is no relaxation.
    """
    try:
        worth = budget_worth(problem, relax(problem, welfare))
    except (NotApplicable, NotConverged, OutOfDomain, TooLarge, Infeasible):
        return None
    return dict(zip(problem.resource_names, worth.tolist(), strict=True))


def budget_worth(problem: CoupledMDP, relaxed: FluidSolution) -> Floats:
    """(resource,) what one unit more of each resource at every step is worth in welfare, by the relaxation.

    Args:
        problem: the problem.
        relaxed: a solution of its relaxation.
    """
    if relaxed.by_step:
        return np.asarray(problem.criterion.time_weights(len(relaxed.prices)) @ relaxed.prices)
    return relaxed.prices * problem.criterion.total


def fluid_policies(problem: CoupledMDP, relaxed: FluidSolution) -> dict[str, Policy | Starting]:
    """The policies that a solution of the relaxation gives, by name.

    Args:
        problem: the problem.
        relaxed: a solution of its relaxation.
    """
    found: dict[str, Policy | Starting] = {}
    for name in ("occupancy-priority", "fair-index", "re-solving"):
        with contextlib.suppress(NotApplicable, TooLarge):
            found[name] = _build(problem, relaxed, name)
    return found


def fluid_policy(problem: CoupledMDP, welfare: str | Welfare, name: str) -> Policy | Starting:
    """One policy of the relaxation.

    Args:
        problem: the problem.
        welfare: what the relaxation maximises.
        name: occupancy-priority, fair-index or re-solving.

    Raises:
        NotApplicable: it is not for this many arms, types or resources.
    """
    return _build(problem, relax(problem, welfare), name)


def _build(problem: CoupledMDP, relaxed: FluidSolution, name: str) -> Policy | Starting:
    weights, prices = relaxed.weights, relaxed.prices
    pay = relaxed.floor_prices if problem.has_floors else None
    if name == "fair-index":
        return fair_index(problem, weights, prices, pay)
    # The first looks at every arm, the second at a table for every type; fair-index also plays by counts.
    many = problem.num_arms if name == "occupancy-priority" else problem.num_types
    if many > MOST_FOLLOWED:
        raise NotApplicable(f"{name} is not for this many arms, types or resources")
    if name == "occupancy-priority":
        return occupancy_priority(problem, relaxed.occupancy, weights, prices, pay)
    return Resolving(problem, weights, prices, floor_prices=pay)


@dataclass(frozen=True, eq=False)
class Played:
    """What came of playing a policy, by types."""

    policy: Policy | Starting
    """The policy."""

    values: Floats
    """(type,) mean value of an arm, up to the horizon."""

    served: Floats
    """(type,) mean share of time in which an arm is served."""

    stderr: Floats
    """(type,) standard error of `served`."""


def play_types(problem: CoupledMDP, policy: Policy | Starting, num_episodes: int, horizon: int, rng: Rng = 0) -> Played:
    """Play a policy, and see how often the arms of each type are served.

    Args:
        problem: the problem.
        policy: what acts.
        num_episodes: how many episodes.
        horizon: steps an episode.
        rng: seed or generator.
    """
    by_counts = plays_by_counts(policy) and problem.num_arms > problem.types.valid.size
    rollout = (simulate_counts if by_counts else simulate)(problem, policy, num_episodes, horizon, rng)
    values, served = rollout.returns, rollout.served
    if not by_counts:
        values, served = mean_by_type(problem, values), mean_by_type(problem, served)
    error = served.std(axis=0, ddof=1) / np.sqrt(len(served)) if len(served) > 1 else np.full(served.shape[1], np.inf)
    return Played(policy, values.mean(axis=0), served.mean(axis=0), error)


def meet_floors(
    problem: CoupledMDP,
    welfare: str | Welfare,
    candidates: Mapping[str, Policy | Starting] | None = None,
    rng: Rng = 0,
    num_episodes: int | None = None,
) -> Policy | Starting:
    """A policy that serves every arm at least as often as its floor says, in expectation; see the head of this file.

    Args:
        problem: the problem; without floors the best candidate is returned.
        welfare: what is maximised, as text or object.
        candidates: policies that may be part of the mixture; those of the relaxation when absent.
        rng: seed or generator of the episodes on which policies are judged.
        num_episodes: how many; as many as are quick when absent.

    Raises:
        Infeasible: not even the relaxation meets the floors.
        NotConverged: no mixture was found that meets all floors with a margin for the error.
    """
    relaxed = relax(problem, welfare)
    tried = dict(candidates) if candidates is not None else fluid_policies(problem, relaxed)
    horizon = problem.criterion.judging_steps()
    episodes = num_episodes or int(np.clip(ARM_STEPS / (problem.num_arms * horizon), 50, 1000))
    seed = int(np.random.default_rng(rng).integers(2**63))  # all meet the same episodes

    def play(policy: Policy | Starting) -> Played:
        return play_types(problem, policy, episodes, horizon, seed)

    columns = [play(policy) for policy in tried.values()]
    if not problem.has_floors:
        return max(columns, key=lambda column: _worth(problem, relaxed, column)).policy
    columns += _raise_floors(problem, relaxed, read_welfare(problem, welfare), play)
    return _mix_within_floors(problem, relaxed, columns, play)


def keeping_floors(
    problem: CoupledMDP, candidates: Mapping[str, Policy | Starting], rng: Rng = 0
) -> dict[str, Policy | Starting]:
    """Those of the candidates that serve every arm often enough as they are, with a margin for the error.

    Args:
        problem: the problem.
        candidates: policies under their names.
        rng: seed or generator of the episodes on which they are judged.
    """
    horizon = problem.criterion.judging_steps()
    episodes = int(np.clip(ARM_STEPS / (problem.num_arms * horizon), 50, 1000))
    seed = int(np.random.default_rng(rng).integers(2**63))
    kept = {}
    for name, policy in candidates.items():
        played = play_types(problem, policy, episodes, horizon, seed)
        if (played.served - MARGIN * played.stderr >= problem.type_floors - 1e-9).all():
            kept[name] = policy
    return kept


Play = Callable[[Policy | Starting], Played]
"""Plays a policy on the common episodes."""


def _raise_floors(problem: CoupledMDP, relaxed: FluidSolution, welfare: Welfare, play: Play) -> list[Played]:
    """Policies of relaxations whose floors are raised by what the last one lacked."""
    model, name = model_of(problem), "occupancy-priority" if problem.num_arms <= MOST_FOLLOWED else "fair-index"
    floors, played = problem.type_floors, []
    for _ in range(STEPS):
        played.append(play(_build(problem, relaxed, name)))
        short = problem.type_floors + MARGIN * played[-1].stderr - played[-1].served
        if (short <= 0)[problem.type_floors > 0].all():
            break
        floors = np.where(problem.type_floors > 0, np.minimum(floors + np.maximum(short, 0.0), 1.0), 0.0)
        try:
            relaxed = solve_model(replace(model, floors=floors), welfare, FLUID_TOLERANCE)
        except (Infeasible, NotConverged):  # so high they cannot be; what was found so far is mixed
            break
    return played


def _mix_within_floors(
    problem: CoupledMDP, relaxed: FluidSolution, columns: list[Played], play: Play
) -> Policy | Starting:
    """The best mixture within the floors, if need be with policies that its own multipliers ask for."""
    master = _FloorMaster(problem, relaxed)
    while True:
        shares, pay, lacking = master.solve(columns)
        if not lacking:
            kept = [(column.policy, share) for column, share in zip(columns, shares, strict=True) if share > 0]
            return kept[0][0] if len(kept) == 1 else Mixture(*zip(*kept, strict=True))
        if len(columns) >= MOST_COLUMNS:
            raise NotConverged(
                f"no mixture of {len(columns)} policies meets the floors with a margin for the error of simulation, "
                "though the relaxation does. Lower the floors a little, or raise the budget."
            )
        columns = [*columns, play(fair_index(problem, relaxed.weights, relaxed.prices, pay))]


def _worth(problem: CoupledMDP, relaxed: FluidSolution, played: Played) -> float:
    return float((problem.type_counts * relaxed.weights) @ played.values)


class _FloorMaster:
    """The program over shares of policies."""

    def __init__(self, problem: CoupledMDP, relaxed: FluidSolution) -> None:
        self.problem, self.relaxed = problem, relaxed
        self.floored = np.flatnonzero(problem.type_floors)
        rewards = np.abs(problem.types.rewards).max() * problem.criterion.total
        self.penalty = 10.0 * float((problem.type_counts * relaxed.weights).max() * rewards) or 1.0

    def solve(self, columns: list[Played]) -> tuple[Floats, Floats, bool]:
        """The best shares, (type,) the pay for being served, and whether some floor is not met.

        As long as some is not, the penalty for it, and so the pay, rises.
        """
        number, rows = len(columns), len(self.floored)
        worth = np.array([_worth(self.problem, self.relaxed, column) for column in columns])
        served = np.column_stack([(column.served - MARGIN * column.stderr)[self.floored] for column in columns])
        matrix = np.vstack([np.hstack([served, np.eye(rows)]), np.append(np.ones(number), np.zeros(rows))])
        floors = self.problem.type_floors[self.floored]
        optimum = solve_program(
            LinearProgram(
                gains=np.concatenate([worth, np.full(rows, -self.penalty)]),
                matrix=sparse.csc_array(matrix),
                row_lower=np.append(floors, 1.0),
                row_upper=np.append(np.full(rows, np.inf), 1.0),
                lower=np.zeros(number + rows),
                upper=np.full(number + rows, np.inf),
            )
        )
        shares = np.where(optimum.primal[:number] > 1e-9, optimum.primal[:number], 0.0)
        pay = np.zeros(self.problem.num_types)
        pay[self.floored] = np.maximum(-optimum.duals[:rows], 0.0)
        lacking = bool((optimum.primal[number:] > 1e-9).any())
        if lacking:
            self.penalty *= 4.0
        pay /= self.problem.type_counts * self.problem.criterion.total
        return shares / shares.sum(), pay, lacking
