"""Jobs: what each part of the platform reads and writes. The names of datasets connect the jobs with each other."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from truelog.archive.schema import arrow_schema, column_of
from truelog.control.application import ARCHIVE
from truelog.lineage import dataset, facets
from truelog.lineage.columns import ColumnOrigins, EventField, fields_of, origins
from truelog.lineage.dataset import Dataset
from truelog.lineage.facets import Facet
from truelog.log import records
from truelog.schema.event import EventType, EventTypes
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

NAMESPACE = "truelog"  # of the jobs of an environment without a namespace
STREAMING, BATCH = "STREAMING", "BATCH"
_KEY, _MEASURE = {"type": "DIRECT"}, {"type": "DIRECT", "subtype": "AGGREGATION"}

log = logging.getLogger("truelog.lineage")


@dataclass(frozen=True)
class Job:
    """A job, what it reads, and what it writes. `written` is asked in the thread that sends the events.

    facets: what an event says about the job.
    """

    namespace: str
    name: str
    facets: Mapping[str, Facet]
    inputs: Sequence[Dataset]
    written: Callable[[], Sequence[Dataset]] = field(compare=False, repr=False)

    @cached_property
    def outputs(self) -> Sequence[Dataset]:
        return self.written()

    def as_dict(self) -> dict[str, Any]:
        """What all events of the job have in common."""
        return {
            "job": {"namespace": self.namespace, "name": self.name, "facets": dict(self.facets)},
            "inputs": [each.as_dict() for each in self.inputs],
            "outputs": [each.as_dict() for each in self.outputs],
        }


@dataclass(frozen=True)
class _Source:
    """Where a job reads events: in the log or in the archive.

    dataset: the dataset of an event type, with its columns.
    field: the field of that dataset in which a column of an event is; None if the dataset has no such field.
    """

    dataset: Callable[[Settings, EventType], Dataset]
    field: Callable[[EventType, str], str | None]


def _topic(settings: Settings, event_type: EventType) -> Dataset:
    columns = [each for each in records.schema(event_type) if each.name not in event_type.derived_names]
    fields = ({"name": each.name, "type": each.dataType.simpleString()} for each in columns)
    return dataset.topic(settings, event_type.name).described({"schema": facets.schema(fields)})


def _field_of_topic(event_type: EventType, column: str) -> str | None:
    """A derived column is computed from a field when a record is decoded."""
    return next((each.source for each in event_type.derived if column in each.names), column)


def _table(settings: Settings, event_type: EventType) -> Dataset:
    fields = ({"name": each.name, "type": str(each.type)} for each in arrow_schema(event_type))
    return dataset.archive_table(settings, event_type.name).described({"schema": facets.schema(fields)})


def _column_of_table(event_type: EventType, column: str) -> str | None:
    """All records of a table have the same topic, so it is not a column."""
    return None if column == "topic" else column_of(column)


_LOG, _ARCHIVED = _Source(_topic, _field_of_topic), _Source(_table, _column_of_table)


@dataclass(frozen=True)
class Catalogue:
    """Makes the jobs of views, given the types of all events. One catalogue reads the plan of each view only once."""

    settings: Settings
    spark: SparkSession
    types: EventTypes
    _found: dict[tuple[str, str], ColumnOrigins] = field(default_factory=dict, repr=False)

    def stream(self, application: str, compiled: CompiledView) -> Job:
        """The job of an application that keeps a view up to date from topics."""
        about = f"Keeps {compiled.name} up to date from its topics."
        return self._of_view(f"{application}.{compiled.name}", STREAMING, about, compiled)

    def comparison(self, compiled: CompiledView) -> Job:
        """The batch job that compares a view with its rebuild from the archive, and may repair it."""
        about = f"Compares {compiled.name} with its rebuild from the archive, and may repair it."
        return self._of_view(f"reconcile.{compiled.name}", BATCH, about, compiled)

    def rebuild(self, compiled: CompiledView) -> Job:
        """The batch job that makes the rows of a view from the archive."""
        about = f"Builds {compiled.name} from the archive."
        return self._of_view(f"rebuild.{compiled.name}", BATCH, about, compiled)

    def of_views(self, application_of: Callable[[str], str], views: Sequence[CompiledView]) -> Iterator[Job]:
        """The jobs of each view, given the application of a view. No application runs a batch-only view."""
        for each in views:
            yield self.rebuild(each) if each.view.batch_only else self.stream(application_of(each.name), each)
            yield self.comparison(each)

    def _of_view(self, name: str, processing: str, about: str, compiled: CompiledView) -> Job:
        source = _LOG if processing == STREAMING else _ARCHIVED
        inputs = [source.dataset(self.settings, self.types[topic]) for topic in compiled.view.topics]
        written = partial(self._view, compiled, source)
        return Job(namespace(self.settings), name, _about(processing, "VIEW", about), inputs, written)

    def _view(self, compiled: CompiledView, source: _Source) -> Sequence[Dataset]:
        """The view with its columns, which come from this source."""
        described = {
            "schema": facets.schema(fields_of(compiled)),
            "version": facets.version(str(compiled.view.version)),
        }
        if (found := self._origins(compiled)) is not None:
            described["columnLineage"] = self._column_lineage(compiled, found, source)
        return [dataset.view(self.settings, compiled.name).described(described)]

    def _origins(self, compiled: CompiledView) -> ColumnOrigins | None:
        """Where the columns come from; None if the plan cannot be read, which must not cost the whole event."""
        version = compiled.own.name, compiled.fingerprint
        try:
            if version not in self._found:
                self._found[version] = origins(self.spark, compiled, self.types)
        except Exception:
            log.warning("%s: its plan could not be read, so its columns are not reported", compiled.name, exc_info=True)
        return self._found.get(version)

    def _column_lineage(self, compiled: CompiledView, found: ColumnOrigins, source: _Source) -> Facet:
        def fields(read: Iterable[EventField], **how: str) -> list[dict[str, Any]]:
            places = {(topic, source.field(self.types[topic], column)) for topic, column in read}
            named = sorted((topic, column) for topic, column in places if column is not None)
            made = ((source.dataset(self.settings, self.types[topic]), column) for topic, column in named)
            place = ({"namespace": each.namespace, "name": each.name, "field": column} for each, column in made)
            return [each | {"transformations": [how]} for each in place]

        columns = {
            name: {"inputFields": fields(read, **_KEY if name in compiled.view.key else _MEASURE)}
            for name, read in found.columns.items()
        }
        whole = fields(found.filters, type="INDIRECT", subtype="FILTER") + fields(found.whole, type="INDIRECT")
        return facets.column_lineage({name: each for name, each in columns.items() if each["inputFields"]}, whole)


def archiving(settings: Settings, event_type: EventType) -> Job:
    """The job of the archive application that appends the records of one topic to its table.

    Each topic has a job of its own. With one job for all of them, each table would seem to come from each topic.
    """
    name, read, written = event_type.name, _topic(settings, event_type), _table(settings, event_type)
    about = _about(STREAMING, "ARCHIVE", f"Appends each record of {name} to the archive.")
    return Job(namespace(settings), f"{ARCHIVE}.{name}", about, [read], lambda: [written])


def namespace(settings: Settings) -> str:
    """The namespace of all jobs of this environment."""
    return settings.namespace or NAMESPACE


def _about(processing: str, kind: str, text: str) -> dict[str, Facet]:
    return {"jobType": facets.job_type(processing, kind), "documentation": facets.documentation(text)}
