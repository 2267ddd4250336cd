"""The web application. Every route requires a sign-in, and there is no public API documentation."""

import gc
from types import ModuleType

import psycopg
from airflow.api_fastapi.core_api.security import requires_authenticated
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from pages import (
    alerts,
    analytics,
    application_actions,
    backfills,
    certificates,
    data,
    dead_letters,
    docs,
    explain,
    export,
    files,
    flow,
    reconciliations,
    records,
    rights,
    rows,
    rules,
    versions,
)
from pages.access import administrator
from pages.answer import declined, refusal
from pages.failures import Failures
from pages.headers import OURS, Headers
from truelog.erasure import hold
from truelog.support.errors import BadDeclaration, BadInput, Fenced, NotReady, NotSetUp, ReadsOnly, TruelogError

_MODULES: tuple[ModuleType, ...] = (files, data, rights, rows, records, reconciliations, certificates, docs, export)
_MODULES += (flow, explain, dead_letters, backfills, application_actions, alerts, analytics, rules, versions)
_STATUS: dict[type[Exception], int] = {
    BadInput: 400,
    BadDeclaration: 404,
    NotSetUp: 404,
    Fenced: 409,
    NotReady: 409,
    ReadsOnly: 409,
}


def make() -> FastAPI:
    checks = [Depends(requires_authenticated()), Depends(_require_storable)]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=checks)
    for module in _MODULES:
        app.include_router(module.router)
    app.add_api_route("/components", files.page, dependencies=[Depends(administrator)])  # the examples for contributors
    app.add_exception_handler(TruelogError, _refuse)
    app.add_exception_handler(psycopg.DatabaseError, _hold_back)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _decline)
    app.add_middleware(Failures)
    app.add_middleware(Headers, headers=OURS)
    gc.freeze()  # what Airflow has loaded never becomes garbage, but a full collection would search it for 0.2 s
    return app


def _require_storable(request: Request) -> None:
    """PostgreSQL would refuse the character, but with an error that looks like a defect."""
    for name, given in request.query_params.multi_items():
        if "\0" in name + given:
            raise BadInput(f"{name!r} contains the character U+0000, which no stored text has. Remove it")


async def _decline(request: Request, error: Exception) -> Response:
    """FastAPI's own response cannot quote half a character."""
    assert isinstance(error, HTTPException)  # noqa: S101  the type that this function is registered for
    return declined(request, error.detail, error.status_code)


async def _invalid(_: Request, error: Exception) -> Response:
    """The reasons without the values: FastAPI's own response repeats them, but JSON cannot contain NaN."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  the type that this function is registered for
    reasons = [{"loc": each["loc"], "msg": each["msg"], "type": each["type"]} for each in error.errors()]
    return refusal(reasons, 422)


async def _hold_back(request: Request, error: Exception) -> Response:
    """A query of a view that is held back after a restore. Other errors of PostgreSQL have no answer of their own."""
    if isinstance(error, psycopg.Error) and (reason := hold.refusal(error)):
        return declined(request, reason, 503)
    raise error


async def _refuse(request: Request, error: Exception) -> Response:
    """Any Truelog error without a status of its own means that a service is down."""
    return declined(request, str(error), _STATUS.get(type(error), 503))
