"""The archive commit: a compare-and-set on positions in the same Iceberg transaction that appends the files.

An Iceberg append never conflicts with another append: the library rebuilds the append on the newest snapshot, so two
processes that archive the same range would both succeed. Here, the transaction also requires the table's positions to
be where the batch begins. Every attempt checks the positions in the newest metadata. If a compaction commits in
between, the positions stay the same and the commit is retried. If another archive process has advanced the positions,
the commit is refused.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import Literal

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    SetPropertiesUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
    ValidatableTableRequirement,
)

from truelog.archive.catalog_pointer import advance_pointer, load_newest, turn
from truelog.archive.table import Progress, Ranges, identifier, require_same_topic
from truelog.support.errors import Stale

_PLANNING = timedelta(minutes=10)  # a reader chooses its snapshot, and plans with it within seconds
_PORTION = 50  # snapshots that are forgotten together

log = logging.getLogger("truelog.archive")


@dataclass(frozen=True)
class Append:
    """Files that contain every record of one topic in [begin, end) of each partition.

    If `lost` is true, there are no files, because the log dropped these records before they were archived.
    """

    topic: str
    topic_id: str
    begin: Mapping[int, int]
    end: Mapping[int, int]
    records: Mapping[int, int]
    files: tuple[DataFile, ...]
    lost: bool = False
    reading: int = 0  # of the event type, under which the typed columns were decoded
    epochs: Mapping[int, int] = field(default_factory=dict)  # the leader epochs in which the end was reached


def commit(catalog: Catalog, append: Append) -> Table:
    """Append the files and advance the table's positions, or do neither.

    Raises:
        Stale: the table's positions are not where the files begin.
        CatalogBehind: the bucket has a newer version of the table than the catalog.
    """
    table = load_newest(catalog, identifier(append.topic), append.topic_id)
    require_same_topic(table, append.topic_id)
    try:
        with turn(catalog, identifier(append.topic), alone=False), table.transaction() as transaction:
            _Advance(transaction, append).commit()
            # Needed even if there are no files: pyiceberg retries only transactions that contain an append.
            with transaction.update_snapshot().merge_append() as snapshot:
                for file in append.files:
                    snapshot.append_data_file(file)
    except _WrongPositionsError as refused:
        raise Stale(
            f"archive of {append.topic}: {refused}. Is another archive process running? Restart this one."
        ) from None
    _forget_old_snapshots(table)
    advance_pointer(table)
    return table


def _forget_old_snapshots(table: Table) -> None:
    """Keep the metadata small: pyiceberg spends half a millisecond of each commit on each snapshot.

    No data file becomes unreferenced. Upkeep removes the manifest lists, which nothing refers to then.
    """
    old = superseded(table.metadata.snapshots)
    if len(old) >= _PORTION:
        try:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        except (CommitFailedException, ValueError) as changed:  # upkeep was faster; a later commit tries again
            log.info("archive of %s: old snapshots stay until the next commit: %s", table.name()[-1], changed)


def superseded(snapshots: Sequence[Snapshot]) -> list[int]:
    """The ids of the snapshots whose files are all in a later snapshot, because an append followed each of them.

    Snapshots that a reader may have begun to plan with are left out.
    """
    ordered = sorted(snapshots, key=lambda each: each.sequence_number or 0)
    youngest = ordered[-1].timestamp_ms - _PLANNING.total_seconds() * 1000 if ordered else 0
    return [
        one.snapshot_id
        for one, following in pairwise(ordered)
        if _appended_to(one, following) and one.timestamp_ms < youngest
    ]


def _appended_to(one: Snapshot, following: Snapshot) -> bool:
    """Whether the following snapshot has all files of this one.

    The compaction between them may be forgotten already. The following snapshot then has no parent.
    """
    appends = following.summary is not None and following.summary.operation is Operation.APPEND
    return appends and following.parent_snapshot_id == one.snapshot_id


class _WrongPositionsError(ValidationException):
    """Subclasses pyiceberg's error so that pyiceberg deletes the refused attempt's manifests and does not retry."""


class _AssertPositions(ValidatableTableRequirement):
    """Requires the table's positions to be `begin`."""

    type: Literal["truelog-assert-positions"] = Field(default="truelog-assert-positions")
    begin: dict[int, int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        current = Progress.of(base_metadata).positions if base_metadata else {}
        if any(current.get(p, 0) != self.begin.get(p, 0) for p in current.keys() | self.begin.keys()):
            raise _WrongPositionsError(f"its positions are {current}, but this batch begins at {self.begin}")


class _Advance(UpdateTableMetadata["_Advance"]):
    """The part of a transaction that requires an append's begin positions and sets its end positions."""

    def __init__(self, transaction: Transaction, append: Append) -> None:
        super().__init__(transaction)
        self._append = append

    def _commit(self) -> UpdatesAndRequirements:
        append, current = self._append, Progress.of(self._transaction.table_metadata)
        records = {p: current.records.get(p, 0) + append.records.get(p, 0) for p in append.end}
        lost = _add_lost(current.lost, append) if append.lost else current.lost
        readings = {append.reading: dict(append.begin)} | current.readings
        epochs = {**current.epochs, **append.epochs}
        advanced = replace(
            current, positions=dict(append.end), records=records, lost=lost, readings=readings, epochs=epochs
        )
        return (
            (SetPropertiesUpdate(updates=advanced.as_properties()),),
            (_AssertPositions(begin=dict(append.begin)),),  # type: ignore[return-value]
        )


def _add_lost(lost: Ranges, append: Append) -> Ranges:
    """The ranges lost so far and the ranges of this append."""
    new = {p: (append.begin.get(p, 0), end) for p, end in append.end.items()}
    return {p: [*lost.get(p, []), *([new[p]] if new[p][0] < new[p][1] else [])] for p in new}
