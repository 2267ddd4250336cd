"""A platform's database after some days of operation, for tests and screenshots of the pages.

No stream is running: this module writes rows as the kernel does. Some values are attacks on a page.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.chosen_views import copy_views
from tests.library.judged import judged
from truelog.alerts import alert_scheduler, alert_store
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.lag import lag_history
from truelog.lag.lag_history import ReaderPoll
from truelog.lag.lag_verdict import Sample
from truelog.schema.quality import DEFAULTS, EVENTS, LATE, QualityMetric, quality_metric
from truelog.storage import audit_trail
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

CERTIFIED = """
    INSERT INTO truelog.certificate (id, view, version, reconciliation, positions, fingerprint, row_count, digest,
        object, made_at)
    SELECT view || to_char(finished_at, '-YYYYMMDD"T"HH24MISS.US"Z-"') || lpad(id::text, 8, '0'), view, version, id,
        positions, '', row_count, '', '', finished_at
    FROM truelog.reconciliation WHERE verdict = 'EQUAL'
"""


def views_folder(folder: Path) -> Path:
    """Views with a table, one without, and a file that fails to load."""
    folder.mkdir()
    copy_views(folder, *MADE, "request_rates")
    (folder / "broken.py").write_text('"""A view whose author has not finished it."""\n\nVIEW = <script>\n')
    return folder


def fill(connection: Connection) -> None:
    """Fill an empty, migrated database."""
    with connection.transaction():
        _views(connection)
        _applications(connection)
        _answer(connection)
        lag_history.append(connection, judged(Settings(), _readings(time.time())), seconds=3 * DAY)
        _reconciliations(connection)
        _quality(connection)
        _operations(connection)
        _alerts(connection)


def _views(connection: Connection) -> None:
    for name in MADE:
        connection.execute(TABLE.format(name=name).encode())
        connection.execute(
            "INSERT INTO truelog.view (view, version, fingerprint, spark, made_at) "
            "VALUES (%s, 1, 'f', '4.1.3', now() - interval '9 days')",
            (name,),
        )
        topics = {"page_view": 4} if name != "click_through" else {"search": 2, "click": 2}
        for topic, partition in ((t, p) for t, count in topics.items() for p in range(count)):
            connection.execute(
                "INSERT INTO truelog.position VALUES (%s, 1, %s, %s, 'id', %s)",
                (name, topic, partition, 120_000 + 37 * partition),
            )
    for text in HOSTILE:
        connection.execute(
            "INSERT INTO state.page_views_v1 VALUES (now() + interval '1 hour', %s, %s, NULL, 1, NULL)", (text, text)
        )
    connection.execute("ANALYZE state.page_views_v1")


def _applications(connection: Connection) -> None:
    """Two healthy applications. The last batch is in the future, so that they stay healthy during long tests."""
    application.declare(connection, [ARCHIVE, STREAM])
    for name, epoch in ((ARCHIVE, 3), (STREAM, 17)):
        application.set_code(connection, name, "9f2c61d0a7b34e58", "files")
        connection.execute(
            "INSERT INTO truelog.lease (application, epoch, host, pid, taken_at, batch_at, code, process_at) "
            "VALUES (%s, %s, 'worker-1', 4711, now() - interval '5 hours', now() + interval '1 day', "
            "'9f2c61d0a7b34e58', 0)",
            (name, epoch),
        )
        connection.execute(
            "INSERT INTO truelog.launch (application, reason, launched_at) "
            "VALUES (%s, 'down', now() - interval '5 hours')",
            (name,),
        )
    for second in range(70):
        steps = {"latestOffset": 3, "walCommit": 21, "addBatch": 180 + second, "triggerExecution": 240 + second}
        batch_metrics.record_steps(connection, STREAM, f"2026-11-21T10:{second // 60:02d}:{second % 60:02d}Z", steps)
    view_status.begin_run(connection, STREAM, dict.fromkeys(MADE, 1))
    view_status.record_state(connection, STREAM, "page_audience", 1, f"DivideByZero: in {HOSTILE[0]}")


def _answer(connection: Connection) -> None:
    """A batch answer for the stalled view."""
    connection.execute(
        "INSERT INTO truelog.batch_answer (view, version, as_of) VALUES ('page_audience', 1, now() - interval '4 min')"
    )
    connection.execute(
        "INSERT INTO truelog.batch_position SELECT view, version, topic, partition, topic_id, next_offset + 900 "
        "FROM truelog.position WHERE view = 'page_audience'"
    )


def _readings(now: float) -> Iterator[ReaderPoll]:
    """One poll per minute for six hours. One view fell behind for a while. Polls failed for a few minutes."""
    for minute in range(360, -1, -1):
        at = now - 60 * minute - 1
        for reader, version in ((ARCHIVE, 0), *((name, 1) for name in MADE)):
            peak = 4_000 * math.exp(-(((minute - 120) / 25) ** 2)) if reader == "page_audience" else 0
            blind = "Kafka did not answer" if 200 < minute < 206 else ""
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
    connection.execute(CERTIFIED)


def _repaired(connection: Connection) -> None:
    row: dict[str, object] = {
        "minute": "2026-11-20T10:00:00+00:00",
        "host": HOSTILE[0],
        "page": HOSTILE[3],
        "browser": None,
        "views": 3,
        "note": None,
    }
    sample: list[dict[str, Any]] = [
        {"streamed": row, "rebuilt": row | {"views": 4}},
        {"streamed": row | {"page": HOSTILE[4]}, "rebuilt": None, "cause": "wrong value by hand"},
        {"streamed": None, "rebuilt": row | {"page": "/lost"}},
    ]
    _reconciliation(connection, 20, "page_views", "DIFFERENT", sample, minutes=10)
    causes = [{"cause": "wrong value by hand", "rows": 1, "about": HOSTILE[1]}]
    connection.execute(
        "UPDATE truelog.reconciliation SET causes = %s WHERE id = (SELECT max(id) FROM truelog.reconciliation)",
        (json.dumps(causes),),
    )
    for each in sample:
        key = [row["minute"], row["host"], (each["streamed"] or each["rebuilt"] or row)["page"]]
        connection.execute(
            "INSERT INTO truelog.repair VALUES ('page_views', 1, '{}', %s, %s, %s, "
            "now() - interval '20 hours' + interval '11 minutes')",
            (json.dumps(key), _json(each["streamed"]), _json(each["rebuilt"])),
        )
    _reconciliation(connection, 20, "page_views", "EQUAL", repaired=3, minutes=12)


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)


def _reconciliation(
    connection: Connection,
    hour: int,
    view: str,
    verdict: str,
    sample: object = (),
    *,
    repaired: int = 0,
    minutes: int = 0,
) -> None:
    unequal = 1 if verdict == "DIFFERENT" else 0
    reason = "the archive is 1,204 events behind" if verdict == "UNKNOWN" else ""
    connection.execute(
        "WITH made AS (INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, "
        "extra, different, repaired, verdict, reason, sample, run, finished_at) VALUES (%s, 1, %s, false, 306, %s, %s, "
        "%s, %s, %s, %s, %s, %s, now() - make_interval(hours => %s) + make_interval(mins => %s)) RETURNING id) "
        "INSERT INTO truelog.validation (reconciliation, success, failed, result) SELECT id, %s, %s, '{}' FROM made",
        (
            view,
            json.dumps({"page_view": {"0": 120_000, "1": 120_037}}),
            *(unequal,) * 3,
            repaired,
            verdict,
            reason,
            json.dumps(sample),
            f"scheduled__{hour:02d}",
            hour,
            minutes,
            verdict == "EQUAL",
            [] if verdict == "EQUAL" else ["the streamed table equals its rebuild"],
        ),
    )


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
        connection.execute(
            "INSERT INTO truelog.figure (event, day, name, value, usual, least, most, unjudged) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (event, day, *astuple(each)),
        )
    connection.execute(
        "INSERT INTO truelog.validation (event, day, run, success, failed, result) VALUES (%s, %s, %s, %s, %s, '{}')",
        (event, day, f"scheduled__{ago}", success, failed),
    )


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
        connection.execute(
            "INSERT INTO truelog.alert (kind, subject, cause, found_at, opened_at, told_at, acknowledged_at, "
            "acknowledged_by, resolved_at) VALUES (%(kind)s, %(subject)s, %(cause)s, %(at)s, %(at)s, %(at)s, "
            "CASE WHEN %(by)s::text IS NOT NULL THEN %(at)s END, %(by)s, now() - make_interval(hours => %(resolved)s))",
            {
                "kind": kind,
                "subject": subject,
                "cause": cause,
                "at": datetime.now(UTC) - timedelta(hours=hours),
                "by": by,
                "resolved": resolved,
            },
        )
    alert_store.add_silence(connection, "*/request_rates", timedelta(days=1), by="admin", why=f"new {HOSTILE[1]}")
    connection.execute(
        "INSERT INTO truelog.alert_source SELECT name, now() + interval '1 day', '' FROM unnest(%s::text[]) name",
        ([source.name for source in alert_scheduler.SOURCES[1:]],),
    )
