"""What each source of alerts finds: by cases where it judges, and asked of a real database where it looks."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.library.alert_tables import emptied
from truelog.alerts import alert_applications, alert_lag, alert_resources, alert_verification
from truelog.alerts.alert import Observation
from truelog.alerts.alert_applications import Launches, is_starting
from truelog.alerts.alert_kind import KINDS
from truelog.alerts.alert_verification import ViewVerification
from truelog.control import application, lease
from truelog.control.application import ARCHIVE, STREAM, Status
from truelog.lag import lag_history
from truelog.lag.lag_history import Reading
from truelog.lag.lag_report import LagRow
from truelog.lag.lag_verdict import LagVerdict, Sample
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLES = ("audit", "launch", "lease", "application", "reconciliation", "lag_sample")


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    """Of a platform of which nothing is known."""
    with emptied(postgresql, *TABLES) as connection:
        yield connection


@pytest.fixture
def one_view(postgresql: Settings, database: Connection, tmp_path: Path) -> Iterator[Settings]:
    """Its only view was made three days ago."""
    (tmp_path / "one.py").touch()
    made = (
        "INSERT INTO truelog.view (view, version, fingerprint, spark, made_at) VALUES ('one', %s, '', '', now() - %s)"
    )
    for version, age in ((1, timedelta(days=9)), (2, timedelta(days=3))):
        database.execute(made, (version, age))
    yield postgresql.model_copy(update={"views_folder": tmp_path})
    database.execute("DELETE FROM truelog.view WHERE view = 'one'")


def keys(sight: Observation) -> set[str]:
    assert {finding.kind for finding in sight.findings} <= KINDS.keys()
    return {finding.key for finding in sight.findings}


# Applications.


def die(database: Connection, taken: lease.Lease) -> None:
    """PostgreSQL frees the lock when it has seen the session end."""

    def dead() -> None:
        if application.status(database, taken.holder.application).alive:
            raise ServiceDown("it holds its lock")

    taken.release()
    until(dead, 10, "a death")


DEAD = Status(STREAM, taken_at=NOW - HOUR, batch_at=NOW - timedelta(minutes=1))
LONG_AGO = NOW - timedelta(days=1)
NEVER = Launches(STREAM, None, None, 0, False, LONG_AGO)


def launched(reason: str, ago: timedelta, **more: Any) -> Launches:
    return replace(NEVER, reason=reason, at=NOW - ago, **more)


@pytest.mark.parametrize(
    ("why", "status", "launch", "starting"),
    [
        ("it was killed", DEAD, launched("dead", 2 * HOUR), False),
        (
            "it was killed, and is being started again",
            DEAD,
            launched("dead", timedelta(seconds=5), at_work=True),
            False,
        ),
        ("a release starts it anew", DEAD, launched("changed", timedelta(seconds=5)), True),
        ("somebody cleared its task", DEAD, launched("cleared by hand", timedelta(seconds=5), at_work=True), True),
        ("a release started it anew, and it did not come", DEAD, launched("changed", timedelta(minutes=4)), False),
        ("it is being stopped, to be started anew", DEAD, launched("dead", 2 * HOUR, at_work=True), True),
        ("the platform was just started", DEAD, launched("dead", 2 * HOUR, platform_at=NOW - HOUR / 60), True),
        ("the platform was started, and it did not come", DEAD, replace(NEVER, platform_at=NOW - HOUR / 12), False),
        (
            "it has run since the platform was started",
            replace(DEAD, taken_at=NOW - timedelta(seconds=30)),
            replace(NEVER, platform_at=NOW - timedelta(minutes=1)),
            False,
        ),
        ("nobody has asked for it yet", Status(STREAM), NEVER, True),
        ("it is started for the first time", Status(STREAM), launched("dead", timedelta(seconds=9)), True),
        ("it never came", Status(STREAM), launched("dead", timedelta(minutes=4)), False),
        ("it lives, and hangs", replace(DEAD, alive=True), NEVER, False),
    ],
)
def test_who_is_being_started_is_not_down(why: str, status: Status, launch: Launches, starting: bool) -> None:
    assert is_starting(status, launch, NOW) is starting, why


def test_an_application_from_its_start_to_its_death(postgresql: Settings, database: Connection) -> None:
    """Nothing can be said of one that has not made a batch yet; who died is down within one look."""

    def seen() -> tuple[set[str], bool]:
        sight = alert_applications.observe(postgresql)
        return keys(sight), sight.sees("application_down/stream")

    assert seen() == (set(), False)
    taken = lease.take_lease(postgresql, STREAM)
    database.execute("INSERT INTO truelog.application (application) VALUES ('stream')")
    assert seen() == (set(), False)
    lease.record_batch(database, taken.holder)
    assert seen() == (set(), True)
    die(database, taken)
    assert seen()[0] == {"application_down/stream"}
    database.execute("UPDATE truelog.application SET desired = 'stopped'")
    assert seen() == (set(), True)


def test_one_that_dies_again_and_again_is_told_of(postgresql: Settings, database: Connection) -> None:
    died = "INSERT INTO truelog.launch (application, reason, launched_at) VALUES ('stream', %s, now() - %s)"
    for reason, minutes in (("down", 1), ("hung", 2), ("changed", 3), ("cleared by hand", 4), ("dead", 11)):
        database.execute(died, (reason, timedelta(minutes=minutes)))
    assert "application_restarting/stream" not in keys(alert_applications.observe(postgresql))
    database.execute(died, ("dead", timedelta(minutes=5)))
    assert "application_restarting/stream" in keys(alert_applications.observe(postgresql))


def test_silence_without_ticks_is_told_of_the_log(postgresql: Settings, database: Connection) -> None:
    """Nobody answers at Kafka's address: one incident, of which no application is guilty."""
    away = postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    held = lease.take_lease(postgresql, STREAM)
    database.execute("UPDATE truelog.lease SET batch_at = now() - interval '1 hour'")
    database.execute("INSERT INTO truelog.application (application) VALUES ('stream')")
    sight = alert_applications.observe(away)
    die(database, held)
    assert keys(sight) == {"no_input/log"}
    assert not sight.sees("application_down/stream")
    assert sight.findings[0].cause == "nothing comes for stream"


# Lag.


def row(verdict: LagVerdict, reader: str = "one", partition: int = 0) -> LagRow:
    runs = ARCHIVE if reader == ARCHIVE else STREAM
    return LagRow(reader, runs, verdict, 0, f"it is {verdict}", "page_view", partition)


V = LagVerdict
LAG: list[tuple[str, list[LagRow], set[str], set[str], set[str]]] = [
    # why, rows, idle applications, keys found, some of the keys of which nothing is said
    ("nothing is wrong", [row(V.OK), row(V.OK, "two")], set(), set(), set()),
    (
        "a slow application is one incident",
        [row(V.WARN), row(V.UNDERPROVISIONED, "two")],
        set(),
        {"lagging/stream"},
        set(),
    ),
    (
        "each view stands still by itself",
        [row(V.STALL), row(V.STALL, "two")],
        set(),
        {"stalled/one", "stalled/two"},
        set(),
    ),
    (
        "the worst partition speaks for a view; that it is behind as well is not over",
        [row(V.WARN), row(V.STALL, partition=1)],
        set(),
        {"stalled/one"},
        {"lagging/stream"},
    ),
    ("who goes back is told", [row(V.REWIND)], set(), {"positions_rewound/one"}, {"lagging/stream", "stalled/one"}),
    ("who does not run is told elsewhere", [row(V.STOP), row(V.WARN, "two")], {STREAM}, set(), {"stalled/one"}),
    ("but what is lost is lost", [row(V.FALLING_OFF, ARCHIVE)], {ARCHIVE}, {"retention_risk/archive"}, set()),
    (
        "a blind poller says nothing of what was wrong",
        [row(V.UNKNOWN), row(V.UNKNOWN, "two")],
        set(),
        {"lag_unknown/log"},
        {"lagging/stream", "stalled/one", "positions_rewound/one", "retention_risk/two"},
    ),
    (
        "one partition that is not seen hides no other",
        [row(V.UNKNOWN), row(V.STALL, partition=1)],
        set(),
        {"lag_unknown/log", "stalled/one"},
        {"positions_rewound/one", "lagging/stream"},
    ),
]


@pytest.mark.parametrize(("rows", "idle", "found", "unseen"), [pytest.param(*case, id=why) for why, *case in LAG])
def test_lag_is_told_by_incident(rows: list[LagRow], idle: set[str], found: set[str], unseen: set[str]) -> None:
    sight = alert_lag.observation(rows, idle)
    assert keys(sight) == found
    assert not any(sight.sees(key) for key in unseen)


def test_every_verdict_on_lag_is_told_as_something() -> None:
    found = {verdict: keys(alert_lag.observation([row(verdict)], set())) for verdict in LagVerdict}
    assert [verdict for verdict, told in found.items() if not told] == [LagVerdict.OK]


def test_of_a_slow_application_the_first_view_is_named() -> None:
    [found] = alert_lag.observation([row(V.WARN), row(V.UNDERPROVISIONED, "two")], set()).findings
    assert found.cause == "one page_view 0: it is WARN"


def test_lag_is_looked_for_in_the_history(one_view: Settings, database: Connection) -> None:
    """Of an application that runs; the archive has not been seen at all."""
    taken = lease.take_lease(one_view, STREAM)
    lease.record_batch(database, taken.holder)
    database.execute("INSERT INTO truelog.application (application) VALUES ('stream')")
    now = time.time()
    history = [
        Reading("one", 2, now - ago, now, {("page_view", 0): Sample(now - ago, 0, 0, 5000, 3000.0 - ago, now)})
        for ago in range(600, -1, -10)
    ]
    lag_history.append(database, history, 3600)
    assert keys(alert_lag.observe(one_view)) == {"stalled/one", "lag_unknown/log"}
    die(database, taken)
    assert keys(alert_lag.observe(one_view)) == {"lag_unknown/log"}


# Proofs.

EQUAL = ViewVerification("one", "EQUAL", "", "EQUAL", 0, 0, 0, 60, 60, 1)
UNCOMPARED = ViewVerification("one", None, None, None, None, None, None, 60, 60, 0)
PROOFS = [
    ("it was found equal", EQUAL, None),
    ("it differs", replace(EQUAL, verdict="DIFFERENT", answer="DIFFERENT", missing=3), "view_different"),
    (
        "that nobody can tell now does not make it equal",
        replace(EQUAL, verdict="UNKNOWN", answer="DIFFERENT"),
        "view_different",
    ),
    ("an archive that is behind for a while", replace(EQUAL, verdict="UNKNOWN"), None),
    (
        "and for long",
        replace(EQUAL, verdict="UNKNOWN", unanswered=3 * 3600 + 1, uncertified=7 * 3600),
        "reconcile_inconclusive",
    ),
    ("nobody compares it", replace(EQUAL, unanswered=7 * 3600, uncertified=6 * 3600 + 1), "certificate_stale"),
    ("it is equal, and nothing certifies it", replace(EQUAL, uncertified=6 * 3600 + 1), "certificate_stale"),
    ("nobody ever compared it", replace(UNCOMPARED, unanswered=7 * 3600, uncertified=7 * 3600), "certificate_stale"),
    ("it is new", UNCOMPARED, None),
]


@pytest.mark.parametrize(("proof", "kind"), [pytest.param(*case, id=why) for why, *case in PROOFS])
def test_of_a_view_one_thing_is_told(settings: Settings, proof: ViewVerification, kind: str | None) -> None:
    sight = alert_verification.observation(settings, [proof])
    assert [finding.kind for finding in sight.findings] == ([kind] if kind else [])
    lesser = alert_verification.VIEW_KINDS[alert_verification.VIEW_KINDS.index(kind) + 1 :] if kind else ()
    assert sight.unseen == {f"{each}/one" for each in lesser}


def test_comparisons_are_looked_up(one_view: Settings, database: Connection) -> None:
    """Of the newest version; a file that cannot be read has none."""

    def compared(verdict: str, days: float, version: int | None = 2, reason: str = "") -> set[str]:
        database.execute(
            "INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, extra, "
            "different, repaired, verdict, reason, sample, finished_at) "
            "VALUES ('one', %s, '{}', false, 1, 1, 2, 3, 0, %s, %s, '{}', now() - %s)",
            (version, verdict, reason, timedelta(days=days)),
        )
        return keys(alert_verification.observe_views(one_view))

    def certified(days: float) -> set[str]:
        """By the newest comparison."""
        database.execute(
            "INSERT INTO truelog.certificate (id, view, version, reconciliation, positions, fingerprint, row_count, "
            "digest, object, made_at) SELECT gen_random_uuid(), view, version, id, '{}', '', 1, '', '', now() - %s "
            "FROM truelog.reconciliation ORDER BY id DESC LIMIT 1",
            (timedelta(days=days),),
        )
        return keys(alert_verification.observe_views(one_view))

    assert keys(alert_verification.observe_views(one_view)) == {"certificate_stale/one"}
    assert "it has no certificate" in alert_verification.observe_views(one_view).findings[0].cause
    assert compared("EQUAL", 0, version=1) == {"certificate_stale/one"}
    assert certified(0) == {"certificate_stale/one"}
    assert compared("EQUAL", 2) == {"certificate_stale/one"}
    assert compared("UNKNOWN", 1, version=None, reason="its file is broken") == {"reconcile_inconclusive/one"}
    assert "its file is broken" in alert_verification.observe_views(one_view).findings[0].cause
    assert compared("DIFFERENT", 0.5) == {"view_different/one"}
    assert alert_verification.observe_views(one_view).findings[0].cause == "1 rows are missing, 2 extra, 3 different"
    assert compared("EQUAL", 0) == {"certificate_stale/one"}
    assert certified(1) == {"certificate_stale/one"}
    assert alert_verification.observe_views(one_view).findings[0].cause == "its newest certificate is 24 h old"
    assert certified(0) == set()


def test_the_archive_is_as_sound_as_its_last_audit(postgresql: Settings, database: Connection) -> None:
    audited = "INSERT INTO truelog.audit (faults, finished_at) VALUES (%s, now() - %s)"
    assert keys(alert_verification.observe_archive(postgresql)) == set()
    database.execute(
        "INSERT INTO truelog.launch (application, reason, launched_at) "
        "VALUES ('archive', 'dead', now() - interval '37 h')"
    )
    assert keys(alert_verification.observe_archive(postgresql)) == {"archive_unaudited/archive"}
    database.execute(audited, (["a hole", "b", "c", "d"], HOUR))
    [unsound] = alert_verification.observe_archive(postgresql).findings
    assert (unsound.key, unsound.cause) == ("archive_corrupt/archive", "a hole; b; c; and 1 more")
    database.execute(audited, ([], timedelta()))
    assert keys(alert_verification.observe_archive(postgresql)) == set()


def test_an_event_type_is_told_of_by_its_newest_log_day(postgresql: Settings, database: Connection) -> None:
    def judged(day: int, *failed: str) -> set[str]:
        database.execute(
            "INSERT INTO truelog.validation (event, day, run, success, failed, result) "
            "VALUES ('click', now() + %s, 'run', %s, %s, '{}')",
            (timedelta(days=day), not failed, list(failed)),
        )
        return keys(alert_verification.observe_events(postgresql))

    assert keys(alert_verification.observe_events(postgresql)) == set()
    assert judged(1, "events 3: at least 500") == {"quality_anomaly/click"}
    assert alert_verification.observe_events(postgresql).findings[0].cause == "events 3: at least 500"
    assert judged(0) == {"quality_anomaly/click"}  # an older day, by a backfill
    assert judged(2) == set()


# Resources.


def letters(*ends: tuple[float, int], blind: str = "") -> list[Reading]:
    """So many letters in each of two partitions, so many seconds ago."""
    now = time.time()
    return [
        Reading(
            ARCHIVE, 0, now - ago, now, {("dead_letter", p): Sample(now - ago, 0, 0, end, blind=blind) for p in (0, 1)}
        )
        for ago, end in ends
    ]


def test_dead_letters_are_told_by_their_rate(postgresql: Settings, database: Connection) -> None:
    assert alert_resources.dead_letters_a_second(letters((100, 10), (50, 20), (0, 110))) == pytest.approx(2, rel=0.01)
    for unclear in (letters((30, 0), (0, 999)), letters((100, 0), (0, 999), blind="no topic"), []):
        assert alert_resources.dead_letters_a_second(unclear) is None
    assert not alert_resources.observe_dead_letters(postgresql).sees("dead_letters/dead_letter")
    lag_history.append(database, letters((200, 0), (5, 300)), 3600)
    [found] = alert_resources.observe_dead_letters(postgresql).findings
    assert (found.key, found.cause) == ("dead_letters/dead_letter", "3.1 a second came in the last minutes")
    calm = postgresql.model_copy(update={"alert_dead_letters": 4.0})
    assert alert_resources.observe_dead_letters(calm) == Observation()


def test_a_disk_is_told_of_by_what_is_free(settings: Settings) -> None:
    full, empty = (settings.model_copy(update={"alert_disk_share": share}) for share in (0.9999999, 0.0000001))
    assert keys(alert_resources.observe_disk(full)) == {"disk_low/home"}
    assert alert_resources.observe_disk(empty) == Observation()
