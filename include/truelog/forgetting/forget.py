"""Forgets a person: performs the steps of `docs/decisions/087-erasure.md`. Each step may be repeated.

The ledger has the last finished step, so a command that is repeated after a crash continues there. One erasure runs at
a time. Applications and services go on meanwhile.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import psycopg

from truelog.archive.audit import faults
from truelog.archive.audit_evidence import run_audit
from truelog.archive.erasing.erase import ArchiveEraser, Offsets
from truelog.batch import partials
from truelog.batch.batch_context import BatchContext, each_alone, for_records, load_beside, open_batch
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry, view_versions
from truelog.control.view_loader import LoadedViews
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.ledger import CoveredDay, Entry, Step
from truelog.erasure.secret import require_secret_of, secret_of
from truelog.erasure.subject import Named
from truelog.forgetting import (
    column_statistics,
    command_copies,
    erasure_log,
    import_lines,
    notification_copies,
    outputs,
    reading,
    stored_texts,
)
from truelog.forgetting.erase_view import ErasedView, erase_view
from truelog.forgetting.other_versions import drop_others
from truelog.forgetting.request import (
    erasers,
    in_kafka,
    made_versions,
    of_this_environment,
    requests,
    wait_for_archive,
)
from truelog.reconcile.reconcile import reconcile_views
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.replays import store as replays
from truelog.schema.event import EventTypes
from truelog.spark.early import records_read
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support import faults as fault_points
from truelog.support.errors import NotForgotten, TruelogError
from truelog.support.settings import Settings
from truelog.tables import deploy, kinds
from truelog.tables.compiled_view import CompiledView

log = logging.getLogger("truelog.forgetting")


@dataclass
class Forgetting:
    """One erasure, and what its steps need. `connection` holds the lock of erasures."""

    context: BatchContext
    connection: Connection
    erasure: Erasure
    doer: str
    changed: Counter[str] = field(default_factory=Counter)  # rows, by view
    _covered: dict[str, Offsets] = field(default_factory=dict)  # archived records that it erases, by file

    def run(self, last: Step = Step.PROVED) -> None:
        """Perform the steps up to `last` that are not finished yet.

        Raises:
            NotForgotten, ArchiveBehind: a step cannot be finished yet.
            NotSetUp: the home has another secret than at the request.
        """
        require_secret_of(self._settings, self.erasure)
        self.erasure = of_this_environment(self._settings, self.context.event_types, self.erasure)
        steps = {
            Step.PUBLISHED: self._publish,
            Step.ARCHIVED: self._wait_for_archive,
            Step.COUNTED: self._count,
            Step.REWRITTEN: self._rewrite,
            Step.EXPIRED: self._expire,
            Step.PARTIALS: self._drop_partials,
            Step.VIEWS: self._erase_views,
            Step.COPIES: self._forget_copies,
            Step.PROVED: self._prove,
        }
        finished = ledger.step_of(self.connection, self.erasure)
        for step, perform in steps.items():
            if finished < step <= last:
                log.info("erasure %s: step %d of %d, %s", self.erasure.id, step, len(Step), step.name.lower())
                perform()
                fault_points.reach(f"forget.{step.name.lower()}")
                ledger.finish(self.connection, self.erasure, step)

    def _publish(self) -> None:
        erasure_log.publish(self._settings, self.context.event_types, self.erasure)

    def _wait_for_archive(self) -> None:
        wait_for_archive(self._settings, self.erasure)

    def _count(self) -> None:
        found: list[CoveredDay] = []
        is_adopted = ledger.is_adopted(self.connection, self.erasure)
        for eraser in self._erasers():
            found += eraser.count(with_erased=is_adopted)
        ledger.record_counts(self.connection, self.erasure, found)

    def _rewrite(self) -> None:
        ends = self.erasure.ends
        command_copies.require_read(self.connection, ends.only(in_kafka(self._settings, ends)))
        for eraser in self._erasers():
            eraser.rewrite()

    def _expire(self) -> None:
        for eraser in self._erasers():
            eraser.expire()

    def _erasers(self) -> Iterator[ArchiveEraser]:
        return erasers(self._settings, self.context.event_types, self.erasure, self._covered)

    def _drop_partials(self) -> None:
        made = set(made_versions(self.connection, self.erasure))  # also those for which only `recompute` has worked
        for compiled in (each for each in self._loaded if (each.name, each.view.version) in made):
            for table in kinds.daily(compiled):
                partials.drop_touched(self._settings, table)

    def _erase_views(self) -> None:
        self._forget_notifications()
        done = self._erase_each() if self._views else []
        self.changed = Counter()
        for each in done:
            self.changed[each.view] += each.changed
        _require_equal([(each.view, each.reason or each.verdict) for each in done if each.verdict != "EQUAL"])
        self._drop_other_versions()

    def _erase_each(self) -> list[ErasedView]:
        with for_records(self._affected, records_read(self._settings)) as within:
            return each_alone(within, partial(self._erase, within), _failed)

    def _erase(self, context: BatchContext, compiled: CompiledView) -> ErasedView:
        with connect(self._settings, autocommit=True) as connection:
            deploy.require_same_code(connection, compiled)
            return erase_view(Rebuilder(context, connection, compiled))

    def _drop_other_versions(self) -> None:
        """Drop the versions that no code can rebuild, unless one has come meanwhile, which the next run erases.

        Raises:
            NotForgotten: one has come, or one is in use.
        """
        for view, version in sorted(self._made_now() - self._made):
            raise NotForgotten(
                f"version {version} of {view} was built meanwhile. Repeat the command: it erases it too."
            )
        others = self._made - set(self._versions)
        drop_others(self._settings, self.connection, self._erasures, others, self.context.views.refused)

    def _forget_copies(self) -> None:
        names = sorted({view for view, _ in self._versions})
        outputs.forget_published(self._settings, self.connection, self._views)
        outputs.delete_unwritten(self._settings, self.connection, self.erasure)
        if held := replays.drop_readers(self.connection, self.erasure.fields.keys()):
            raise NotForgotten(f"a query uses these replays: {', '.join(held)}. Repeat the command when it has ended.")
        self._forget_notifications()
        command_copies.forget_commands(self.connection, self.context.event_types, self._erasures)
        streamed = [(each.name, each.view.version) for each in self._views if not each.view.batch_only]
        stored_texts.drop_answers(self.connection, streamed)
        stored_texts.forget_reports(self._settings, self.connection, names)
        stored_texts.forget_reports_of_dropped(self._settings, self.connection)
        stored_texts.forget_texts(self.connection, self._erasures)
        import_lines.forget_lines(self._settings, self._erasures)
        column_statistics.renew(self.connection)

    def _forget_notifications(self) -> None:
        """Before the repairs, so that nothing is retracted, and again when the notifier has read their changes."""
        views = sorted({view for view, _ in self._versions})
        notification_copies.forget_notifications(self.connection, self._erasures, views)

    def _prove(self) -> None:
        audited = run_audit(self._settings).partitions
        wrong = [fault for each in audited if each.topic in self.erasure.fields for fault in faults(each)]
        if wrong:
            raise NotForgotten(f"the archive is not sound: {wrong[0]}. See `truelog archive audit`.")
        found = reconcile_views(self._affected, ReconcileRequest(doer=self.doer))
        _require_equal([(each.view, each.reason or each.verdict) for each in found if not each.equal])
        if without := sorted({each.view for each in found if each.rebuilt is not None and each.certificate is None}):
            raise NotForgotten(
                f"{', '.join(without)} got no certificate, because another erasure is being written. Finish that one "
                "first: see `truelog erasures list`."
            )
        about = f"{sum(each.records for each in ledger.counts(self.connection, self.erasure))} records"
        audit_trail.record_operation(self.connection, OperationKind.FORGET, str(self.erasure.id), self.doer, about)

    @property
    def _settings(self) -> Settings:
        return self.context.settings

    @cached_property
    def _erasures(self) -> Erasures:
        return Erasures(secret_of(self._settings), (self.erasure,))

    @cached_property
    def _loaded(self) -> Sequence[CompiledView]:
        """The declared versions, and the versions that run beside them."""
        return [*self.context.views.compiled, *load_beside(self.context)]

    @cached_property
    def _views(self) -> Sequence[CompiledView]:
        """The loaded versions that have rows of a topic of the erasure."""
        return [each for each in self._loaded if (each.name, each.view.version) in self._made]

    @cached_property
    def _made(self) -> set[tuple[str, int]]:
        """The versions that the erasure erases or drops: all versions that have rows at its first look."""
        return self._made_now()

    def _made_now(self) -> set[tuple[str, int]]:
        """The versions that have rows of a topic of the erasure. One that is not built yet has none."""
        return set(made_versions(self.connection, self.erasure)) - view_versions.unbuilt(self.connection)

    @property
    def _versions(self) -> list[tuple[str, int]]:
        return [(each.name, each.view.version) for each in self._views]

    @property
    def _affected(self) -> BatchContext:
        return replace(self.context, views=LoadedViews(list(self._views)))


@dataclass(frozen=True)
class Forgotten:
    """A finished erasure, and how many rows of each view changed since this command began."""

    entry: Entry
    changed: dict[str, int]


def forget(settings: Settings, named: Collection[Named], doer: str) -> list[Forgotten]:
    """Forget the person with these values of fields. If the command was interrupted before, it continues.

    The interrupted erasure covers the records below the ends at its own request. If the topics have later records now,
    a second erasure covers these. It is recorded when the first one is finished, so that repetitions do not add up. A
    topic that was created again since needs another erasure, too.

    Raises:
        BadInput: no event type declares one of the fields as its subject, or the log of a topic was cut.
        NotForgotten, ArchiveBehind: a step cannot be finished yet. Repeat the command.
        ReadsOnly: the events are another environment's, whose erasures this one performs too.
    """
    settings.require_own_events("an erasure")
    with connect(settings, autocommit=True) as connection, ledger.exclusive(connection):
        request, *others = requests(settings, named)
        erasure, *_ = [ledger.record(connection, each) for each in (request, *others)]
        fault_points.reach("forget.recorded")
        own = [each for each in ledger.unfinished(connection) if each.subjects == request.subjects]
        with open_batch(settings, "truelog forget", ()) as context:
            done = perform_all(context, connection, own, doer)
            if not erasure.ends.covers(request.ends):
                ledger.restore(connection, request, Step.RECORDED)
                done += perform_all(context, connection, [request], doer)
        return done


def resume(settings: Settings, doer: str) -> list[Forgotten]:
    """Continue the erasures that were interrupted, oldest first. Those of another environment begin here."""
    with connect(settings, autocommit=True) as connection, ledger.exclusive(connection):
        if settings.reads_events:
            add_published(settings, connection)
        return _run(settings, connection, ledger.unfinished(connection), doer)


def adopt(settings: Settings, doer: str) -> list[Forgotten]:
    """Add the erasures of the log that the ledger lacks, because it was restored from a backup, and perform them."""
    with connect(settings, autocommit=True) as connection, ledger.exclusive(connection):
        add_published(settings, connection)
        return _run(settings, connection, ledger.unfinished(connection), doer)


def restore_ledger(settings: Settings) -> int:
    """Add the erasures of the log that a restored ledger lacks, and return how many are unfinished now."""
    if erasure_log.TOPIC not in event_registry.confirmed_types(settings):
        return 0  # an earlier release has set up the home
    with connect(settings, autocommit=True) as connection, ledger.exclusive(connection):
        add_published(settings, connection)
        return len(ledger.unfinished(connection))


def add_published(settings: Settings, connection: Connection) -> None:
    """Add the erasures of the log that the ledger lacks. They are unfinished.

    An erasure is unfinished again if a restored bucket contains records that it covers. But if no backup was restored,
    the erasures come from the environment whose events are read, and no view is held back.
    """
    is_restored = not (settings.reads_events and hold.is_read(connection))
    types = event_registry.confirmed_types(settings)
    for each in erasure_log.read_published(settings, types):
        require_secret_of(settings, each)
        is_new = ledger.restore(connection, each, Step.PUBLISHED, adopted=is_restored)
        if is_restored and not is_new and _is_archived(settings, types, each):
            ledger.begin_again(connection, each)
    reading.read_to_end(settings, connection)


def _is_archived(settings: Settings, types: EventTypes, erasure: Erasure) -> bool:
    """Whether the archive contains records that the erasure covers."""
    of_here = of_this_environment(settings, types, erasure)
    return any(eraser.count() for eraser in erasers(settings, types, of_here))


def _run(settings: Settings, connection: Connection, erasures: Sequence[Erasure], doer: str) -> list[Forgotten]:
    if not erasures:
        return []
    with open_batch(settings, "truelog forget", ()) as context:
        return perform_all(context, connection, erasures, doer)


def perform_all(
    context: BatchContext, connection: Connection, erasures: Sequence[Erasure], doer: str
) -> list[Forgotten]:
    """Perform erasures one after the other. One that cannot be finished yet does not hold back the next one.

    All reach VIEWS before one goes on: after a restore, the relay publishes no view that lacks one of the erasures, and
    COPIES waits for the relay.

    Raises: the error of the erasure that failed; if several failed, NotForgotten with all reasons.
    """
    running, failed = [Forgetting(context, connection, each, doer) for each in erasures], list[Exception]()
    for last in (Step.VIEWS, Step.PROVED):
        for each in tuple(running):
            try:
                each.run(last)
            except (TruelogError, psycopg.Error) as error:
                log.error("erasure %s is not finished: %s", each.erasure.id, error)
                if connection.closed:
                    raise  # the lock of erasures is gone with the session
                failed.append(error)
                running.remove(each)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise NotForgotten(f"{len(failed)} erasures are not finished: {'; '.join(map(str, failed))}")
    entries = {entry.erasure.id: entry for entry in ledger.entries(connection)}
    return [Forgotten(entries[each.erasure.id], each.changed) for each in running]


def _failed(compiled: CompiledView, error: Exception) -> ErasedView:
    log.exception("%s cannot forget yet", compiled.name)
    return ErasedView(compiled.name, 0, "UNKNOWN", f"{type(error).__name__}: {error}")


def _require_equal(unequal: Sequence[tuple[str, str]]) -> None:
    """Raise NotForgotten with the reasons, if there are views that are not EQUAL."""
    if unequal:
        reasons = "; ".join(f"{view}: {reason}" for view, reason in sorted(unequal))
        raise NotForgotten(f"{len(unequal)} views do not equal their rebuild yet: {reasons}. Repeat the command.")
