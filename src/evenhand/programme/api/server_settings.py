"""Settings of a server; the defaults suit one planner on a laptop."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from evenhand.errors import InvalidInputError
from evenhand.programme.api.auth import Queue, Tokens


@dataclass(frozen=True)
class Settings:
    """Settings of a server."""

    host: str = "127.0.0.1"
    """Host to listen on; tokens are required unless only this machine can reach it."""

    port: int = 8000
    """The port; 0 takes one that is free."""

    tokens: Tokens | None = None
    """Tokens; None allows all users of this machine."""

    names: tuple[str, ...] = ()
    """By which names browsers may ask for it, beside localhost and addresses in numbers."""

    proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""

    certificate: tuple[str, str] | None = None
    """Files of the TLS certificate, with its chain, and of its private key."""

    insecure: bool = False
    """Whether other machines may reach the server without TLS."""

    sign_on: str = ""
    """Header by which a proxy of `proxies` names the holder that it signed on, such as X-Remote-User."""

    proxy_secret: bytes = b""
    """Secret that the proxy must send with it, in the header X-Proxy-Secret; none by default."""

    session: float = 7 * 86400.0
    """Seconds after which a browser must sign in again."""

    idle_session: float = 86400.0
    """Seconds without a request after which a browser must sign in again."""

    largest_body: int = 16 * 2**20
    """Bytes of the largest request."""

    largest_open_body: int = 4096
    """Bytes of the largest request that needs no token, such as signing in."""

    held_bodies: int = 64 * 2**20
    """Bytes of the requests of one client that are under way at the same time."""

    slowest_head: float = 10.0
    """Seconds within which the head of a request must have arrived, or all of a request that needs no token."""

    slowest_body: float = 30.0
    """Seconds within which the body of a request must have arrived."""

    connections: int = 1000
    """Connections at the same time; a further one displaces the one that has been idle for the longest."""

    connections_per_address: int = 200
    """Connections of one address, other than a proxy's; the same applies."""

    rate: float = 200.0
    """Requests a second that one client may make over time."""

    burst: int = 400
    """Requests that one client may make at once."""

    queue: int = 8
    """Long computations that may wait, of writers and of readers each; further ones are refused."""

    share: int = 4
    """Long computations of one token that may wait or run at the same time."""

    job_seconds: Mapping[Queue, float] = field(default_factory=lambda: {"read": 300.0, "write": 2 * 86400.0})
    """Seconds after which a long computation is ended, by the queue of the holder that began it."""

    job_memory: int = field(default_factory=lambda: psutil.virtual_memory().total // 2)
    """Bytes of memory that one long computation may use."""

    ended_jobs: int = 200
    """Ended computations that stay available."""

    cached_models: int = 32
    """Solved models that `/v1/decide` remembers."""

    patience: float = 20.0
    """Seconds that a request waits for a computation before it is answered by the address of the job."""

    look_every: float = 5.0
    """Seconds between two looks whether the programme must be solved again."""

    judge_every: float = 60.0
    """Seconds between two looks whether the model still fits what is seen."""

    refit_seconds: float = 45.0
    """Approximate limit of solving for a refitted model, and of the price of fairness on the page."""

    first_seconds: float = 1.0
    """Approximate limit of solving for a roster that no policy can serve: the relaxation's policies, certified."""

    improve_seconds: float = 60.0
    """Approximate limit of the search in the background for a better policy than a first one; 0 for none."""

    what_if_seconds: float = 20.0
    """Approximate limit of a what-if on the page."""

    labels: dict[str, str] = field(default_factory=dict)
    """Words for the page, such as that this is a demonstration."""

    def __post_init__(self) -> None:
        if self.tokens is None and not is_loopback(self.host):
            raise InvalidInputError(
                f"host {self.host}: it can be reached from other machines, so tokens are required: "
                "make a token and serve with its file"
            )
        if self.sign_on and not (self.proxies and self.tokens):
            raise InvalidInputError(
                f"sign-on by {self.sign_on}: it needs the address of the proxy, and a token file with the holders"
            )
        if not (is_loopback(self.host) or self.certificate or self.proxies or self.insecure):
            raise InvalidInputError(
                f"host {self.host}: it can be reached from other machines, so TLS is required: give a certificate and "
                "its key, serve behind a proxy, or say that it may be insecure"
            )

    def accepts(self, peer: str) -> bool:
        """Return whether an address may connect: only the proxy and this machine if the proxy alone has TLS."""
        is_safe = is_loopback(self.host) or self.certificate is not None or self.insecure
        return is_safe or peer in self.proxies or is_loopback(peer)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
