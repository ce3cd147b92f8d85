"""Array aliases by role; axes stand in the order (episode, arm or type, state, action, next_state, resource)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
"""Real numbers: rewards, probabilities, values."""

Ints: TypeAlias = NDArray[np.int64]
"""Counts and offsets."""

Indices: TypeAlias = NDArray[np.int32]
"""Positions in a table: states, actions, types. Small, because batches of them are large."""

Bools: TypeAlias = NDArray[np.bool_]
"""Masks."""

Array: TypeAlias = NDArray[Any]
"""An array whose kind does not matter here."""

Rng: TypeAlias = np.random.Generator | int | None
"""What a user may pass as `rng`; turned into a Generator on the first line."""

Progress: TypeAlias = Callable[[str, float], None]
"""Told now and then what is being done, and the share of all the work that is done."""

__all__ = ["Array", "ArrayLike", "Bools", "Floats", "Indices", "Ints", "Progress", "Rng"]
