"""Retention: what keeps each of Truelog's tables in PostgreSQL small, and the deletion of old rows.

`RETENTION` lists every table of the `truelog` schema. A test fails if a table is missing there. The tables of the
other schemas belong to a version of a view, and `superseded` drops them with their version.
"""

from dataclasses import dataclass

from psycopg import sql

from truelog.storage.database import Connection, read_value
from truelog.support.settings import Settings

_PORTION = 10_000  # rows deleted in one transaction, so that no reader or writer waits for long

_PER_APPLICATION = "one row for each application"
_PER_VIEW = "one row for each view"
_WITH_VERSION = "deleted with its version: see `superseded`"
_WITH_DECLARATION = "needed as long as the records that it judges: one row for each change of a declaration"
_BY_RELAY = "the relay deletes rows an hour after they are published, and `output_behind` says that none are"
_WITH_ERASURE = "kept: a restored backup applies the erasures again. It does not name the person"
_BY_ALERT_STORE = "`alert_store.delete_old` deletes: alert_keep_seconds"


@dataclass(frozen=True)
class Expiring:
    """Rows are deleted when the time in a column is older than a setting. `kept`: the rows that stay nevertheless."""

    column: str
    setting: str
    kept: str = "false"


# In the order of deletion: a row is deleted before the row that it refers to.
RETENTION: dict[str, Expiring | str] = {
    "validation": Expiring(
        "finished_at",
        "history_keep_seconds",
        # The newest result of each event type and of each view.
        "t.id IN (SELECT max(id) FROM truelog.validation WHERE event IS NOT NULL GROUP BY event) OR t.id IN ("
        "SELECT max(v.id) FROM truelog.validation v JOIN truelog.reconciliation r ON r.id = v.reconciliation "
        "GROUP BY r.view)",
    ),
    "reconciliation": Expiring(
        "finished_at",
        "history_keep_seconds",
        # What certificates and validations refer to, and the newest of each verdict, which decides what readers get.
        "EXISTS (SELECT FROM truelog.certificate c WHERE c.reconciliation = t.id) "
        "OR EXISTS (SELECT FROM truelog.validation v WHERE v.reconciliation = t.id) "
        "OR t.id IN (SELECT max(id) FROM truelog.reconciliation GROUP BY view, version, verdict)",
    ),
    "repair": Expiring("repaired_at", "history_keep_seconds"),
    "recomputation": Expiring("changed_at", "history_keep_seconds"),
    "figure": Expiring("measured_at", "history_keep_seconds"),
    "audit": Expiring("finished_at", "history_keep_seconds", "t.id = (SELECT max(id) FROM truelog.audit)"),
    "launch": Expiring(
        "launched_at",
        "history_keep_seconds",
        # The launch that fulfils the newest request: without it, the application would be restarted again.
        "t.id IN (SELECT max(id) FROM truelog.launch GROUP BY application) OR EXISTS ("
        "SELECT FROM truelog.application a WHERE (a.application, a.wish) = (t.application, t.wish))",
    ),
    "operation": Expiring("at", "audit_trail_keep_seconds"),
    "certificate_check": Expiring("finished_at", "history_keep_seconds"),
    "explanation": Expiring("finished_at", "history_keep_seconds"),
    "past_question": Expiring(
        "asked_at", "api_past_keep_seconds", "t.answered_at IS NULL AND t.asked_at > now() - interval '1 day'"
    ),
    # The relay needs the last row that it has published, and the rows after it. Answers need all events of a command.
    "command_event": Expiring(
        "at",
        "command_keep_seconds",
        't."offset" IS NULL OR t.number >= (SELECT max(number) FROM truelog.command_event WHERE "offset" IS NOT NULL)',
    ),
    "command": Expiring(
        "at", "command_keep_seconds", "EXISTS (SELECT FROM truelog.command_event e WHERE e.receipt = t.receipt)"
    ),
    "view_reader": Expiring("last_at", "history_keep_seconds"),
    "wrong_clock": Expiring("found_at", "history_keep_seconds"),
    "notification_delivery": Expiring("made_at", "notification_keep_seconds", "t.done_at IS NULL"),
    "notification_row": Expiring(
        "changed_at",
        "notification_keep_seconds",
        # The incident of a row rule lasts until its row leaves, and a row without an incident waits for the clock.
        "(t.declared IS NOT NULL OR t.incident IS NULL) AND NOT t.retracted",
    ),
    "notification_incident": Expiring(
        "until",
        "notification_keep_seconds",
        "EXISTS (SELECT FROM truelog.notification_delivery d WHERE d.incident = t.id) "
        "OR EXISTS (SELECT FROM truelog.notification_row r WHERE r.incident = t.id)",
    ),
    "notification_place": _PER_VIEW,
    "notifier": "at most one row",
    "certificate": "kept: a proof must stay verifiable. About 9 MB a year for each view",
    "log_cut": "kept: each explains a range of offsets. One row for each cut of the log",
    "log_day": "kept: every rebuild needs it. One row for each day and partition",
    "tick": "`tick_retention` deletes the ticks that no view needs",
    "lag_sample": "each poll deletes: lag_keep_seconds",
    "batch": "each batch deletes all but the newest",
    "alert": _BY_ALERT_STORE,
    "silence": _BY_ALERT_STORE,
    "notification": _BY_ALERT_STORE,
    "alert_source": "one row for each source",
    "migration": "one row for each migration",
    "view": _WITH_VERSION,
    "position": _WITH_VERSION,
    "version_share": _WITH_VERSION,
    "exclusion": _WITH_VERSION,
    "oversized_group": _WITH_VERSION,
    "failed_group": _WITH_VERSION,
    "proof": _WITH_VERSION,
    "base": _WITH_VERSION,
    "merge_tally": _WITH_VERSION,
    "batch_answer": _WITH_VERSION,
    "batch_position": _WITH_VERSION,
    "batch_refusal": _PER_VIEW,
    "standing": _PER_VIEW,
    "clock_hold": "at most one row",
    "erasure_reading": "at most one row",
    "output": "kept: numbers never repeat. One row for each version that has published",
    "output_step": _BY_RELAY,
    "outbox": _BY_RELAY,
    "relay": "at most one row",
    "capture": "one row for each captured table",
    "invalid_change": "the watch deletes a row when a later change of its key is valid",
    "command_number": "one row",
    "command_fold": "one row for each event type with commands",
    "command_position": "one row for each partition of these event types",
    "command_key": "one row for each key of these event types, as in a view",
    "lease": _PER_APPLICATION,
    "application": _PER_APPLICATION,
    "api_key": "made by hand",
    "replay": "kept: it prevents that a dead letter counts twice. One row for each replayed dead letter",
    "view_replay": "upkeep drops each replay when its time is over (`truelog.replays.store`)",
    "straggler": "one row for each topic",
    "topic_status": "one row for each unusable topic",
    "event_file": "one row for each broken file",
    "erasure": _WITH_ERASURE,
    "erasure_subject": _WITH_ERASURE,
    "erasure_end": _WITH_ERASURE,
    "erasure_count": _WITH_ERASURE,
    "event_type": _WITH_DECLARATION,
    "event_version": _WITH_DECLARATION,
    "event_cut": _WITH_DECLARATION,
}


def delete_old_rows(connection: Connection, settings: Settings) -> int:
    """Delete the rows that are past their retention, and return their number."""
    deleted = 0
    for table, rule in RETENTION.items():
        if isinstance(rule, Expiring):
            while portion := _delete_portion(connection, table, rule, float(getattr(settings, rule.setting))):
                deleted += portion
    return deleted


def _delete_portion(connection: Connection, table: str, rule: Expiring, seconds: float) -> int:
    old = sql.SQL(
        "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT t.ctid FROM {table} AS t "
        "WHERE t.{column} < now() - make_interval(secs => %s) AND NOT ({kept}) LIMIT %s))"
    ).format(table=sql.Identifier("truelog", table), column=sql.Identifier(rule.column), kept=sql.SQL(rule.kept))
    if table != "launch":
        return connection.execute(old, (seconds, _PORTION)).rowcount
    deleted: int = read_value(connection, _counting_launches(old), (seconds, _PORTION))
    return deleted


def _counting_launches(delete: sql.Composed) -> sql.Composed:
    """Delete launches and add their number to the application, because a counter in the metrics must not go back."""
    return sql.SQL(
        "WITH old AS ({} RETURNING application), counted AS ("
        "UPDATE truelog.application a SET old_launches = a.old_launches + n FROM ("
        "SELECT application, count(*) AS n FROM old GROUP BY application"
        ") c WHERE c.application = a.application) SELECT count(*) FROM old"
    ).format(delete)
