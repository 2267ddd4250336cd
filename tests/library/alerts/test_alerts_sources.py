"""What each alert source finds: tables of cases for its rules, and a real database for its queries."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.applications import a_launch, end_lease
from tests.builders.comparisons import a_certificate, a_reconciliation
from tests.builders.log import an_audit
from tests.builders.quality import an_event_validation
from tests.builders.rows import before_now
from tests.builders.views import a_failed_group, a_view, an_exclusion, an_oversized_group, forget
from tests.library.alert_tables import emptied
from tests.library.judged import judged
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Observation
from truelog.alerts.sources import lag as alert_lag
from truelog.alerts.sources import omissions as alert_omissions
from truelog.alerts.sources import resources as alert_resources
from truelog.alerts.sources import verification as alert_verification
from truelog.alerts.sources.verification import ComparisonRecord
from truelog.control import application, lease
from truelog.control.application import ARCHIVE, STREAM
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.lag.report import LagRow
from truelog.lag.verdict import LagVerdict, Sample
from truelog.storage.database import Connection
from truelog.support.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLES = ("audit", "launch", "lease", "application", "reconciliation", "lag_sample")


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    """The database of a platform that has not recorded anything yet."""
    with emptied(postgresql, *TABLES) as connection:
        yield connection


@pytest.fixture
def one_view(postgresql: Settings, database: Connection, tmp_path: Path) -> Iterator[Settings]:
    """A platform whose only view was created three days ago."""
    (tmp_path / "one.py").touch()
    for version, days in ((1, 9), (2, 3)):
        a_view(database, "one", version, ago=timedelta(days=days))
    yield postgresql.model_copy(update={"views_folder": tmp_path})
    forget(database, "one")


def keys(observation: Observation) -> set[str]:
    assert {finding.kind for finding in observation.findings} <= KINDS.keys()
    return {finding.key for finding in observation.findings}


# Lag.


def row(verdict: LagVerdict, reader: str = "one", partition: int = 0) -> LagRow:
    runs = ARCHIVE if reader == ARCHIVE else STREAM
    return LagRow(reader, runs, verdict, 0, f"it is {verdict}", "page_view", partition)


V = LagVerdict
LAG: list[tuple[str, list[LagRow], set[str], set[str], set[str]]] = [
    # reason, rows, idle applications, keys found, some of the unseen keys
    ("no problem", [row(V.OK), row(V.OK, "two")], set(), set(), set()),
    (
        "a slow application is one incident",
        [row(V.WARN), row(V.UNDERPROVISIONED, "two")],
        set(),
        {"lagging/stream"},
        set(),
    ),
    (
        "each stalled view is an incident",
        [row(V.STALL), row(V.STALL, "two")],
        set(),
        {"stalled/one", "stalled/two"},
        set(),
    ),
    (
        "the worst partition decides; the lesser problem stays unresolved",
        [row(V.WARN), row(V.STALL, partition=1)],
        set(),
        {"stalled/one"},
        {"lagging/stream"},
    ),
    ("a reader went back", [row(V.REWIND)], set(), {"positions_rewound/one"}, {"lagging/stream", "stalled/one"}),
    (
        "an idle application has an alert of its own",
        [row(V.STOP), row(V.WARN, "two")],
        {STREAM},
        set(),
        {"stalled/one"},
    ),
    (
        "an idle application still loses records",
        [row(V.FALLING_OFF, ARCHIVE)],
        {ARCHIVE},
        {"retention_risk/archive"},
        set(),
    ),
    (
        "a blind poller resolves nothing",
        [row(V.UNKNOWN), row(V.UNKNOWN, "two")],
        set(),
        {"lag_unknown/log"},
        {"lagging/stream", "stalled/one", "positions_rewound/one", "retention_risk/two"},
    ),
    (
        "an unknown partition does not hide another",
        [row(V.UNKNOWN), row(V.STALL, partition=1)],
        set(),
        {"lag_unknown/log", "stalled/one"},
        {"positions_rewound/one", "lagging/stream"},
    ),
]


@pytest.mark.parametrize(("rows", "idle", "expected", "unseen"), [pytest.param(*case, id=why) for why, *case in LAG])
def test_lag_is_reported_by_incident(rows: list[LagRow], idle: set[str], expected: set[str], unseen: set[str]) -> None:
    observation = alert_lag.observation(rows, idle)
    assert keys(observation) == expected
    assert not any(observation.sees(key) for key in unseen)


def test_every_bad_verdict_on_lag_has_a_kind() -> None:
    found = {verdict: keys(alert_lag.observation([row(verdict)], set())) for verdict in LagVerdict}
    assert [verdict for verdict, keys_found in found.items() if not keys_found] == [LagVerdict.OK]


def test_the_cause_of_a_slow_application_names_its_first_view() -> None:
    [finding] = alert_lag.observation([row(V.WARN), row(V.UNDERPROVISIONED, "two")], set()).findings
    assert finding.cause == "one page_view 0: it is WARN"


def test_lag_comes_from_the_history(one_view: Settings, database: Connection) -> None:
    """The application is running, but the archive has no sample."""
    taken = lease.take_lease(one_view, STREAM)
    lease.record_batch(database, taken.holder)
    application.declare(database, [STREAM])
    now = time.time()
    history = [
        ReaderPoll("one", 2, now - ago, now, {("page_view", 0): Sample(now - ago, 0, 0, 5000, 3000.0 - ago, now)})
        for ago in range(600, -1, -10)
    ]
    lag_history.append(database, judged(one_view, history), 3600)
    assert keys(alert_lag.observe(one_view)) == {"stalled/one", "lag_unknown/log"}
    end_lease(database, taken)
    assert keys(alert_lag.observe(one_view)) == {"lag_unknown/log"}


# Verification.

EQUAL = ComparisonRecord("one", "EQUAL", "", "EQUAL", 0, 0, 0, 60, 60, 1)
UNCOMPARED = ComparisonRecord("one", None, None, None, None, None, None, 60, 60, 0)
VERIFICATIONS = [
    ("it is equal", EQUAL, None),
    ("it differs", replace(EQUAL, verdict="DIFFERENT", conclusive_verdict="DIFFERENT", missing=3), "view_different"),
    (
        "an inconclusive comparison does not make it equal",
        replace(EQUAL, verdict="UNKNOWN", conclusive_verdict="DIFFERENT"),
        "view_different",
    ),
    ("inconclusive for a while", replace(EQUAL, verdict="UNKNOWN"), None),
    (
        "inconclusive for too long",
        replace(EQUAL, verdict="UNKNOWN", inconclusive_seconds=3 * 3600 + 1, uncertified_seconds=7 * 3600),
        "reconcile_inconclusive",
    ),
    (
        "not compared",
        replace(EQUAL, inconclusive_seconds=7 * 3600, uncertified_seconds=6 * 3600 + 1),
        "certificate_stale",
    ),
    ("equal but not certified", replace(EQUAL, uncertified_seconds=6 * 3600 + 1), "certificate_stale"),
    (
        "never compared",
        replace(UNCOMPARED, inconclusive_seconds=7 * 3600, uncertified_seconds=7 * 3600),
        "certificate_stale",
    ),
    ("it is new", UNCOMPARED, None),
]


@pytest.mark.parametrize(("checked", "kind"), [pytest.param(*case, id=why) for why, *case in VERIFICATIONS])
def test_a_view_causes_one_finding_at_most(settings: Settings, checked: ComparisonRecord, kind: str | None) -> None:
    observation = alert_verification.observation(settings, [checked])
    assert [finding.kind for finding in observation.findings] == ([kind] if kind else [])
    lesser = alert_verification.VIEW_KINDS[alert_verification.VIEW_KINDS.index(kind) + 1 :] if kind else ()
    assert observation.unseen == {f"{each}/one" for each in lesser}


def test_views_are_checked_by_their_comparisons_and_certificates(one_view: Settings, database: Connection) -> None:
    """Only the newest version counts. A comparison of an unreadable file has no version."""

    numbers: list[int] = []

    def compared(verdict: str, days: float, **found: Any) -> set[str]:
        unequal = {"version": 2, "missing": 1, "extra": 2, "different": 3}
        numbers.append(a_reconciliation(database, "one", verdict, ago=timedelta(days=days), **unequal | found))
        return keys(alert_verification.observe_views(one_view))

    def certified(days: float) -> set[str]:
        """Certify the newest comparison."""
        a_certificate(database, numbers[-1], ago=timedelta(days=days))
        return keys(alert_verification.observe_views(one_view))

    assert keys(alert_verification.observe_views(one_view)) == {"certificate_stale/one"}
    [stale] = alert_verification.observe_views(one_view).findings
    assert "no certificate since the view was created 3 days ago" in stale.cause
    assert compared("EQUAL", 0, version=1) == {"certificate_stale/one"}
    assert certified(0) == {"certificate_stale/one"}
    assert compared("EQUAL", 2) == {"certificate_stale/one"}
    assert compared("UNKNOWN", 1, version=None, reason="its file is broken") == {"reconcile_inconclusive/one"}
    assert "its file is broken" in alert_verification.observe_views(one_view).findings[0].cause
    assert compared("DIFFERENT", 0.5) == {"view_different/one"}
    assert alert_verification.observe_views(one_view).findings[0].cause == "1 rows are missing, 2 extra, 3 different"
    assert compared("EQUAL", 0) == {"certificate_stale/one"}
    assert certified(1) == {"certificate_stale/one"}
    assert alert_verification.observe_views(one_view).findings[0].cause == "the newest certificate is 24 h old"
    assert certified(0) == set()


def test_the_archive_is_checked_by_its_last_audit(postgresql: Settings, database: Connection) -> None:
    assert keys(alert_verification.observe_archive(postgresql)) == set()
    a_launch(database, ARCHIVE, ago=37 * HOUR)
    assert keys(alert_verification.observe_archive(postgresql)) == {"archive_unaudited/archive"}
    an_audit(database, ["a hole", "b", "c", "d"], ago=HOUR)
    [corrupt] = alert_verification.observe_archive(postgresql).findings
    assert (corrupt.key, corrupt.cause) == ("archive_corrupt/archive", "a hole; b; c; and 1 more")
    an_audit(database)
    assert keys(alert_verification.observe_archive(postgresql)) == set()


def test_an_event_type_is_checked_by_its_newest_log_day(postgresql: Settings, database: Connection) -> None:
    def judged(day: int, *failed: str) -> set[str]:
        an_event_validation(database, "click", before_now(timedelta(days=-day)), success=not failed, failed=failed)
        return keys(alert_verification.observe_events(postgresql))

    assert judged(1, "events 3: at least 500") == {"quality_anomaly/click"}
    assert alert_verification.observe_events(postgresql).findings[0].cause == "events 3: at least 500"
    assert judged(0) == {"quality_anomaly/click"}  # an older day, from a backfill
    assert not keys(alert_verification.observe_events(postgresql.model_copy(update={"events_folder": postgresql.home})))
    assert judged(2) == set()


# Events that are left out.


def test_a_view_that_drops_a_large_share_of_its_events_is_found(
    one_view: Settings, database: Connection, request: pytest.FixtureRequest
) -> None:
    def dropped(*rows: tuple[float, int, int]) -> list[tuple[str, str]]:
        database.execute("DELETE FROM state.one_v2_dropped")
        for hours, events, late in rows:
            database.execute(
                "INSERT INTO state.one_v2_dropped VALUES (date_trunc('hour', now(), 'UTC') - %s * interval '1 hour', "
                "%s, %s)",
                (hours, events, late),
            )
        return [(each.key, each.cause) for each in alert_omissions.observe(one_view).findings]

    database.execute("CREATE TABLE state.one_v2_dropped (hour timestamptz, events bigint, dropped bigint)")
    request.addfinalizer(lambda: database.execute("DROP TABLE state.one_v2_dropped"))
    database.execute("UPDATE truelog.view SET sides = '{dropped}' WHERE view = 'one'")

    assert dropped() == []
    assert dropped((0, 1_000, 10), (2, 1_000, 999)) == []
    [(key, cause)] = dropped((0, 1_000, 10), (1, 1_000, 11))
    assert key == "late_events_dropped/one"
    assert cause == "21 of 2,000 events (1.1 %) came too late in this hour and the hour before"


def test_a_view_with_oversized_groups_is_found(one_view: Settings, database: Connection) -> None:
    assert alert_omissions.observe(one_view).findings == ()
    for version, group in ((1, ["old"]), (2, ["a"]), (2, ["b", 7])):
        an_oversized_group(database, "one", group, version=version)
    [found] = alert_omissions.observe(one_view).findings
    assert (found.key, found.cause) == ("groups_oversized/one", "groups too large: 2; see `truelog.oversized_group`")


def test_a_view_with_groups_on_which_its_fold_fails_is_found(one_view: Settings, database: Connection) -> None:
    for version, group in ((1, ["old"]), (2, ["a"]), (2, ["b"])):
        a_failed_group(database, "one", group, f"error of {group[0]}", version=version)
    [found] = alert_omissions.observe(one_view).findings
    assert found.key == "groups_failed/one"
    assert found.cause.startswith("groups without rows: 2; see `truelog.failed_group`. The last error: error of ")


def test_a_view_that_excludes_records_is_found(one_view: Settings, database: Connection) -> None:
    def found() -> list[tuple[str, str]]:
        findings = alert_omissions.observe(one_view).findings
        return [(each.key, each.cause) for each in findings if each.kind == "records_excluded"]

    an_exclusion(database, "one", 1, version=1, error="of an earlier version")
    an_exclusion(database, "one", 2, version=2, error="too long ago", ago=timedelta(minutes=61))
    assert found() == []
    for offset in (4, 7):
        an_exclusion(database, "one", offset, version=2, error=f"CAST [{offset}]")
    assert found() == [("records_excluded/one", "2 in the last hour, at last t 0:7: CAST [7]")]


# Resources.


def letters(*ends: tuple[float, int], blind: str = "") -> list[ReaderPoll]:
    """Readings of two partitions. Each pair is a reading's age in seconds and its end offset."""
    now = time.time()
    return [
        ReaderPoll(
            ARCHIVE, 0, now - ago, now, {("dead_letter", p): Sample(now - ago, 0, 0, end, blind=blind) for p in (0, 1)}
        )
        for ago, end in ends
    ]


def test_dead_letters_are_reported_by_their_rate(postgresql: Settings, database: Connection) -> None:
    assert alert_resources.dead_letters_per_second(letters((100, 10), (50, 20), (0, 110))) == pytest.approx(2, rel=0.01)
    for unclear in (letters((30, 0), (0, 999)), letters((100, 0), (0, 999), blind="no topic"), []):
        assert alert_resources.dead_letters_per_second(unclear) is None
    assert not alert_resources.observe_dead_letters(postgresql).sees("dead_letters/dead_letter")
    lag_history.append(database, letters((200, 0), (5, 300)), 3600)
    [finding] = alert_resources.observe_dead_letters(postgresql).findings
    assert (finding.key, finding.cause) == ("dead_letters/dead_letter", "3.1 events a second in the last minutes")
    calm = postgresql.model_copy(update={"alert_dead_letters": 4.0})
    assert alert_resources.observe_dead_letters(calm) == Observation()


def test_a_disk_is_reported_by_its_free_share(settings: Settings) -> None:
    full, empty = (settings.model_copy(update={"alert_disk_share": share}) for share in (0.9999999, 0.0000001))
    assert keys(alert_resources.observe_disk(full)) == {"disk_low/home"}
    assert alert_resources.observe_disk(empty) == Observation()
    in_a_pod = settings.model_copy(update={"stores": "own", "home": settings.home / "missing"})
    assert alert_resources.observe_disk(in_a_pod) == Observation()
