"""What a server may be told, all of it with defaults that suit one planner on a laptop."""

import ipaddress
from dataclasses import dataclass, field

from evenhand.errors import InvalidInput
from evenhand.service.tokens import Tokens

MEGABYTE = 2**20


@dataclass(frozen=True)
class Settings:
    """How a server behaves."""

    host: str = "127.0.0.1"
    """Where it listens; on any other machine's reach tokens are required."""

    port: int = 8000
    """The port; 0 takes one that is free."""

    tokens: Tokens | None = None
    """Who may read and write; None lets everybody on this machine."""

    names: tuple[str, ...] = ()
    """By which names browsers may ask for it, beside localhost and addresses in numbers."""

    largest_body: int = 16 * MEGABYTE
    """Bytes of the largest request."""

    slowest_body: float = 30.0
    """Seconds within which a request must have arrived."""

    rate: float = 200.0
    """Requests a second that one client may make over time."""

    burst: int = 400
    """Requests that one client may make at once."""

    queue: int = 8
    """Long computations that may wait; further ones are refused."""

    kept_models: int = 32
    """Solved models that `/v1/decide` remembers."""

    patience: float = 20.0
    """Seconds that a request waits for a computation before it is told where to look for it."""

    look_every: float = 5.0
    """Seconds between two looks whether the programme must be solved anew."""

    judge_every: float = 60.0
    """Seconds between two looks whether the model still fits what is seen."""

    labels: dict[str, str] = field(default_factory=dict)
    """Words for the page, such as that this is a demonstration."""

    def __post_init__(self) -> None:
        if self.tokens is None and not is_loopback(self.host):
            raise InvalidInput(
                f"--host {self.host}: others than this machine could reach it, so tokens are required: "
                "--make-token write --token-file FILE makes one, --token-file FILE then serves with it"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
