"""Functions that Truelog's HTTP services share."""

from typing import Any

import uvicorn
from starlette.responses import JSONResponse

from truelog.support.service_main import configure_logging


def error_response(status: int, reason: str, retry_after: int | None = None) -> JSONResponse:
    """The response to a rejected request."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": reason}, status, headers)


def run_server(application: Any, host: str, port: int, *, grace: int) -> None:
    """Serve until SIGTERM, then give the requests in progress `grace` seconds to finish.

    Logs go to standard error. Requests are not logged.
    """
    configure_logging()
    uvicorn.run(
        application,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=grace,
    )
