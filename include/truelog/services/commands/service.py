"""The commands service: publishes the events of accepted commands, and reads the states on which commands are decided.

python -m truelog.services.commands.service
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event, Thread
from time import monotonic

import psycopg
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException

from truelog.commands import catalogue
from truelog.commands.catalogue import Catalogue
from truelog.commands.feed import WRITTEN, CommandFeed, begin_again
from truelog.commands.folding.confirmation import Confirmation
from truelog.commands.folding.fold_reader import FoldReader
from truelog.commands.folding.states import FoldFailed
from truelog.relay.place import Place
from truelog.relay.relay import Relay
from truelog.storage.database import Connection, connect
from truelog.support.errors import Resync, TruelogError
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

log = logging.getLogger(__name__)

# Those of the database, the log, the bucket and the platform. Each of them may be an outage.
_FAILURES = (psycopg.Error, KafkaException, BotoCoreError, ClientError, TruelogError)
_IDLE_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_CONFIRM_SECONDS = 10.0
_LOG_SECONDS = 60.0


def run(settings: Settings, stopped: Event) -> None:
    """Publish, and read each fold, until stopped. After an error, each begins again where the stored places say."""
    settings.require_own_events("the service commands")
    commands = catalogue.load()
    readers = {event: FoldReader(settings, commands, event) for event in sorted(commands.folds)}
    threads = [
        Thread(target=_repeat, args=(f"states of {event}", reader.run, stopped)) for event, reader in readers.items()
    ]
    for each in threads:
        each.start()
    _repeat("relay", partial(_publish, settings, commands, readers), stopped)
    for each in threads:
        each.join()


def _repeat(name: str, work: Callable[[Event], None], stopped: Event) -> None:
    """Do the work until stopped. An error that lasts is logged once a minute."""
    last, logged = "", float("-inf")
    while not stopped.is_set():
        try:
            work(stopped)
        except Exception as error:  # also a defect, which must not stop the other works
            if str(error) != last or monotonic() - logged > _LOG_SECONDS:
                is_defect = isinstance(error, FoldFailed) or not isinstance(error, _FAILURES)
                log.warning("%s: %s", name, error, exc_info=is_defect)
                last, logged = str(error), monotonic()
        stopped.wait(_RETRY_SECONDS)


def _publish(settings: Settings, commands: Catalogue, readers: Mapping[str, FoldReader], stopped: Event) -> None:
    with connect(settings, autocommit=True) as connection:
        connection.execute(f"LISTEN {WRITTEN}")
        feed = CommandFeed(connection)
        with Relay(settings, KafkaUser.RELAY, feed) as relay:
            while not stopped.is_set():
                try:
                    published = relay.publish()
                except Resync as restored:
                    log.warning("the command log begins again: %s", restored)
                    _begin_again(settings, connection, commands, feed.begun, relay.place)
                    continue
                if published:
                    for each in feed.given & readers.keys():  # a file of commands may be gone
                        readers[each].hurry()
                    continue
                for _ in connection.notifies(timeout=_IDLE_SECONDS, stop_after=1):
                    pass


def _begin_again(
    settings: Settings, connection: Connection, commands: Catalogue, begun: str, place: Place | None
) -> None:
    """Give new numbers to accepted events, once the log of their types has been read to its end.

    Raises:
        Fenced: another service has done so since the beginning `begun`.
        ServiceDown: it is not read within some seconds.
    """
    confirmation = Confirmation(settings, commands)

    def begin() -> None:
        confirmation.look()
        begin_again(connection, begun, place, confirmation.missing)

    until(begin, _CONFIRM_SECONDS, "the numbers of accepted events")


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
