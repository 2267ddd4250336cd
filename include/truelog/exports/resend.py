"""Publishes rows of an output again, for a consumer that has lost what it read since a number or a time.

A row is published as it is now, and not as it was: the consumer needs the table, and the topic is a table by key. Keys
whose rows have vanished since get tombstones. All of them are one transaction of the view under new numbers, after
everything before. So the topic still gives, at the end of each transaction, rows that the view had. Consumers that have
lost nothing get rows that they have, and the notifier gets no change.

The topic says which keys have changed, and for what is not published yet, the outbox. Both lack tombstones that were
removed from the topic. A consumer whose loss is that old begins again from nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from truelog.batch.batch_context import open_view
from truelog.exports.query import Condition, Operator
from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.output_topic import tombstone_seconds
from truelog.maintenance.notifier_place import unnoticed
from truelog.relay.view_feed import topic_of
from truelog.storage import audit_trail, exact_json
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import BadInput, ServiceDown, TopicRefused
from truelog.support.faults import reach
from truelog.support.settings import Settings
from truelog.support.wait import until
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.views import catalogue

_NOTIFIER_SECONDS = 60.0
_OUTPUT = "SELECT number, trouble, beginning IS NOT NULL FROM truelog.output WHERE (view, version) = (%s, %s)"
_CHANGED = """
    SELECT o.key FROM truelog.outbox o
    JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.step)
    WHERE (o.view, o.version) = (%(view)s, %(version)s) AND (o.number > %(number)s OR s.made_at > %(at)s)
"""
# Whether the outbox has every change since then.
_COMPLETE = """
    SELECT coalesce(min(o.number) <= %(number)s::bigint + 1 OR min(s.made_at) <= %(at)s, false)
    FROM truelog.outbox o JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.step)
    WHERE (o.view, o.version) = (%(view)s, %(version)s)
"""
# The outbox has every change from this number on.
_FIRST = """
    SELECT coalesce(
        (SELECT min(number) FROM truelog.outbox WHERE (view, version) = (%(view)s, %(version)s)),
        (SELECT number + 1 FROM truelog.output WHERE (view, version) = (%(view)s, %(version)s)), 1
    )
"""


@dataclass(frozen=True)
class Wanted:
    """The rows to publish again: since a number or a time, and whose key meets all conditions."""

    view: str
    begin: int | datetime | None = None
    key: Sequence[Condition] = ()

    def fits(self, key: str) -> bool:
        values = exact_json.read(key)
        return all(_fits(values, each) for each in self.key)


class Record(NamedTuple):
    """The last record of a key in the topic."""

    number: int
    at: datetime  # of the view's transaction


@dataclass(frozen=True)
class Published:
    """The last record of each key in the topic, which has every change before the number `end`."""

    records: Mapping[str, Record]
    end: int


@dataclass(frozen=True)
class Resent:
    """What was put into the outbox again, under the numbers from `first` to `last`."""

    view: str
    version: int
    rows: int
    removed: int
    last: int
    topic: str = field(default="", kw_only=True)

    @property
    def first(self) -> int:
        return self.last - self.rows - self.removed + 1

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {**vars(self), "first": self.first}


def resend(settings: Settings, wanted: Wanted, doer: str) -> Resent:
    """Put the rows into the outbox again.

    Raises:
        BadInput: the view does not publish, or the consumer must begin from nothing, or no row is named.
        CodeChanged, NotMade: the view's table is not that of its file.
        ServiceDown: Kafka does not answer, or the notifier does not read the rows before these.
    """
    declared = catalogue.load_view(wanted.view, settings.views_folder)
    if not declared.publish:
        raise BadInput(f"{wanted.view} does not publish. Declare `publish=True` in its file.")
    with connect(settings, autocommit=True) as connection:
        published = read_topic(settings, connection, wanted.view, declared.version)  # before Spark starts
        with open_view(settings, "truelog output", wanted.view) as (_, compiled):
            deploy.require_same_code(connection, compiled)
            return repeat(settings, connection, compiled, wanted, published, doer=doer)


def read_topic(settings: Settings, connection: Connection, view: str, version: int) -> Published:
    """What is published.

    A row leaves the outbox after it is published, so what the outbox lacks at first is in the topic. The last number in
    the topic alone does not say that, because Kafka removes old tombstones.
    """
    topic = topic_of(view, version)
    first = int(read_value(connection, _FIRST, {"view": view, "version": version}))
    try:
        records = last_records(settings, topic)
        return Published(records, max([first, *(each.number + 1 for each in records.values())]))
    except TopicRefused as missing:
        raise BadInput(
            f"Kafka has no topic {topic}. Run `truelog output resync {view}` if it was deleted."
        ) from missing


def last_records(settings: Settings, topic: str) -> dict[str, Record]:
    """The last record of each key in a topic. A tombstone is a record too."""
    broker, found = topics.client(settings), dict[str, Record]()
    begins, ends = topics.begins(broker, [topic]), topics.committed_ends(broker, [topic])
    for each in messages(settings, topic, 0, begins.at(topic, 0), ends.at(topic, 0)):
        headers, key = {name: (value or b"").decode() for name, value in headers_of(each)}, each.key() or b""
        text = key if isinstance(key, str) else key.decode()
        found[text] = Record(int(headers["truelog.number"]), datetime.fromisoformat(headers["ce_time"]))
    return found


def repeat(  # noqa: PLR0913
    settings: Settings, connection: Connection, compiled: CompiledView, wanted: Wanted,
    published: Published, *, doer: str,
) -> Resent:  # fmt: skip
    """Put the rows into the outbox again.

    `published` was read from the topic before. It is read again if changes have left the outbox since.
    """
    given = _given(compiled, wanted)
    _require_possible(settings, connection, given, published.records)
    sent: list[Resent] = []

    def record() -> None:
        nonlocal published
        if _has_gap(connection, given, published):
            published = read_topic(settings, connection, given["view"], given["version"])
        from_topic = {key for key, record in published.records.items() if _is_after(record, given)}
        with connection.transaction(), unnoticed(connection, compiled):
            if _has_gap(connection, given, published):
                raise ServiceDown("the relay has published rows since the topic was read")
            changed = {str(key) for (key,) in connection.execute(_CHANGED, given).fetchall()}
            keys = sorted(each for each in from_topic | changed if wanted.fits(each))
            sent[:] = [_repeat(connection, compiled, keys)]
            reach("resend.recorded")

    until(record, _NOTIFIER_SECONDS, "the notifier")
    about = f"version {sent[0].version}: {sent[0].rows} rows and {sent[0].removed} tombstones since {wanted.begin}"
    audit_trail.record_operation(connection, OperationKind.RESEND, wanted.view, doer, about)
    return sent[0]


def _has_gap(connection: Connection, given: Mapping[str, Any], published: Published) -> bool:
    """Whether some changes are neither in what was read from the topic nor in the outbox."""
    return bool(read_value(connection, _FIRST, given) > published.end)


def _given(compiled: CompiledView, wanted: Wanted) -> dict[str, Any]:
    if wanted.begin is None and not wanted.key:
        raise BadInput("Give --from, --key or both. `truelog output resync` publishes the whole table again.")
    begin = 0 if wanted.begin is None else wanted.begin
    is_time = isinstance(begin, datetime)
    of_view = {"view": compiled.name, "version": compiled.view.version}
    return of_view | {"number": None if is_time else begin, "at": begin if is_time else None}


def _require_possible(
    settings: Settings, connection: Connection, given: Mapping[str, Any], published: Mapping[str, Record]
) -> None:
    """Require that the relay publishes the output, and that no tombstone since the beginning can be gone."""
    found: Any = connection.execute(_OUTPUT, (given["view"], given["version"])).fetchone()
    if found is None or not found[2]:
        raise BadInput(f"{given['view']} has not begun to publish. Its application begins that.")
    number, trouble, _ = found
    if trouble.startswith("resync"):
        raise BadInput(f"The relay does not publish {given['view']}. Run `truelog output resync {given['view']}`.")
    asked = given["number"]
    if asked is not None and asked > number:
        raise BadInput(f"The last number of {given['view']} is {number:,}, so no consumer has read {asked:,}.")
    if asked in (0, number) or read_value(connection, _COMPLETE, given):
        return
    known = [record.at for record in published.values() if asked is not None and record.number <= asked]
    since = given["at"] or max(known, default=None)
    kept = timedelta(seconds=tombstone_seconds(settings, topic_of(given["view"], given["version"])))
    if since is None or datetime.now(UTC) - since > kept:
        raise BadInput(
            f"Tombstones may be gone since then, because the topic keeps them for {kept}. The consumer must begin from "
            f"nothing: empty its table, and read the topic from its first record."
        )


def _is_after(record: Record, given: Mapping[str, Any]) -> bool:
    return bool(record.at > given["at"] if given["at"] else record.number > given["number"])


def _repeat(connection: Connection, compiled: CompiledView, keys: Sequence[str]) -> Resent:
    last = outbox.repeat(connection, compiled, keys)
    of_view = compiled.name, compiled.view.version
    query = "SELECT count(value) FROM truelog.outbox WHERE (view, version) = (%s, %s) AND number > %s::bigint"
    rows = int(read_value(connection, query, (*of_view, last - len(keys))))
    return Resent(*of_view, rows, len(keys) - rows, last, topic=topic_of(*of_view))


def _fits(values: Mapping[str, Any], condition: Condition) -> bool:
    """Whether a key meets a condition. The value is written as the record's key has it."""
    if condition.column not in values:
        raise BadInput(f"--key: {condition.column} is not in the key, which has {_listed(values)}.")
    value = values[condition.column]
    if condition.operator is Operator.MISSING:
        return value is None
    if condition.operator is not Operator.EQUAL:
        raise BadInput("--key: write COLUMN=VALUE, or `COLUMN is NULL`.")
    return value is not None and exact_json.text(value) == condition.value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
