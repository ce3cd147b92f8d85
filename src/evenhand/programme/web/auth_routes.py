"""Signing in and out, stopping long work, and the files of the page."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from evenhand.programme.api.auth import cookie, session_names
from evenhand.programme.api.problem_details import ErrorView, RequestError
from evenhand.programme.api.service import service_of
from evenhand.programme.web.layout import Sending, to
from evenhand.programme.web.render import MEDIA_TYPES, Frame, render, static_files

router = APIRouter(include_in_schema=False)


@router.post("/computing/{number}/stop")
async def stop_work(number: str, request: Request, form: Sending) -> Response:
    """Stop long work."""
    job = service_of(request).jobs.find(number)
    if job is not None:
        await service_of(request).jobs.cancel(job)
    back = form.text("back")
    return to(back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/")


# Signing in


@router.get("/login")
def show_login() -> Response:
    """Ask for a token."""
    return _login(None)


def _login(refusal: ErrorView | None) -> Response:
    facts = {"title": "Sign in", "frame": Frame("evenhand", "", ()), "refusal": refusal}
    return HTMLResponse(render("login.html", facts), refusal.status if refusal else 200)


@router.post("/login")
def sign_in(request: Request, form: Sending) -> Response:
    """Open a session for the holder of a token."""
    tokens, sessions = service_of(request).settings.tokens, service_of(request).sessions
    if tokens is None:
        return to("/")
    token = form.text("token")
    if tokens.holder(token) is None:
        request.state.guess()
        return _login(ErrorView("This token is invalid", (), "Copy the whole of it, or request a new one.", 401))
    _end_sessions(request)
    answer = to("/")
    answer.set_cookie(**cookie(_host(request), sessions.open(token), sessions.seconds))
    return answer


@router.post("/logout")
def sign_out(request: Request, form: Sending) -> Response:
    """End the session, or all sessions of its holder."""
    _end_sessions(request, everywhere=bool(form.text("everywhere")))
    answer = to("/login")
    answer.set_cookie(**cookie(_host(request), "", 0.0))
    return answer


def _end_sessions(request: Request, everywhere: bool = False) -> None:
    for name in session_names(_host(request), request.headers.get("cookie", "")):
        service_of(request).sessions.close(name, everywhere)


def _host(request: Request) -> str:
    return request.headers.get("host", "")


# Files


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """A style sheet or a script; a changed one has another address, so that it may be stored."""
    body = static_files().get(name)
    if body is None:
        raise RequestError(404, "there is nothing at this address")
    kind = MEDIA_TYPES[name.rpartition(".")[2]]
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(body, headers=headers, media_type=f"{kind}; charset=utf-8")
