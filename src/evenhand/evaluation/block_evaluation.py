"""Index and priority policies on an opened Parquet model: simulation, evaluation, one decision.

Workers read blocks of rows and compute the scores of their arms, which depend on the arm alone (and on its weight and
the prices of the relaxation). The scores of all rows are ranked together, as `policies.priority` does in memory, and
whole episodes are played by the compiled loop of `simulation.rollout`. Random numbers of an arm belong to its number in
the model, so states, actions and returns are those of `simulate` in memory, for any blocks and backend.

Values are means over episodes per row, because the arms of a row are alike to the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.evaluation.evaluate import Evaluation, Strata, estimate, truncation_bound
from evenhand.evaluation.rollout import Play, Rollout, Sums, in_batches, play_by_rank
from evenhand.kernels.compilation import work_clock
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.rank_tables import rank_tables
from evenhand.kernels.stepping import first_states
from evenhand.model.arm import ROOM, ArmTables
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.objective import Objective
from evenhand.model.parquet import RowRange, StoredArms
from evenhand.model.simulator import Problem
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare
from evenhand.parallel import Pool, Report
from evenhand.policies.baselines import never_act, random_feasible
from evenhand.policies.fluid import LEAST_WEIGHT, fair_worth
from evenhand.policies.index import whittle
from evenhand.policies.priority import ROUNDING, ExchangeablePriority, rank_scores, serveable_cells
from evenhand.solvers.fluid.blocks import BLOCK
from evenhand.typing import Bools, Floats, Indices, Progress, Rng

SIMPLE: dict[str, Callable[[Problem], Any]] = {"whittle": whittle, "random": random_feasible, "never-act": never_act}
"""Policies whose scores of an arm depend on the arm alone."""


@dataclass(frozen=True, eq=False)
class BlockPolicy:
    """A policy whose scores of an arm depend on the arm, and on the prices and its weight in the relaxation."""

    name: str
    """whittle, random, never-act or fair-index."""

    prices: tuple[float, ...] = ()
    """(resource,) dual prices of the relaxation, for fair-index."""

    weights: Floats | None = field(default=None, repr=False)
    """(row,) welfare weights of the relaxation, for fair-index."""

    def __post_init__(self) -> None:
        if self.name not in (*SIMPLE, "fair-index"):
            known = ", ".join((*SIMPLE, "fair-index"))
            raise NotApplicableError(f"{self.name}: on blocks of arms these policies can be simulated: {known}")

    def scores(self, problem: CoupledMDP, weights: Floats | None) -> tuple[Floats, Bools]:
        """(type, state, action) scores, -inf for never, and which cells precede all others.

        Args:
            problem: some arms, with the budget of all.
            weights: (type,) welfare weights of these arms, none of them 0, for fair-index.
        """
        if not problem.criterion.is_stationary and self.name != "random":
            raise NotApplicableError(
                f"{self.name}: with a finite horizon the order differs by step; read the model into memory"
            )
        cells = serveable_cells(problem)
        if weights is not None:
            worth, preferred = fair_worth(problem, weights, np.array(self.prices))
            return np.where(cells, worth, -np.inf), preferred
        policy = SIMPLE[self.name](problem)
        assert isinstance(policy, ExchangeablePriority)
        scores = np.where(cells & (policy.scores > policy.threshold), policy.scores, -np.inf)
        return scores, np.ones(scores.shape, dtype=np.bool_)


class _Scored(NamedTuple):
    """Arms of some rows, and their scores."""

    tables: ArmTables
    kinds: Indices
    """(arm,) which of the tables each arm has."""

    scores: Floats
    preferred: Bools


def _score(
    task: tuple[RowRange, Floats | None, Floats, float, Criterion, BlockPolicy], progress: Report | None = None
) -> _Scored:
    reader, weights, budget, discount, criterion, policy = task
    rows = reader()
    # Rows of one type may differ in their weights, and so in their scores.
    problem = CoupledMDP(rows.tables, budget, discount, criterion=criterion)
    # Every row is a type: equal arms are not searched for.
    problem.__dict__["type_of_block"] = np.arange(len(rows.tables), dtype=np.int32)
    return _Scored(problem.types, rows.row_of_arm, *policy.scores(problem, weights))


class RankedArms:
    """All arms of an opened model in the order of service."""

    def __init__(self, model: StoredArms, policy: BlockPolicy, pool: Pool, block_rows: int = BLOCK) -> None:
        """Read the arms and rank their scores.

        Args:
            model: the arms, under the criterion of the simulation.
            policy: the policy.
            pool: where rows are read and scores computed.
            block_rows: rows per block.
        """
        starts, weights = range(0, model.num_rows, block_rows), policy.weights
        if policy.name == "fair-index":
            if weights is None:
                raise NotApplicableError("fair-index: the weights and prices of the relaxation are required")
            weights = np.maximum(weights, LEAST_WEIGHT * weights.max())
        shared = (model.budget, model.discount, model.criterion, replace(policy, weights=None))
        tasks = []
        for row in starts:
            rows = row, min(row + block_rows, model.num_rows)
            tasks.append((model.row_reader(*rows), None if weights is None else weights[slice(*rows)], *shared))
        parts = pool.map(_score, tasks, [f"rows from {row}" for row in starts])
        tables = [part.tables for part in parts]
        offsets = np.cumsum([0, *map(len, tables[:-1])]).tolist()
        kinds = [part.kinds + first for part, first in zip(parts, offsets, strict=True)]
        self.model, self.type_of_arm = model, np.concatenate(kinds).astype(np.int32)
        scores = np.full((sum(map(len, tables)), *np.max([part.scores.shape[1:] for part in parts], axis=0)), -np.inf)
        preferred = np.zeros(scores.shape, dtype=np.bool_)
        for first, part in zip(offsets, parts, strict=True):
            block = (slice(first, first + len(part.tables)), *map(slice, part.scores.shape[1:]))
            scores[block], preferred[block] = part.scores, part.preferred
        del parts, kinds  # there may be ten million rows
        ranks = rank_scores(scores, -np.inf, ROUNDING if policy.name == "fair-index" else None)
        # Cells that are best at the prices precede all others.
        ranks = np.where((ranks < 0) | preferred, ranks, ranks + int(ranks.max(initial=0)) + 1).astype(np.int32)
        del scores, preferred
        self.types = ArmTables.stack(tables)
        del tables
        arms = (self.type_of_arm, ranks, self.types.usage, self.types.idle, model.budget * ROOM)
        self.tables = rank_tables(*arms, stop=policy.name == "random")

    def simulate(self, num_episodes: int, weights: Floats, rng: Rng = 0, progress: Progress | None = None) -> Rollout:
        """Simulate episodes, as `simulate` does; returns are (episode, arm).

        Args:
            num_episodes: number of episodes.
            weights: (step,) weight of each step.
            rng: seed or generator.
            progress: called with the completed share.
        """
        from evenhand.kernels.episodes import Dynamics

        check_positive_int(num_episodes, "num_episodes")
        kinds, types, arms = self.type_of_arm, self.types, len(self.type_of_arm)
        what = f"the returns of {num_episodes} episodes of {arms} arms"
        check_memory(16.0 * num_episodes * arms, what, "Use fewer episodes.")
        world, policy = as_generator(rng).spawn(2)
        keys = draw_keys(world, len(weights) + 1)
        sums = Sums.zeros((1, num_episodes, arms), len(self.model.budget))
        for rows, stream, tell in in_batches(num_episodes, arms, policy, progress):
            states = first_states(kinds, types.cumulative_initial, keys[0], rows.start, rows.stop - rows.start)
            first = np.zeros(len(states), dtype=np.int32)
            dynamics = Dynamics(kinds, first, types.cumulative, types.rewards[None], types.served)
            play = Play(weights, keys, rows.start, stream, tell)
            play_by_rank(dynamics, self.tables, states, play, sums.of(rows))
        return sums.rollout(self.model.budget, weights)

    def act(self, states: Indices, rng: Rng) -> tuple[Indices, Floats, int]:
        """(arm,) actions for (arm,) states, the use of each resource, and the number of arms that are served.

        Args:
            states: (arm,) current states.
            rng: seed or generator, for ties.
        """
        actions = self.tables.serve(states[None], draw_keys(as_generator(rng), 1)[0])[0]
        cells = self.type_of_arm, states, actions
        return actions, np.asarray(self.types.usage[cells].sum(axis=0)), int(self.types.served[cells].sum())


def evaluate_blocks(
    model: StoredArms,
    policy: BlockPolicy,
    welfare: str | Welfare | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    backend: str | Pool | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Simulate a policy on a model that stays in its files.

    Args:
        model: the arms.
        policy: what is simulated.
        welfare: as text or object; by default the model's.
        num_episodes: number of episodes.
        horizon: steps per episode; by default the criterion's.
        rng: seed or generator.
        backend: where scores are computed; results do not depend on it.
        progress: called with the current activity and the completed share.
    """
    start = work_clock()
    if horizon is None and model.criterion.fixed_steps(1) is None:
        raise InvalidInputError(
            "horizon: required for an opened model under the criterion average; several times as many steps as the "
            "slowest arm takes to forget its first state"
        )
    with Pool(backend) as pool:
        arms = RankedArms(model, policy, pool)
    time_weights = model.criterion.time_weights(model.criterion.simulated_steps(horizon))
    rollout = arms.simulate(num_episodes, time_weights, rng, progress)
    counts = model.row_counts
    firsts = np.cumsum(counts) - counts
    returns, served = (np.add.reduceat(each, firsts, axis=1) / counts for each in (rollout.returns, rollout.served))
    units = returns, served, np.zeros(len(counts))
    bound = truncation_bound(model.criterion, rollout.horizon, float(np.abs(arms.types.rewards).max()))
    facts: Any = {"plug_in_welfare": None, "truncation_bound": bound, "by_type": True}
    strata, seconds = Strata((), np.ones(1), np.array([num_episodes])), work_clock() - start
    # Every row is a type.
    given: Any = (model, objective_of(model, welfare), strata, rollout, *units)
    found = estimate(*given, **facts, seconds=seconds)
    return replace(found, returns=None, episode_weights=None)


def objective_of(model: StoredArms, welfare: str | Welfare | None) -> Objective:
    """The objective with one value per row."""
    groups = model.group_of_type if model.over == "groups" else None
    number = model.num_arms if groups is None else len(model.group_names)
    chosen = as_welfare(welfare if welfare is not None else model.welfare or DEFAULT, number)
    # Simulated policies are not held to floors.
    return Objective(model.criterion, chosen, model.row_counts, groups, np.broadcast_to(0.0, model.num_rows))
