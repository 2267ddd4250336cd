"""Verifies a certificate from the archive's raw bytes and the current code alone.

1. Compare the code, the event versions and the number of erased records. If other code or other versions made the
   certificate, or an erasure has changed the archive since, the verdict is SUPERSEDED.
2. Read the raw bytes of every record below the certificate's positions from the bucket, without a database.
3. Check that the transform fails on every skipped record.
4. Rebuild the view at these positions, with the log's clock, and compare its hashes with the certified ones.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from truelog.archive import reader as archive_reader
from truelog.archive.reader import Wanted
from truelog.batch.batch_context import open_batch
from truelog.control import event_registry
from truelog.kernel import bad_records, clock
from truelog.log import records
from truelog.log.positions import Positions, Range
from truelog.log.records import EventFrames
from truelog.reconcile import certificate
from truelog.reconcile.certificate import Buckets, Certificate
from truelog.schema import event_version
from truelog.schema.event import EventTypes
from truelog.schema.event_version import UsedVersions
from truelog.spark.early import begin_session
from truelog.support.errors import ArchiveBehind, TopicRecreated
from truelog.support.settings import Settings
from truelog.tables import kinds, table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table


class VerificationVerdict(StrEnum):
    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    SUPERSEDED = "SUPERSEDED"  # other code, other event versions or records that are erased now made the certified rows
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class CertificateCheck:
    """The verdict on a certificate and the reason for the verdict."""

    certificate: str
    view: str
    version: int
    made_at: str
    answer: VerificationVerdict
    rows: int = 0  # rows in the rebuild
    unequal_buckets: int = 0
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self) | {"equal": self.answer == VerificationVerdict.EQUAL}


def verify_certificate(settings: Settings, certified: Certificate) -> CertificateCheck:
    """Verify a certificate in a separate Spark session."""
    registry = event_registry.types_in_bucket  # no database
    records = sum(sum(ends.values()) for ends in certified.positions.offsets.values())
    name = "truelog verify"
    with open_batch(settings, name, [certified.view], registry, begin_session(settings, name, records)) as context:
        if reason := context.views.refused.get(certified.view):
            return _answer(certified, VerificationVerdict.UNKNOWN, reason)
        [compiled] = context.views.compiled
        return CertificateVerifier(context.spark, settings, context.event_types, compiled).verify(certified)


@dataclass(frozen=True)
class CertificateVerifier:
    """Verifies the certificates of one view."""

    spark: SparkSession
    settings: Settings
    types: EventTypes
    compiled: CompiledView

    def verify(self, certified: Certificate) -> CertificateCheck:
        try:
            _require_same_topics(certified, self.types)
            if superseded := self._superseded(certified):
                return _answer(certified, VerificationVerdict.SUPERSEDED, superseded)  # 1
            return self._rebuild_and_compare(certified)
        except (ArchiveBehind, TopicRecreated) as refused:
            return _answer(certified, VerificationVerdict.UNKNOWN, str(refused))

    def _superseded(self, certified: Certificate) -> str:
        """Why the certificate cannot be verified with this code and this archive, or an empty string."""
        return (
            _other_code(certified, self.compiled)
            or _other_versions(certified, self.types)
            or _erased_since(certified, archive_reader.erased_below(self.settings, certified.positions))
        )

    def _rebuild_and_compare(self, certified: Certificate) -> CertificateCheck:
        events = self._events(Wanted.between(Positions(), certified.positions))  # 2
        if unfounded := self._unfounded(certified):  # 3
            reason = f"the certified view skips records on which the transform does not fail: {unfounded}"
            return _answer(certified, VerificationVerdict.DIFFERENT, reason)
        limit = self._limit(certified.positions)
        rebuilt = kinds.leaving_out_failures(  # 4
            kinds.without_expired(self.compiled, limit),
            lambda table: table.totals_of(kinds.countable(table, events, certified.excluded)),
            lambda compiled: {each.side: self._rebuilt(each, certified, events, limit) for each in compiled.tables},
        )
        return compare_buckets(certified, rebuilt, certificate.software_versions(self.spark))

    def _events(self, wanted: Wanted) -> EventFrames:
        types = {topic: self.types[topic] for topic in self.compiled.view.topics}
        return records.events(archive_reader.read_without_catalog(self.spark, self.settings, types, wanted), types)

    def _unfounded(self, certified: Certificate) -> str:
        if not certified.excluded:
            return ""
        events = self._events(Wanted.of(certified.excluded, certified.positions.ids))
        wrong = bad_records.unfounded_exclusions(self.compiled, events, certified.excluded)
        return ", ".join(f"{topic} {partition}:{offset}" for topic, partition, offset in wrong)

    def _rebuilt(self, table: Table, certified: Certificate, events: EventFrames, limit: datetime | None) -> Buckets:
        counted = kinds.countable(table, events, certified.excluded)
        kept = clock.rows_since(table, table.totals_of(counted), limit)
        return certificate.to_buckets(table_hash.hash_frame(table, table.stored(kept)))

    def _limit(self, positions: Positions) -> datetime | None:
        """The expiry limit of the view's tables at these positions: older rows have expired. None if there is none."""
        if self.compiled.view.keep is None:
            return None

        def read(begin: int, end: int, since: datetime | None) -> DataFrame:
            return self._events(Wanted([Range(clock.TOPIC, 0, begin, end)], positions.ids, since))[clock.TOPIC]

        return clock.cutoff_at(self.compiled.own, clock.at_from_ticks(read, positions, self.compiled.view.reads))


def _require_same_topics(certified: Certificate, types: EventTypes) -> None:
    """Require that the event versions are those of the certified topics. Types from files belong to no topic."""
    for topic, topic_id in certified.positions.ids.items():
        if topic in types and types[topic].topic_id not in ("", topic_id):
            raise TopicRecreated(f"{topic} has been deleted and recreated; its event versions belong to the old topic.")


def _other_versions(certified: Certificate, types: EventTypes) -> str:
    """How the event versions differ from the certified versions, or an empty string if they are the same."""
    for topic, then in (certified.event_versions or {}).items():
        now = event_version.versions_below(types[topic], certified.positions.offsets[topic])
        if now != then:
            return (
                f"the records of {topic} were judged by {_described(then)}, and are now judged by {_described(now)}: "
                f"`truelog reconcile {certified.view}` makes a new certificate."
            )
    return ""


def _erased_since(certified: Certificate, erased: Mapping[str, int]) -> str:
    """How many of the certified records were erased since, or an empty string if none was."""
    then = certified.erased or {}
    since = {topic: records - then.get(topic, 0) for topic, records in erased.items()}
    more = [f"{records:,} records of {topic}" for topic, records in since.items() if records]
    if not more:
        return ""
    return (
        f"an erasure has covered {' and '.join(more)} since: `truelog reconcile {certified.view}` makes a new "
        "certificate, and this one can no longer be verified."
    )


def _described(used: UsedVersions) -> str:
    versions = ", ".join(map(str, used.versions)) or "none"
    return f"event versions {versions} in reading {used.reading}"


def _other_code(certified: Certificate, compiled: CompiledView) -> str:
    """How the current code differs from the certified code, or an empty string if it is the same."""
    if certified.version == compiled.view.version and compiled.fingerprint == certified.fingerprint:
        return ""
    return (
        f"made by version {certified.version}, code {certified.fingerprint[:12]}; the view's file now has version "
        f"{compiled.view.version}, code {compiled.fingerprint[:12]}. The older release can still verify it."
    )


def compare_buckets(
    certified: Certificate, rebuilt: Mapping[str, Buckets], versions: dict[str, str]
) -> CertificateCheck:
    """Compare a certificate with the rebuilt buckets of each table, by the name of the side table ("" for the view's).

    If they differ, list the software versions that have changed.
    """
    stated = {"": certified.buckets} | {side: each.buckets for side, each in (certified.sides or {}).items()}
    rows = sum(count for count, _ in rebuilt[""].values())
    unequal = sum(_count_unequal(stated.get(side, {}), buckets) for side, buckets in rebuilt.items())
    if not unequal:
        return _answer(certified, VerificationVerdict.EQUAL, rows=rows)
    all_buckets = len(rebuilt) * table_hash.BUCKETS
    reason = f"{unequal} of {all_buckets} buckets differ: {certified.rows} certified rows, {rows} rebuilt rows"
    changed = [  # another release may have recorded other software
        f"{name} {old} then, {versions.get(name, 'unknown')} now"
        for name, old in certified.made_by.items()
        if versions.get(name) != old
    ]
    if changed:
        reason += f". Software versions changed: {'; '.join(changed)}"
    return _answer(certified, VerificationVerdict.DIFFERENT, reason, rows=rows, unequal_buckets=unequal)


def _count_unequal(stated: Buckets, rebuilt: Buckets) -> int:
    return sum(rebuilt.get(bucket) != stated.get(bucket) for bucket in rebuilt.keys() | stated.keys())


def _answer(
    certified: Certificate, answer: VerificationVerdict, reason: str = "", *, rows: int = 0, unequal_buckets: int = 0
) -> CertificateCheck:
    when = certified.made_at.isoformat()
    return CertificateCheck(
        certified.id, certified.view, certified.version, when, answer, rows, unequal_buckets, reason
    )
