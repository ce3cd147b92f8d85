"""Decisions over draws: the plans that are weighed in all of them.

    candidates   the plan for the model itself, and plans for some of the drawn worlds: what one would do, were one of
                 them the truth. Each is an exact plan where that is quick, else the policies of the fluid relaxation.

Drawn worlds are planned for, and plans weighed, as tasks (`parallel`): several at a time, where there is room.

What is worth knowing (`knowing`) and the plan for the worst draws (`robust`) both choose among candidates. A plan for
another world is a policy as any other; it is rebuilt for the model's own problem, so that it can be saved with it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from evenhand.errors import EvenhandError, NotApplicable, OutOfDomain, TooLarge
from evenhand.evaluation.draws import PolicyDraws, draws_of
from evenhand.evaluation.worlds import Worlds, WorldValues, mixed, weigh
from evenhand.model.composite import Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool
from evenhand.planning.plan_file import rebuilt
from evenhand.planning.relaxed import FLUID_TOLERANCE, build_policy
from evenhand.planning.solve import choose_method, solve
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import num_joint_states
from evenhand.solvers.fluid import solve_fluid
from evenhand.typing import Floats, Progress

MOST_SOLVED = 3_000
"""States up to which a drawn world is solved exactly."""

BOUNDED_TOGETHER = 5
"""Draws whose bounds are one cell."""


@dataclass
class Candidates:
    """Plans, and what each is worth in every draw."""

    worlds: Worlds
    """The draws that choices may see."""

    welfare: Welfare
    """How values are weighed."""

    seed: int
    """Of the episodes."""

    progress: Progress | None = None
    """Told now and then how it goes."""

    sweep: Pool = field(default_factory=Pool)
    """Where they are weighed, and drawn worlds planned for."""

    names: list[str] = field(default_factory=list)
    """What each is called."""

    policies: list[Policy | Starting] = field(default_factory=list)
    """What acts."""

    found: list[WorldValues] = field(default_factory=list)
    """Their values in every draw."""

    def add(self, name: str, policy: Policy | Starting) -> WorldValues:
        """Weigh a policy and keep it; of a mixture that is drawn at the start also its parts.

        Raises:
            TooLarge: its values do not fit.
        """
        return self.add_all({name: policy})[0]

    def add_all(self, policies: "dict[str, Policy | Starting]", if_they_fit: bool = False) -> list[WorldValues]:
        """Weigh and keep several at a time, each as `add` does; or leave those out that do not fit."""
        leaves = [leaf for name, policy in policies.items() for leaf in _leaves(name, policy)]
        values = iter(self.weigh([policy for _, policy in leaves], [f"weighing {name}" for name, _ in leaves]))
        found = []
        for name, policy in policies.items():
            own = [next(values) for _ in _leaves(name, policy)]
            wrong = [one for one in own if isinstance(one, EvenhandError)]
            if wrong and not if_they_fit:
                raise wrong[0]
            if not wrong:
                found.append(self._take(name, policy, iter([one for one in own if isinstance(one, WorldValues)])))
        return found

    def weigh(
        self, policies: Sequence[Policy | Starting], names: Sequence[str], worlds: Worlds | None = None, seed: int = 0
    ) -> "list[WorldValues | NotApplicable | TooLarge]":
        """The values of policies in the draws, or in others on episodes of their own; nothing is kept."""
        where = (self.worlds, self.seed) if worlds is None else (worlds, seed)
        told = [f"{name} over draws" for name in names]
        return weigh(policies, where[0], self.welfare, where[1], self.sweep, told, self._halfway)

    def _take(self, name: str, policy: Policy | Starting, values: Iterator[WorldValues]) -> WorldValues:
        if not _is_drawn(policy):
            return self._keep(name, policy, next(values))
        parts = [self._take(f"{name}, part {i + 1}", part, values) for i, part in enumerate(policy.parts)]
        return self._keep(name, policy, mixed(parts, policy.shares, self.worlds.problem))

    def _keep(self, name: str, policy: Policy | Starting, values: WorldValues) -> WorldValues:
        try:
            self.row(name, values)
        except OutOfDomain:  # in some draw the welfare knows no value of it: it cannot be chosen
            if name == "plan":
                raise
            return values
        self.names.append(name)
        self.policies.append(policy)
        self.found.append(values)
        return values

    def add_plans(self, world: CoupledMDP, name: str) -> None:
        """Weigh and keep the plans for another world; none where it has none."""
        self.add_all(self.plans_for({name: world}))

    def plans_for(self, worlds: dict[str, CoupledMDP]) -> dict[str, Policy | Starting]:
        """Plans for other worlds, under their names, as policies of the problem; none of one that cannot be solved."""
        cells = [(world, self.welfare, name) for name, world in worlds.items()]
        told = [f"planning for {name}" for name in worlds]
        found: dict[str, Policy | Starting] = {}
        for plans in self.sweep.map(_plans, cells, told, self._halfway):
            for name, policy in plans.items():
                with contextlib.suppress(EvenhandError):  # one plan less to choose from
                    found[name] = rebuilt(policy, self.worlds.problem)
        return found

    @property
    def _halfway(self) -> Progress | None:
        """What is being done, whatever the share: nobody knows how much there is in all."""
        return None if self.progress is None else lambda what, _: self.tell(what)

    def tell(self, what: str) -> None:
        """Pass on what is being done."""
        if self.progress is not None:
            self.progress(what, 0.5)

    @property
    def by_type(self) -> bool:
        """Whether all of them treat arms of a type alike."""
        return all(values.by_type for values in self.found)

    def row(self, name: str, found: WorldValues) -> PolicyDraws:
        """The values of a policy over all draws, ready to be asked."""
        return draws_of(name, found, self.worlds.problem, self.welfare)

    def draws(self) -> list[PolicyDraws]:
        """All of them, in the same units."""
        problem, by_type = self.worlds.problem, self.by_type
        same = [values if by_type else values.by_arms(problem) for values in self.found]
        return [self.row(name, own) for name, own in zip(self.names, same, strict=True)]


def add_drawn_plans(candidates: Candidates, welfare: Floats, number: int) -> None:
    """Add the plans for some of the drawn worlds, from those in which the first plan does worst to its best.

    Args:
        candidates: what is added to.
        welfare: (draw,) that of the first plan.
        number: of worlds.
    """
    ranked = np.argsort(np.round(welfare / (np.abs(welfare).max() or 1.0), 10), kind="stable")
    places = ((np.arange(number) + 0.5) / number * len(ranked)).astype(np.int64)
    draws = [int(ranked[place]) for place in np.unique(places).tolist()]
    candidates.add_all(candidates.plans_for({f"draw {draw}": candidates.worlds.world(draw) for draw in draws}))


def _is_drawn(policy: Policy | Starting) -> TypeGuard[Mixture]:
    """Whether it is a mixture that is drawn at the start and kept."""
    return isinstance(policy, Mixture) and policy.rotate is None


def _leaves(name: str, policy: Policy | Starting) -> Iterator[tuple[str, Policy | Starting]]:
    """The policies that a mixture is drawn from, under their names; the policy itself, if it is none."""
    if not _is_drawn(policy):
        yield name, policy
        return
    for i, part in enumerate(policy.parts):
        yield from _leaves(f"{name}, part {i + 1}", part)


def _plans(cell: tuple[CoupledMDP, Welfare, str], progress: Progress | None = None) -> dict[str, Policy | Starting]:
    """A cell: plans for another world, by its name; none where it cannot be solved."""
    world, welfare, name = cell
    try:
        if _is_quick(world):
            return {f"plan for {name}": solve(world, welfare, "auto", 1e-6, progress).policy}
        relaxed = solve_fluid(world, welfare, FLUID_TOLERANCE)
    except EvenhandError:  # one plan less to choose from
        return {}
    found: dict[str, Policy | Starting] = {}
    for kind in ("fair-index", "occupancy-priority"):
        with contextlib.suppress(NotApplicable):
            found[f"{kind} for {name}"] = build_policy(world, relaxed, kind)
    return found


def _is_quick(world: CoupledMDP) -> bool:
    """Whether an exact plan takes a moment."""
    states = min(num_count_states(world), num_joint_states(world)) * (world.criterion.num_steps or 1)
    return states <= MOST_SOLVED and choose_method(world)[0] != "fluid"


def upper_bounds(
    worlds: Worlds, welfare: Welfare, progress: Progress | None = None, sweep: Pool | None = None
) -> Floats | None:
    """(draw,) no policy has more welfare in a draw than this, by its fluid relaxation; None where one has none.

    Args:
        worlds: the draws.
        welfare: how values are weighed.
        progress: called now and then with what is being done and the share done.
        sweep: where they are relaxed; in this process when absent.
    """
    pool = Pool() if sweep is None else sweep
    starts = range(0, len(worlds), BOUNDED_TOGETHER)
    cells = [(worlds.only(slice(start, start + BOUNDED_TOGETHER)), welfare) for start in starts]
    found = pool.map(_bounds, cells, ["bounds of the draws"] * len(cells), progress)
    sound = [bounds for bounds in found if bounds is not None]
    return np.concatenate(sound) if len(sound) == len(found) else None


def _bounds(cell: tuple[Worlds, Welfare], progress: Progress | None = None) -> Floats | None:
    """A cell: the bounds of some draws; None where one has none."""
    worlds, welfare = cell
    found = np.empty(len(worlds))
    for draw in range(len(worlds)):
        if progress is not None:
            progress("bounds of the draws", draw / len(worlds))
        try:
            found[draw] = solve_fluid(worlds.world(draw), welfare, 1e-3).upper_bound
        except EvenhandError:
            return None
    return found
