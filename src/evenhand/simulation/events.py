"""Simulation of long runs from change to change, for arms that mostly stay where they are.

Let delta_n(s) be the largest probability with which arm n leaves state s, over all its actions. At every step each arm
*rings* with probability delta_n(s), independently of all actions; an arm that rings moves to j with probability
p(j | s, a) / delta_n(s) and else stays, and an arm that does not ring stays. Arms so move as they do by p. As long as
none rings the states do not change, whatever is done, so the steps until the first one does are drawn at once:

    K_n ~ Geometric(delta_n(s_n)),   K = min_n K_n        steps in which nothing rings, before the one in which n does

A policy without memory chooses actions at each of these K + 1 steps by the same distribution, which does not depend on
K: one choice, weighted by K + 1, has the expectation of them all. States are distributed as in `simulate`, and means
of rewards are the same; the cost is one choice per change instead of one per step.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np

from evenhand.checks import as_generator
from evenhand.errors import PolicyError
from evenhand.kernels.randomness import draw_keys, grid, uniforms_at
from evenhand.kernels.rank_tables import RankTables, fixed
from evenhand.kernels.stepping import first_states
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import WARM_UP
from evenhand.model.feasible import check_budget, checked_shape, missing_action
from evenhand.model.policy import Policy
from evenhand.simulation.rollout import (
    BATCH,
    CHUNK,
    Rollout,
    as_asked,
    compiled_tables,
    count_visits,
    share_of_budget,
    summed_rewards,
)
from evenhand.typing import Floats, Indices, Progress, Rng

MOST_CHANGES = 10_000
"""Changes of an episode per call of compiled code."""


def leaving(problem: CoupledMDP) -> Floats:
    """(type, state) the largest probability of leaving each state, over the actions that exist."""
    types = problem.types
    # A sum of small numbers, not 1 less a number near 1: rates may be tiny.
    return np.asarray(np.where(types.valid, _moves(types.transitions).sum(axis=3), 0.0).max(axis=2))


def _moves(transitions: Floats) -> Floats:
    """(type, state, action, next_state) the probabilities of other states than the present one."""
    return np.asarray(np.where(np.eye(transitions.shape[1], dtype=np.bool_)[:, None, :], 0.0, transitions))


class _Window(NamedTuple):
    """The steps of a long run that count, in two halves."""

    warm: float
    middle: float
    end: float

    def shares(self, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
        """(episode,) the share of each half between two times, times the weight of that half in the whole."""
        whole = self.end - self.warm
        first = np.clip(end, self.warm, self.middle) - np.clip(begin, self.warm, self.middle)
        second = np.clip(end, self.middle, self.end) - np.clip(begin, self.middle, self.end)
        return first / whole, second / whole


def simulate_events(
    problem: CoupledMDP,
    policy: Policy,
    num_episodes: int,
    horizon: int,
    rng: Rng = 0,
    progress: Progress | None = None,
    rewards: Floats | None = None,
) -> Rollout:
    """Play a policy without memory under the criterion `average`, every arm on its own, from change to change.

    Args:
        problem: the problem.
        policy: what acts; its actions are checked at every change.
        num_episodes: how many independent episodes.
        horizon: steps per episode.
        rng: seed or generator.
        progress: called now and then with what is being done and the share done.
        rewards: what is summed in place of the arms' own rewards; see `simulate`.
    """
    gains, types = summed_rewards(problem, rewards), problem.types
    warm = horizon // WARM_UP
    window = _Window(warm, (warm + horizon) / 2, horizon)
    world_rng, policy_rng = as_generator(rng).spawn(2)
    shape = (num_episodes, problem.num_arms)
    returns, served, drift = np.zeros((len(gains), *shape)), np.zeros(shape), np.zeros(shape)
    used, visits = np.zeros((num_episodes, problem.num_resources)), np.zeros(types.valid.shape)
    size, tables = max(1, min(num_episodes, BATCH // problem.num_arms)), compiled_tables(policy, problem)
    starts = range(0, num_episodes, size)
    for start, stream in zip(starts, policy_rng.spawn(len(starts)), strict=True):
        rows = slice(start, min(start + size, num_episodes))
        totals = _Totals(
            *(np.ascontiguousarray(each) for each in (returns[:, rows], served[rows], used[rows], drift[rows])), visits
        )
        # A copy: the numbers of an event do not depend on batches.
        world = _Moving(problem, deepcopy(world_rng), start, rows.stop - start)
        if tables is None:
            played = _play(policy, world, window, totals, gains, stream)
        else:
            played = _play_by_rank(tables, world, window, totals, gains, stream)
        for clocks in played:
            if progress is not None:
                progress("playing", float(start + clocks.mean() / horizon * len(clocks)) / num_episodes)
        returns[:, rows], served[rows], used[rows], drift[rows] = totals[:4]
    return Rollout(
        returns=as_asked(returns, rewards),
        used=share_of_budget(problem, used, 1.0),
        served=served,
        horizon=horizon,
        visits=visits,
        drift=drift,
    )


class _Totals(NamedTuple):
    """Sums of one batch; all are added to."""

    returns: Floats
    """(table, episode, arm)"""

    served: Floats
    """(episode, arm)"""

    used: Floats
    """(episode, resource)"""

    drift: Floats
    """(episode, arm)"""

    visits: Floats
    """(type, state, action)"""


def _play_by_rank(
    tables: RankTables, world: "_Moving", window: _Window, totals: _Totals, gains: Floats, rng: np.random.Generator
) -> Iterator[Floats]:
    """Play one batch of a policy that serves by rank, many changes per call; yields the (episode,) times reached."""
    from evenhand.kernels import episodes

    number, arms = world.states.shape
    clocks, nowhere = np.zeros(number), np.zeros(number, dtype=np.int32)
    dynamics = fixed(episodes.Dynamics(world.kinds, nowhere, world.cumulative, gains, world.problem.types.served))
    silent = world.silent.copy()
    while (clocks < window.end).any():
        changes = min(max(1, CHUNK // (number * arms)), MOST_CHANGES)
        keys, policy_keys = draw_keys(world.rng, 2 * changes), draw_keys(rng, changes * tables.keys_per_step)
        steps = (world.states, silent, clocks, keys.reshape(-1, 2), policy_keys.reshape(changes, -1), *window)
        batch = (world.first, number)
        play = partial(episodes.play_changes, *dynamics, *tables, *totals[:4], *steps, *batch)
        for visits in episodes.in_blocks(play, number):
            totals.visits[:] += visits
        yield clocks


def _play(
    policy: Policy, world: "_Moving", window: _Window, totals: _Totals, gains: Floats, rng: np.random.Generator
) -> Iterator[Floats]:
    """Play one batch of any policy without memory, one change per call; yields the (episode,) times reached."""
    problem, clocks = world.problem, np.zeros(len(world.states))
    while (clocks < window.end).any():
        states, step = world.states, int(clocks.min())
        actions = checked_shape(policy.act(states.copy(), rng), states, step)
        spent = _spent(problem, states, actions, step, world.first)
        dwell = world.move(actions)
        first, second = window.shares(clocks, clocks + dwell)
        weights, cells = (first + second)[:, None], (problem.type_of_arm, states, actions)
        for table, sums in zip(gains, totals.returns, strict=True):
            sums += weights * table[cells]
        totals.drift[:] += 2 * (second - first)[:, None] * gains[0][cells]
        totals.served[:] += weights * problem.types.served[cells]
        totals.used[:] += weights * spent
        totals.visits[:] += count_visits(problem, states, actions, weights)
        clocks = np.minimum(clocks + dwell, window.end)
        yield clocks


def _spent(problem: CoupledMDP, states: Indices, actions: Indices, step: int, first: int) -> Floats:
    """(episode, resource) what the actions use, if they exist and keep the budget."""
    cells = (problem.type_of_arm, states, actions)
    exist = actions.min() >= 0 and actions.max() < problem.types.real.shape[2] and problem.types.real[cells].all()
    if not exist:
        raise PolicyError(missing_action(problem, states, actions, step, first))
    spent = np.asarray(problem.types.usage[cells].sum(axis=1))
    check_budget(problem, spent, step, first)
    return spent


class _Moving:
    """The states of a batch of episodes, each of which is at its own time."""

    def __init__(self, problem: CoupledMDP, rng: np.random.Generator, first: int, number: int) -> None:
        types, self.problem, self.kinds, self.first, self.rng = problem.types, problem, problem.type_of_arm, first, rng
        self.places = grid(first, number, problem.num_arms)
        rates = leaving(problem)
        with np.errstate(divide="ignore"):
            self.silent = np.log1p(-np.minimum(rates, 1.0))
        known = np.where(rates > 0, rates, 1.0)[:, :, None, None]
        self.cumulative = np.cumsum(_moves(types.transitions) / known, axis=3)
        self.states = first_states(self.kinds, types.cumulative_initial, self._key(), first, number)

    def _key(self) -> np.uint64:
        return np.uint64(draw_keys(self.rng, 1)[0])

    def move(self, actions: Indices) -> Floats:
        """Move to the next change; returns the (episode,) steps until then, that of the change included."""
        silent = self.silent[self.kinds, self.states]
        drawn = np.log1p(-uniforms_at(self._key(), self.places))
        # An arm that never leaves its state never rings.
        waits = np.where(silent < 0, np.floor(drawn / np.where(silent < 0, silent, -1.0)), np.inf)
        wait = waits.min(axis=1)
        rows = self.cumulative[self.kinds, self.states, actions]
        moved = (uniforms_at(self._key(), self.places)[..., None] >= rows).sum(axis=-1).astype(np.int32)
        rings = (waits == wait[:, None]) & (moved < rows.shape[-1]) & np.isfinite(waits)
        self.states = np.where(rings, moved, self.states)
        return np.asarray(wait + 1)
