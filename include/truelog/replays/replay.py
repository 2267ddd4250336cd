"""Replay: an experimental copy of a view from the archive, with other code if wanted, beside production.

The copy has a name of its own, so its staged rows, its exclusions and its tables are its own too. Nothing of production
is written: no position, no table, no partial.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from truelog.archive.reader import Wanted as WantedRecords
from truelog.archive.reader import scan_cost
from truelog.archive.table import archived_positions
from truelog.batch.batch_context import BatchContext, open_view
from truelog.batch.rebuild import Rebuilder
from truelog.history.as_of import positions_at
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.replays import store
from truelog.replays.store import SCHEMA, Replay
from truelog.spark.job_progress import watched
from truelog.spark.scratch import process_folder
from truelog.storage.database import Connection, connect
from truelog.support import faults
from truelog.support.errors import ArchiveBehind, BadDeclaration, BadInput
from truelog.support.settings import Settings
from truelog.tables import deploy, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import readable
from truelog.views import catalogue

Report = Callable[[int, int], None]  # tasks that have ended, and all tasks

_NAME = re.compile("[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Wanted:
    """What a replay should count: the records between two times. By default, all that the archive contains.

    begin: a time, or the positions of the first records. A partition without a position is counted from its beginning.
    code: the file with the view's code; the view's own file if None. keep: after this time, it is dropped.
    budget: the most records that it may read.
    """

    view: str
    name: str
    keep: timedelta
    budget: int
    begin: datetime | Positions | None = None
    end: datetime | None = None
    code: Path | None = None


def make(settings: Settings, wanted: Wanted, report: Report, *, doer: str) -> Replay:
    """Make a replay in a Spark session of low priority.

    Raises:
        BadInput: the name is not free, the times are not in the log, or it would read too many records.
        BadDeclaration: the file cannot be loaded.
        ArchiveBehind: the archive has not reached the end yet.
    """
    require_name(settings, wanted.name)
    of_copy = settings.model_copy(update={"views_folder": _folder(settings, wanted)})
    try:
        with open_view(of_copy, "truelog replay", wanted.name) as (context, compiled):
            return make_from(context, compiled, wanted, report, doer=doer)
    except BadDeclaration as error:
        raise BadDeclaration(f"{_source(settings, wanted)}: {error}") from error


def make_from(context: BatchContext, compiled: CompiledView, wanted: Wanted, report: Report, *, doer: str) -> Replay:
    """Make a replay of code that was compiled under the replay's name."""
    with connect(context.settings, autocommit=True) as connection:
        rebuilder = Rebuilder(context, connection, compiled, begin=_begin(context, connection, compiled, wanted))
        end = _end(rebuilder, wanted)
        _require_budget(context, WantedRecords.between(rebuilder.begin, end.only(compiled.view.reads)), wanted)
        stage.hold(connection, compiled)  # until this session ends, the replay is not abandoned
        _register(connection, compiled, wanted, doer, (rebuilder.begin, end))
        try:
            with watched(context.spark, report):
                _build(rebuilder, end)
        except BaseException:
            store.drop_if_any(connection, wanted.name)
            raise
        return store.replay_of(connection, wanted.name)


def require_name(settings: Settings, name: str) -> None:
    """Require that a name is fit for a table, and not that of a view.

    Raises:
        BadInput: it is not.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r}: a replay's name has up to 40 lower-case letters, digits and _, and begins with a letter."
        )
    with connect(settings) as connection:
        taken = connection.execute(
            "SELECT FROM truelog.view WHERE view = %(name)s OR %(name)s LIKE view || '\\_v%%'", {"name": name}
        ).fetchone()
    if taken is not None or name in catalogue.view_names(settings.views_folder):
        raise BadInput(f"{name} is the name of a view. Choose another name for the replay.")


def _begin(context: BatchContext, connection: Connection, compiled: CompiledView, wanted: Wanted) -> Positions:
    if wanted.begin is None:
        return Positions()
    if isinstance(wanted.begin, Positions):
        if others := sorted(wanted.begin.offsets.keys() - set(compiled.view.topics)):
            raise BadInput(f"{wanted.view} does not read {', '.join(others)}.")
        return wanted.begin.only(compiled.view.reads)
    return positions_at(Rebuilder(context, connection, compiled), wanted.begin)[1].only(compiled.view.reads)


def _end(rebuilder: Rebuilder, wanted: Wanted) -> Positions:
    view = rebuilder.compiled.view
    if wanted.end is not None:
        end = positions_at(rebuilder, wanted.end)[1]
        end = end if view.reads_clock else end.only(view.reads)
    else:
        end = archived_positions(rebuilder.context.settings, view.topics)
    if not end.offsets:
        raise ArchiveBehind(f"the archive contains no record of the topics of {wanted.view} yet")
    if unknown := sorted(set(rebuilder.begin.partitions()) - set(end.partitions())):
        topic, partition = unknown[0]
        raise BadInput(f"the archive contains no partition {partition} of {topic}.")
    if not rebuilder.begin.ranges_to(end.only(view.reads)):
        raise BadInput(f"the archive contains no record of the topics of {wanted.view} in this range.")
    return end


def _require_budget(context: BatchContext, records: WantedRecords, wanted: Wanted) -> None:
    cost = scan_cost(context.settings, records)
    if cost.records > wanted.budget:
        raise BadInput(
            f"The replay would read {cost.records:,} records in {cost.files:,} files ({cost.bytes:,} bytes), and its "
            f"budget is {wanted.budget:,} records. Choose a later beginning, or a larger --budget."
        )


def _register(
    connection: Connection, compiled: CompiledView, wanted: Wanted, doer: str, range_: tuple[Positions, Positions]
) -> None:
    """Record the replay, and create its staging tables."""
    begin, end = map(store.plain, range_)
    relations = [*(compiled.name if not each.side else f"{compiled.name}_{each.side}" for each in compiled.tables)]
    relations += [f"{compiled.name}_{each}" for each in compiled.view.present]
    now = datetime.now(UTC)
    of_code = wanted.view, compiled.view.version, compiled.fingerprint
    tables = [each.name for each in compiled.tables]
    with connection.transaction():
        store.register(
            connection,
            Replay(wanted.name, *of_code, doer, begin, end, tables, relations, now, None, now + wanted.keep),
        )
        for each in compiled.tables:
            deploy.create_stage(connection, each)


def _build(rebuilder: Rebuilder, end: Positions) -> None:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    staged = rebuilder.exclude_and_retry(
        end, lambda: rebuilder.countable_events(rebuilder.begin, end), lambda: rebuilder.stage_rows(end)
    )
    now = rebuilder.now(end)
    faults.reach("replay.staged")
    with connection.transaction():
        store.record_built(connection, compiled.name)
        rebuilder.create_tables(SCHEMA, staged)
        merge.drop_expired_at(connection, compiled, SCHEMA, now)
        readable.create_readable_copy(connection, compiled, SCHEMA, now)
        store.forget_work(connection, compiled.name)


def _source(settings: Settings, wanted: Wanted) -> Path:
    return wanted.code or settings.views_folder / f"{wanted.view}.py"


def _folder(settings: Settings, wanted: Wanted) -> Path:
    """A folder with the code as a view of the replay's name. It ends with this process, or after it was killed."""
    source = _source(settings, wanted)
    if not source.is_file():
        raise BadInput(f"{source} does not exist.")
    folder = process_folder(settings) / "replay"
    folder.mkdir(exist_ok=True)
    shutil.copy(source, folder / f"{wanted.name}.py")
    return folder
