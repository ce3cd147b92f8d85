"""`evenhand serve`."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import print_json
from evenhand.cli.progress import progress
from evenhand.cli.refusals import OptionError

if TYPE_CHECKING:
    from evenhand.programme.api.auth import Role
    from evenhand.programme.programme import Programme

DEMO = "demo"


def run(
    programme: str | None,
    host: str,
    port: int,
    token_file: str | None,
    make_token: "Role | None",
    token_name: str,
    names: tuple[str, ...],
    proxies: tuple[str, ...],
    rate: float,
    keep: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Serve a programme, or make a token."""
    if make_token is not None:
        _make_token(token_file, make_token, token_name, as_json)
        return
    if programme is None:
        raise OptionError("PROGRAMME", "expected a file, an address postgresql://..., or demo")
    if keep is not None and programme != DEMO:
        raise OptionError("--keep", "goes with `evenhand serve demo`")
    from evenhand.programme.api.auth import Tokens
    from evenhand.programme.api.server import listen, serve
    from evenhand.programme.api.server_settings import Settings
    from evenhand.programme.api.telemetry import configure

    settings = Settings(
        host=host,
        port=port,
        tokens=None if token_file is None else Tokens.read(token_file),
        names=tuple(name.lower() for name in names),
        proxies=proxies,
        rate=rate,
        burst=max(1, round(2 * rate)),
        labels={"demo": "made-up data"} if programme == DEMO else {},
    )
    with _opened(programme, keep, quiet) as opened, listen(host, port) as listener:
        configure(quiet)
        _say_where(listener, opened, as_json)
        interrupted = serve(opened, settings, listener)
    if interrupted:
        raise KeyboardInterrupt


def _make_token(file: str | None, role: "Role", name: str, as_json: bool) -> None:
    from evenhand.programme.api.auth import make_token

    if file is None:
        raise OptionError("--make-token", "needs --token-file FILE, which stores the token's digest")
    token = make_token(file, role, name)
    if as_json:
        print_json({"token": token, "role": role, "name": name, "file": file})
        return
    click.echo(token)
    click.echo(f"This is shown once: {file} keeps its digest only. It may {role}.", err=True)


@contextmanager
def _opened(programme: str, keep: str | None, quiet: bool) -> "Iterator[Programme]":
    from evenhand.programme.programme import Programme

    if programme != DEMO:
        with Programme.open(programme) as opened:
            yield opened
        return
    with TemporaryDirectory(prefix="evenhand-demo-") as folder, _demo(keep or Path(folder) / "demo.db", quiet) as made:
        yield made


def _demo(where: str | Path, quiet: bool) -> "Programme":
    """A programme with made-up data; the one that was made there before."""
    from evenhand.programme.demo import make_demo
    from evenhand.programme.programme import Programme

    if Path(where).exists():
        return Programme.open(where)
    with progress(quiet) as tell:
        return make_demo(where, progress=tell)


def _say_where(listener: socket.socket, programme: "Programme", as_json: bool) -> None:
    """The address, once the programme answers and the port is ours."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    where = f"http://{shown}:{port}"
    status: dict[str, Any] = programme.status().to_dict()
    if as_json:
        click.echo(json.dumps({"address": where, "programme": status["name"], "step": status["step"]}))
    else:
        click.echo(f"{status['name']}, step {status['step']}: {where} (Ctrl-C ends it)")
    sys.stdout.flush()
