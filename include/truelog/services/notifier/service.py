"""The notifier: notifies channels of matches and hits (`truelog.notifications`).

python -m truelog.services.notifier.service

Each channel has a thread of its own, so a channel that does not answer holds back no other.
"""

import logging
from threading import Event, Thread

import psycopg

from truelog.notifications import delivery, notifier
from truelog.storage.database import connect
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import Settings

_PAUSE_SECONDS = 0.2  # between the looks while there is nothing
_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


def run(settings: Settings, stopped: Event) -> None:
    """Notify until stopped. If PostgreSQL is down, the service waits for it."""
    threads = dict[str, Thread]()
    while not stopped.is_set():
        try:
            with connect(settings, autocommit=True) as connection:
                while not stopped.is_set():
                    found = notifier.look(settings, connection)
                    threads = {name: each for name, each in threads.items() if each.is_alive()}
                    for channel in delivery.waiting_channels(connection) - threads.keys():
                        threads[channel] = Thread(target=_deliver, args=(settings, channel, stopped), daemon=True)
                        threads[channel].start()
                    if not found:
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.OperationalError as error:
            log.warning("PostgreSQL does not answer: %s", error)
            stopped.wait(_RETRY_SECONDS)
    for thread in threads.values():
        thread.join(settings.notification_answer_seconds)


def _deliver(settings: Settings, channel: str, stopped: Event) -> None:
    """Deliver to one channel until stopped."""
    while not stopped.is_set():
        try:
            with delivery.only_deliverer(settings, channel) as connection:
                while connection and not stopped.is_set():
                    if not delivery.deliver_next(settings, connection, channel):
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.OperationalError as error:
            log.warning("PostgreSQL does not answer: %s", error)
        stopped.wait(_RETRY_SECONDS)


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
