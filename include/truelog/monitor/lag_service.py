"""The lag service: polls views and archive every `lag_poll_seconds`, tells Prometheus what is known, and watches.

    GET /metrics        Authorization: Bearer KEY       of a reader or an admin
    GET /health         needs no key: 200 while everything that is polled is seen, else 503

Views and archive are polled apart from each other: a store that hangs makes nobody blind for the views. What a poll
saw is kept in the history, and published as consumer groups. What is wrong is found here, and told by Airflow.

    python -m truelog.monitor.lag_service
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truelog.alerts import alert_watch
from truelog.lag import lag_groups, lag_history, lag_poll
from truelog.lag.lag_poll import ListReaders
from truelog.lag.lag_report import POLLS
from truelog.log import topics
from truelog.monitor import metrics
from truelog.schema import event
from truelog.storage.api_key import RELOAD_SECONDS, KeyRing, Role
from truelog.storage.database import connect
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.http_server import error_response, run_server
from truelog.support.settings import Settings

_STOP_SECONDS = 1.0  # a poll is not waited for to its end: what it has not kept is not needed

_STATEMENT_SECONDS = 10
# Of a server that acknowledges nothing: the first is of what was sent, the others are of answers that are waited for.
_VANISHED = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}

log = logging.getLogger(__name__)


class Impatient(Settings):
    """Settings by which a PostgreSQL that hangs or has vanished is found missing, and does not hang the poller."""

    def __init__(self, **given: Any) -> None:  # as of Settings: type checkers make up another one
        super().__init__(**given)

    def database(self) -> dict[str, Any]:
        given = super().database()
        return given | _VANISHED | {"options": f"{given['options']} -c statement_timeout={_STATEMENT_SECONDS}s"}

    def iceberg(self) -> dict[str, str]:
        given = super().iceberg()
        return given | {"uri": f"{given['uri']}&{urlencode(_VANISHED)}"}


class LagService:
    """What polls and requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings)
        self._broker = topics.client(settings)
        self._asked: dict[str, ListReaders] = {"views": lag_poll.polled_views, "archive": lag_poll.polled_archive}
        self._seen = dict.fromkeys(self._asked, 0.0)  # when each was last polled well

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        self.keys.load()
        threads = [Background("keys", self.keys.reload, RELOAD_SECONDS)]
        threads += [
            Background(what, partial(self._poll_again, what), self.settings.lag_poll_seconds) for what in self._asked
        ]
        threads += alert_watch.watcher_threads(self.settings)
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.stop(_STOP_SECONDS)

    def poll(self, what: str) -> None:
        """1. Look. 2. Keep what was seen. 3. Publish the positions."""
        seen, readings = lag_poll.poll_once(self.settings, self._broker, event.event_names(), self._asked[what])  # 1
        with connect(self.settings) as connection:
            lag_history.append(connection, readings, self.settings.lag_keep_seconds)  # 2
        self._seen[what] = time.monotonic()
        lag_groups.publish_groups(self.settings, self._broker, {name: reader.at for name, reader in seen.items()})  # 3

    def _poll_again(self, what: str) -> None:
        """What was not seen is missing from the history, and so seen to be missing."""
        try:
            self.poll(what)
        except (TruelogError, psycopg.Error) as blind:
            log.warning("the poll of the %s: %s", what, blind)
        except Exception:  # a defect, and no reason to be blind from now on
            log.exception("the poll of the %s", what)

    async def metrics(self, request: Request) -> Response:
        self.keys.authorize(request.headers.get("authorization", ""), Role.READER)
        text = await run_in_threadpool(metrics.scrape, self.settings)
        return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def health(self, _: Request) -> Response:
        limit = time.monotonic() - POLLS * self.settings.lag_poll_seconds
        sees = {what: seen > limit for what, seen in self._seen.items()}
        return JSONResponse(sees, 200 if all(sees.values()) else 503)


def application(settings: Settings) -> Starlette:
    """The service as uvicorn serves it."""
    service = LagService(settings)
    return Starlette(
        routes=[Route("/metrics", service.metrics), Route("/health", service.health)],
        exception_handlers={RequestRefused: _refused, ServiceDown: _down},
        lifespan=service.running,
    )


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error.status if isinstance(error, RequestRefused) else 500, str(error))


async def _down(_: Request, error: Exception) -> Response:
    log.warning("not scraped: %s", error)
    return error_response(503, "PostgreSQL did not answer")


def main() -> None:
    settings = Impatient()
    run_server(application(settings), settings.lag_host, settings.lag_port, grace=5)


if __name__ == "__main__":
    main()
