"""Reading of the topic of erasures to its end, which shows whether the ledger lacks erasures: a backup was restored."""

import logging

import psycopg
from confluent_kafka import KafkaException

from truelog.erasure import hold, ledger
from truelog.forgetting import erasure_log
from truelog.log import topics
from truelog.storage.database import Connection
from truelog.storage.kept_sessions import kept
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

log = logging.getLogger("truelog.forgetting")


def read_to_end(settings: Settings, connection: Connection) -> int:
    """Compare the ledger with the topic, store the result, and return how many erasures the ledger lacks.

    While it lacks some, API, relay and notifier hold all views back (`truelog.held`).

    Raises:
        ServiceDown: Kafka did not answer.
    """
    is_there = erasure_log.TOPIC in topics.existing_topics(topics.client(settings))  # not if an earlier release set up
    published = erasure_log.read_topic(settings) if is_there else []
    lacking = len({each.id for each in published} - {each.erasure.id for each in ledger.entries(connection)})
    if lacking and lacking != hold.lacking(connection):  # the monitor compares every few seconds
        log.error("this database lacks %d erasures of the log: run `truelog archive adopt` (docs/restore.md)", lacking)
    hold.record_reading(connection, lacking)
    return lacking


def foreign(settings: Settings, connection: Connection) -> list[str]:
    """The ids of the erasures of the other environment, whose events this one reads, that the ledger lacks.

    Raises:
        ServiceDown: Kafka did not answer.
    """
    if not settings.reads_events:
        return []
    known = {each.erasure.id for each in ledger.entries(connection)}
    return [str(each.id) for each in erasure_log.read_topic(settings) if each.id not in known]


def read_once(settings: Settings) -> None:
    """Read the topic, unless that was done since PostgreSQL has started and nothing is lacking.

    If a service is down, the next call reads.
    """
    try:
        with kept(settings) as connection:
            if not hold.is_read(connection):
                read_to_end(settings, connection)
    except (TruelogError, KafkaException, psycopg.Error) as error:
        log.warning("the erasures of the log are not read yet: %s", error)
