"""The door to Numba's compiler: what compiled kernels import, so that their compilation is heard of (`compilation`)."""

from collections.abc import Callable

from evenhand.kernels.compilation import compile_now, get_ready

get_ready(True)  # loading Numba takes most of a second
try:
    from numba import njit, prange
    from numba.core import event
finally:
    get_ready(False)

__all__ = ["njit", "prange"]


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
