"""Aliases of types that are passed around.

Arrays are named by their role; axes are in the order (episode, arm or type, state, action, next_state, resource).
`help` and signatures show these names, type checkers the types behind them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

Nested: TypeAlias = ArrayLike | Sequence[Any]
"""An array, or nested lists of numbers of any kind, as a user may give them."""

Array: TypeAlias = NDArray[Any]
"""An array of any kind."""

Rng: TypeAlias = np.random.Generator | int | None
"""Argument `rng`: a seed or a Generator."""

Progress: TypeAlias = Callable[[str, float], None]
"""Called now and then with the current activity, in words, and the completed share of the work, from 0 to 1."""

__all__ = ["Array", "ArrayLike", "Bools", "Floats", "Indices", "Ints", "Progress", "Rng", "Singles"]


class _Named(NewType):
    """A type that is shown by its short name."""

    def __init__(self, name: str, meaning: object) -> None:
        super().__init__(name, meaning)
        self.__module__ = "builtins"  # names of other modules are shown with the module

    def __repr__(self) -> str:
        return self.__name__


if not TYPE_CHECKING:
    globals().update({name: _Named(name, globals()[name]) for name in __all__})
