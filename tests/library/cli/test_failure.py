"""No command shows a traceback, whichever service is down and whichever credential is wrong, and bad use is 2."""

import re
from pathlib import Path

import pytest
import typer

from tests.command import truelog
from truelog.archive.table import ensure_table, open_catalog
from truelog.cli import main
from truelog.cli.failure import explain
from truelog.cli.output import Exit
from truelog.client.errors import Unavailable
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.support.settings import PROJECT, Settings

DAY = "2026-01-01"
RULE = PROJECT / "include" / "rules" / "fall_after_rise.rule"
LONG, NESTED = "x" * 5_000, "[" * 100_000
HUGE = "99999999999999999999"

POSTGRESQL, KAFKA, S3 = "postgresql", "kafka", "s3"
# Each command with the services that it needs. Spark's commands query PostgreSQL before they start Spark.
COMMANDS: dict[tuple[str, ...], set[str]] = {
    ("query", "page_views"): {POSTGRESQL},
    ("explain", "page_views", "host=h"): {POSTGRESQL},
    ("positions",): {POSTGRESQL},
    ("views",): {POSTGRESQL},
    ("lineage",): {POSTGRESQL},
    ("lag",): {POSTGRESQL},
    ("sql", "SELECT count(*) FROM page_view"): {POSTGRESQL, S3},
    ("generate", "--rate", "1", "--seconds", "1"): {KAFKA},
    ("import", "access-log", "{log}"): {KAFKA},
    ("archive", "audit"): {POSTGRESQL, KAFKA},
    ("archive", "accept-loss"): {POSTGRESQL, KAFKA},
    ("archive", "accept-cut"): {POSTGRESQL},
    ("archive", "adopt"): {POSTGRESQL, KAFKA, S3},
    ("events", "list"): {POSTGRESQL},
    ("events", "show", "click"): {POSTGRESQL},
    ("events", "rejudge", "click"): {POSTGRESQL},
    ("dead-letters", "list"): {POSTGRESQL, KAFKA, S3},
    ("dead-letters", "show", "0:0"): {POSTGRESQL, KAFKA},
    ("dead-letters", "replay"): {POSTGRESQL, KAFKA},
    ("certificates",): {POSTGRESQL},
    ("verify", "latest:page_views"): {S3},
    ("reconcile", "page_views"): {POSTGRESQL},
    ("recompute", "--day", DAY): {POSTGRESQL},
    ("alerts",): {POSTGRESQL},
    ("alerts", "ack", "application_down/stream"): {POSTGRESQL},
    ("alerts", "silence", "*", "--for", "1h", "--why", "a test"): {POSTGRESQL},
    ("alerts", "unsilence", "1"): {POSTGRESQL},
    ("application", "start", "stream"): {POSTGRESQL},
    ("application", "stop", "stream"): {POSTGRESQL},
    ("clock", "confirm"): {POSTGRESQL},
    ("limit", "check", "192.0.2.1"): {POSTGRESQL},
    ("limit", "set", "192.0.2.1", "--requests", "5", "--window", "1h"): {POSTGRESQL, KAFKA},
    ("limit", "remove", "192.0.2.1"): {POSTGRESQL, KAFKA},
    ("limit", "block", "192.0.2.1"): {POSTGRESQL, KAFKA},
    ("limit", "unblock", "192.0.2.1"): {POSTGRESQL, KAFKA},
    ("capture", "status"): {POSTGRESQL},
    ("capture", "snapshot", "customers"): {POSTGRESQL},
    ("commands", "list"): set(),
    ("commands", "show", "claim_username"): set(),
    ("commands", "log"): {POSTGRESQL},
    ("patterns", "list"): {POSTGRESQL},
    ("patterns", "show", "a_rule"): {POSTGRESQL},
    ("patterns", "add", "{rule}"): {POSTGRESQL},
    ("patterns", "retire", "a_rule"): {POSTGRESQL},
    ("patterns", "backtest", "{rule}"): {POSTGRESQL},
    ("registry", "keep", "click"): set(),
    ("registry", "list"): {POSTGRESQL},
    ("registry", "publish"): {POSTGRESQL},
    ("replay", "page_views"): {POSTGRESQL},
    ("replays", "list"): {POSTGRESQL},
    ("replays", "show", "a_replay"): {POSTGRESQL},
    ("replays", "drop", "a_replay"): {POSTGRESQL},
    ("versions", "list"): {POSTGRESQL},
    ("versions", "diff", "page_views"): {POSTGRESQL},
    ("versions", "build"): {POSTGRESQL},
    ("versions", "cut-over", "page_views"): {POSTGRESQL},
    ("versions", "share", "page_views", "2", "10"): {POSTGRESQL},
    ("versions", "back", "page_views"): {POSTGRESQL},
    ("versions", "drop", "page_views", "1"): {POSTGRESQL},
    ("searches", "list"): {POSTGRESQL},
    ("searches", "show", "a_search"): {POSTGRESQL},
    ("searches", "add", "a_search", "lamp", "--on", "post"): {POSTGRESQL},
    ("searches", "retire", "a_search"): {POSTGRESQL},
    ("searches", "try", "lamp", "--on", "post"): {POSTGRESQL},
    ("notifications", "list"): {POSTGRESQL},
    ("notifications", "show", "fraud"): {POSTGRESQL},
    ("notifications", "deliveries"): {POSTGRESQL},
    ("notifications", "add", "fraud", "--match", "a_rule", "--to", "ops"): {POSTGRESQL},
    ("notifications", "retire", "fraud"): {POSTGRESQL},
    ("forget", "--subject", "visitor_id=ann", "--dry-run"): {POSTGRESQL, KAFKA, S3},
    ("erasures", "list"): {POSTGRESQL},
    ("erasures", "show", "0"): {POSTGRESQL},
    ("erasures", "resume"): {POSTGRESQL},
    ("erasures", "adopt"): {POSTGRESQL, KAFKA},
    ("tail", "click"): {KAFKA},
    ("output", "list"): {POSTGRESQL},
    ("output", "resend", "cart", "--from", "1"): {POSTGRESQL, KAFKA},
    ("output", "resync", "cart"): {POSTGRESQL, KAFKA},
    ("key", "list"): {POSTGRESQL},
    ("key", "add", "somebody", "--role", "reader"): {POSTGRESQL},
    ("key", "revoke", "somebody"): {POSTGRESQL},
}
# They report a service that is down as an answer, or need none, or refuse an environment without a namespace first.
UNTESTED = {("up",), ("down",), ("status",), ("doctor",), ("patterns", "schema"), ("namespace", "destroy")}
WRONG = "0" * 48
PARTS = {  # what a platform may leave out
    "TRUELOG_CAPTURE": "true",
    "TRUELOG_NOTIFICATION_CHANNELS": '{"ops": {"kind": "webhook", "url": "http://127.0.0.1:1"}}',
}
FAULTS = {
    (POSTGRESQL, "down"): {"TRUELOG_DATABASE_PORT": "1"},
    (POSTGRESQL, "wrong password"): {"TRUELOG_DATABASE_PASSWORD": WRONG},
    (KAFKA, "down"): {"TRUELOG_KAFKA_BOOTSTRAP": "127.0.0.1:1"},
    (KAFKA, "wrong password"): {"TRUELOG_KAFKA_READER_PASSWORD": WRONG},
    (S3, "down"): {"TRUELOG_S3_ENDPOINT": "http://127.0.0.1:1"},
    (S3, "wrong password"): {"TRUELOG_S3_SECRET_KEY": WRONG},
}
# How a message names the service. PostgreSQL has the archive's catalog and the captured database, and S3 the bucket.
NAMES = {POSTGRESQL: "PostgreSQL|the catalog|the captured database", KAFKA: "Kafka", S3: "object store|the bucket"}
CASES = [(command, fault) for command, needs in COMMANDS.items() for fault in FAULTS if fault[0] in needs]


def run(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    ended = truelog(*words, **environment)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def _archived_topic(platform: Settings) -> None:
    """The commands on the archive ask Kafka about archived topics only."""
    with open_catalog(platform) as catalog:
        ensure_table(catalog, load_events()["click"], topics.topic_ids(platform, ["click"])["click"], {0: 0})


def test_every_command_is_here() -> None:
    root = typer.main.get_command(main.app)
    names = set()
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        names |= {(name, each) for each in below} | ({(name,)} if not below or name == "alerts" else set())
    assert {words[:1] if words[:1] in names and words[:2] not in names else words[:2] for words in COMMANDS} == (
        names - UNTESTED
    )


@pytest.mark.usefixtures("_archived_topic")
@pytest.mark.parametrize(("command", "fault"), CASES, ids=" ".join)
def test_a_failed_service_is_3_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...], fault: tuple[str, str]
) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT", 0.2 if fault == (KAFKA, "down") else 1.0)  # a broker refuses within it
    log = tmp_path / "access.log"
    log.write_text("")
    words = (word.format(log=log, rule=RULE) for word in command)
    ended = truelog(*words, "--json", **PARTS, **FAULTS[fault])
    assert (ended.returncode, ended.stdout) == (Exit.UNKNOWN, ""), ended.stderr
    assert re.search(NAMES[fault[0]], ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    assert WRONG not in ended.stderr
    if fault == (KAFKA, "wrong password"):
        assert "Authentication failed" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("query", "page_views", "--limit", HUGE),
        ("certificates", "--limit", HUGE),
        ("verify", LONG),
        ("verify", "latest:"),
        ("verify", "{nested}"),
        ("verify", "\udcff"),
        ("sql", "SELECT '\udcff'"),
        ("sql", "DROP TABLE page_view"),
        ("sql", "SELECT 1", "--seconds", "0"),
        ("alerts", "ack", "application_down/nothing"),
        ("alerts", "unsilence", "0"),
        ("alerts", "unsilence", HUGE),
        ("alerts", "silence", "\udcff", "--for", "1h", "--why", "x"),
        ("key", "revoke", "nobody"),
        ("import", "access-log", "{truncated}"),
    ],
    ids=lambda words: " ".join(words)[:40].encode(errors="backslashreplace").decode(),
)
@pytest.mark.usefixtures("postgresql", "platform")
def test_bad_use_is_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    files = {"nested": tmp_path / "nested.json", "truncated": tmp_path / "access.log.gz"}
    files["nested"].write_text(NESTED)
    files["truncated"].write_bytes(b"\x1f\x8b\x08\x00")
    code, printed = run(*(word.format(**files) if "{" in word else word for word in words))
    assert code == Exit.BAD_USE, printed
    assert "Traceback" not in printed


def test_an_error_of_the_client_is_shown_as_it_is() -> None:
    """It is not an error of the platform, because the package of the client does not have these."""
    assert explain(Unavailable("gave up after 60 s")) == (Exit.UNKNOWN, "Unavailable: gave up after 60 s")


def test_an_unexpected_error_leaves_its_traceback_in_a_private_log(settings: Settings) -> None:
    (settings.home / "logs").mkdir(exist_ok=True)
    code, message = explain(ZeroDivisionError("one\nand more"))
    log = settings.home / "logs" / "errors.log"
    assert (code, message) == (Exit.UNKNOWN, f"An unexpected error occurred: ZeroDivisionError: one. Details: {log}")
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
