"""Answers that several endpoints give."""

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from evenhand.programme.api.jobs import Job
from evenhand.programme.api.problem_details import MEDIA_TYPE, RETRY_AFTER, details


def accepted(job: Job) -> JSONResponse:
    """That something is being computed, and where to look for it."""
    return JSONResponse(job.to_dict(), 202, {"Location": f"/v1/jobs/{job.id}", "Retry-After": str(RETRY_AFTER)})


def failed(job: Job) -> JSONResponse:
    """Why a job that was waited for did not end well."""
    fields = job.failed or details(503, f"the computation {job.id} was {job.status}")
    headers = {"Retry-After": str(RETRY_AFTER)} if fields["status"] == 503 else {}
    return JSONResponse(fields, fields["status"], headers, MEDIA_TYPE)


def tagged(request: Request, answer: Any, tag: str) -> Response:
    """An answer that a client may already have: 304 where its tag says so."""
    mark = f'"{tag}"'
    headers = {"ETag": mark, "Cache-Control": "private, no-cache"}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if mark in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return JSONResponse(answer, headers=headers)
