"""`evenhand serve`."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.options import RunOptions, option, run_options
from evenhand.cli.refusals import OptionError

if TYPE_CHECKING:
    from evenhand.programme.api.auth import Role
    from evenhand.programme.programme import Programme

DEMO = "demo"


@click.command("serve")
@click.argument("programme", required=False)
@option("--host", None, "Where to listen; any other needs --token-file.", default="127.0.0.1")
@option("--port", None, "0 takes one that is free.", default=8000, type=click.IntRange(0, 65535))
@option("--token-file", "FILE", "Let only those in who have a token of this file.")
@option("--make-token", None, "Add a token to --token-file, and show it.", type=click.Choice(["read", "write"]))
@option("--token-name", "NAME", "Who will hold --make-token.", default="planner")
@option("--name names", "HOST", "A name by which browsers know the server; repeatable.", multiple=True)
@option("--proxy proxies", "ADDRESS", "Believe a reverse proxy's X-Forwarded-For; repeatable.", multiple=True)
@option("--rate", None, "Requests per second and client.", default=200.0, type=click.FloatRange(min=0.1))
@option("--keep", "FILE", "Store the programme of `evenhand serve demo` in this file.")
@run_options(seeded=False)
def command(
    programme: str | None,
    run: RunOptions,
    token_file: str | None,
    make_token: "Role | None",
    token_name: str,
    keep: str | None,
    **options: Any,
) -> None:
    """Serve PROGRAMME: its API, and a page for planners at /.

    PROGRAMME is the file or the address (postgresql://...) of a programme, or demo for one with made-up data. Only this
    machine can reach it, unless --host says else, which needs --token-file. Needs the extra "service".
    """
    if make_token is not None:
        _make_token(token_file, make_token, token_name, run)
        return
    if programme is None:
        raise OptionError("PROGRAMME", "expected a file, an address postgresql://..., or demo")
    if keep is not None and programme != DEMO:
        raise OptionError("--keep", "goes with `evenhand serve demo`")
    from evenhand.programme.api.auth import Tokens
    from evenhand.programme.api.server import listen, serve
    from evenhand.programme.api.server_settings import Settings
    from evenhand.programme.api.telemetry import configure

    options["names"] = tuple(name.lower() for name in options["names"])
    settings = Settings(
        tokens=None if token_file is None else Tokens.read(token_file),
        burst=max(1, round(2 * options["rate"])),
        labels={"demo": "made-up data"} if programme == DEMO else {},
        **options,
    )
    with _opened(programme, keep, run) as opened, listen(settings.host, settings.port) as listener:
        configure(run.quiet)
        _print_address(listener, opened, run)
        interrupted = serve(opened, settings, listener)
    if interrupted:
        raise KeyboardInterrupt


def _make_token(file: str | None, role: "Role", name: str, run: RunOptions) -> None:
    from evenhand.programme.api.auth import make_token

    if file is None:
        raise OptionError("--make-token", "needs --token-file FILE, which stores the token's digest")
    token = make_token(file, role, name)
    run.say({"token": token, "role": role, "name": name, "file": file}, token)
    if not run.as_json:
        click.echo(f"This is shown once: {file} stores its digest only. It may {role}.", err=True)


@contextmanager
def _opened(programme: str, keep: str | None, run: RunOptions) -> "Iterator[Programme]":
    """Yield the programme; for demo one with made-up data, in a temporary folder unless it has a file."""
    from evenhand.programme.demo import make_demo
    from evenhand.programme.programme import Programme

    with TemporaryDirectory(prefix="evenhand-demo-") as folder:
        place = keep or str(Path(folder) / "demo.db") if programme == DEMO else programme
        if programme == DEMO and not Path(place).exists():
            with run.progress() as tell:
                make_demo(place, progress=tell).close()
        with Programme.open(place) as opened:
            yield opened


def _print_address(listener: socket.socket, programme: "Programme", run: RunOptions) -> None:
    """Print the address, once the programme answers and the port is ours."""
    host, port = listener.getsockname()[:2]
    where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    status = programme.status()
    result = {"address": where, "programme": status.name, "step": status.step}
    step = programme.vocabulary().name(status.step)
    run.say(result, f"{status.name}, {step}: {where} (Ctrl-C ends it)")
    sys.stdout.flush()
