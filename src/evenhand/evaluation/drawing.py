"""Where drawn worlds are from: the posterior beside a fitted model.

Draws 0 .. D-1 are those that choices may see; draws D .. 2D-1 are held out where that is asked for, and seen by none. A
draw depends on the seed and its number alone. Blocks that have one type of the posterior share its draws.
"""

from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from evenhand.checks import check_memory, check_positive_int
from evenhand.errors import InvalidInput
from evenhand.evaluation.worlds import Worlds
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.posterior_files import HOW_TO_FIT, Named, Uncertain, load_posterior, matched, posterior_path
from evenhand.model.coupled import CoupledMDP
from evenhand.typing import Ints

USUAL_DRAWS = 200
"""Draws where a number is needed and none is given."""

FEWEST_DRAWS = 20
"""Draws below which there is nothing to say of a spread."""

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


def playing_seed(seed: int) -> int:
    """The seed of the episodes over draws: not that of the draws themselves, nor of a method's own simulations."""
    return int(np.random.default_rng([seed, 7]).integers(2**62))
