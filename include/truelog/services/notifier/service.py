"""The notifier: notifies channels of matches and hits (`truelog.notifications`).

python -m truelog.services.notifier.service

Each channel for which something waits has a thread of its own, so a channel that does not answer holds back no other. A
thread ends when nothing has waited for some seconds. The service begins another one as soon as something waits.
"""

import logging
from threading import Event, Thread
from time import monotonic

import psycopg

from truelog.notifications import delivery, notifier
from truelog.storage.database import connect
from truelog.support.errors import describe
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import Settings

_PAUSE_SECONDS = 0.2  # between the looks while there is nothing
_RETRY_SECONDS = 1.0
_LINGER_SECONDS = 10.0  # that a thread without notifications keeps its connection

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
                        threads[channel] = _thread(settings, channel, stopped)
                        threads[channel].start()
                    if not found:
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.Error as error:  # an outage, a standby, or a session that ended while this process was suspended
            log.warning("PostgreSQL does not answer, or refuses: %s", describe(error))
            stopped.wait(_RETRY_SECONDS)
    for thread in threads.values():
        thread.join(settings.notification_answer_seconds)


def _thread(settings: Settings, channel: str, stopped: Event) -> Thread:
    return Thread(target=_deliver, args=(settings, channel, stopped), name=f"to {channel}", daemon=True)


def _deliver(settings: Settings, channel: str, stopped: Event) -> None:
    """Deliver to one channel until nothing waits, another session delivers, or the service is stopped."""
    mine = True
    while mine and not stopped.is_set():
        try:
            with delivery.only_deliverer(settings, channel) as connection:
                mine, begun = connection is not None, monotonic()
                while connection and not stopped.is_set():
                    if delivery.deliver_next(settings, connection, channel):
                        begun = monotonic()
                    elif monotonic() - begun > _LINGER_SECONDS and channel not in delivery.waiting_channels(connection):
                        return
                    else:
                        stopped.wait(_PAUSE_SECONDS)
        except psycopg.Error as error:  # an outage, a standby, or a session that ended while this process was suspended
            log.warning("PostgreSQL does not answer, or refuses: %s", describe(error))
        stopped.wait(_RETRY_SECONDS)


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
