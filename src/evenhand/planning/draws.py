"""Decisions over draws: the plans that are weighed in all of them.

    candidates   the plan for the model itself, and plans for some of the drawn worlds: what one would do, were one of
                 them the truth. Each is an exact plan where that is quick, else the policies of the fluid relaxation.

What is worth knowing (`knowing`) and the plan for the worst draws (`robust`) both choose among candidates. A plan for
another world is a policy as any other; it is rebuilt for the model's own problem, so that it can be saved with it.
"""

from dataclasses import dataclass, field

import numpy as np

from evenhand.errors import EvenhandError, NotApplicable, OutOfDomain
from evenhand.evaluation.draws import PolicyDraws, draws_of
from evenhand.evaluation.worlds import Worlds, WorldValues, mixed, values_in_worlds
from evenhand.model.composite import Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.planning.relaxed import FLUID_TOLERANCE, build_policy
from evenhand.planning.saved import rebuilt
from evenhand.planning.solve import choose_method, solve
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import num_joint_states
from evenhand.solvers.fluid import solve_fluid
from evenhand.typing import Floats, Progress

MOST_SOLVED = 3_000
"""States up to which a drawn world is solved exactly."""


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

    names: list[str] = field(default_factory=list)
    """What each is called."""

    policies: list[Policy | Starting] = field(default_factory=list)
    """What acts."""

    found: list[WorldValues] = field(default_factory=list)
    """Their values in every draw."""

    def add(self, name: str, policy: Policy | Starting) -> WorldValues:
        """Weigh a policy and keep it; of a mixture that is drawn at the start also its parts."""
        if isinstance(policy, Mixture) and policy.rotate is None:
            parts = [self.add(f"{name}, part {i + 1}", part) for i, part in enumerate(policy.parts)]
            return self._keep(name, policy, mixed(parts, policy.shares, self.worlds.problem))
        self.tell(f"weighing {name} over draws")
        return self._keep(name, policy, values_in_worlds(policy, self.worlds, self.welfare, self.seed))

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
        self.tell(f"planning for {name}")
        for own, policy in plans_for(world, self.worlds.problem, self.welfare, name).items():
            self.add(own, policy)

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
    for place in np.unique(places).tolist():
        draw = int(ranked[place])
        candidates.add_plans(candidates.worlds.world(draw), f"draw {draw}")


def plans_for(world: CoupledMDP, problem: CoupledMDP, welfare: Welfare, name: str) -> dict[str, Policy | Starting]:
    """Plans for another world, as policies of a problem; none where it cannot be solved.

    Args:
        world: where arms move differently.
        problem: the model, whose policies they become.
        welfare: what is maximised.
        name: what the world is called.
    """
    try:
        if _is_quick(world):
            return {f"plan for {name}": rebuilt(solve(world, welfare, "auto", 1e-6).policy, problem)}
        relaxed = solve_fluid(world, welfare, FLUID_TOLERANCE)
    except EvenhandError:  # one plan less to choose from
        return {}
    found = {}
    for kind in ("fair-index", "occupancy-priority"):
        try:
            found[f"{kind} for {name}"] = rebuilt(build_policy(world, relaxed, kind), problem)
        except NotApplicable:
            continue
    return found


def _is_quick(world: CoupledMDP) -> bool:
    """Whether an exact plan takes a moment."""
    states = min(num_count_states(world), num_joint_states(world)) * (world.criterion.num_steps or 1)
    return states <= MOST_SOLVED and choose_method(world)[0] != "fluid"


def upper_bounds(worlds: Worlds, welfare: Welfare, progress: Progress | None = None) -> Floats | None:
    """(draw,) no policy has more welfare in a draw than this, by its fluid relaxation; None where one has none.

    Args:
        worlds: the draws.
        welfare: how values are weighed.
        progress: called now and then with what is being done and the share done.
    """
    found = np.empty(len(worlds))
    for draw in range(len(worlds)):
        if progress is not None:
            progress("bounds of the draws", draw / len(worlds))
        try:
            found[draw] = solve_fluid(worlds.world(draw), welfare, 1e-3).upper_bound
        except EvenhandError:
            return None
    return found
