"""Policies made of policies: one for each step, or one drawn at the start.

    BySteps   plays its t-th part at step t: what a finite horizon asks for
    Mixture   draws one of its parts at the start of each episode and keeps it; its values are the parts' values,
              mixed by their shares, under every criterion. With `rotate` it draws again every so many steps: what is
              fair over many episodes is then fairer within each, but values are no longer the mixed ones

Both remember something, so both have `start`. They treat equal arms alike, and play by counts, where all parts do.
"""

from collections.abc import Sequence

import numpy as np

from evenhand.checks import check_positive_int, check_shape
from evenhand.display import ShownPolicy, counted
from evenhand.errors import InvalidInput
from evenhand.model.policy import Exchangeable, Policy, Starting, begin, is_exchangeable, plays_by_counts
from evenhand.typing import ArrayLike, Floats, Indices, Ints


class BySteps(ShownPolicy):
    """One policy for each step; after the last it begins again."""

    def __init__(self, parts: Sequence[Policy]) -> None:
        """Keep the parts.

        Args:
            parts: (step,) a policy without a memory for each step.
        """
        if not parts:
            raise InvalidInput("parts: expected a policy for each step, got none")
        if any(isinstance(part, Starting) for part in parts):
            raise InvalidInput("parts: a policy that remembers cannot be one step of another")
        self.parts = tuple(parts)
        self.exchangeable = all(is_exchangeable(part) for part in parts)
        self.plays_by_counts = all(plays_by_counts(part) for part in parts)

    def _in_short(self) -> str:
        return f"{counted(len(self.parts), 'step')}, the first {self.parts[0]!r}"

    def start(self, num_episodes: int, rng: np.random.Generator) -> Policy:
        """An actor at the first step."""
        return _CountSteps(self.parts) if self.plays_by_counts else _Steps(self.parts)


class _Steps:
    """Counts the steps."""

    def __init__(self, parts: Sequence[Policy]) -> None:
        self.parts, self.step = parts, 0

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of this step's part."""
        return self._next().act(states, rng)

    def skip_to(self, step: int) -> None:
        """Go on at this step."""
        self.step = step

    def _next(self) -> Policy:
        part = self.parts[self.step % len(self.parts)]
        self.step += 1
        return part


class _CountSteps(_Steps):
    """Counts the steps, also by counts."""

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """The allocation of this step's part."""
        part = self._next()
        assert isinstance(part, Exchangeable)
        return part.allocate(counts, rng)


class Mixture(ShownPolicy):
    """Draws one policy at the start of an episode, by its share, and keeps it; or draws again every few steps."""

    def __init__(self, parts: Sequence[Policy | Starting], shares: ArrayLike, rotate: int | None = None) -> None:
        """Keep the parts that have a share.

        Args:
            parts: (part,) policies.
            shares: (part,) not negative; they sum to 1.
            rotate: steps after which a part is drawn anew; when absent the first draw holds for good.
        """
        given = np.asarray(shares, dtype=np.float64)
        check_shape(given, {"part": len(parts)}, "shares")
        if not (given.min() >= 0 and abs(given.sum() - 1) <= 1e-8):
            raise InvalidInput("shares: expected none negative, and a sum of 1")
        kept = given > 0
        self.parts = tuple(part for part, keep in zip(parts, kept, strict=True) if keep)
        self.shares: Floats = given[kept] / given[kept].sum()
        self.rotate = None if rotate is None else check_positive_int(rotate, "rotate")
        self.exchangeable = all(is_exchangeable(part) for part in self.parts)
        self.plays_by_counts = all(plays_by_counts(part) for part in self.parts)

    def _in_short(self) -> str:
        shares = ", ".join(f"{share:.3g}" for share in self.shares[:5])
        more = ", ..." if len(self.shares) > 5 else ""
        every = "" if self.rotate is None else f", drawn anew every {counted(self.rotate, 'step')}"
        return f"{counted(len(self.parts), 'part')} with shares {shares}{more}{every}"

    def rotating(self, every: int | None) -> "Mixture":
        """The same parts and shares, drawn anew every so many steps; once and for all where that is None.

        Args:
            every: steps, or None.
        """
        return Mixture(self.parts, self.shares, every)

    def start(self, num_episodes: int, rng: np.random.Generator) -> Policy:
        """An actor that has drawn a part for each episode."""
        return (_CountMixed if self.plays_by_counts else _Mixed)(self, num_episodes, rng)

    def draw(self, num_episodes: int, rng: np.random.Generator) -> list[tuple[Ints, Policy]]:
        """The episodes that each part plays from now on, with its actor at its first step."""
        ends = np.cumsum(self.shares)
        ends[-1] = 1.0
        drawn = np.searchsorted(ends, rng.random(num_episodes), side="right")
        actors = []
        for number in np.unique(drawn):
            rows = np.flatnonzero(drawn == number)
            actors.append((rows, begin(self.parts[number], len(rows), rng)))
        return actors


class _Mixed:
    """Each episode's own part."""

    def __init__(self, mixture: Mixture, num_episodes: int, rng: np.random.Generator) -> None:
        self.mixture, self.step = mixture, 0
        self.actors = mixture.draw(num_episodes, rng)

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of each episode's part."""
        actions = np.empty_like(states)
        for rows, actor in self._now(len(states), rng):
            actions[rows] = actor.act(states[rows], rng)
        return actions

    def skip_to(self, step: int) -> None:
        """Go on at this step, with all parts."""
        self.step = step
        for _, actor in self.actors:
            if (skip := getattr(actor, "skip_to", None)) is not None:
                skip(step)

    def _now(self, num_episodes: int, rng: np.random.Generator) -> list[tuple[Ints, Policy]]:
        """Whose turn it is at this step."""
        rotate = self.mixture.rotate
        if rotate is not None and self.step and self.step % rotate == 0:
            self.actors = self.mixture.draw(num_episodes, rng)
            self.skip_to(self.step)  # a part that plays by the step must know which it is
        self.step += 1
        return self.actors


class _CountMixed(_Mixed):
    """Each episode's own part, also by counts."""

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """The allocation of each episode's part."""
        answers = []
        for rows, actor in self._now(len(counts), rng):
            assert isinstance(actor, Exchangeable)
            answers.append((rows, actor.allocate(counts[rows], rng)))
        allocation = np.zeros((len(counts), *answers[0][1].shape[1:]), dtype=np.int64)
        for rows, answer in answers:
            allocation[rows] = answer
        return allocation
