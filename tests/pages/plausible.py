"""A platform's database after some days of operation, for tests and screenshots of the pages.

No stream is running: this module writes rows as the kernel does. Some values are attacks on a page.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from tests.builders.alerts import a_look, an_alert
from tests.builders.applications import a_database_of, a_launch, a_lease
from tests.builders.comparisons import a_certificate, a_reconciliation, a_repair, a_validation
from tests.builders.log import a_log_day, an_audit
from tests.builders.outputs import an_output, the_relay_looked
from tests.builders.quality import a_figure, an_event_validation
from tests.builders.views import a_batch_answer, a_tally, a_view, merged_to
from tests.chosen_views import copy_views
from tests.library.judged import judged
from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts import store as alert_store
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.lag.verdict import Sample
from truelog.log.positions import Positions
from truelog.schema.quality import DEFAULTS, EVENTS, LATE, QualityMetric, quality_metric
from truelog.serving import view_readers
from truelog.storage import audit_trail, exact_json
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection
from truelog.streaming import batch_metrics
from truelog.support.settings import Settings

DAY = 86_400.0
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    "'; DROP TABLE truelog.view; --",
    "bell\a escape\x1b[31m tab\tright to left\u202e end",
    "=HYPERLINK(1)",
    "",
)
PAID = ("90071992547407.93", "90071992547407.94")  # two decimals, and one float
MADE = ("page_views", "click_through", "page_audience")
TABLE = """
    CREATE TABLE state.{name}_v1 (minute timestamptz, host text, page text, browser text, views bigint, note bytea);
    CREATE VIEW views.{name} AS SELECT minute, host, page, browser, views FROM state.{name}_v1;
    COMMENT ON COLUMN views.{name}.host IS 'host of the URL; NULL if the URL is invalid';
    INSERT INTO state.{name}_v1 SELECT date_trunc('minute', now()) - n * interval '1 minute',
        (ARRAY['shop.example', 'news.example', NULL])[n % 3 + 1], '/item/' || n % 7, 'firefox', n * n % 97 + 1, NULL
        FROM generate_series(1, 300) n;
    CREATE VIEW views.{name}_busiest AS SELECT host, sum(views)::bigint AS views FROM views.{name} GROUP BY host;
"""


def views_folder(folder: Path) -> Path:
    """Views with a table, one without, and a file that fails to load."""
    folder.mkdir()
    copy_views(folder, *MADE, "request_rates")
    for name in MADE:
        at_version_1(folder / f"{name}.py")
    (folder / "broken.py").write_text('"""A view whose author has not finished it."""\n\nVIEW = <script>\n')
    return folder


def at_version_1(file: Path) -> None:
    """The view declares the version of its table. No figures are read from the table of another version."""
    file.write_text(file.read_text().replace("    version=2,\n", ""))


def fill(connection: Connection) -> None:
    """Fill an empty, migrated database."""
    with connection.transaction():
        a_database_of(connection, timedelta(days=9))
        _views(connection)
        _log_days(connection)
        an_audit(connection)
        _applications(connection)
        _answer(connection)
        an_output(connection, "page_views", sent=1, ago=timedelta(minutes=1))
        the_relay_looked(connection, timedelta(days=-1))
        _poll(connection, _readings(time.time()))
        _reconciliations(connection)
        _quality(connection)
        _operations(connection)
        _alerts(connection)


def poll_again(connection: Connection) -> None:
    """Poll as if the last minutes had passed since the database was filled."""
    now = time.time()
    _poll(connection, [each for each in _readings(now) if each.at > now - 900])


def _poll(connection: Connection, readings: Iterable[ReaderPoll]) -> None:
    lag_history.append(connection, judged(Settings(), readings), seconds=3 * DAY)


def _views(connection: Connection) -> None:
    for name in MADE:
        connection.execute(TABLE.format(name=name).encode())
        a_view(connection, name, ago=timedelta(days=9))
        topics = {"page_view": 4} if name != "click_through" else {"search": 2, "click": 2}
        merged_to(connection, name, _reached(topics, 120_000))
    for text in HOSTILE:
        connection.execute(
            "INSERT INTO state.page_views_v1 VALUES (now() + interval '1 hour', %s, %s, NULL, 1, NULL)", (text, text)
        )
    connection.execute("ANALYZE state.page_views_v1")
    a_tally(connection, "page_views", merges=90, rows=300, preparing=90, merging=30, records=100_000)
    view_readers.add(connection, {("page_views", "shop"): 1_204, ("page_views", HOSTILE[0]): 3})


def _log_days(connection: Connection) -> None:
    """The log days of four weeks, today's included."""
    today = time.time() // DAY * DAY
    for ago in range(28):
        a_log_day(connection, "page_view", today - ago * DAY, topic_id="id", first_offset=1_000 * (28 - ago))


def _reached(topics: Mapping[str, int], first: int) -> Positions:
    """Positions in topics with so many partitions."""
    offsets = {topic: {p: first + 37 * p for p in range(count)} for topic, count in topics.items()}
    return Positions(offsets, dict.fromkeys(topics, "id"))


def _applications(connection: Connection) -> None:
    """Two healthy applications. The last batch is in the future, so that they stay healthy during long tests."""
    application.declare(connection, [ARCHIVE, STREAM])
    for name, epoch in ((ARCHIVE, 3), (STREAM, 17)):
        application.set_code(connection, name, "9f2c61d0a7b34e58", "files")
        a_lease(
            connection,
            name,
            epoch=epoch,
            host="worker-1",
            pid=4711,
            code="9f2c61d0a7b34e58",
            process_at=0,
            taken=timedelta(hours=5),
            batch=timedelta(days=-1),
        )
        a_launch(connection, name, ago=timedelta(hours=5))
    for second in range(70):
        steps = {"latestOffset": 3, "walCommit": 21, "addBatch": 180 + second, "triggerExecution": 240 + second}
        batch_metrics.record_steps(connection, STREAM, f"2026-11-21T10:{second // 60:02d}:{second % 60:02d}Z", steps)
    view_status.begin_run(connection, STREAM, dict.fromkeys(MADE, 1))
    view_status.record_state(connection, STREAM, "page_audience", 1, f"DivideByZero: in {HOSTILE[0]}")


def _answer(connection: Connection) -> None:
    """A batch answer for the stalled view."""
    a_batch_answer(connection, "page_audience", _reached({"page_view": 4}, 120_900), age=timedelta(minutes=4))


def _readings(now: float) -> Iterator[ReaderPoll]:
    """One poll per minute for six hours. One view fell behind for a while. Polls failed for a few minutes."""
    for minute in range(360, -1, -1):
        at = now - 60 * minute - 1
        for reader, version in ((ARCHIVE, 0), *((name, 1) for name in MADE)):
            peak = 4_000 * math.exp(-(((minute - 120) / 25) ** 2)) if reader == "page_audience" else 0
            blind = "Kafka did not answer" if 200 < minute < 222 else ""
            places = (
                [("search", 0), ("click", 0)] if reader == "click_through" else [("page_view", p) for p in range(4)]
            )
            yield ReaderPoll(
                reader,
                version,
                at,
                at - 1,
                {place: _sample(at, minute, int(peak) + 7 * n, blind) for n, place in enumerate(places)},
            )


def _sample(at: float, minute: int, behind: int, blind: str) -> Sample:
    end = 240_000 - 300 * minute
    seconds = behind / 50
    return Sample(at, end - behind, 1_000, end, seconds, at - 1, 7 * DAY, blind=blind)


def _reconciliations(connection: Connection) -> None:
    """Hourly comparisons over two days. One repaired rows, and another was UNKNOWN because the archive lagged."""
    for hour in range(48, 0, -1):
        for view in MADE[:2]:
            verdict = "UNKNOWN" if (hour, view) == (7, "page_views") else "EQUAL"
            _reconciliation(connection, hour, view, verdict)
        if hour == 20:
            _repaired(connection)


def _repaired(connection: Connection) -> None:
    row: dict[str, object] = {
        "minute": "2026-11-20T10:00:00+00:00",
        "host": HOSTILE[0],
        "page": HOSTILE[3],
        "browser": None,
        "views": 3,
        "note": None,
        "paid": exact_json.read(PAID[0]),
    }
    sample: list[dict[str, Any]] = [
        {"streamed": row, "rebuilt": row | {"views": 4, "paid": exact_json.read(PAID[1])}},
        {"streamed": row | {"page": HOSTILE[4]}, "rebuilt": None, "cause": "wrong value by hand"},
        {"streamed": None, "rebuilt": row | {"page": "/lost"}},
    ]
    causes = [{"cause": "wrong value by hand", "rows": 1, "about": HOSTILE[1]}]
    _reconciliation(connection, 20, "page_views", "DIFFERENT", sample, causes=causes, minutes=10)
    for each in sample:
        key = [row["minute"], row["host"], (each["streamed"] or each["rebuilt"] or row)["page"]]
        repaired = timedelta(hours=20, minutes=-11)
        a_repair(connection, "page_views", key, before=each["streamed"], after=each["rebuilt"], ago=repaired)
    _reconciliation(connection, 20, "page_views", "EQUAL", repaired=3, minutes=12)


def _reconciliation(
    connection: Connection,
    hour: int,
    view: str,
    verdict: str,
    sample: Sequence[Any] = (),
    *,
    causes: Sequence[Any] = (),
    repaired: int = 0,
    minutes: int = 0,
) -> None:
    made = a_reconciliation(
        connection,
        view,
        verdict,
        ago=timedelta(hours=hour, minutes=-minutes),
        positions=Jsonb({"page_view": {"0": 120_000, "1": 120_037}}),
        row_count=306,
        bytes=None if hour > 40 else 200_000 - 1_000 * hour,  # earlier releases stored no size
        **dict.fromkeys(("missing", "extra", "different"), 1 if verdict == "DIFFERENT" else 0),
        repaired=repaired,
        reason="the archive is 1,204 events behind" if verdict == "UNKNOWN" else "",
        sample=Jsonb(list(sample), exact_json.write),
        causes=Jsonb(list(causes)),
        run=f"scheduled__{hour:02d}",
    )
    is_equal = verdict == "EQUAL"
    failed = [] if is_equal else ["the streamed table equals its rebuild"]
    earlier_release = ("views > 0", 0, True)  # stored how many rows break the rule
    outcomes = [("the streamed table equals its rebuild", f"{verdict}{HOSTILE[0]}", is_equal), earlier_release]
    a_validation(connection, made, success=is_equal, failed=failed, outcomes=outcomes)
    if is_equal:
        a_certificate(connection, made)


def _quality(connection: Connection) -> None:
    """Ten log days of one event type, the last with too few events, and a day of another type without a verdict."""
    counted: list[float] = []
    for n in range(10, 0, -1):
        value = 90 if n == 1 else 1_000 + 10 * n
        found = [quality_metric(DEFAULTS, EVENTS, value, counted[-7:]), quality_metric(DEFAULTS, LATE, 0.01 * n, [])]
        wrong = [f"{found[0].description} {HOSTILE[0]}"] if n == 1 else []
        _judged(connection, "page_view", n, found, success=not wrong, failed=wrong)
        counted.append(value)
    _judged(connection, "dead_letter", 1, [quality_metric(DEFAULTS, EVENTS, 0, [])], success=None, failed=[])


def _judged(
    connection: Connection,
    event: str,
    ago: int,
    found: Sequence[QualityMetric],
    *,
    success: bool | None,
    failed: list[str],
) -> None:
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=ago)
    for each in found:
        a_figure(connection, event, day, each)
    an_event_validation(connection, event, day, run=f"scheduled__{ago}", success=success, failed=failed)


def _operations(connection: Connection) -> None:
    for kind, subject, doer, about in (
        (OperationKind.LAUNCH, STREAM, audit_trail.AIRFLOW, "down"),
        (OperationKind.RELEASE, STREAM, audit_trail.AIRFLOW, "5d0c became 9f2c"),
        (OperationKind.REPAIR, "page_views", audit_trail.AIRFLOW, "3 rows replaced, after reconciliation 57"),
        (
            OperationKind.BACKFILL,
            "partials",
            "oncall",
            "backfill__2026-11-19: page_views 2026-11-19, click_through 2026-11-19",
        ),
        (OperationKind.STOP, ARCHIVE, f"root {HOSTILE[1]}", ""),
        (OperationKind.START, ARCHIVE, "admin", ""),
    ):
        audit_trail.record_operation(connection, kind, subject, doer, about)


def _alerts(connection: Connection) -> None:
    """New, acknowledged and resolved alerts. One alert source has not completed a check recently."""
    for kind, subject, cause, hours, by, resolved in (
        ("stalled", "page_audience", f"DivideByZero: in {HOSTILE[0]}", 1, None, None),
        ("view_different", "click_through", "3 rows differ from the rebuild", 2, None, None),
        ("lagging", STREAM, "90 s behind for two minutes", 3, "oncall", None),
        ("application_down", ARCHIVE, "its lease is free", 30, "admin", 29),
    ):
        an_alert(
            connection,
            kind,
            subject,
            cause,
            ago=timedelta(hours=hours),
            told=True,
            acknowledged_by=by,
            resolved=None if resolved is None else timedelta(hours=resolved),
        )
    alert_store.add_silence(connection, "*/request_rates", timedelta(days=1), by="admin", why=f"new {HOSTILE[1]}")
    for source in alert_scheduler.SOURCES[1:]:
        a_look(connection, source.name, ago=timedelta(days=-1))
