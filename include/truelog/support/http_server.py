"""Serving: what our HTTP services have in common."""

import logging
from typing import Any

import uvicorn
from starlette.responses import JSONResponse


def error_response(status: int, reason: str, retry_after: int | None = None) -> JSONResponse:
    """The answer to a request that is turned away."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": reason}, status, headers)


def run_server(application: Any, host: str, port: int, *, grace: int) -> None:
    """Until SIGTERM, and for so many seconds longer to those under way; logs on standard error, without requests."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    uvicorn.run(
        application,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=grace,
    )
