"""The application: every route signed in, every answer with its headers, no documentation of itself for strangers."""

from airflow.api_fastapi.core_api.security import requires_authenticated
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from pages import acts, alerting, backfills, data, docs, export, files
from pages.headers import OURS, Headers
from truelog.support.errors import BadDeclaration, BadInput, NotSetUp, TruelogError

_STATUS: dict[type[Exception], int] = {BadInput: 400, BadDeclaration: 404, NotSetUp: 404}


def make() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(requires_authenticated())])
    for part in (files, data, docs, export, backfills, acts, alerting):
        app.include_router(part.router)
    app.add_exception_handler(TruelogError, _refuse)
    app.add_middleware(Headers, headers=OURS)
    return app


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    """Anything else that Truelog raises means that a service is away."""
    return JSONResponse({"detail": str(error)}, _STATUS.get(type(error), 503))
