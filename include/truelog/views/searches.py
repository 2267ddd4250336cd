"""Searches: a view of the events that stored searches find. The searches are events themselves.

    VIEW = Searches(sources={"post": TextSource(fields=("text",))}, keep="7 days")

A search names an event type, and describes with words which of its events it finds (`truelog.searches`). The view keeps
the texts of events, and the records of the topic `stored_search` in the side table `searches`. Its rows are a function
of both: one row for each event and each version of a search that finds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.measures.value import Value
from truelog.schema.names import COORDINATES
from truelog.searches.catalogue import TextSource, TextSources
from truelog.views.group import INPUTS
from truelog.views.judged import Judged, no_rules
from truelog.views.meaning import Meaning
from truelog.views.view import View

SEARCHES = "searches"  # the name of the side table
SEARCH_TOPIC = "stored_search"
LANGUAGE = 2  # raise it whenever a search means something else, a word is found differently, or a search is refused now

_COLUMNS = {
    "document": "coordinates of the event: topic:partition:offset",
    "logged_at": "when the event reached the log",
    "search": "the search's name",
    "search_version": "number of the search's version",
    "event_type": "the event's type",
    "event_time": "the event's time, corrected",
    "snippet": "a part of the text with the first word that fits",
}

_MEANINGS = {
    INPUTS: Meaning(
        "the texts that searches may find",
        {"at": "time of the event in microseconds since 1970, corrected", "event": "the texts, as JSON"},
    ),
    SEARCHES: Meaning("the records of stored searches"),
}


@dataclass(frozen=True, kw_only=True)
class Searches(Judged):
    """The declaration of a view of hits.

    sources: the event types that searches may read, each with its text fields.
    keep: how long texts and hits stay, by the log's clock.
    """

    sources: TextSources
    reads: tuple[str, ...] = field(init=False, default=())
    transform: Any = None  # what selects the inputs; None: the texts that the sources name
    by: tuple[str, ...] = field(init=False, default=("document", "logged_at"))
    inputs: tuple[str, ...] = field(init=False, default=("at", "event"))
    fold: Any = field(init=False, default=no_rules)
    key: tuple[str, ...] = field(init=False, default=("document", "logged_at", "search", "search_version"))
    values: tuple[str, ...] = field(init=False, default=("event_type", "event_time", "snippet"))
    indexes: tuple[tuple[str, ...] | str, ...] = (("search", "logged_at"),)
    columns: Mapping[str, str] = field(default_factory=lambda: _COLUMNS)
    meanings: Mapping[str, Meaning] = field(default_factory=lambda: _MEANINGS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", (*self.sources, SEARCH_TOPIC))
        if self.transform is None:
            object.__setattr__(self, "transform", self._events)
        super().__post_init__()

    @property
    def rules_side(self) -> str:
        return SEARCHES

    @property
    def named(self) -> object:
        return {topic: tuple(source.fields) for topic, source in self.sources.items()}

    @property
    def language(self) -> int:
        return LANGUAGE

    def rules_table(self) -> View:
        return View(
            reads=(SEARCH_TOPIC,),
            transform=_searches,
            key=COORDINATES,
            measures={name: Value() for name in ("logged_at", "search", "verb", "definition", "begins")},
            columns={
                "logged_at": "when the record reached the log, in microseconds since 1970",
                "search": "the search's name",
                "verb": "what happened: `set` or `retired`",
                "definition": "the event type and the query as JSON",
                "begins": "the offsets from which on it judges events",
            },
        )

    def _events(self, *events: DataFrame) -> DataFrame:
        """One row per event."""
        rows = (_texts(frame, source) for frame, source in zip(events, self.sources.values(), strict=False))
        return reduce(lambda one, other: one.unionByName(other), rows)


def _texts(events: DataFrame, source: TextSource) -> DataFrame:
    """The texts of the events of one type. An event without a text is left out."""
    for name, values in sorted(source.known.items()):
        events = events.where(F.col(name).isin(*values))
    document = F.concat_ws(":", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    has_text: Column = F.coalesce(*map(F.col, source.fields)).isNotNull()
    return events.where(has_text).select(
        document.alias("document"),
        F.col("broker_time").alias("logged_at"),
        F.unix_micros("event_time").alias("at"),
        F.to_json(F.struct(*source.fields)).alias("event"),
    )


def _searches(stored_search: DataFrame) -> DataFrame:
    """One row per record."""
    logged_at = F.unix_micros("broker_time").alias("logged_at")
    definition = F.when(F.col("query").isNotNull(), F.to_json(F.struct("event_type", "query"))).alias("definition")
    return stored_search.select(*COORDINATES, logged_at, "search", "verb", definition, "begins")
