"""The relay service: publishes the changed rows of views to their output topics (`truelog.relay`).

python -m truelog.services.relay.service
"""

import logging
from threading import Event

import psycopg

from truelog.forgetting import reading
from truelog.relay import view_outputs
from truelog.relay.spans import Spans, opened_spans
from truelog.services.relay.declaration import SERVICE
from truelog.support.errors import describe
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import Settings

_PAUSE_SECONDS = 0.2  # between the looks for rows while there are none
_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


def run(settings: Settings, stopped: Event) -> None:
    """Publish until stopped. If PostgreSQL is down, the service waits for it.

    Raises:
        Fenced: another relay service has started.
    """
    with opened_spans(settings, SERVICE.name) as spans:
        _run(settings, spans, stopped)


def _run(settings: Settings, spans: Spans, stopped: Event) -> None:
    while not stopped.is_set():
        try:
            reading.read_once(settings)
            with view_outputs.open_outputs(settings, spans) as outputs:
                while not stopped.is_set():
                    if not outputs.publish():
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.Error as error:  # an outage, a standby, or a session that ended while this process was suspended
            log.warning("PostgreSQL does not answer, or refuses: %s", describe(error))
            stopped.wait(_RETRY_SECONDS)


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
