"""Names for what is passed around.

Arrays go by their role; axes stand in the order (episode, arm or type, state, action, next_state, resource). In `help`
and in signatures they are shown by these names: type checkers read what they stand for, and people the name.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray


class Named:
    """A type under a short name, for people; type checkers never see it."""

    def __init__(self, name: str, meant: object) -> None:
        """Keep both.

        Args:
            name: what is shown.
            meant: the type it stands for.
        """
        self.name, self.meant = name, meant

    def __repr__(self) -> str:
        return self.name

    def __or__(self, other: object) -> object:
        return Union[self, other]  # noqa: UP007  # this is what the bar means

    def __ror__(self, other: object) -> object:
        return Union[other, self]  # noqa: UP007

    def __call__(self, *arguments: object) -> NoReturn:
        """Only here because `typing` takes for a type what can be called."""
        raise TypeError(f"{self.name} is a name for {self.meant}, and makes nothing")


if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Floats: TypeAlias = NDArray[np.float64]
    """Real numbers: rewards, probabilities, values."""

    Singles: TypeAlias = NDArray[np.float32]
    """Numbers of networks."""

    Ints: TypeAlias = NDArray[np.int64]
    """Counts and offsets."""

    Indices: TypeAlias = NDArray[np.int32]
    """Positions in a table: states, actions, types. Small, because batches of them are large."""

    Bools: TypeAlias = NDArray[np.bool_]
    """Masks."""

    Array: TypeAlias = NDArray[Any]
    """An array whose kind does not matter here."""

    Rng: TypeAlias = np.random.Generator | int | None
    """Argument `rng`: a seed or a Generator."""

    Progress: TypeAlias = Callable[[str, float], None]
    """Called now and then with what is being done, in words, and the share of the work that is done, from 0 to 1."""
else:
    from numpy.typing import ArrayLike as _ArrayLike

    ArrayLike = Named("ArrayLike", _ArrayLike)
    Floats = Named("Floats", NDArray[np.float64])
    Singles = Named("Singles", NDArray[np.float32])
    Ints = Named("Ints", NDArray[np.int64])
    Indices = Named("Indices", NDArray[np.int32])
    Bools = Named("Bools", NDArray[np.bool_])
    Array = Named("Array", NDArray[Any])
    Rng = Named("Rng", np.random.Generator | int | None)
    Progress = Named("Progress", Callable[[str, float], None])

__all__ = ["Array", "ArrayLike", "Bools", "Floats", "Indices", "Ints", "Progress", "Rng", "Singles"]
