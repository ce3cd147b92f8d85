"""Decisions over draws: where the worlds are from, and the plans that are weighed in all of them.

    worlds       draws 0 .. D-1 of the posterior that stands beside a fitted model; draws D .. 2D-1 are held out, and
                 seen by no choice
    candidates   the plan for the model itself, and plans for some of the drawn worlds: what one would do, were one of
                 them the truth. Each is an exact plan where that is quick, else the policies of the fluid relaxation.

What is worth knowing (`knowing`) and the plan for the worst draws (`robust`) both choose among candidates. A plan for
another world is a policy as any other; it is rebuilt for the model's own problem, so that it can be saved with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from evenhand.checks import check_memory, check_positive_int
from evenhand.errors import EvenhandError, InvalidInput, NotApplicable
from evenhand.evaluation.draws import PolicyDraws, UnderDraws, draws_of
from evenhand.evaluation.worlds import Worlds, WorldValues, mixed, values_in_worlds
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.posterior_files import HOW_TO_FIT, Named, Uncertain, load_posterior, matched, posterior_path
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
from evenhand.typing import Floats, Ints, Progress

USUAL_DRAWS = 200
"""Draws where a number is needed and none is given."""

FEWEST_DRAWS = 20
"""Draws below which there is nothing to say of a spread."""

MOST_SOLVED = 3_000
"""States up to which a drawn world is solved exactly."""

Known: TypeAlias = Named | Worlds | str | PathLike[str] | Any
"""What is known of a model: a posterior, the file of one or of the model beside it, or what `fit` gave."""


def read_worlds(
    problem: CoupledMDP, posterior: Known | None, num_draws: int, seed: int, held_out: bool = False
) -> tuple[Worlds, Worlds | None]:
    """The worlds of a problem, and as many that are held out.

    Args:
        problem: under the criterion and over the members that were asked for.
        posterior: what is known of its transitions.
        num_draws: how many draws.
        seed: of the draws.
        held_out: whether to draw others to hold out; there are none where the posterior is a sample too small for both.

    Raises:
        InvalidInput: there is no posterior; says how to get one.
        ModelError: it is of another model.
    """
    number = check_positive_int(num_draws, "draws")
    if number < FEWEST_DRAWS:
        raise InvalidInput(f"draws: expected at least {FEWEST_DRAWS}, from which a spread can be told, got {number}")
    if isinstance(posterior, Worlds):
        return _of_worlds(posterior.under(problem), number, held_out)
    uncertain = matched(_named(posterior), problem)
    sample = uncertain.named.posterior
    short = isinstance(sample, Drawn) and len(sample.draws) < 2 * number
    both = number if short or not held_out else 2 * number
    drawn = _draw(uncertain, both, seed)
    return drawn.only(slice(0, number)), drawn.only(slice(number, both)) if both > number else None


def _of_worlds(worlds: Worlds, number: int, held_out: bool) -> tuple[Worlds, Worlds | None]:
    if len(worlds) < number:
        raise InvalidInput(f"draws: expected no more than the {len(worlds)} worlds that are given, got {number}")
    rest = worlds.only(slice(number, 2 * number)) if held_out and len(worlds) >= 2 * number else None
    return worlds.only(slice(0, number)), rest


def _named(posterior: Known | None) -> Named:
    """The posterior that is meant."""
    if posterior is None:
        raise InvalidInput(
            "draws: it is not known how sure the model's transitions are; give posterior=, the model file that was "
            f"fitted, or what fit gave. {HOW_TO_FIT}"
        )
    if isinstance(posterior, Named):
        return posterior
    if isinstance(posterior, (str, PathLike)):
        path = Path(posterior)
        beside = path if path.name.endswith(".posterior.npz") else posterior_path(path)
        if not beside.exists():
            raise InvalidInput(f"draws: there is no {beside}, which says how sure the transitions are. {HOW_TO_FIT}")
        return load_posterior(beside)
    log, known = getattr(posterior, "log", None), getattr(posterior, "posterior", None)
    if log is None or known is None:
        raise InvalidInput(f"posterior: expected a model file or what fit gave, got {type(posterior).__name__}")
    return Named(known, tuple(log.types), tuple(log.states), tuple(log.actions))


def _draw(uncertain: Uncertain, number: int, seed: int) -> Worlds:
    """So many draws; blocks that have one type of the posterior share theirs."""
    sources, source_of_block = _sources(uncertain)
    shape = uncertain.problem.tables.transitions.shape[1:]
    size = 8.0 * number * len(sources) * float(np.prod(shape))
    check_memory(size, f"{number} draws of {len(sources)} types", "Use fewer draws.")
    transitions = np.empty((number, len(sources), *shape))
    for draw in range(number):
        transitions[draw] = uncertain.placed(uncertain.named.posterior.one(seed, draw))[sources]
    return Worlds(uncertain.problem, transitions, source_of_block)


def _sources(uncertain: Uncertain) -> tuple[list[int], Ints]:
    """The first block of each source, and the (block,) source of each block."""
    first: dict[object, int] = {}
    kinds = uncertain.type_of_block.tolist()
    keys = [
        (kind, states.tobytes(), actions.tobytes()) if kind >= 0 else ("known", block)
        for block, (kind, states, actions) in enumerate(zip(kinds, uncertain.states, uncertain.actions, strict=True))
    ]
    numbers = [first.setdefault(key, len(first)) for key in keys]
    blocks = [numbers.index(number) for number in range(len(first))]
    return blocks, np.array(numbers, dtype=np.int64)


def weigh_policies(
    policies: Mapping[str, Policy | Starting],
    worlds: Worlds,
    welfare: Welfare,
    seed: int = 0,
    progress: Progress | None = None,
) -> UnderDraws:
    """What some policies are worth over draws, all on the same random numbers.

    Args:
        policies: under their names.
        worlds: the draws.
        welfare: how values are weighed.
        seed: of the episodes, where they must be played.
        progress: called now and then with what is being done and the share done.

    Raises:
        OutOfDomain: the welfare is not defined in some draw.
    """
    rows = []
    for number, (name, policy) in enumerate(policies.items()):
        tell = None if progress is None else _turn(progress, name, number, len(policies))
        rows.append(draws_of(name, values_in_worlds(policy, worlds, welfare, seed, tell), worlds.problem, welfare))
    return UnderDraws(worlds.problem, welfare, tuple(rows))


def _turn(progress: Progress, name: str, number: int, total: int) -> Progress:
    return lambda _, share: progress(f"{name} over draws", (number + share) / total)


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
