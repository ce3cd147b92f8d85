"""The door to Numba's compiler: what compiled kernels import.

Behind it, their compilation is heard of (`compilation`), and its result is stored in files that are checked when
they are read.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from evenhand.kernels.compilation import compile_now, get_ready
from evenhand.kernels.threads import loops_share

get_ready(True)  # loading Numba takes most of a second
try:
    import numba
    from numba import njit, prange
    from numba.core import event

    from evenhand.kernels.kept import store_of
finally:
    get_ready(False)

__all__ = ["njit", "prange"]


def _njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """Numba's decorator of the same name.

    Args:
        function: what to compile, when it is first called.
        cache: whether to store the compiled code in a file.
        options: those of Numba.
    """
    if function is None:
        return partial(_njit, cache=cache, **options)
    alone = bool(options.get("parallel")) and not loops_share()
    if alone:  # these would end a forked process
        options["parallel"] = False
    made = numba.njit(**options)(function)
    if cache and hasattr(made, "_cache"):  # not where the user's environment turns compilation off
        made._cache = store_of(function, alone)
    return made


if not TYPE_CHECKING:  # its types are Numba's
    njit = _njit


class _Hearing(event.Listener):
    """Passes on that something begins or ends."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell

    def on_start(self, event: object) -> None:
        self._tell(True)

    def on_end(self, event: object) -> None:
        self._tell(False)


event.register("numba:compiler_lock", _Hearing(get_ready))
event.register("numba:compile", _Hearing(compile_now))
