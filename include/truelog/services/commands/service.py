"""The commands service: publishes the events of accepted commands, and reads the states on which commands are decided.

python -m truelog.services.commands.service
"""

import logging
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

import psycopg
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException

from truelog.commands import catalogue
from truelog.commands.catalogue import Catalogue
from truelog.commands.feed import WRITTEN, CommandFeed, begin_again
from truelog.commands.folding.fold_positions import confirm
from truelog.commands.folding.fold_reader import FoldReader
from truelog.control import event_registry
from truelog.relay.relay import Relay
from truelog.storage.database import connect
from truelog.support.errors import Resync, TruelogError
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import KafkaUser, Settings

log = logging.getLogger(__name__)

# Those of the database, the log, the bucket and the platform. Each of them may be an outage.
_FAILURES = (psycopg.Error, KafkaException, BotoCoreError, ClientError, TruelogError)
_IDLE_SECONDS = 0.5
_RETRY_SECONDS = 0.5


def run(settings: Settings, stopped: Event) -> None:
    """Publish and read until stopped. After an error, each of the two begins again where the stored places say."""
    commands = catalogue.load()
    reader = Thread(target=_repeat, args=("states", partial(_read, settings, commands, stopped), stopped))
    reader.start()
    _repeat("relay", partial(_publish, settings, commands, stopped), stopped)
    reader.join()


def _repeat(name: str, work: Callable[[], None], stopped: Event) -> None:
    try:
        while not stopped.is_set():
            try:
                work()
            except _FAILURES as error:
                log.warning("%s: %s", name, error)
                stopped.wait(_RETRY_SECONDS)
    finally:
        stopped.set()  # after any other error, the whole service ends, and its supervisor starts it again


def _read(settings: Settings, commands: Catalogue, stopped: Event) -> None:
    FoldReader(settings, commands).run(stopped)


def _publish(settings: Settings, commands: Catalogue, stopped: Event) -> None:
    with connect(settings, autocommit=True) as connection:
        connection.execute(f"LISTEN {WRITTEN}")
        with Relay(settings, KafkaUser.RELAY, CommandFeed(connection)) as relay:
            while not stopped.is_set():
                try:
                    published = relay.publish()
                except Resync as restored:
                    log.warning("the command log begins again: %s", restored)
                    folds = catalogue.usable_folds(commands, event_registry.load_types(connection))
                    confirm(connection, settings, commands, folds)
                    begin_again(connection, relay.place, folds)
                    continue
                if not published:
                    for _ in connection.notifies(timeout=_IDLE_SECONDS, stop_after=1):
                        pass


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
