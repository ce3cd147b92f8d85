"""What a policy is worth in each of many worlds that differ in how arms move: draws of what the records allow.

Exactly where the space is small: the policy stays what it is, a table or a law on counts, and is weighed by the moves
of each draw (`tables`). Else by playing, all worlds in one batch (`simulation.worlds`), with a control
variate of each world's own. For any h and A(s, a) = r(s, a) + gamma sum_j p_d(j | s, a) h(j) - h(s),

    E_d sum_t gamma^t r(s_t, a_t)  =  mu.h + E_d sum_t gamma^t A(s_t, a_t)

so A may be played in place of r (`planning.judging`). Here h are the values, in draw d, of an arm alone that gets each
action as often as arms in its state got it when the policy was played once in the model itself:

    h_d = (I - gamma P_d^law)^-1 r^law

Whatever that law is, there is no bias; a good one leaves little chance. Under other criteria rewards are played as they
are. Every policy meets the same random numbers, so that differences between policies are known better than either.

A mixture that is drawn at the start is worth the shares of its parts; the parts are weighed one by one.

Policies, and the draws of each, are tasks (`parallel`): a task is one policy in some of the draws, cut where
batches are cut anyhow, so that values have the same bits however many cells there are and wherever they run.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from evenhand.checks import check_memory, check_shape, fits_in_memory
from evenhand.errors import EvenhandError, InvalidInput, NotApplicable, TooLarge
from evenhand.evaluation.evaluate import Case
from evenhand.evaluation.long_run import mean_by_type, plain_steps
from evenhand.evaluation.tables import values_of_tables, write_tables
from evenhand.model.composite import components_for_good
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.simulator import needs_tables
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool, parts_per_task
from evenhand.policies.resize import fitted
from evenhand.simulation.rollout import simulate, step_weights
from evenhand.simulation.worlds import WHOLE, Part, simulate_worlds
from evenhand.typing import Array, Bools, Floats, Indices, Ints, Progress

ARM_STEPS, FEWEST, MOST = 1.2e7, 4, 400
"""Simulated steps of arms over all draws that a policy is weighed by, and the least and the most episodes a draw."""

PILOT_STEPS, MOST_PILOT = 2e5, 2e7
"""Steps of arms from which the law of a policy is read, and the most a single episode may have for that."""

MOST_SOLVED = 2e10
"""Elementary operations up to which control variates are computed for all draws."""

LEFT_OUT = 1e-3
"""The share of discounted time that need not be played, because the control variate knows it nearly."""


@dataclass(frozen=True, eq=False)
class Worlds:
    """A problem, and other worlds in which its arms may live."""

    problem: CoupledMDP
    """The model itself, under the criterion and over the members that were asked for."""

    transitions: Floats
    """(draw, source, state, action, next_state) how arms move in each; padded with zeros."""

    source_of_block: Ints
    """(block,) by which of the sources the arms of each block move."""

    def __post_init__(self) -> None:
        blocks, states, actions, _ = self.problem.tables.transitions.shape
        axes = {"draw": None, "source": None, "state": states, "action": actions, "next_state": states}
        check_shape(self.transitions, axes, "transitions")
        check_shape(self.source_of_block, {"block": blocks}, "source_of_block")
        if not len(self.transitions):
            raise InvalidInput("transitions: expected at least one draw, got none")

    def __len__(self) -> int:
        return len(self.transitions)

    def __repr__(self) -> str:
        return f"Worlds({len(self)} draws for {self.problem!r})"

    def under(self, problem: CoupledMDP) -> "Worlds":
        """The same draws for the same blocks under another criterion, budget or choice of whom welfare is over."""
        return Worlds(problem, self.transitions, self.source_of_block)

    def only(self, draws: slice | Ints) -> "Worlds":
        """Some of the draws."""
        return Worlds(self.problem, self.transitions[draws], self.source_of_block)

    def of_blocks(self) -> Floats:
        """(draw, block, state, action, next_state) how the arms of each block move."""
        size = 8.0 * len(self) * self.problem.tables.transitions.size
        check_memory(size, f"{len(self)} draws of {len(self.source_of_block)} blocks", "Use fewer draws.")
        # The usual case: a source for each block, and no copy.
        if np.array_equal(self.source_of_block, np.arange(self.transitions.shape[1])):
            return self.transitions
        return self.transitions[:, self.source_of_block]

    def of_types(self) -> Floats:
        """(draw, type, state, action, next_state) how the arms of each type move; those of its first block."""
        _, first = np.unique(self.problem.type_of_block, return_index=True)
        return self.transitions[:, self.source_of_block[first]]

    def world(self, draw: int) -> CoupledMDP:
        """The problem in one of the worlds."""
        return self._with(self.transitions[draw])

    def mean(self, weights: Floats) -> CoupledMDP:
        """The problem in a mean of the worlds.

        Args:
            weights: (draw,) not negative, that sum to 1.
        """
        return self._with(np.tensordot(weights, self.transitions, axes=1))

    def _with(self, transitions: Floats) -> CoupledMDP:
        return self.problem.with_transitions(np.ascontiguousarray(transitions[self.source_of_block]))

    @cached_property
    def tells_apart(self) -> bool:
        """Whether arms of one type move differently in some world: their records differ, though the model does not."""
        # Types and sources that occur together; a type with two sources is told apart if these differ in any draw.
        pairs = np.unique(np.column_stack([self.problem.type_of_block, self.source_of_block]), axis=0)
        return any(
            kind == before and not np.array_equal(self.transitions[:, source], self.transitions[:, other])
            for (before, other), (kind, source) in pairwise(pairs.tolist())
        )


@dataclass(frozen=True, eq=False)
class WorldValues:
    """The values of a policy in every world."""

    values: Floats
    """(draw, unit) the value of an arm of each unit: the types, or the arms."""

    by_type: bool
    """Whether the units are the types."""

    returns: Floats | None = None
    """(draw, episode, unit) the estimates whose means they are, each with its own chance; None where they are exact."""

    @property
    def exact(self) -> bool:
        """Whether there is no chance in them."""
        return self.returns is None

    def by_arms(self, problem: CoupledMDP) -> "WorldValues":
        """The same, arm by arm."""
        if not self.by_type:
            return self
        kinds = problem.type_of_arm
        returns = None if self.returns is None else self.returns[..., kinds]
        return WorldValues(self.values[:, kinds], False, returns)


def values_in_worlds(
    policy: Policy | Starting,
    worlds: Worlds,
    welfare: str | Welfare | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> WorldValues:
    """Weigh a policy in every world.

    Args:
        policy: what acts, in all of them alike.
        worlds: where.
        welfare: how values will be weighed; only who is told apart depends on it.
        seed: of the episodes; policies that are to be compared get the same.
        progress: called now and then with what is being done and the share done.

    Raises:
        TooLarge: the draws do not fit in memory.
    """
    (found,) = weigh([policy], worlds, welfare, seed, Pool(), progress=progress)
    if isinstance(found, EvenhandError):
        raise found
    return found


def weigh(
    policies: Sequence[Policy | Starting],
    worlds: Worlds,
    welfare: str | Welfare | None,
    seed: int,
    sweep: Pool,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> "list[WorldValues | NotApplicable | TooLarge]":
    """Weigh policies in every world, several at a time.

    Args:
        policies: what acts.
        worlds: where.
        welfare: how values will be weighed; only who is told apart depends on it.
        seed: of the episodes, the same for all.
        sweep: where cells run.
        names: (policy,) what each is called, to be told.
        progress: called now and then with what is being done and the share done.

    Returns:
        (policy,) values, or why there are none.
    """
    called = ["over draws"] * len(policies) if names is None else names
    leaves = [(name, leaf) for name, policy in zip(called, policies, strict=True) for leaf in _leaves(policy)]
    parts = parts_per_task(len(leaves), sweep.num_workers)
    cells = [_Cell(leaf, worlds, welfare, seed, (part, parts)) for _, leaf in leaves for part in range(parts)]
    told = [name for name, _ in leaves for _ in range(parts)]
    found = iter(sweep.map(_weigh_some, cells, told, progress))
    whole = iter([_joined(list(islice(found, parts))) for _ in leaves])
    return [_gathered(policy, whole, worlds.problem) for policy in policies]


def _leaves(policy: Policy | Starting) -> Iterator[Policy | Starting]:
    """The policies that a mixture is drawn from, its own parts first; the policy itself, if it is none."""
    parts, _ = components_for_good(policy)
    for part in parts:
        yield from (policy,) if part is policy else _leaves(part)


def _gathered(
    policy: Policy | Starting, leaves: "Iterator[WorldValues | NotApplicable | TooLarge]", problem: CoupledMDP
) -> "WorldValues | NotApplicable | TooLarge":
    """What a policy is worth, from what its leaves are, in the order of `_leaves`."""
    inner, shares = components_for_good(policy)
    if inner == (policy,):
        return next(leaves)
    parts = [_gathered(part, leaves, problem) for part in inner]
    sound = [part for part in parts if isinstance(part, WorldValues)]
    if len(sound) == len(parts):
        return mixed(sound, shares, problem)
    return next(part for part in parts if not isinstance(part, WorldValues))


class _Cell(NamedTuple):
    """One policy, in some of the worlds."""

    policy: Policy | Starting
    worlds: Worlds
    welfare: str | Welfare | None
    seed: int
    part: Part


def _weigh_some(cell: _Cell, progress: Progress | None = None) -> "WorldValues | NotApplicable | TooLarge":
    """A cell: values of the draws that are its part, or why there are none."""
    try:
        return _weigh(*cell, progress)
    except (NotApplicable, TooLarge) as error:
        return error


def _joined(parts: "Sequence[WorldValues | NotApplicable | TooLarge]") -> "WorldValues | NotApplicable | TooLarge":
    """The draws of one policy, one part after the other."""
    sound = [part for part in parts if isinstance(part, WorldValues)]
    if len(sound) < len(parts):
        return next(part for part in parts if not isinstance(part, WorldValues))
    if len(sound) == 1:
        return sound[0]
    values = np.concatenate([part.values for part in sound])
    returns = [part.returns for part in sound if part.returns is not None]
    return WorldValues(values, sound[0].by_type, np.concatenate(returns) if returns else None)


def _weigh(
    policy: Policy | Starting,
    worlds: Worlds,
    welfare: str | Welfare | None,
    seed: int,
    part: Part = WHOLE,
    progress: Progress | None = None,
) -> WorldValues:
    policy = fitted(policy, worlds.problem)
    case = Case.of(policy, worlds.problem, worlds.problem.over, welfare)
    played = needs_tables(case.played, "draws")
    # Only then do equal arms stay equal in every draw, as a table by types needs it.
    if not worlds.tells_apart:
        with contextlib.suppress(NotApplicable, TooLarge):  # its law is not known, or long: it is played
            case.check_types(policy)
            tables = write_tables(policy, played)
            columns, by_type = case.units(tables[0].by_type)
            values = values_of_tables(tables, played, worlds.under(played).of_types(), progress, part)
            return WorldValues(values[:, columns], by_type)
    return _by_playing(policy, worlds.under(played), case, seed, part, progress)


def mixed(parts: list[WorldValues], shares: Floats, problem: CoupledMDP) -> WorldValues:
    """The values of a mixture that is drawn at the start.

    Args:
        parts: the values of its parts, played on the same random numbers.
        shares: (part,) that sum to 1.
        problem: whose types the units are.
    """
    if not all(part.by_type for part in parts):
        parts = [part.by_arms(problem) for part in parts]
    values = sum(share * part.values for share, part in zip(shares.tolist(), parts, strict=True))
    if all(part.exact for part in parts):
        return WorldValues(np.asarray(values), parts[0].by_type)
    # A part that is exact has the same value in every episode.
    episodes = [part.values[:, None] if part.returns is None else part.returns for part in parts]
    returns = sum(share * own for share, own in zip(shares.tolist(), episodes, strict=True))
    return WorldValues(np.asarray(values), parts[0].by_type, np.asarray(returns))


def _by_playing(
    policy: Policy | Starting, worlds: Worlds, case: Case, seed: int, part: Part, progress: Progress | None
) -> WorldValues:
    problem, transitions = worlds.problem, worlds.of_blocks()
    control = _control(policy, problem, transitions, seed)
    # Without control variates all of the horizon must be played; with them a small rest is known nearly.
    is_average = problem.criterion.is_average
    horizon = _long_run_steps(worlds, policy, seed) if is_average else problem.criterion.simulated_steps(None)
    if control is not None:
        horizon = problem.criterion.judging_steps(LEFT_OUT)
    # The work is spread over draws, episodes and arms.
    number = int(np.clip(ARM_STEPS / (len(worlds) * problem.num_arms * horizon), FEWEST, MOST))
    size = 24.0 * len(worlds) * number * problem.num_arms
    check_memory(size, f"the returns of {number} episodes in each of {len(worlds)} draws", "Use fewer draws.")
    rewards = None if control is None else control.rewards
    returns = simulate_worlds(problem, policy, transitions, rewards, number, horizon, seed, progress, part)
    if control is not None and len(returns):
        played = float(step_weights(problem, horizon, None).sum())
        known = np.concatenate(control.known)[:, np.repeat(np.arange(len(problem.counts)), problem.counts)]
        returns = returns * (problem.criterion.total / played) + known[:, None]
    pooled = case.pools(policy) and not worlds.tells_apart
    if pooled:
        returns = mean_by_type(problem, returns)
    columns, by_type = case.units(pooled)
    units = returns[..., columns]
    return WorldValues(units.mean(axis=1), by_type, units)


def _long_run_steps(worlds: Worlds, policy: Policy | Starting, seed: int) -> int:
    """Steps of a long run in the model and in the draw whose arms stay where they are most."""
    stays = np.einsum("dbsas->d", worlds.transitions)
    slowest = worlds.world(int(stays.argmax()))
    return max(plain_steps(problem, policy, seed) for problem in (worlds.problem, slowest))


@dataclass(eq=False)
class _Control:
    """What is played in place of rewards, some draws at a time, and what is known before."""

    problem: CoupledMDP
    """The model."""

    transitions: Floats
    """(draw, block, state, action, next_state)"""

    law: Floats
    """(block, state, action) how often arms in each state get each action."""

    known: list[Floats] = field(default_factory=list)
    """(draw, block) mu.h, of the draws that were asked for, in this order."""

    def rewards(self, draws: slice) -> Floats:
        """(draw, block, state, action) A, of some draws."""
        factor, tables, moving = self.problem.criterion.factor, self.problem.tables, self.transitions[draws]
        number, blocks, states = moving.shape[:3]
        real = np.where(tables.valid, tables.rewards, 0.0)
        systems = np.eye(states) - factor * np.einsum("bsa,dbsaj->dbsj", self.law, moving)
        earned = np.broadcast_to((self.law * real).sum(axis=2)[None, ..., None], (number, blocks, states, 1))
        ahead = np.linalg.solve(systems, earned)[..., 0]
        gains = real + factor * np.einsum("dbsaj,dbj->dbsa", moving, ahead) - ahead[..., None]
        self.known.append((tables.initial * ahead).sum(axis=-1))
        return np.where(tables.valid, gains, 0.0)


def _control(policy: Policy | Starting, problem: CoupledMDP, transitions: Floats, seed: int) -> _Control | None:
    """The control variates of all worlds; None where there are none, or they would cost more than they save."""
    criterion, tables = problem.criterion, problem.tables
    number, blocks, states = transitions.shape[:3]
    horizon = criterion.judging_steps(LEFT_OUT)
    # Solving costs S^3 for each draw and block; the pilot one long episode at least.
    large = number * blocks * float(states) ** 3 > MOST_SOLVED or problem.num_arms * horizon > MOST_PILOT
    if criterion.num_steps is not None or criterion.is_average or large or criterion.factor == 0:
        return None
    # Two tables and a system for each draw.
    if not fits_in_memory(32.0 * number * blocks * states * max(states, tables.rewards.shape[2])):
        return None
    return _Control(problem, transitions, _law_in_play(policy, problem, horizon, seed))


def _law_in_play(policy: Policy | Starting, problem: CoupledMDP, horizon: int, seed: int) -> Floats:
    """(block, state, action) how often arms in each state got each action in the model; idling where none was."""
    episodes = int(np.clip(PILOT_STEPS / (problem.num_arms * horizon), 1, 100))
    played = simulate(problem, policy, episodes, horizon, seed, keep_paths=True)
    assert played.states is not None
    assert played.actions is not None
    tables = problem.tables
    blocks = np.repeat(np.arange(len(tables), dtype=np.int64), problem.counts)
    seen = _tally(blocks, played.states, played.actions, tables.valid)
    sums = seen.sum(axis=-1, keepdims=True)
    # A state that was never met: any law will do, and idling always exists.
    idle = np.arange(tables.valid.shape[2]) == tables.idle[:, :, None]
    return np.asarray(np.where(sums > 0, seen / np.maximum(sums, 1.0), idle))


def _tally(blocks: Ints, states: Indices, actions: Indices, valid: Bools) -> Array:
    """(block, state, action) how often each was played."""
    number, width = valid.shape[2], valid.shape[1] * valid.shape[2]
    # Every (block, state, action) as one number, to be counted at once.
    cells = blocks * width + states.astype(np.int64) * number + actions
    return np.bincount(cells.reshape(-1), minlength=valid.size).reshape(valid.shape).astype(np.float64)
