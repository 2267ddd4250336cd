"""The archive's commit: a compare-and-set on positions, in the one Iceberg transaction that appends the files.

An Iceberg append never conflicts with another one: its library rebuilds it on whatever snapshot is newest, so two
archivers of the same range would both succeed. Here the transaction also requires that the table still stands where
the batch begins. The requirement is checked against the newest metadata on every attempt: a compaction in between
leaves positions as they are and the commit is tried again, another archiver moves them and it is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    SetPropertiesUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
    ValidatableTableRequirement,
)

from truelog.archive.archive_table import Progress, Ranges, identifier, require_same_topic
from truelog.support.errors import CatalogBehind, Stale


@dataclass(frozen=True)
class Append:
    """Files that hold every record of one topic in [begin, end), partition by partition.

    `lost` says instead that the log dropped those records before anybody archived them.
    """

    topic: str
    topic_id: str
    begin: Mapping[int, int]
    end: Mapping[int, int]
    records: Mapping[int, int]
    files: tuple[DataFile, ...]
    lost: bool = False


def commit(catalog: Catalog, append: Append) -> Table:
    """Append the files and advance the table's positions, or do neither.

    Raises:
        Stale: the table does not stand where the files begin.
    """
    table = catalog.load_table(identifier(append.topic))
    require_same_topic(table, append.topic_id)
    try:
        with table.transaction() as transaction:
            _Advance(transaction, append).commit()
            # Without a file it is an empty append, and needs to be: pyiceberg retries nothing else.
            with transaction.update_snapshot().fast_append() as snapshot:
                for file in append.files:
                    snapshot.append_data_file(file)
    except _StandsElsewhereError as refused:
        raise Stale(f"archive of {append.topic} {refused}: is another archive alive? Start it again.") from None
    copy_pointer(table)
    return table


class _StandsElsewhereError(ValidationException):
    """Of pyiceberg's kind, so that it deletes the manifests of the refused attempt, and does not retry."""


class _AssertPositions(ValidatableTableRequirement):
    """The table must stand at these positions."""

    type: Literal["truelog-assert-positions"] = Field(default="truelog-assert-positions")
    begin: dict[int, int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        stands = Progress.of(base_metadata).positions if base_metadata else {}
        if any(stands.get(p, 0) != self.begin.get(p, 0) for p in stands.keys() | self.begin.keys()):
            raise _StandsElsewhereError(f"stands at {stands}, this batch begins at {self.begin}")


class _Advance(UpdateTableMetadata["_Advance"]):
    """Part of a transaction: require the positions at which an append begins, set those at which it ends."""

    def __init__(self, transaction: Transaction, append: Append) -> None:
        super().__init__(transaction)
        self._append = append

    def _commit(self) -> UpdatesAndRequirements:
        append, stands = self._append, Progress.of(self._transaction.table_metadata)
        records = {p: stands.records.get(p, 0) + append.records.get(p, 0) for p in append.end}
        lost = _with(stands.lost, append) if append.lost else stands.lost
        advanced = replace(stands, positions=dict(append.end), records=records, lost=lost)
        return (
            (SetPropertiesUpdate(updates=advanced.as_properties()),),
            (_AssertPositions(begin=dict(append.begin)),),  # type: ignore[return-value]
        )


def _with(lost: Ranges, append: Append) -> Ranges:
    """The ranges lost so far and those of this append."""
    new = {p: (append.begin.get(p, 0), end) for p, end in append.end.items()}
    return {p: [*lost.get(p, []), *([new[p]] if new[p][0] < new[p][1] else [])] for p in new}


def copy_pointer(table: Table) -> None:
    """Where the table's metadata lies, said in the bucket too: a lost catalog can be made again from it."""
    found = {
        "table": ".".join(table.name()),
        "uuid": str(table.metadata.table_uuid),
        "metadata_location": table.metadata_location,
    }
    with table.io.new_output(_pointer(table)).create(overwrite=True) as out:
        out.write(json.dumps(found).encode())


def require_newest(table: Table) -> None:
    """Refuse to tidy up by a catalog that was set back: what it does not know of are no orphans.

    Raises:
        CatalogBehind: the bucket's pointer names metadata that the table has never come to, as far as it knows.
    """
    named = table.io.new_input(_pointer(table))
    if not named.exists():
        return
    with named.open() as text:
        found = json.loads(text.read())
    table.refresh()  # only now: an archiver may commit meanwhile
    known = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    newest, same = found["metadata_location"], found["uuid"] == str(table.metadata.table_uuid)
    if same and newest not in known:
        name = ".".join(table.name())
        raise CatalogBehind(
            f"the catalog knows {name} by {table.metadata_location}, the bucket by {newest}: was the database restored "
            f"from a backup? Nothing was removed. Have the catalog register {newest} as {name}, then try again."
        )


def pointer(bucket: str, table: str) -> str:
    """Where the bucket says where a table's newest metadata lies."""
    return f"s3://{bucket}/_catalog/{table}.json"


def _pointer(table: Table) -> str:
    return pointer(table.location().split("/")[2], ".".join(table.name()))
