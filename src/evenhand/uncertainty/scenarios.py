"""Scenarios: a problem under other transition probabilities, usually draws of the posterior of a fitted model.

Draws 0 .. D-1 are the scenarios on which plans are chosen; draws D .. 2D-1 are held out on request. A draw depends on
the seed and its number alone. Blocks of arms that share one type of the posterior share its draws.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from evenhand.checks import as_seed, check_memory, check_positive_int, check_shape
from evenhand.errors import InvalidInputError
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.posterior_files import HOW_TO_FIT, Named, Uncertain, load_posterior, matched, posterior_path
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Problem, needs_tables
from evenhand.typing import Floats, Ints, Rng

DEFAULT_DRAWS = 200
"""Number of scenarios by default."""

MIN_DRAWS = 20
"""Number of scenarios below which quantiles are not reported."""

PosteriorSource: TypeAlias = Named | str | PathLike[str] | Any
"""A posterior, its file, the model file beside it, or the result of `fit`."""


@dataclass(frozen=True, eq=False)
class Scenarios:
    """A problem and alternative transition probabilities of its arms.

    `problem`: the model, with criterion and unit of fairness. `transitions`: (scenario, source, state, action,
    next_state) probabilities, padded with zeros. `source_of_block`: (block,) source of the transitions of each block.
    `seed`: seed of the draws and of the episodes. `held_out`: further scenarios on which no plan is chosen.
    """

    problem: CoupledMDP
    transitions: Floats
    source_of_block: Ints
    seed: int = 0
    held_out: "Scenarios | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        blocks, states, actions, _ = self.problem.tables.transitions.shape
        axes = {"scenario": None, "source": None, "state": states, "action": actions, "next_state": states}
        check_shape(self.transitions, axes, "transitions")
        check_shape(self.source_of_block, {"block": blocks}, "source_of_block")
        if not len(self.transitions):
            raise InvalidInputError("transitions: expected at least one scenario, got none")

    def __len__(self) -> int:
        return len(self.transitions)

    def __repr__(self) -> str:
        return f"Scenarios({len(self)} of {self.problem!r})"

    def with_problem(self, problem: CoupledMDP) -> "Scenarios":
        """Return the same scenarios of the same blocks with another criterion, budget or unit of fairness."""
        return replace(self, problem=problem)

    def subset(self, rows: slice | Ints) -> "Scenarios":
        """Return some of the scenarios."""
        return replace(self, transitions=self.transitions[rows], held_out=None)

    @property
    def block_transitions(self) -> Floats:
        """(scenario, block, state, action, next_state) transitions of each block."""
        if np.array_equal(self.source_of_block, np.arange(self.transitions.shape[1])):
            return self.transitions
        size = 8.0 * len(self) * self.problem.tables.transitions.size
        check_memory(size, f"{len(self)} scenarios of {len(self.source_of_block)} blocks", "Use fewer draws.")
        return self.transitions[:, self.source_of_block]

    @property
    def type_transitions(self) -> Floats:
        """(scenario, type, state, action, next_state) transitions of each type: those of its first block."""
        _, first = np.unique(self.problem.type_of_block, return_index=True)
        return self.transitions[:, self.source_of_block[first]]

    def scenario(self, number: int) -> CoupledMDP:
        """Return the problem in one scenario."""
        return self._problem(self.transitions[number])

    def mean(self, weights: Floats) -> CoupledMDP:
        """Return the problem with mean transitions, for (scenario,) weights that sum to 1."""
        return self._problem(np.tensordot(weights, self.transitions, axes=1))

    def _problem(self, transitions: Floats) -> CoupledMDP:
        return self.problem.with_transitions(np.ascontiguousarray(transitions[self.source_of_block]))

    @cached_property
    def splits_types(self) -> bool:
        """True if arms of one type have different transitions in some scenario."""
        pairs = np.unique(np.column_stack([self.problem.type_of_block, self.source_of_block]), axis=0)
        return any(
            kind == before and not np.array_equal(self.transitions[:, source], self.transitions[:, other])
            for (before, other), (kind, source) in pairwise(pairs.tolist())
        )


def draw_scenarios(
    problem: Problem,
    posterior: PosteriorSource | None,
    num_draws: int = DEFAULT_DRAWS,
    rng: Rng = 0,
    held_out: bool = False,
) -> Scenarios:
    """Draw scenarios from the posterior of a fitted model.

    Args:
        problem: the model, with criterion and unit of fairness.
        posterior: the model file (its posterior is stored beside it), the posterior's file, or the result of `fit`.
        num_draws: number of scenarios.
        rng: seed or generator.
        held_out: whether to draw as many scenarios again to report a plan on; a posterior that is a sample too small
            for both has none.

    Raises:
        InvalidInputError: there is no posterior.
        ModelError: the posterior belongs to another model.
    """
    number, seed = check_positive_int(num_draws, "draws"), as_seed(rng)
    if number < MIN_DRAWS:
        raise InvalidInputError(f"draws: expected at least {MIN_DRAWS} to estimate quantiles, got {number}")
    uncertain = matched(_read_posterior(posterior), needs_tables(problem, "draws"))
    sample = uncertain.named.posterior
    small = isinstance(sample, Drawn) and len(sample.draws) < 2 * number
    total = 2 * number if held_out and not small else number
    drawn = _draw(uncertain, total, seed)
    rest = drawn.subset(slice(number, total)) if total > number else None
    return replace(drawn.subset(slice(0, number)), held_out=rest)


def _read_posterior(posterior: PosteriorSource | None) -> Named:
    if posterior is None:
        raise InvalidInputError(
            "draws: the model has no posterior. Pass posterior=, the fitted model file or the result of fit. "
            f"{HOW_TO_FIT}"
        )
    if isinstance(posterior, Named):
        return posterior
    if isinstance(posterior, (str, PathLike)):
        path = Path(posterior)
        beside = path if path.name.endswith(".posterior.npz") else posterior_path(path)
        if not beside.exists():
            raise InvalidInputError(f"draws: the posterior {beside} does not exist. {HOW_TO_FIT}")
        return load_posterior(beside)
    log, known = getattr(posterior, "log", None), getattr(posterior, "posterior", None)
    if log is None or known is None:
        raise InvalidInputError(
            f"posterior: expected a model file or the result of fit, got {type(posterior).__name__}"
        )
    return Named(known, tuple(log.types), tuple(log.states), tuple(log.actions))


def _draw(uncertain: Uncertain, number: int, seed: int) -> Scenarios:
    """Draw once per source; blocks of one type of the posterior, with the same states and actions, share a source."""
    keys = [
        (kind, states.tobytes(), actions.tobytes()) if kind >= 0 else ("known", block)
        for block, (kind, states, actions) in enumerate(
            zip(uncertain.type_of_block.tolist(), uncertain.states, uncertain.actions, strict=True)
        )
    ]
    numbers: dict[object, int] = {}
    source_of_block = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    _, first_blocks = np.unique(source_of_block, return_index=True)
    shape = (number, len(first_blocks), *uncertain.problem.tables.transitions.shape[1:])
    check_memory(8.0 * np.prod(shape), f"{number} draws of {len(first_blocks)} types", "Use fewer draws.")
    transitions = np.empty(shape)
    for draw in range(number):
        transitions[draw] = uncertain.placed(uncertain.named.posterior.one(seed, draw))[first_blocks]
    return Scenarios(uncertain.problem, transitions, source_of_block, seed)


def episode_seed(seed: int) -> int:
    """Return the seed of the episodes: neither that of the draws nor that of a method's own simulations."""
    return int(np.random.default_rng([seed, 7]).integers(2**62))
