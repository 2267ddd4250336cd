"""Certificate: the evidence that a reconcile found a view EQUAL. Anyone with the archive can verify it.

A certificate is a canonical JSON document (sorted keys, no whitespace, ASCII) that ends with a digest of its content.
It records the positions, the code that makes the table, the software that ran the code, and a hash for each bucket of
keys. It does not record how or where the table was stored, because verification does not need these details.
"""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from truelog import __version__
from truelog.log.positions import Positions
from truelog.schema.event_version import UsedVersions
from truelog.support.errors import BadInput
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table_hash import TableHash

FORMAT = 1  # version of the document and of the row encoding that is hashed

_OPTIONAL = ("event_versions", "proved_at", "sides", "erased")

Coordinates = tuple[str, int, int]  # topic, partition, offset
Buckets = dict[int, tuple[int, str]]  # row count and hash by bucket; empty buckets are absent


@dataclass(frozen=True)
class CertifiedTable:
    """A side table of the view: its columns with their types, in the order of the row encoding, and its hashes."""

    columns: dict[str, str]
    key: tuple[str, ...]
    buckets: Buckets

    def as_plain(self) -> dict[str, Any]:
        return {"columns": list(self.columns.items()), "key": self.key, "buckets": _plain_buckets(self.buckets)}

    @staticmethod
    def of(plain: dict[str, Any]) -> "CertifiedTable":
        return CertifiedTable(dict(plain["columns"]), tuple(plain["key"]), _parsed_buckets(plain["buckets"]))


@dataclass(frozen=True)
class EqualResult:
    """A comparison in which the stream and the rebuild had the same hashes."""

    positions: Positions
    excluded: Sequence[Coordinates]
    tables: Mapping[str, TableHash]  # by the name of the side table; "" for the view's own
    from_raw: bool
    event_versions: Mapping[str, UsedVersions]  # by topic
    proved_at: datetime | None = None  # when the oldest partial behind it was last compared with raw bytes, if known
    erased: Mapping[str, int] = field(default_factory=dict)  # the erased records below the positions, by topic


@dataclass(frozen=True)
class Certificate:
    """A statement that a view equalled its rebuild, row for row, at these positions."""

    view: str
    version: int
    positions: Positions  # including the topic ids
    excluded: tuple[Coordinates, ...]  # records that the view skips because the transform fails on them
    fingerprint: str
    columns: dict[str, str]  # name and PostgreSQL type, in the order of the row encoding
    key: tuple[str, ...]
    rows: int
    buckets: Buckets
    from_raw: bool
    made_by: dict[str, str]
    made_at: datetime
    # By topic; None if the certificate does not list them.
    event_versions: Mapping[str, UsedVersions] | None = None
    # When the oldest partial behind the rebuild was last compared with raw bytes; None if one never was.
    proved_at: datetime | None = None
    sides: Mapping[str, CertifiedTable] | None = None  # by name; None if the view has no side tables
    # How many records below the positions were erased, by topic; None if none was.
    erased: Mapping[str, int] | None = None

    @property
    def digest(self) -> str:
        """The hash of all other fields."""
        return _hashed(self._plain())

    @property
    def id(self) -> str:
        """The certificate id. A view's certificate ids sort by time."""
        return f"{self.view}-{self.made_at:%Y%m%dT%H%M%S.%fZ}-{self.digest.partition(':')[2][:8]}"

    def as_bytes(self) -> bytes:
        return _canonical(self._plain() | {"digest": self.digest})

    def _plain(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["positions"] = json.loads(self.positions.as_json())
        plain["topics"] = dict(self.positions.ids)
        plain["columns"] = list(self.columns.items())  # a list, because their order is part of the encoding
        plain["buckets"] = _plain_buckets(self.buckets)
        plain["made_at"] = self.made_at.isoformat(timespec="microseconds")
        if self.event_versions is not None:
            plain["event_versions"] = {topic: asdict(each) for topic, each in self.event_versions.items()}
        if self.proved_at is not None:
            plain["proved_at"] = self.proved_at.isoformat(timespec="microseconds")
        if self.sides is not None:
            plain["sides"] = {side: each.as_plain() for side, each in self.sides.items()}
        absent = {name for name in _OPTIONAL if plain[name] is None}
        return {name: value for name, value in plain.items() if name not in absent} | {"format": FORMAT}


def make_certificate(spark: SparkSession, compiled: CompiledView, equal: EqualResult) -> Certificate:
    """Make a certificate from an EQUAL comparison."""
    buckets = to_buckets(equal.tables[""])
    return Certificate(
        view=compiled.name,
        version=compiled.view.version,
        positions=equal.positions,
        excluded=tuple(sorted(equal.excluded)),
        fingerprint=compiled.fingerprint,
        columns=compiled.own.stored_columns,
        key=compiled.view.key,
        rows=sum(rows for rows, _ in buckets.values()),
        buckets=buckets,
        from_raw=equal.from_raw,
        made_by=software_versions(spark),
        made_at=datetime.now(UTC),
        event_versions=equal.event_versions,
        proved_at=equal.proved_at and equal.proved_at.astimezone(UTC),
        sides={
            each.side: CertifiedTable(each.stored_columns, each.view.key, to_buckets(equal.tables[each.side]))
            for each in compiled.sides
        }
        or None,
        erased=dict(equal.erased) or None,
    )


def to_buckets(digests: TableHash) -> Buckets:
    """Convert a table hash to the form that certificates use."""
    return {bucket: (each.rows, each.hash) for bucket, each in sorted(digests.items())}


def software_versions(spark: SparkSession) -> dict[str, str]:
    """The versions that may change what a transform computes."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # noqa: S101
    return {
        "truelog": __version__,
        "spark": spark.version,
        "python": platform.python_version(),
        "java": jvm.java.lang.System.getProperty("java.version"),
        "tzdata": jvm.java.time.zone.ZoneRulesProvider.getVersions("UTC").lastEntry().getKey(),
    }


def read_certificate(content: bytes) -> Certificate:
    """Parse a certificate and check its digest.

    Raises:
        BadInput: the content is not a certificate, or the certificate was altered.
    """
    try:
        plain = json.loads(content)
        stated, actual = plain.pop("digest"), _hashed(plain)
        if stated != actual:
            raise BadInput(
                f"this certificate was altered: its digest is {stated}, but its content hashes to {actual}. "
                f"`truelog certificates` lists the other certificates."
            )
        return _parsed(plain)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as broken:
        raise BadInput(f"not a certificate: {type(broken).__name__}: {broken}") from None


def _parsed(plain: dict[str, Any]) -> Certificate:
    if plain["format"] != FORMAT:
        raise ValueError(f"its format is {plain['format']}, but this release reads format {FORMAT}")
    values = {each.name: plain[each.name] for each in fields(Certificate) if each.name not in _OPTIONAL}
    values["positions"] = Positions.from_json(json.dumps(plain["positions"]), plain["topics"])
    values["excluded"] = tuple((topic, partition, offset) for topic, partition, offset in plain["excluded"])
    values["columns"] = dict(plain["columns"])
    values["key"] = tuple(plain["key"])
    values["buckets"] = _parsed_buckets(plain["buckets"])
    values["made_at"] = datetime.fromisoformat(plain["made_at"])
    if "event_versions" in plain:
        used = plain["event_versions"].items()
        values["event_versions"] = {t: UsedVersions(each["reading"], tuple(each["versions"])) for t, each in used}
    if "proved_at" in plain:
        values["proved_at"] = datetime.fromisoformat(plain["proved_at"])
    if "sides" in plain:
        values["sides"] = {side: CertifiedTable.of(each) for side, each in plain["sides"].items()}
    values["erased"] = plain.get("erased")
    return Certificate(**values)


def _plain_buckets(buckets: Buckets) -> dict[str, tuple[int, str]]:
    return {str(bucket): each for bucket, each in buckets.items()}


def _parsed_buckets(plain: dict[str, Any]) -> Buckets:
    return {int(bucket): (rows, hashed) for bucket, (rows, hashed) in plain.items()}


def _canonical(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")


def _hashed(plain: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(_canonical(plain)).hexdigest()}"
