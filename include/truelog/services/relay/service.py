"""The relay service: publishes the changed rows of views to their output topics (`truelog.relay`).

python -m truelog.services.relay.service
"""

import logging
from threading import Event

import psycopg

from truelog.forgetting import reading
from truelog.relay import view_outputs
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
    while not stopped.is_set():
        try:
            reading.read_once(settings)
            with view_outputs.open_outputs(settings) as outputs:
                while not stopped.is_set():
                    if not outputs.publish():
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.OperationalError as error:
            log.warning("PostgreSQL does not answer: %s", error)
            stopped.wait(_RETRY_SECONDS)


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
