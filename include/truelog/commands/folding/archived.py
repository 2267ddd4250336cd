"""Records of a topic that Kafka has dropped, read from the archive without Spark."""

from collections.abc import Iterator

from pyiceberg.exceptions import NoSuchTableError

from truelog.archive.catalog_pointer import load_newest
from truelog.archive.table import Progress, identifier, open_catalog, require_same_topic, stores_answer
from truelog.commands.folding.log_record import LogRecord
from truelog.log.positions import Range
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings

_PORTION = 50_000  # offsets
_COLUMNS = ("offset", "broker_time", "value")


def read_archived(settings: Settings, topic_id: str, wanted: Range) -> Iterator[tuple[list[LogRecord], int]]:
    """The archived records of a range in portions, each with the offset after it. An erased record has no value.

    Raises:
        ArchiveBehind: the range is not archived.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        TopicRecreated: the archive contains another topic of this name.
        ServiceDown: the catalog or the object store does not answer.
    """
    try:
        with stores_answer(), open_catalog(settings) as catalog:
            table = load_newest(catalog, identifier(wanted.topic), topic_id)
            require_same_topic(table, topic_id)
            if Progress.of(table.metadata).positions.get(wanted.partition, 0) < wanted.end:
                raise ArchiveBehind(f"partition {wanted.partition} of {wanted.topic} is not archived to {wanted.end}")
            for start in range(wanted.start, wanted.end, _PORTION):
                end = min(start + _PORTION, wanted.end)
                where = f"partition = {wanted.partition} AND offset >= {start} AND offset < {end}"
                rows = table.scan(where, selected_fields=_COLUMNS).to_arrow().sort_by("offset").to_pylist()
                yield (
                    [LogRecord(wanted.partition, row["offset"], row["broker_time"], row["value"]) for row in rows],
                    end,
                )
    except NoSuchTableError:
        raise ArchiveBehind(f"no record of {wanted.topic} is archived yet") from None
