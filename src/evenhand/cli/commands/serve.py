"""`evenhand serve`, and `evenhand token` for those whom it lets in."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.completion import Commands
from evenhand.cli.options import RunOptions, option, run_options
from evenhand.cli.refusals import OptionError

if TYPE_CHECKING:
    from socket import socket

    from evenhand.programme.api.auth import Role, Tokens
    from evenhand.programme.programme import Programme

DEMO = "demo"


@click.command("serve")
@click.argument("programme", required=False)
@option("--host", None, "Where to listen; any other needs --token-file and TLS.", default="127.0.0.1")
@option("--port", None, "0 takes one that is free.", default=8000, type=click.IntRange(0, 65535))
@option("--token-file", "FILE", "Let only holders of this file in; `evenhand token` makes it.")
@option("--tls", "CERT KEY", "Files of a TLS certificate and its private key.", type=(str, str))
@option("--insecure", None, "Let other machines in without TLS.", is_flag=True)
@option("--name names", "HOST", "A name by which browsers know the server; repeatable.", multiple=True)
@option("--proxy proxies", "ADDRESS", "Believe a reverse proxy's X-Forwarded-For; repeatable.", multiple=True)
@option("--trust-header", "HEADER", "Header by which --proxy names the holder, such as X-Remote-User.", default="")
@option("--proxy-secret", "FILE", "File with X-Proxy-Secret, for --trust-header.")
@option("--rate", None, "Requests per second of each client.", default=200.0, type=click.FloatRange(min=0.1))
@option("--keep", "FILE", "Store the programme of `evenhand serve demo` in this file.")
@run_options(seeded=False)
def command(
    programme: str | None,
    run: RunOptions,
    token_file: str | None,
    tls: tuple[str, str] | None,
    trust_header: str,
    proxy_secret: str | None,
    keep: str | None,
    **options: Any,
) -> None:
    """Serve PROGRAMME: its API, and a page for planners at /.

    PROGRAMME is the file or the address (postgresql://...) of a programme, or demo for one with made-up data. Only this
    machine can reach it, unless --host is another address, which needs --token-file, and --tls, --proxy or --insecure.
    Needs the extra "service".
    """
    if programme is None:
        raise OptionError("PROGRAMME", "expected a file, an address postgresql://..., or demo")
    if keep is not None and programme != DEMO:
        raise OptionError("--keep", "goes with `evenhand serve demo`")
    from evenhand.programme.api.auth import Tokens
    from evenhand.programme.api.server import listen, serve
    from evenhand.programme.api.server_settings import Settings
    from evenhand.programme.api.telemetry import configure
    from evenhand.programme.integrity import read_key

    options["names"] = tuple(name.lower() for name in options["names"])
    settings = Settings(
        tokens=None if token_file is None else Tokens.read(token_file),
        certificate=tls,
        sign_on=trust_header,
        proxy_secret=b"" if proxy_secret is None else read_key(proxy_secret),
        burst=max(1, round(2 * options["rate"])),
        labels={"demo": "made-up data"} if programme == DEMO else {},
        **options,
    )
    with _opened(programme, keep, run) as opened, listen(settings.host, settings.port) as listener:
        configure(run.quiet)
        _print_address(listener, "https" if tls else "http", opened, run)
        interrupted = serve(opened, settings, listener)
    if interrupted:
        raise KeyboardInterrupt


@contextmanager
def _opened(programme: str, keep: str | None, run: RunOptions) -> "Iterator[Programme]":
    """Yield the programme; for demo one with made-up data, in a temporary folder unless it has a file."""
    from tempfile import TemporaryDirectory

    from evenhand.programme.demo import make_demo
    from evenhand.programme.programme import Programme

    with TemporaryDirectory(prefix="evenhand-demo-") as folder:
        place = keep or str(Path(folder) / "demo.db") if programme == DEMO else programme
        if programme == DEMO and not Path(place).exists():
            with run.progress() as tell:
                make_demo(place, progress=tell).close()
        with Programme.open(place) as opened:
            yield opened


def _print_address(listener: "socket", scheme: str, programme: "Programme", run: RunOptions) -> None:
    """Print the address, once the programme answers and the port is ours."""
    host, port = listener.getsockname()[:2]
    where = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    status = programme.status()
    result = {"address": where, "programme": status.name, "step": status.step}
    step = programme.vocabulary().name(status.step)
    run.say(result, f"{status.name}, {step}: {where} (Ctrl-C ends it)")
    sys.stdout.flush()


ROLES = ["read", "report", "plan", "accept", "adopt", "administer"]
file_argument, name_argument = click.argument("file", metavar="FILE"), click.argument("name")


@click.group(cls=Commands)
def token() -> None:
    """Create, rotate, revoke and list the holders of a token FILE, also while servers use it.

    FILE stores digests of tokens only. Needs the extra "service".
    """


@token.command()
@file_argument
@name_argument
@option("--role roles", None, "Role of the holder; repeatable.", type=click.Choice([*ROLES, "all"]), multiple=True)
@option("--group groups", "GROUP", "See and report on this group only; repeatable.", multiple=True)
@option("--no-token", None, "No token: a proxy signs the holder on.", is_flag=True)
@run_options(seeded=False)
def create(
    file: str, name: str, roles: "Sequence[Role]", groups: Sequence[str], no_token: bool, run: RunOptions
) -> None:
    """Add NAME to FILE, and print the token, once."""
    if not roles:
        raise OptionError("--role", f"expected at least one of {', '.join(ROLES)}, all")
    chosen: Any = ROLES if "all" in roles else roles
    made = _tokens(file).create(name, chosen, groups or None, secret=not no_token)
    _print_token(made, name, file, run)


@token.command()
@file_argument
@name_argument
@run_options(seeded=False)
def rotate(file: str, name: str, run: RunOptions) -> None:
    """Replace the token of NAME, and print the new one; the old one and its sessions end at once."""
    _print_token(_tokens(file).rotate(name), name, file, run)


@token.command()
@file_argument
@name_argument
@run_options(seeded=False)
def revoke(file: str, name: str, run: RunOptions) -> None:
    """Remove NAME from FILE; the token and its sessions end at once."""
    _tokens(file).revoke(name)
    run.say({"revoked": name, "file": file}, f"{name} is removed from {file}")


@token.command("list")
@file_argument
@run_options(seeded=False)
def list_holders(file: str, run: RunOptions) -> None:
    """List the holders of FILE, with their roles and groups."""
    from evenhand.report.summary import Summary, table

    rows: list[dict[str, Any]] = []
    for digest, holder in _tokens(file).lines:
        roles, groups = [role for role in ROLES if role in holder.roles], sorted(holder.groups or ())
        rows.append({"name": holder.name, "roles": roles, "groups": groups, "has_token": digest != "-"})
    heads = ["name", "roles", "groups", "token"]
    cells = [
        [row["name"], ", ".join(row["roles"]), ", ".join(row["groups"]) or "all", "yes" if row["has_token"] else "no"]
        for row in rows
    ]
    run.say({"holders": rows}, Summary(file, tables=[table("", heads, cells, 0, heads)]))


def _tokens(file: str) -> "Tokens":
    from evenhand.programme.api.auth import Tokens

    return Tokens.read(file, empty=True)


def _print_token(made: str, name: str, file: str, run: RunOptions) -> None:
    run.say({"token": made, "name": name, "file": file}, made or f"{name} signs on by a proxy")
    if made and not run.as_json:
        click.echo(f"This is shown once: {file} stores its digest only.", err=True)
