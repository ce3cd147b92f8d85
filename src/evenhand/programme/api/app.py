"""The application: one `Service` per server, and its routes.

create_app(programme, settings)  →  FastAPI
    app.state.service            Service: the programme, the jobs, the plan cache, the metrics
    api/routes/                  the API
    web/*_routes, web/*_page     the page
    api/middleware               checks before a request is read
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from evenhand._version import __version__
from evenhand.programme.api import middleware, problem_details
from evenhand.programme.api.routes import operations
from evenhand.programme.api.routes import programme as programme_routes
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.api.service import Service
from evenhand.programme.programme import Programme
from evenhand.programme.web import arms_page, auth_routes, counterfactual_page, model_page, today_page


def create_app(programme: Programme, settings: Settings | None = None) -> FastAPI:
    """An application that serves a programme.

    Args:
        programme: an open one; who opened it closes it.
        settings: how it behaves; by default for one planner on this machine.
    """
    settings = settings or Settings()
    service = Service(programme, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="evenhand",
        version=__version__,
        summary="A programme that shares scarce resources fairly: plans, decisions and audits.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    api = (operations.router, programme_routes.decisions, programme_routes.router)
    page = (today_page, counterfactual_page, arms_page, model_page, auth_routes)
    for router in (*api, *(module.router for module in page)):
        app.include_router(router)
    problem_details.install(app)
    app.add_middleware(middleware.BodyLimit, settings=settings)
    app.add_middleware(middleware.AccessControl, settings=settings, metrics=service.metrics, sessions=service.sessions)
    app.add_middleware(middleware.AccessLog, metrics=service.metrics)
    return app
