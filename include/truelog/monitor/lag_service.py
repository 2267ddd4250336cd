"""The lag service: polls the views and the archive every `lag_poll_seconds`, serves metrics, and runs alert checks.

It also registers new and changed files in the events folder (`truelog.control.event_files`), and applies the time limit
of analysts (`truelog.serving.analyst_limit`).

    GET /metrics        Authorization: Bearer KEY       a reader key or an admin key
    GET /health         no key needed: 200 if the polls of the views and the archive are succeeding, otherwise 503

The views and the archive are polled separately, so that a hung store does not stop the polling of the views. Each poll
is stored in the history and published as consumer groups. Airflow delivers the alerts that the checks find.

    python -m truelog.monitor.lag_service
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import psycopg
from botocore.exceptions import BotoCoreError
from confluent_kafka.admin import AdminClient
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truelog.alerts import alert_scheduler
from truelog.control import event_files
from truelog.lag import lag_groups, lag_history, lag_poll
from truelog.lag.lag_limits import POLLS
from truelog.lag.lag_poll import ListReaders
from truelog.lag.lag_window import LagWindow
from truelog.log import topics
from truelog.monitor import metrics
from truelog.schema import event
from truelog.serving import analyst_limit
from truelog.storage.api_key import RELOAD_SECONDS, KeyRing, Role
from truelog.storage.database import Connection, connect
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.http_server import error_response, run_server
from truelog.support.settings import Settings

_FILES_SECONDS = 2.0  # interval at which the event files are compared with the registry
_STOP_SECONDS = 1.0  # an unfinished poll may be lost

_STATEMENT_SECONDS = 10
# These limits detect a dead server: the first limit applies to sent data, the others apply while waiting for an answer.
_TCP_LIMITS = {"tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}

log = logging.getLogger(__name__)


class ShortTimeouts(Settings):
    """Settings with time limits for PostgreSQL, so that a hung or dead server does not block the polling."""

    def __init__(self, **given: Any) -> None:  # the signature of Settings; type checkers infer another signature
        super().__init__(**given)

    def database(self) -> dict[str, Any]:
        given = super().database()
        return given | _TCP_LIMITS | {"options": f"{given['options']} -c statement_timeout={_STATEMENT_SECONDS}s"}

    def iceberg(self) -> dict[str, str]:
        given = super().iceberg()
        return given | {"uri": f"{given['uri']}&{urlencode(_TCP_LIMITS)}"}


class LagService:
    """The state that the polls and the requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings)
        self._broker = topics.client(settings)
        self._readers: dict[str, ListReaders] = {"views": lag_poll.polled_views, "archive": lag_poll.polled_archive}
        self._polled_at = dict.fromkeys(self._readers, 0.0)  # time of each last successful poll
        self._window: LagWindow | None = None  # of all readers; the polls run in parallel, on different readers
        self._loading = Lock()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        self.keys.load()
        threads = [Background("keys", self.keys.reload, RELOAD_SECONDS)]
        threads += [
            Background(name, partial(self._try_poll, name), self.settings.lag_poll_seconds) for name in self._readers
        ]
        threads += alert_scheduler.watcher_threads(self.settings)
        threads += [
            Background("event files", partial(register_event_files, self.settings, self._broker), _FILES_SECONDS),
            Background(
                "analysts", partial(analyst_limit.end_long_transactions, self.settings), analyst_limit.INTERVAL_SECONDS
            ),
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.stop(_STOP_SECONDS)

    def poll(self, name: str) -> None:
        """Poll (1), store the readings with their verdicts (2), and publish the positions (3)."""
        readers, readings = lag_poll.poll_once(
            self.settings, self._broker, event.event_names(self.settings.events_folder), self._readers[name]
        )  # 1
        with connect(self.settings) as connection:
            window = self._load_window(connection)
            judged = [window.judged(each) for each in readings]
            lag_history.append(connection, judged, self.settings.lag_keep_seconds)  # 2
        self._polled_at[name] = time.monotonic()
        lag_groups.publish_groups(
            self.settings, self._broker, {name: reader.at for name, reader in readers.items()}
        )  # 3

    def _load_window(self, connection: Connection) -> LagWindow:
        """The window, which the first poll loads."""
        with self._loading:
            if self._window is None:
                self._window = LagWindow.loaded(connection, self.settings)
            return self._window

    def _try_poll(self, name: str) -> None:
        """Poll once. Log any failure: it leaves a gap in the history, and the verdict then reports the gap."""
        try:
            self.poll(name)
        except (TruelogError, psycopg.Error) as error:
            log.warning("The poll of the %s failed: %s", name, error)
        except Exception:  # a defect must not stop the polling
            log.exception("The poll of the %s failed", name)

    async def metrics(self, request: Request) -> Response:
        self.keys.authorize(request.headers.get("authorization", ""), Role.READER)
        text = await run_in_threadpool(metrics.scrape, self.settings)
        return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def health(self, _: Request) -> Response:
        limit = time.monotonic() - POLLS * self.settings.lag_poll_seconds
        current = {name: at > limit for name, at in self._polled_at.items()}
        return JSONResponse(current, 200 if all(current.values()) else 503)


def register_event_files(settings: Settings, broker: AdminClient) -> None:
    """Register new and changed event files. If a service is down, the next attempt follows soon."""
    try:
        event_files.register_files(settings, broker)
    except (TruelogError, psycopg.Error, OSError, BotoCoreError) as error:
        log.warning("The event files were not registered: %s", error)
    except Exception:  # a defect must not stop the watch
        log.exception("The event files were not registered")


def create_app(settings: Settings) -> Starlette:
    """The application that uvicorn serves."""
    service = LagService(settings)
    return Starlette(
        routes=[Route("/metrics", service.metrics), Route("/health", service.health)],
        exception_handlers={RequestRefused: _refused, ServiceDown: _down},
        lifespan=service.running,
    )


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error.status if isinstance(error, RequestRefused) else 500, str(error))


async def _down(_: Request, error: Exception) -> Response:
    log.warning("No metrics: %s", error)
    return error_response(503, "PostgreSQL did not answer")


def main() -> None:
    settings = ShortTimeouts()
    run_server(create_app(settings), settings.lag_host, settings.lag_port, grace=5)


if __name__ == "__main__":
    main()
