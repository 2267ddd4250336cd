"""The monitor: watches the platform, and serves what it sees.

    GET /metrics        Authorization: Bearer KEY       a reader key or an admin key
    GET /health         no key needed: 200 if the polls of the views and the archive are succeeding, otherwise 503

`duties` lists what it does by itself. Airflow delivers the alerts that it finds.

    python -m truelog.services.monitor.service
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import psycopg
from botocore.exceptions import BotoCoreError
from confluent_kafka.admin import AdminClient
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from truelog.alerts import scheduler as alert_scheduler
from truelog.control import event_files, removed_views
from truelog.forgetting import reading
from truelog.limits import analysts
from truelog.log import topics
from truelog.maintenance import outbox_limit
from truelog.reports import metrics
from truelog.services import web
from truelog.services.declaration import HEALTH, METRICS
from truelog.services.http_server import run_server
from truelog.services.monitor.declaration import HTTP, SERVICE
from truelog.services.monitor.lag_polls import LagPolls
from truelog.services.monitor.short_timeouts import ShortTimeouts
from truelog.support.background import Background, running
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.settings import Settings

_FILES_SECONDS = 2.0  # interval at which the event files are compared with the registry
_VIEWS_SECONDS = 5.0  # interval at which views without a file are looked for
_ERASURES_SECONDS = 5.0  # interval at which it is looked whether PostgreSQL has started again, perhaps restored
_STOP_SECONDS = 1.0  # an unfinished poll may be lost

log = logging.getLogger(__name__)


def duties(settings: Settings, broker: AdminClient, polls: LagPolls) -> list[Background]:
    """What the monitor does by itself. Each duty has threads of its own, so that none waits for another."""
    files = partial(register_event_files, settings, broker)
    views = partial(settle_removed_views, settings)
    sessions = partial(analysts.end_long_transactions, settings)
    outboxes = partial(outbox_limit.keep, settings)
    return [
        *polls.threads(),
        *alert_scheduler.watcher_threads(settings),
        Background("event files", files, _FILES_SECONDS),
        Background("removed views", views, _VIEWS_SECONDS),
        Background("analysts", sessions, analysts.INTERVAL_SECONDS),
        Background("outboxes", outboxes, outbox_limit.INTERVAL_SECONDS),
        Background("erasures", partial(reading.read_once, settings), _ERASURES_SECONDS),
    ]


def create_app(settings: Settings) -> Starlette:
    """The ASGI application."""
    broker = topics.client(settings)
    polls = LagPolls(settings, broker)

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        with running(duties(settings, broker, polls), _STOP_SECONDS):
            yield

    async def health(_: Request) -> Response:
        current = polls.are_current()
        return JSONResponse(current, 200 if all(current.values()) else 503)

    return web.create_app(settings, HTTP, {METRICS: partial(_metrics, settings), HEALTH: health}, work)


async def _metrics(settings: Settings, _: Request) -> Response:
    try:
        text = await run_in_threadpool(metrics.scrape, settings)
    except ServiceDown as down:
        log.warning("No metrics: %s", down)
        raise RequestRefused(503, "PostgreSQL did not answer") from down
    return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})


def register_event_files(settings: Settings, broker: AdminClient) -> None:
    """Register new and changed event files. If a service is down, the next attempt follows soon."""
    try:
        event_files.register_files(settings, broker)
    except (TruelogError, psycopg.Error, OSError, BotoCoreError) as error:
        log.warning("The event files were not registered: %s", error)
    except Exception:  # a defect must not stop the watch
        log.exception("The event files were not registered")


def settle_removed_views(settings: Settings) -> None:
    """Let views leave whose files are gone. If the database is down, the next attempt follows soon."""
    try:
        removed_views.settle(settings)
    except (TruelogError, psycopg.Error, OSError) as error:
        log.warning("Removed views were not looked for: %s", error)


def main() -> None:
    settings = ShortTimeouts()
    run_server(partial(create_app, settings), settings.address(SERVICE.name), grace=5)


if __name__ == "__main__":
    main()
