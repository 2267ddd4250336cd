"""Patterns: a view of the matches of rules, which are events themselves.

    VIEW = Patterns(sources={"reading": EventSource(entities={"sensor": "sensor_id"}, columns={"measured": "number"})})

A rule names an entity, such as a sensor, and describes a sequence of its events (`truelog.patterns`). The view keeps
the events of each entity as a Group does, and the records of the topic `rule` in the side table `rules`. Its rows are a
function of both. A group is an entity, or a span of its time (`truelog.patterns.span`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.measures.value import Value
from truelog.patterns.catalogue import EventSource, Sources
from truelog.patterns.span import EARLIEST, LATEST, NEVER, Spans, spans_of
from truelog.schema.names import COORDINATES
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration
from truelog.views.group import INPUTS
from truelog.views.judged import Judged, no_rules
from truelog.views.meaning import Meaning
from truelog.views.view import View

RULES = "rules"  # the name of the side table
RULE_TOPIC = "rule"
LANGUAGE = 3  # raise it whenever a rule means something else, or is refused now

# Whether no event in time can still change a match, if the rule waits for that.
SETTLED = "settled_after IS NULL OR settled_after < {clock}"
SHOWN = f"SELECT * FROM {{view}} WHERE {SETTLED}"  # noqa: S608  both are constants

_TYPES = ("text", "number", "boolean")
_COLUMNS = {
    "entity_id": "the entity's id",
    "entity": "the entity whose events match",
    "span_end": "end of the span in which the match begins; the year 9999 if the entity has no spans",
    "match_id": "hash of the rule, its version and the coordinates of the events",
    "rule": "the rule's name",
    "rule_version": "number of the rule's version",
    "outcome": "`found`; `late` if only late events make the match; `retracted` if late events undo it; `too costly`",
    "first_time": "time of the first event, by corrected event time",
    "last_time": "time of the last event",
    "settled_after": "the log's clock must pass this time before the match is shown; NULL if it is shown at once",
    "events": "the events as JSON, each with its topic, partition, offset and step",
    "shown": "the columns that the rule shows, as JSON",
}

_MEANINGS = {
    "shown": Meaning("the matches that later events can no longer change"),
    INPUTS: Meaning(
        "the events of each entity that rules judge",
        {
            "at": "time of the event in microseconds since 1970, corrected",
            "logged_at": "when the event reached the log, in microseconds since 1970",
            "event": "what rules may name, as JSON",
        },
    ),
    RULES: Meaning("the records of rules"),
}


@dataclass(frozen=True, kw_only=True)
class Patterns(Judged):
    """The declaration of a view of patterns.

    sources: the event types that rules may read, each with what rules may name. The types of the columns are
        `text`, `number` (whole or floating) and `boolean`.
    most: of an entity, or a span of it, with more events, rules judge only the first of them that reached the log.
    keep: how long events and matches stay after the end of their span. If an entity has no spans, they stay for ever.
    """

    sources: Sources
    reads: tuple[str, ...] = field(init=False, default=())
    transform: Any = None  # what selects the inputs; None: the columns that the sources name
    by: tuple[str, ...] = field(init=False, default=("entity_id", "entity", "span_end"))
    inputs: tuple[str, ...] = field(init=False, default=("at", "logged_at", "event"))
    fold: Any = field(init=False, default=no_rules)
    key: tuple[str, ...] = field(init=False, default=("entity_id", "entity", "span_end", "match_id"))
    values: tuple[str, ...] = field(init=False, default=tuple(_COLUMNS)[4:])
    present: Mapping[str, str] = field(default_factory=lambda: {"shown": SHOWN})
    columns: Mapping[str, str] = field(default_factory=lambda: _COLUMNS)
    meanings: Mapping[str, Meaning] = field(default_factory=lambda: _MEANINGS)

    def __post_init__(self) -> None:
        for event_type, source in self.sources.items():
            if wrong := sorted(set(source.columns.values()) - set(_TYPES)):
                raise BadDeclaration(f"{event_type}: {wrong[0]!r} is not a type of a column; use {', '.join(_TYPES)}")
        self._require_long_keep(spans_of(self.sources))
        object.__setattr__(self, "reads", (*self.sources, RULE_TOPIC))
        if self.transform is None:
            object.__setattr__(self, "transform", self._events)
        super().__post_init__()

    def _require_long_keep(self, spans: Mapping[str, Spans]) -> None:
        if self.keep is None:
            return
        if short := sorted(name for name, each in spans.items() if 2 * each.longest > seconds(self.keep) * 1_000_000):
            raise BadDeclaration(f"keep={self.keep!r} is shorter than twice the longest rule by {short[0]}")

    def _require_no_clock(self) -> None:
        """The relation `shown` reads the clock. The rows depend on their events and rules alone."""

    @property
    def rules_side(self) -> str:
        return RULES

    @property
    def named(self) -> object:
        sources = {topic: (dict(each.entities), dict(each.columns)) for topic, each in self.sources.items()}
        return sources, self.most, {entity: each.longest for entity, each in sorted(spans_of(self.sources).items())}

    @property
    def language(self) -> int:
        return LANGUAGE

    def rules_table(self) -> View:
        return View(
            reads=(RULE_TOPIC,),
            transform=_rules,
            key=COORDINATES,
            measures={name: Value() for name in ("logged_at", "rule", "verb", "definition", "begins")},
            columns={
                "logged_at": "when the record reached the log, in microseconds since 1970",
                "rule": "the rule's name",
                "verb": "what happened: `set` or `retired`",
                "definition": "the rule as JSON",
                "begins": "the offsets from which on it judges events",
            },
        )

    def _events(self, *events: DataFrame) -> DataFrame:
        """One row per event, entity and span whose search reads the event."""
        spans = spans_of(self.sources)
        rows = (_entities(frame, source, spans) for frame, source in zip(events, self.sources.values(), strict=False))
        return reduce(lambda one, other: one.unionByName(other), rows)


def _entities(events: DataFrame, source: EventSource, spans: Mapping[str, Spans]) -> DataFrame:
    """The entities of the events of one type."""
    for name, values in sorted(source.known.items()):
        events = events.where(F.col(name).isin(*values))
    each = (
        group for name, column in sorted(source.entities.items()) for group in _groups(name, column, spans.get(name))
    )
    columns = F.to_json(F.struct(*sorted(source.columns))).alias("event")
    at, logged_at = F.unix_micros("event_time").alias("at"), F.unix_micros("broker_time").alias("logged_at")
    found = events.select(at, logged_at, columns, F.explode(F.array(*each)).alias("found"))
    columns_of_group = (F.col("found.id").alias("entity_id"), "found.entity", "found.span_end")
    return found.where(F.col("found").isNotNull()).select(*columns_of_group, "at", "logged_at", "event")


def _groups(entity: str, column: str, spans: Spans | None) -> list[Column]:
    """The groups of an event for an entity: its own span, and NULL or a span beside it whose search reads it, too."""

    def group(end: Column) -> Column:
        span = F.timestamp_micros(F.least(end, F.lit(LATEST))).alias("span_end")
        return F.struct(F.lit(entity).alias("entity"), F.col(column).cast("string").alias("id"), span)

    if spans is None:
        return [group(F.lit(NEVER))]
    at = F.unix_micros("event_time")
    passed = F.pmod(at, F.lit(spans.length))
    start = at - passed
    end = start + spans.length
    return [
        group(end),
        F.when((passed < spans.longest) & (start > EARLIEST), group(start)),
        F.when((passed >= spans.length - spans.longest) & (end <= LATEST), group(end + spans.length)),
    ]


def _rules(rule: DataFrame) -> DataFrame:
    """One row per record."""
    logged_at = F.unix_micros("broker_time").alias("logged_at")
    return rule.select(*COORDINATES, logged_at, "rule", "verb", "definition", "begins")
