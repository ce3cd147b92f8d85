"""Fast evaluation of policies on common random numbers: the columns of a mixture.

Exactly if the count space is small and the policy's choices are known; else by playing, with a control variate. For any
function h of an arm's state and A(s, a) = r(s, a) + gamma sum_j p(j | s, a) h(j) - h(s), discounted sums telescope:

    E sum_t gamma^t r(s_t, a_t)  =  mu.h + E sum_t gamma^t A(s_t, a_t)

so A may be played in place of r. With h the values of an arm that does what the policy does to it, the chance of the
arm's moves is gone from A, and what is left is the noise of competing for the budget: variances fall several times.
What lies beyond the horizon is estimated by h, and by as much A a step as there was before it: A is not 0 in the long
run, but does not grow. So a horizon may leave out 0.001 of all time; discounts very near 1 leave out more.

What a policy does to an arm lies between two choices: that of the relaxation, and that of an arm that gets all it wants
(arms without weight are not served by the relaxation, but by what the others leave). Both are played at once, on the
same moves, and for each type that h = (1 - b) h_relaxed + b h_free is taken which leaves the least noise; b is the
slope of one return against their difference, in tenths, so that what it owes to chance is nothing beside the error.

With a finite horizon h and A differ from step to step, and sums of A are taken over recorded paths. As much of the
rewards themselves is mixed in, in place of h_free, as leaves the least noise. An average is played until
arms have forgotten their start, and has control variates of its own (`evaluation.long_run`).

Values are rounded to ten digits, so that no choice depends on rounding errors.

The value depends on the scorer and the policy alone, so that several are evaluated in parallel (`score_all`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evenhand.errors import NotApplicableError, NotConvergedError, TooLargeError
from evenhand.evaluation import simulate, simulate_counts
from evenhand.evaluation.evaluate import knows_types, treats_alike
from evenhand.evaluation.exact import exact_values, is_quick
from evenhand.evaluation.long_run import LongRunLimits, mean_by_type, play_long_run
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import ArmTables, CoupledMDP, Policy, StatefulPolicy, plays_by_counts
from evenhand.model.composite import MixturePolicy, components_for_good
from evenhand.model.policy import described
from evenhand.parallel import Pool
from evenhand.planning.task import current_effort
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.solvers.single_arm import action_values
from evenhand.typing import Floats, Progress, Rng

LONG_RUNS, LONG_RUN, LONGEST = 24, 200, 2e5
"""Least number of episodes of a long run, its least steps if time is short, and its most steps or changes: many
policies are evaluated, and slow ones may be left out."""

LENGTHENED = 20.0
"""Largest number of arm-steps of a long run, as a multiple of the planned number."""


@dataclass(frozen=True, eq=False)
class ScoredPolicy:
    """A policy with its value to each unit: the types, or the arms."""

    name: str
    """Name in reports."""

    policy: Policy | StatefulPolicy
    """The policy."""

    choice: Floats
    """(type, state, action) the relaxation's choice that it follows more or less; or with a step in front."""

    returns: Floats
    """(episode, unit) unbiased estimates of the value; one row if it is exact."""

    served: Floats
    """(episode, unit) shares of time served."""

    exact: bool = False
    """True if the values are exact."""

    beyond: Floats | None = None
    """(unit,) how much of the values is not played, but taken to go on as before; None if nothing is."""

    @cached_property
    def values(self) -> Floats:
        """(unit,) the value of an arm of each unit."""
        return _settled(self.returns.mean(axis=0))

    @cached_property
    def shares_served(self) -> Floats:
        """(unit,) the share of time in which an arm is served."""
        return _settled(self.served.mean(axis=0))

    def error(self, weights: Floats) -> float:
        """The standard error of a weighted sum of the values.

        Args:
            weights: (unit,) weights.
        """
        return 0.0 if self.exact else float(standard_errors(self.returns @ weights))

    @cached_property
    def values_error(self) -> Floats:
        """(unit,) standard errors of the values."""
        return np.zeros(self.returns.shape[1]) if self.exact else standard_errors(self.returns)

    @cached_property
    def served_error(self) -> Floats:
        """(unit,) standard errors of the shares of time."""
        return np.zeros(self.served.shape[1]) if self.exact else standard_errors(self.served)

    def pooled(self, other: "ScoredPolicy") -> "ScoredPolicy":
        """The same policy with the episodes of both."""
        if self.exact or other.exact:
            return self if self.exact else other
        returns, served = np.concatenate([self.returns, other.returns]), np.concatenate([self.served, other.served])
        return replace(self, returns=returns, served=served, beyond=None)


def _settled(values: Floats) -> Floats:
    unit = float(np.abs(values).max()) or 1.0
    return np.asarray(np.round(values / unit, 10) * unit)


@dataclass(frozen=True, eq=False)
class PolicyScorer:
    """Evaluates policies, all on the same episodes."""

    problem: CoupledMDP
    """The problem."""

    by_type: bool
    """True if the units are the types, rather than the arms."""

    arm_steps: float
    """Simulated steps of arms that a policy is evaluated by, as far as the bounds on episodes allow."""

    seed: int
    """Of the episodes."""

    least_episodes: int = 12
    """Episodes at the least."""

    most_episodes: int = 500
    """Episodes at the most."""

    left_out: float = 1e-3
    """The share of all time that is not played, because the control variate knows it nearly."""

    thorough: bool = False
    """True if long runs from different starts must agree."""

    hurried: bool = False
    """True if time is short: long runs are shorter, and not compared with others."""

    slope_episodes: float = 60
    """Episodes from which the second control variate is used; its slope is 0 with fewer."""

    most_bytes: float = 5e8
    """Size of paths of a finite horizon up to which they are recorded for a control variate."""

    @cached_property
    def horizon(self) -> int:
        """Steps per episode; of an average, those with which to begin."""
        steps = self.problem.criterion.judging_steps(self.left_out)
        if not self.hurried or not self.problem.criterion.is_average:
            return steps
        return min(steps, max(int(self.arm_steps / (LONG_RUNS * self.problem.num_arms)), LONG_RUN))

    def episodes(self, by_counts: bool, steps: float | None = None, cost: float = 0.0) -> int:
        """Return the number of episodes, by counts or per arm; of so many steps, or of the horizon.

        Args:
            by_counts: whether crowds are simulated, rather than arms.
            steps: per episode.
            cost: of a decision that was not made before (`BasePolicy.decision_cost`).
        """
        arms = self.problem.types.valid.size if by_counts else self.problem.num_arms
        # Programs at every step are worth more work, or their errors would be too large: few steps have a horizon.
        width = step_cost(
            self.problem, cost / (10 if self.problem.criterion.is_stationary else 30), arms, self.arm_steps
        )
        # Long runs are few and dear, but their spread must be known.
        least = max(self.least_episodes, LONG_RUNS) if self.problem.criterion.is_average else self.least_episodes
        return int(np.clip(self.arm_steps / (width * (steps or self.horizon)), least, max(self.most_episodes, least)))

    def affords(self, candidate: "Candidate", times: float) -> bool:
        """Return whether the decisions of a policy, over the fewest episodes, cost at most so many times the steps."""
        distinct = num_count_states(self.problem) * self.problem.criterion.num_layers
        number = min(float(self.horizon * self.least_episodes), distinct)
        return described(candidate.policy).decision_cost * number <= times * self.arm_steps

    @property
    def work(self) -> float:
        """Simulated steps of arms that a policy takes arm by arm: more than `arm_steps` if arms are many."""
        return float(self.episodes(by_counts=False)) * self.horizon * self.problem.num_arms

    def limited(self, arm_steps: float) -> "PolicyScorer":
        """Return a scorer with no more steps than these, but for two episodes: fewer have no known error."""
        if arm_steps >= self.work:
            return self
        return replace(self, arm_steps=arm_steps, least_episodes=2, hurried=True)

    def __call__(self, name: str, policy: Policy | StatefulPolicy, choice: Floats, rng: Rng = None) -> ScoredPolicy:
        """Evaluate a policy.

        Args:
            name: name in reports.
            policy: what acts.
            choice: (type, state, action) what it does, more or less; or (type, step, state, action).
            rng: seed or generator; by default that of all policies.
        """
        native, alike = knows_types(self.problem, policy), treats_alike(self.problem, policy)
        states = num_count_states(self.problem) * self.problem.criterion.num_layers
        is_small = states <= current_effort().exact_states
        small = native and is_small and is_quick(self.problem, policy, self.arm_steps, 1e6)
        if small and (found := self._exactly(name, policy, choice)) is not None:
            return found
        many = self.problem.num_arms > self.problem.types.valid.size
        by_counts = native and self.by_type and many and plays_by_counts(policy) and not self._draws_one_by_one
        pools = (self.by_type or alike) and not by_counts  # equal arms have equal values: their mean is known better
        if self.problem.criterion.is_average:
            return self._in_the_long_run(Candidate(name, policy, choice, rng), by_counts, pools)
        play = simulate_counts if by_counts else simulate
        episodes = self.episodes(by_counts, cost=described(policy).decision_cost)
        if not self.problem.criterion.is_stationary:
            return self._by_steps(Candidate(name, policy, choice, rng), episodes, by_counts, pools)
        rewards, start = self._controls(choice, episodes)
        seed = self.seed if rng is None else rng
        rollout = play(self.problem, policy, episodes, self.horizon, seed, rewards=rewards)
        more = self.problem.criterion.total / float(self.problem.criterion.time_weights(self.horizon).sum())
        played, served = more * rollout.returns, rollout.served
        if pools:
            played, served = (self._of_units(mean_by_type(self.problem, figures)) for figures in (played, served))
        known = self._of_units(start)
        slopes = _slopes(played)
        played, known = _mixed(played, slopes), _mixed(known, slopes)
        beyond = (1 - 1 / more) * np.abs(played.mean(axis=0))
        return ScoredPolicy(name, policy, choice, played + known, served, beyond=beyond)

    def _by_steps(self, candidate: "Candidate", episodes: int, by_counts: bool, pools: bool) -> ScoredPolicy:
        """The same with a finite horizon."""
        problem, policy, choice = self.problem, candidate.policy, candidate.choice
        seed = self.seed if candidate.rng is None else candidate.rng
        width = problem.types.valid.size if by_counts else problem.num_arms
        keeps = 16.0 * episodes * self.horizon * width <= self.most_bytes
        play = simulate_counts if by_counts else simulate
        run = play(problem, policy, episodes, self.horizon, seed, keep_paths=keeps)
        returns, served = run.returns[None], run.served
        if keeps:
            gains, start = gains_by_step(problem, choice)
            if run.allocations is not None:
                sums = np.einsum("etksa,tksa->ek", run.allocations, gains) / problem.type_counts + start
            else:
                assert run.states is not None and run.actions is not None
                paths = zip(gains, np.moveaxis(run.states, 1, 0), np.moveaxis(run.actions, 1, 0), strict=True)
                kinds = problem.type_of_arm
                sums = np.sum([own[kinds, states, actions] for own, states, actions in paths], axis=0) + start[kinds]
            returns = np.stack([sums, run.returns])
        if pools:
            returns, served = (self._of_units(mean_by_type(problem, figures)) for figures in (returns, served))
        slopes = _slopes(returns) if episodes >= self.least_episodes else np.zeros(returns.shape[2])
        return ScoredPolicy(candidate.name, policy, choice, _mixed(returns, slopes), served)

    @cached_property
    def _draws_one_by_one(self) -> bool:
        """True if time is short and crowds may be served one by one, since uses differ: arms are as quick then."""
        uses = np.unique(self.problem.types.usage[self.problem.types.valid], axis=0)
        return self.hurried and int(uses.any(axis=1).sum()) > 1 and self.work <= 1e8

    def _in_the_long_run(self, candidate: "Candidate", by_counts: bool, pools: bool) -> ScoredPolicy:
        """The same of an average."""
        seed = self.seed if candidate.rng is None else candidate.rng
        # A tenth of a second is always allowed.
        most_work = max((2.0 if self.hurried else LENGTHENED) * max(self.arm_steps, self.work), 2e6)
        run = play_long_run(
            self.problem,
            candidate.policy,
            lambda steps: self.episodes(by_counts, steps, described(candidate.policy).decision_cost),
            seed,
            by_counts,
            # Those that remember must be played step by step.
            limits=LongRunLimits(LONGEST, most_work, self.thorough and not self.hurried, self.horizon),
        )
        returns, served = run.estimates, run.rollout.served
        if pools:
            returns, served = (self._of_units(mean_by_type(self.problem, figures)) for figures in (returns, served))
        return ScoredPolicy(candidate.name, candidate.policy, candidate.choice, returns, served)

    def _exactly(self, name: str, policy: Policy | StatefulPolicy, choice: Floats) -> ScoredPolicy | None:
        """Exact values, if the distribution of the policy's actions is known."""
        try:
            found = exact_values(self.problem, policy)
        except (NotApplicableError, TooLargeError):
            return None
        if self.by_type and not found.by_type:
            return None
        units = slice(None) if found.by_type == self.by_type else self.problem.type_of_arm
        return ScoredPolicy(name, policy, choice, found.values[None, units], found.served[None, units], exact=True)

    def _of_units(self, figures: Floats) -> Floats:
        """(..., unit) of (..., type) figures."""
        return figures if self.by_type else figures[..., self.problem.type_of_arm]

    def _controls(self, choice: Floats, episodes: int) -> tuple[Floats, Floats]:
        """(table, type, state, action) what is played in place of rewards, and (table, type) what is known before."""
        criterion = self.problem.criterion
        types, factor = self.problem.types, criterion.factor
        usual = values_alone(types, types.transitions, choice, factor)
        # Beyond a horizon that is cut short, arms that get all they want would be a claim, not an estimate.
        whole = (criterion.beyond(self.horizon) or 0.0) <= self.left_out * criterion.total
        both = episodes >= self.slope_episodes and whole
        found = [telescoped(types, types.transitions, h, factor) for h in ([usual, self._free] if both else [usual])]
        return np.stack([gains for gains, _ in found]), np.stack([start for _, start in found])

    @cached_property
    def _free(self) -> Floats:
        """(type, state) the values of arms that get all they want."""
        types = self.problem.types
        ones, nothing = np.ones(self.problem.num_types), np.zeros(self.problem.num_resources)
        worth = action_values(types, ones, nothing, self.problem.criterion)
        best = np.where(types.valid, worth, -np.inf).max(axis=2)
        return np.asarray(np.where(types.valid.any(axis=2), best, 0.0))


def step_cost(problem: CoupledMDP, decision: float, width: float, arm_steps: float) -> float:
    """Return the cost of a simulated step, in steps of an arm: decisions of the same counts are made once.

    Args:
        problem: the problem.
        decision: cost of a decision that was not made before.
        width: cost of moving the arms by a step.
        arm_steps: cost of all steps that are simulated.
    """
    distinct = num_count_states(problem) * problem.criterion.num_layers
    if arm_steps <= distinct * (width + decision):
        return width + decision
    return width * arm_steps / (arm_steps - distinct * decision)


class Candidate(NamedTuple):
    """A policy to evaluate."""

    name: str
    """Name in reports."""

    policy: Policy | StatefulPolicy
    """The policy."""

    choice: Floats
    """(type, state, action) what it does, more or less; or with a step in front."""

    rng: Rng = None
    """Seed or generator; by default that of all policies."""


_Seen = tuple[Floats, Floats, bool, Floats | None]
"""Computed fields of a column: returns, served, exact, beyond."""


def score_all(
    sweep: Pool, scorers: Sequence[PolicyScorer], candidates: Sequence[Candidate], progress: Progress | None = None
) -> list[ScoredPolicy]:
    """Evaluate policies, several at a time.

    Args:
        sweep: where they are evaluated.
        scorers: (policy,) their scorers.
        candidates: (policy,) the policies.
        progress: called with the current task and the share done.

    Raises:
        NotConvergedError: some policy takes too long to reach its long run.
    """
    found = score_settled(sweep, scorers, candidates, progress)
    for column in found:
        if isinstance(column, NotConvergedError):
            raise column
    return [column for column in found if isinstance(column, ScoredPolicy)]


def score_settled(
    sweep: Pool, scorers: Sequence[PolicyScorer], candidates: Sequence[Candidate], progress: Progress | None = None
) -> list[ScoredPolicy | NotConvergedError]:
    """The same, with the error in place of the column of a policy that takes too long to reach its long run."""
    names = [one.name for one in candidates]
    found = sweep.map(_score, list(zip(scorers, candidates, strict=True)), names, progress)
    return [
        seen if isinstance(seen, NotConvergedError) else ScoredPolicy(one.name, one.policy, one.choice, *seen)
        for one, seen in zip(candidates, found, strict=True)
    ]


def _score(cell: tuple[PolicyScorer, Candidate], progress: Progress | None = None) -> _Seen | NotConvergedError:
    """One policy: a cell; what travels back is what was not known before."""
    scorer, candidate = cell
    try:
        column = scorer(*candidate)
    except NotConvergedError as error:
        return error
    return column.returns, column.served, column.exact, column.beyond


def telescoped(types: ArmTables, transitions: Floats, ahead: Floats, factor: float) -> tuple[Floats, Floats]:
    """Return the control variate of arms: (..., type, state, action) A of an h, and (..., type) mu.h.

    Args:
        types: rewards and first states.
        transitions: (..., type, state, action, next_state) probabilities.
        ahead: (..., type, state) h.
        factor: factor of Bellman's equation.
    """
    moved = factor * np.einsum("...tsaj,...tj->...tsa", transitions, ahead)
    gains = np.where(types.valid, types.rewards + moved - ahead[..., None], 0.0)
    return gains, (types.initial * ahead).sum(axis=-1)


def gains_by_step(problem: CoupledMDP, choice: Floats) -> tuple[Floats, Floats]:
    """Return the control variate of a finite horizon: (step, type, state, action) A, and (type,) mu.h.

    Args:
        problem: the problem.
        choice: (type, step, state, action) probabilities, or the same at every step.
    """
    types, steps = problem.types, problem.criterion.num_layers
    laws = np.broadcast_to(choice if choice.ndim == 4 else choice[:, None], (len(types), steps, *types.valid.shape[1:]))
    rewards, ahead = np.where(types.valid, types.rewards, 0.0), np.zeros(types.valid.shape[:2])
    gains = np.zeros((steps, *types.valid.shape))
    for step, weight in reversed(list(enumerate(problem.criterion.time_weights(steps)))):
        worth = weight * rewards + np.einsum("tsaj,tj->tsa", types.transitions, ahead)
        ahead = (laws[:, step] * worth).sum(axis=-1)
        gains[step] = np.where(types.valid, worth - ahead[..., None], 0.0)
    return gains, (types.initial * ahead).sum(axis=-1)


def _mixed(tables: Floats, slopes: Floats) -> Floats:
    """(..., unit) the figures of the first table; with a second, as much of it as the slopes say."""
    return np.asarray(tables[0] + slopes * (tables[-1] - tables[0]))


def _slopes(returns: Floats) -> Floats:
    """(unit,) b in [0, 1], in tenths, such that (1 - b) usual + b free varies least; 0 if there is one table."""
    usual, free = returns[0], returns[-1]
    difference = free - usual
    difference = difference - difference.mean(axis=0)
    spread = (difference**2).sum(axis=0)
    along = -((usual - usual.mean(axis=0)) * difference).sum(axis=0)
    return np.asarray(np.round(np.clip(along / np.where(spread > 0, spread, np.inf), 0.0, 1.0), 1))


def values_alone(types: ArmTables, transitions: Floats, choice: Floats, factor: float) -> Floats:
    """Return the (..., type, state) values of arms that follow a (type, state, action) choice on their own.

    Args:
        types: rewards.
        transitions: (..., type, state, action, next_state) probabilities.
        choice: (type, state, action) probabilities.
        factor: factor of Bellman's equation.
    """
    rewards = (choice * np.where(types.valid, types.rewards, 0.0)).sum(axis=-1)
    moves = np.einsum("tsa,...tsaj->...tsj", choice, transitions)
    return np.asarray(np.linalg.solve(np.eye(moves.shape[-1]) - factor * moves, rewards[..., None])[..., 0])


def mix(columns: Sequence[ScoredPolicy], shares: Floats) -> Policy | StatefulPolicy:
    """Return one policy of columns and shares; parts that are mixtures themselves are flattened.

    Args:
        columns: the parts.
        shares: (column,) that sum to 1.
    """
    parts: list[Policy | StatefulPolicy] = []
    weights: list[float] = []
    for column, share in zip(columns, shares.tolist(), strict=True):
        inner, own = components_for_good(column.policy)
        parts += inner
        weights += (share * own).tolist()
    return parts[0] if len(parts) == 1 else MixturePolicy(parts, weights)
