"""Certificate: what one equal reconcile proved, so that anybody who has the archive can prove it again.

It is a JSON document, canonical (keys in order, no blanks, ASCII) and closed by the hash of everything else in it. It
names the positions, the code that makes the table, what ran it, and a digest for each bucket of the key's hash. It
leaves out what no proof needs: how the table was stored, and where.
"""

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from pyspark.sql import SparkSession

from truelog.log.positions import Positions
from truelog.reconcile.table_hash import TableHash
from truelog.support.errors import BadInput
from truelog.views.compiled_view import Compiled

FORMAT = 1  # of the document, and of the encoding that its hashes are of

Coordinates = tuple[str, int, int]  # topic, partition, offset
Buckets = dict[int, tuple[int, str]]  # rows, and the sum of their hashes; a bucket without rows is not named


@dataclass(frozen=True)
class EqualResult:
    """What a comparison found: stream and rebuild had these digests, at these positions."""

    positions: Positions
    excluded: Sequence[Coordinates]
    digests: TableHash
    from_raw: bool


@dataclass(frozen=True)
class Certificate:
    """That a view was equal to its rebuild, row for row, at these positions."""

    view: str
    version: int
    positions: Positions  # with the ids of the topics
    excluded: tuple[Coordinates, ...]  # records on which the transform failed, left out of the view
    fingerprint: str
    columns: dict[str, str]  # name and PostgreSQL's type, in the order in which a row is encoded
    key: tuple[str, ...]
    rows: int
    buckets: Buckets
    from_raw: bool
    made_by: dict[str, str]
    made_at: datetime

    @property
    def digest(self) -> str:
        """Of all the rest."""
        return _hashed(self._plain())

    @property
    def id(self) -> str:
        """Ids of one view sort by their time."""
        return f"{self.view}-{self.made_at:%Y%m%dT%H%M%S.%fZ}-{self.digest.partition(':')[2][:8]}"

    def as_bytes(self) -> bytes:
        return _canonical(self._plain() | {"digest": self.digest})

    def _plain(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["positions"] = json.loads(self.positions.as_json())
        plain["topics"] = dict(self.positions.ids)
        plain["columns"] = list(self.columns.items())  # whose order is part of the encoding
        plain["buckets"] = {str(bucket): each for bucket, each in self.buckets.items()}
        plain["made_at"] = self.made_at.isoformat(timespec="microseconds")
        return plain | {"format": FORMAT}


def make_certificate(spark: SparkSession, compiled: Compiled, equal: EqualResult) -> Certificate:
    """The certificate of what was just found equal."""
    buckets = to_buckets(equal.digests)
    return Certificate(
        view=compiled.name,
        version=compiled.view.version,
        positions=equal.positions,
        excluded=tuple(sorted(equal.excluded)),
        fingerprint=compiled.fingerprint,
        columns=compiled.stored_columns,
        key=compiled.view.key,
        rows=sum(rows for rows, _ in buckets.values()),
        buckets=buckets,
        from_raw=equal.from_raw,
        made_by=software_versions(spark),
        made_at=datetime.now(UTC),
    )


def to_buckets(digests: TableHash) -> Buckets:
    """Digests as a certificate has them."""
    return {bucket: (each.rows, each.hash) for bucket, each in sorted(digests.items())}


def software_versions(spark: SparkSession) -> dict[str, str]:
    """The versions on which the meaning of a transform may depend."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # noqa: S101
    return {
        "truelog": version("truelog"),
        "spark": spark.version,
        "python": platform.python_version(),
        "java": jvm.java.lang.System.getProperty("java.version"),
        "tzdata": jvm.java.time.zone.ZoneRulesProvider.getVersions("UTC").lastEntry().getKey(),
    }


def read_certificate(content: bytes) -> Certificate:
    """The certificate that these bytes are.

    Raises:
        BadInput: they are none, or not what was written.
    """
    try:
        plain = json.loads(content)
        said, hashed = plain.pop("digest"), _hashed(plain)
        if said != hashed:
            raise BadInput(
                f"this certificate was altered: it says {said} of itself, and comes to {hashed}. "
                f"`truelog certificates` names others."
            )
        return _parsed(plain)
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise BadInput(f"this is no certificate: {type(broken).__name__}: {broken}") from None


def _parsed(plain: dict[str, Any]) -> Certificate:
    if plain["format"] != FORMAT:
        raise ValueError(f"its format is {plain['format']}, this release reads {FORMAT}")
    own = {each.name: plain[each.name] for each in fields(Certificate)}
    own["positions"] = Positions.from_json(json.dumps(plain["positions"]), plain["topics"])
    own["excluded"] = tuple((topic, partition, offset) for topic, partition, offset in plain["excluded"])
    own["columns"] = dict(plain["columns"])
    own["key"] = tuple(plain["key"])
    own["buckets"] = {int(bucket): (rows, hashed) for bucket, (rows, hashed) in plain["buckets"].items()}
    own["made_at"] = datetime.fromisoformat(plain["made_at"])
    return Certificate(**own)


def _canonical(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")


def _hashed(plain: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(_canonical(plain)).hexdigest()}"
