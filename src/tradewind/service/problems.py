"""Errors of the API as problem documents (RFC 9457), and the handlers that make them."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tradewind.errors import JobBusy, JobNotFound, StateError, TradewindError, UsageError

__all__ = ["ApiProblem", "add_handlers", "problem_response"]

_LOG = logging.getLogger("tradewind.service")
MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    402: "Over budget",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Body too large",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}
#: Maximum invalid fields that a problem names.
FIELDS_MAX = 20
#: Hint about an invalid field, by its name.
FIELD_HINTS = {
    "header.Idempotency-Key": "send 1 to 255 ASCII characters of your choice without spaces, others for each job"
}


class ApiProblem(Exception):
    """An answer with an error status. `detail` is one sentence, `hint` says what to do, `field` names what is wrong."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint, self.headers = status, detail, hint, headers
        self.fields = None if field is None else [{"field": field, "message": detail}]


def problem_response(
    status: int,
    detail: str,
    *,
    hint: str | None = None,
    headers: dict[str, str] | None = None,
    fields: list[dict[str, str]] | None = None,
) -> JSONResponse:
    """Return the answer for an error."""
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
    }
    if hint is not None:
        document["hint"] = hint
    if fields:
        document["fields"] = fields
    return JSONResponse(document, status, headers, MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the API with a problem document."""
    app.add_exception_handler(ApiProblem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(TradewindError, _known)
    app.add_exception_handler(Exception, _unknown)


def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiProblem)
    if error.status == 403:
        request.app.state.service.record_refusal(request, error.detail)
    return problem_response(error.status, error.detail, hint=error.hint, headers=error.headers, fields=error.fields)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [
        {"field": ".".join(str(part) for part in one["loc"]), "message": str(one["msg"])}
        for one in error.errors()[:FIELDS_MAX]
    ]
    first = f"{found[0]['field']}: {found[0]['message']}" if found else "invalid request"
    hint = next((FIELD_HINTS[one["field"]] for one in found if one["field"] in FIELD_HINTS), None)
    return problem_response(422, first, hint=hint, fields=found)


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem_response(error.status_code, str(error.detail), headers=dict(error.headers or {}))


def _known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TradewindError)
    status = next(
        (
            status
            for kind, status in ((UsageError, 422), (JobNotFound, 404), (JobBusy, 409), (StateError, 503))
            if isinstance(error, kind)
        ),
        409,
    )
    if status == 503:
        _LOG.error("%s", error)
        return problem_response(503, "the database is not available", hint="try again", headers={"Retry-After": "5"})
    return problem_response(status, str(error), hint=error.hint)


def _unknown(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(500, "internal error", hint="the server's log has the details")
