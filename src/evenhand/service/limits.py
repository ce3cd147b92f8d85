"""Rate limit per client: a token bucket.

At most `most` buckets are stored, of those who asked last; who comes back after that finds a full one.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic


class RateLimit:
    """Buckets by client."""

    def __init__(self, rate: float, burst: int, most: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        """Let everybody begin.

        Args:
            rate: requests a second, over time.
            burst: requests at once.
            most: clients that are remembered.
            clock: seconds that never go back.
        """
        self._rate, self._burst, self._most, self._clock = rate, float(burst), most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, cost: float = 1.0) -> float:
        """Take from a client's bucket; the seconds to wait where there is not enough in it, else 0."""
        now = self._clock()
        left, since = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - since))
        enough = left >= cost
        self._buckets[client] = (left - cost if enough else left, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if enough else (cost - left) / self._rate
