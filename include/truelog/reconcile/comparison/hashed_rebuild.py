"""Hashed rebuild: a view's rebuild of everything, or of what came since a base."""

import logging
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame

from truelog.archive import reader as archive_reader
from truelog.batch import base
from truelog.batch.base import Rebuilt
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate import Certificate, software_versions
from truelog.storage.database import storable
from truelog.support.errors import describe
from truelog.tables import table_hash
from truelog.tables.table import Table
from truelog.tables.table_hash import BucketHash, TableHash

log = logging.getLogger("truelog.reconcile")


def of_everything(rebuilder: Rebuilder, positions: Positions, *, makes_base: bool) -> Rebuilt:
    """The rebuild at these positions, from all partials and records. It may become the view's base."""
    if makes_base:
        return base.write(rebuilder, _states(rebuilder, rebuilder.compiled.own, positions))
    return rebuilder.leaving_out_failures(positions, lambda without: _hash_tables(without, positions))


def since_base(rebuilder: Rebuilder, positions: Positions) -> tuple[Rebuilt | None, str]:
    """The rebuild that begins from the view's base, if there is one for these positions; or why it failed.

    Whatever is wrong with a base, the comparison reads everything instead, and the next one makes a new base.
    """
    settings, known = rebuilder.context.settings, base.load(rebuilder.connection, rebuilder.compiled)
    if known is None or datetime.now(UTC) - known.begun_at > timedelta(seconds=settings.base_seconds):
        return None, ""
    try:
        certified = certificate_store.find_certificate(settings, known.certificate)
        if not _is_usable(rebuilder, certified, positions):
            return None, ""
        hashes = {bucket: BucketHash.parse(rows, text) for bucket, (rows, text) in certified.buckets.items()}
        return base.advance(rebuilder, known, hashes, certified.positions, positions), ""
    except Exception as error:
        log.warning("the base of %s is made again", rebuilder.compiled.name, exc_info=True)
        base.forget(rebuilder.connection, rebuilder.compiled)
        return None, storable(f"the base could not be used and is made again: {describe(error)}")


def _is_usable(rebuilder: Rebuilder, certified: Certificate, positions: Positions) -> bool:
    """Whether the certified rows, with the records since then, are the view at `positions`."""
    before = certified.positions
    return (
        certified.fingerprint == rebuilder.compiled.fingerprint
        and certified.made_by == software_versions(rebuilder.context.spark)
        and all(positions.ids.get(topic) == known for topic, known in before.ids.items())
        and positions.covers(before)
        and certified.event_versions == rebuilder.event_versions(before)
        and list(certified.excluded) == sorted(rebuilder.excluded(before))
        and dict(certified.erased or {}) == archive_reader.erased_below(rebuilder.context.settings, before)
    )


def _hash_tables(rebuilder: Rebuilder, positions: Positions) -> Rebuilt:
    return Rebuilt({each.side: _hash_rebuilt(rebuilder, each, positions) for each in rebuilder.compiled.tables})


def _hash_rebuilt(rebuilder: Rebuilder, table: Table, positions: Positions) -> TableHash:
    return table_hash.hash_frame(table, table.stored(_states(rebuilder, table, positions)))


def _states(rebuilder: Rebuilder, table: Table, positions: Positions) -> DataFrame:
    """The rebuilt states of a table, without the rows that `keep` has dropped."""
    return clock.rows_since(table, rebuilder.states(table, positions), rebuilder.cutoff(table, positions))
