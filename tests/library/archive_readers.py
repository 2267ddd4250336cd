"""What reads the archive of page views and knows the id of the topic: each must refuse what it must not show."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from psycopg import sql

from tests.library.archive_files import TOPIC, TOPIC_ID
from truelog.archive import analyst
from truelog.commands.folding.archived import read_archived
from truelog.log.positions import Range
from truelog.reports.cubes.cube import Cube
from truelog.reports.cubes.events import archived_events
from truelog.reports.cubes.question import Question
from truelog.reports.records.archived_record import read_record
from truelog.reports.records.newest_records import ListRequest, Moment, newest_records
from truelog.support.settings import Settings

MARCH = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
_VISITS = Cube("visits", "minute", [], {}, [], {}, sql.Identifier("none"), [TOPIC], [])


def _by_sql(settings: Settings) -> None:
    with analyst.run_query(settings, f"SELECT * FROM {TOPIC}") as rows:
        analyst.as_dicts(rows)


READERS: Mapping[str, Callable[[Settings], object]] = {
    "truelog sql": _by_sql,
    "list of records": lambda it: newest_records(it, TOPIC, ListRequest(Moment(datetime.now(UTC)), 50)),
    "record": lambda it: read_record(it, TOPIC, 0, 0),
    "events of a figure": lambda it: archived_events(it, _VISITS, Question(*MARCH, ())),
    "states of commands": lambda it: list(read_archived(it, TOPIC_ID, Range(TOPIC, 0, 0, 1))),
}
