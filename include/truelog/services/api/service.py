"""The API: answers questions of applications about views.

    GET  /views                                the views, with the positions and the age of each
    GET  /views/{view}                         its columns, its key and its relations
    GET  /views/{view}/rows                    rows by key, conditions, order and cursor; `at_least` waits for a write
    GET  /views/{view}/relations/{relation}    the same of a further relation
    GET  /views/{view}/changes                 the rows, and then each change, as server-sent events
    GET  /rate-limits/{address}                whether an address may make another request
    GET  /searches/{view}                      the rows whose words match
    POST /tokens                               exchanges an API key for a scoped token, which a browser may hold
    GET  /openapi.json                         the document of these routes
    GET  /iceberg/v1/…                         the archive as a catalog of Iceberg's REST protocol (docs/bi.md)

All need `Authorization: Bearer KEY`, the key of a reader, or of an archivist for the catalog. docs/applications.md
shows how to use them. A refusal is a problem of RFC 9457, or an error of Iceberg's protocol. `GET /health` needs no
key. It returns 200 while PostgreSQL answers, and 503 otherwise.

    python -m truelog.services.api.service
"""

from functools import partial

from truelog.services.api.application import create_app
from truelog.services.api.declaration import SERVICE
from truelog.services.http_server import run_server

_GRACE_SECONDS = 5


def main() -> None:
    """Run the service until SIGTERM. The service finishes the requests in progress before it exits."""
    settings = SERVICE.settings()
    run_server(partial(create_app, settings), settings.address(SERVICE.name), grace=_GRACE_SECONDS)


if __name__ == "__main__":
    main()
