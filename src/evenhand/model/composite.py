"""Policies made of policies: one per step, or one drawn at the start.

    TimeVaryingPolicy   acts by its t-th part at step t, as a finite horizon requires
    MixturePolicy       draws one of its parts at the start of each episode; its values are the parts' values, mixed by
                        their shares, under every criterion. With `redraw_every` it draws again every so many steps:
                        this is fairer within an episode, but values are no longer the mixed ones

Both are stateful, so both have `start`. They are exchangeable, and act on counts, if all parts are and do.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from evenhand.checks import as_generator, as_numbers, check_positive_int, check_shape
from evenhand.display import counted
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.kernels.rank_tables import RankTables, in_turn
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import ServiceOrder
from evenhand.model.policy import (
    Policy,
    Remembers,
    Resuming,
    StatefulPolicy,
    begin,
    check_acts,
    check_arrays,
    described,
    is_exchangeable,
    plays_by_counts,
)
from evenhand.model.stateful_policy import MOST, Actor, Memory, Remembered, RememberingPolicy, read_memory
from evenhand.typing import Array, ArrayLike, Floats, Indices, Ints, Rng


class CompositePolicy(RememberingPolicy):
    """A policy made of parts; a file holds the parts beside its own arrays."""

    kind: ClassVar[str]
    """Name of the class in files."""

    parts: tuple[Policy | StatefulPolicy, ...]
    """The policies that it is made of."""

    def _set_parts(self, parts: Sequence[Policy | StatefulPolicy]) -> None:
        self.parts = tuple(parts)
        self.exchangeable = all(is_exchangeable(part) for part in parts)
        self.plays_by_counts = all(plays_by_counts(part) for part in parts)

    @property
    def decision_cost(self) -> float:
        """Cost of a decision of its most expensive part; see `BasePolicy.decision_cost`."""
        return max(described(part).decision_cost for part in self.parts)

    @abstractmethod
    def with_parts(self, parts: Sequence[Policy | StatefulPolicy]) -> "CompositePolicy":
        """Return the same policy with other parts."""

    @abstractmethod
    def to_arrays(self) -> dict[str, Array]:
        """Return its own arrays, without those of its parts."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, problem: CoupledMDP, arrays: dict[str, Array], parts: Sequence[Policy | StatefulPolicy]
    ) -> "CompositePolicy":
        """Return the policy of these arrays and parts."""

    @classmethod
    def problem_of_parts(cls, problem: CoupledMDP, arrays: Mapping[str, Array]) -> CoupledMDP:
        """Return the problem that its parts play, by default its own.

        Args:
            problem: its own problem.
            arrays: its own arrays.
        """
        return problem

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> Policy | StatefulPolicy:
        """Return the policy with resized parts; see `BasePolicy.resized`."""
        return self.with_parts([described(part).resized(problem, types) for part in self.parts])


def _check_parts(parts: Sequence[object]) -> None:
    if not len(parts):
        raise InvalidInputError("parts: expected at least one policy, got none")
    for number, part in enumerate(parts):
        check_acts(part, f"parts[{number}]")


class TimeVaryingPolicy(CompositePolicy):
    """One policy for each step; after the last it begins again.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.TimeVaryingPolicy([eh.policies.worst_first(problem), eh.policies.never_act(problem)])
        TimeVaryingPolicy(2 steps, the first ExchangeablePriority(for 3 arms))
    """

    kind = "by-steps"
    depends_on_step = True

    def __init__(self, parts: Sequence[Policy]) -> None:
        """Store the parts.

        Args:
            parts: (step,) a policy without a memory for each step.
        """
        # Each part plays one step in T and would be called out of turn: it has nothing to remember.
        if any(isinstance(part, StatefulPolicy) for part in parts):
            raise InvalidInputError("parts: a policy that remembers cannot be one step of another")
        _check_parts(parts)
        self._set_parts(parts)

    @property
    def decides(self) -> str:
        """Description of how it decides."""
        return f"{described(self.parts[0]).decides} for each step"

    def with_parts(self, parts: Sequence[Policy | StatefulPolicy]) -> "TimeVaryingPolicy":
        """Return a policy with another part for each step."""
        return TimeVaryingPolicy(cast(Sequence[Policy], parts))  # a stateful part is refused there

    def to_arrays(self) -> dict[str, Array]:
        """Return no arrays: it is its parts."""
        return {}

    @classmethod
    def from_arrays(
        cls, problem: CoupledMDP, arrays: dict[str, Array], parts: Sequence[Policy | StatefulPolicy]
    ) -> "TimeVaryingPolicy":
        """Return the policy of these parts."""
        check_arrays(arrays)
        return cls(cast(Sequence[Policy], parts))

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions at every step."""
        if not isinstance(other, TimeVaryingPolicy) or len(self.parts) != len(other.parts):
            return False
        return all(described(one).does_same(two) for one, two in zip(self.parts, other.parts, strict=True))

    def service_order(self, step: int = 0) -> ServiceOrder | None:
        """Return the order of one step."""
        return described(self.parts[step % len(self.parts)]).service_order(step)

    @property
    def rank_tables(self) -> RankTables | None:
        """Tables by which whole episodes are played in one compiled loop; None if a part has none."""
        parts = [tables for part in self.parts if (tables := getattr(part, "rank_tables", None)) is not None]
        return in_turn(parts) if len(parts) == len(self.parts) else None

    def _in_short(self) -> str:
        return f"{counted(len(self.parts), 'step')}, the first {self.parts[0]!r}"

    def start(self, num_episodes: int, rng: Rng = None) -> Actor:
        """An actor at the first step."""
        return _Steps(self, num_episodes, 0)

    def resume(self, memory: Mapping[str, ArrayLike]) -> Actor:
        """Return an actor that continues where another one was; its memory is `episodes` and `step`.

        Args:
            memory: numbers of episodes and of played steps.
        """
        read = read_memory(memory, {"episodes": Remembered((), MOST, 1), "step": Remembered((), MOST)})
        return _Steps(self, int(read["episodes"]), int(read["step"]))


class _Steps(Actor):
    """Counts the steps; it also allocates if all parts do."""

    def __init__(self, policy: TimeVaryingPolicy, num_episodes: int, step: int) -> None:
        super().__init__(num_episodes)
        self.parts, self.step = policy.parts, step
        if policy.plays_by_counts:
            self.allocate = partial(self._play, "allocate")

    def memory(self) -> Memory:
        """`episodes` and `step`, the number of played ones."""
        return {"episodes": np.array(self.num_episodes), "step": np.array(self.step)}

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of this step's part."""
        return self._play("act", states, rng)

    def _play(self, method: str, situation: Array, rng: np.random.Generator) -> Array:
        # After the last step the parts begin again, as the horizon does.
        answer: Array = getattr(self.parts[self.step % len(self.parts)], method)(situation, rng)
        self.step += 1  # a step whose part raises was not played
        return answer

    def skip_to(self, step: int) -> None:
        """Continue at this step."""
        self.step = step


# -- one part per episode ---------------------------------------------------------------------------------------------


class MixturePolicy(CompositePolicy):
    """Draws one policy at the start of an episode, by its share; or draws again every few steps.

    Its values are the values of its parts, mixed by their shares: so a mixture can be fairer than each of its parts.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> both = eh.MixturePolicy([eh.policies.worst_first(problem), eh.policies.never_act(problem)], [0.75, 0.25])
        >>> both.act([0, 1, 2], 3)
        array([0, 0, 1], dtype=int32)
    """

    kind = "mixture"

    def __init__(
        self, parts: Sequence[Policy | StatefulPolicy], shares: ArrayLike, redraw_every: int | None = None
    ) -> None:
        """Store the parts that have a share.

        Args:
            parts: (part,) policies.
            shares: (part,) not negative; they sum to 1.
            redraw_every: steps after which a part is drawn again; by default never.
        """
        _check_parts(parts)
        given = as_numbers(shares, "shares")
        check_shape(given, {"part": len(parts)}, "shares")
        # Shares come from solvers of linear programs, whose sums are 1 only to their tolerance.
        if not (given.min() >= 0 and abs(given.sum() - 1) <= 1e-8):
            raise InvalidInputError("shares: expected none negative, and a sum of 1")
        # Parts without a share are dropped here, so that they cost no actor and no capability.
        positive = given > 0
        self._set_parts([part for part, has_share in zip(parts, positive, strict=True) if has_share])
        self.shares: Floats = given[positive] / given[positive].sum()
        self.redraw_every = None if redraw_every is None else check_positive_int(redraw_every, "redraw_every")

    def with_parts(self, parts: Sequence[Policy | StatefulPolicy]) -> "MixturePolicy":
        """Return a mixture of other parts with the same shares."""
        return MixturePolicy(parts, self.shares, self.redraw_every)

    def to_arrays(self) -> dict[str, Array]:
        """Return the shares, and the steps after which a part is drawn again (0 for never)."""
        return {"shares": self.shares, "redraw_every": np.array(self.redraw_every or 0)}

    @classmethod
    def from_arrays(
        cls, problem: CoupledMDP, arrays: dict[str, Array], parts: Sequence[Policy | StatefulPolicy]
    ) -> "MixturePolicy":
        """Return the mixture of these parts."""
        check_arrays(arrays, shares="f1", redraw_every="iu0")
        return cls(parts, arrays["shares"], int(arrays["redraw_every"]) or None)

    def _in_short(self) -> str:
        shares = ", ".join(f"{share:.3g}" for share in self.shares[:5])
        more = ", ..." if len(self.shares) > 5 else ""
        every = "" if self.redraw_every is None else f", drawn again every {counted(self.redraw_every, 'step')}"
        return f"{counted(len(self.parts), 'part')} with shares {shares}{more}{every}"

    def with_redraw_every(self, every: int | None) -> "MixturePolicy":
        """Return the same parts and shares, drawn again after other numbers of steps.

        Args:
            every: steps; None for never.
        """
        return MixturePolicy(self.parts, self.shares, every)

    def start(self, num_episodes: int, rng: Rng = None) -> Actor:
        """An actor that has drawn a part for each episode."""
        return _Mixed(self, num_episodes, self.draw(num_episodes, as_generator(rng)), 0)

    def resume(self, memory: Mapping[str, ArrayLike]) -> Actor:
        """Return an actor that continues where another one was; its memory is `step`, `part`, and that of the parts.

        Args:
            memory: number of played steps, (episode,) the part of each, and `0.order` and the like: the memory of
                part 0.
        """
        # Own entries have plain names; those of the parts begin with their number and a point.
        own = {name: value for name, value in memory.items() if "." not in name}
        like = {"step": Remembered((), MOST), "part": Remembered(("episode",), len(self.parts))}
        read = read_memory(own, like)
        # Only parts that play some episode have an actor, and so a memory.
        playing, known = [], set(own)
        for number in np.unique(read["part"]).tolist():
            rows, part = np.flatnonzero(read["part"] == number), self.parts[number]
            if not isinstance(part, StatefulPolicy):
                playing.append(_Playing(number, rows, part))
                continue
            if not isinstance(part, Resuming):
                raise NotApplicableError(_cannot_be_stored(number, part))
            inner = {name.partition(".")[2]: memory[name] for name in memory if name.startswith(f"{number}.")}
            known |= {f"{number}.{name}" for name in inner}
            try:
                actor = part.resume(inner)
            except PolicyError as error:
                raise PolicyError(f"part {number} of the mixture: {error}") from None
            if getattr(actor, "num_episodes", len(rows)) != len(rows):
                raise PolicyError(f"memory: part {number} plays {len(rows)} episodes, and its memory is of others")
            playing.append(_Playing(number, rows, actor))
        # An entry of no part is an error: it may be the memory of another mixture.
        if strange := sorted(set(memory) - known):
            raise PolicyError(f"memory: {strange[0]!r} is not part of this policy's memory")
        return _Mixed(self, len(read["part"]), playing, int(read["step"]))

    def draw(self, num_episodes: int, rng: np.random.Generator) -> "list[_Playing]":
        """The episodes that each part plays from now on, with its actor at its first step."""
        # Inversion: episode i plays the first part whose running share exceeds its draw. Rounding must not leave the
        # last end below 1, where a draw could fall beyond it.
        ends = np.cumsum(self.shares)
        ends[-1] = 1.0
        drawn = np.searchsorted(ends, rng.random(num_episodes), side="right")
        playing = []
        # One actor per part, for all of its episodes together: parts act on batches.
        for number in np.unique(drawn).tolist():
            rows = np.flatnonzero(drawn == number)
            playing.append(_Playing(number, rows, begin(self.parts[number], len(rows), rng)))
        return playing


def components(policy: Any) -> tuple[tuple[Any, ...], Floats]:
    """Return the parts of a mixture and their shares; another policy itself with share 1."""
    return (policy.parts, policy.shares) if isinstance(policy, MixturePolicy) else ((policy,), np.ones(1))


def components_for_good(policy: Any) -> tuple[tuple[Any, ...], Floats]:
    """The same, but a mixture whose part is drawn again within an episode counts as one policy."""
    return components(policy) if redraw_period(policy) is None else ((policy,), np.ones(1))


def is_mixture(policy: object) -> bool:
    """Return whether one of several policies is drawn."""
    return isinstance(policy, MixturePolicy)


def redraw_period(policy: object) -> int | None:
    """Return the steps after which a mixture draws a part again; None if it never does."""
    return policy.redraw_every if isinstance(policy, MixturePolicy) else None


def is_time_varying(policy: object) -> bool:
    """Return whether a policy has one part per step."""
    return isinstance(policy, TimeVaryingPolicy)


def steps_of(policy: Any) -> tuple[Any, ...]:
    """Return the policies of the steps of a time-varying policy; another policy itself."""
    return policy.parts if is_time_varying(policy) else (policy,)


def _cannot_be_stored(number: int, part: object) -> str:
    return (
        f"the memory of part {number} of the mixture cannot be stored: {type(part).__name__} needs resume(memory), and "
        "its actors memory()"
    )


class _Playing(NamedTuple):
    """A part of a mixture and the episodes that it plays."""

    number: int
    """Number of the part."""

    rows: Ints
    """The episodes."""

    actor: Policy
    """The policy or actor that acts."""


class _Mixed(Actor):
    """Each episode's own part; it also allocates if all parts do."""

    def __init__(self, mixture: MixturePolicy, num_episodes: int, playing: list[_Playing], step: int) -> None:
        super().__init__(num_episodes)
        self.mixture, self.playing, self.step = mixture, playing, step
        if mixture.plays_by_counts:
            self.allocate = partial(self._play, "allocate")

    def memory(self) -> Memory:
        """`step`, (episode,) `part`, and under `0.` and so on the memories of the actors of the parts."""
        part = np.zeros(self.num_episodes, dtype=np.int64)
        found: Memory = {"step": np.array(self.step), "part": part}
        for number, rows, actor in self.playing:
            part[rows] = number
            if isinstance(self.mixture.parts[number], StatefulPolicy):
                if not isinstance(actor, Remembers):
                    raise NotApplicableError(_cannot_be_stored(number, self.mixture.parts[number]))
                found |= {f"{number}.{name}": np.asarray(array) for name, array in actor.memory().items()}
        return found

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """The actions of each episode's part."""
        return self._play("act", states, rng)

    def skip_to(self, step: int) -> None:
        """Continue at this step, with all parts."""
        self.step = step
        for _, _, actor in self.playing:
            if (skip := getattr(actor, "skip_to", None)) is not None:
                skip(step)

    def _play(self, method: str, situations: Array, rng: np.random.Generator) -> Array:
        """Actions or allocations of each episode's part."""
        redraw_every = self.mixture.redraw_every
        # Not at step 0: the parts were drawn at the start.
        if redraw_every is not None and self.step and self.step % redraw_every == 0:
            self.playing = self.mixture.draw(self.num_episodes, rng)
            self.skip_to(self.step)  # a part that plays by the step must know which it is
        try:
            answers = [getattr(actor, method)(situations[rows], rng) for _, rows, actor in self.playing]
        except BaseException:
            self.skip_to(self.step)  # the step was not played: parts that count steps and had acted already go back
            raise
        self.step += 1
        whole = np.empty((self.num_episodes, *answers[0].shape[1:]), dtype=answers[0].dtype)
        for (_, rows, _), answer in zip(self.playing, answers, strict=True):
            whole[rows] = answer
        return whole
