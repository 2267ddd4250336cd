"""A law for every view: an event with an unknown verb never counts, also if an earlier version of its type allowed it.

The shipped event types list their verbs, so a new record with another verb is invalid. Records from before that were
judged when a verb was any text, and they stay valid. So no view may take "not the negative verb" for the positive one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from pydantic import create_model

from tests.beds.lab import Lab
from tests.laws.events import Record, log, of_case
from tests.nightly_cases import nightly_except
from tests.views.examples import Relations
from tests.views.ways import Reader
from truelog.schema.event import Event, EventType
from truelog.schema.loading.events import load_events
from truelog.views import catalogue

LOGS = 40
PARTITIONS = {  # in the events of a match, and in the coordinates of a hit
    "events": re.compile(r'"partition": \d+, '),
    "document": re.compile(r"(?<=:)\d+(?=:)"),
}
CLOSED = {
    name: each
    for name, each in load_events().items()
    if any(field.values and field.name == "verb" for field in each.fields)
}
VIEWS = {
    name: replace(view, batch_only=False)
    for name, view in catalogue.load_all_views().items()
    if CLOSED.keys() & set(view.reads)
}
OFTEN = ("cart", "home_timeline")  # a Group and a Join
SLIPS: tuple[Callable[[str], str], ...] = (str.upper, str.title, " {}".format, "{} ".format, "un{}".format)
SLIPS += (lambda verb: verb.removesuffix("d"), lambda verb: verb.removesuffix("ed"), lambda _: "")


def opened(event_type: EventType) -> EventType:
    """The type as it was when a verb was any text, and required nothing."""
    listed = [field for field in event_type.fields if field.values]
    anything = {field.name: (str, ...) if field.required else (str | None, None) for field in listed}
    model = create_model(event_type.model.__name__, __base__=event_type.model, **anything)  # type: ignore[call-overload]
    assert issubclass(model, Event)
    return replace(event_type, model=model, required=())


def misspelt(record: Record, chosen: Random) -> Record:
    fields = json.loads(record.value or b"")
    known = {verb for field in CLOSED[record.topic].fields for verb in field.values}
    fields["verb"] = chosen.choice(sorted({slip(fields["verb"]) for slip in SLIPS} - known))
    fields["event_id"] = f"misspelt {chosen.getrandbits(64):x}"  # or a good event with this id would be its copy
    return replace(record, value=json.dumps(fields).encode())


@pytest.mark.parametrize("name", nightly_except(OFTEN, VIEWS))
def test_law_an_unknown_verb_is_never_counted(lab: Lab, name: str) -> None:
    """Each log with misspelt verbs gives the rows of the same log with empty records in their places."""
    view, chosen = VIEWS[name], Random(20261125)
    draw = log(lab.types, view.reads, shortest=20, longest=40)
    logs, without, slips = list[list[Record]](), list[list[Record]](), 0
    for number in range(LOGS):
        drawn = [of_case(number, each) for each in draw(chosen)]
        slipped = {n for n, each in enumerate(drawn) if each.topic in CLOSED and chosen.random() < 0.3}
        logs.append([misspelt(each, chosen) if n in slipped else each for n, each in enumerate(drawn)])
        without.append([replace(each, value=b"") if n in slipped else each for n, each in enumerate(drawn)])
        slips += len(slipped)
    assert slips > 5 * LOGS / 2

    types = lab.types | {topic: opened(each) for topic, each in CLOSED.items()}
    open_lab = replace(lab, types=types)
    open_lab.rebuild_all(name, view, [*logs, *without])
    read, rows = Reader(open_lab, name, view), 0
    for case in range(LOGS):
        found = read(case)
        assert without_partitions(found) == without_partitions(read(LOGS + case)), f"log {case}"
        rows += len(found[None])
    assert rows > LOGS / 4, "the logs hold too few events that count"


def without_partitions(found: Relations) -> Relations:
    """The rows without the partition, which differs between the cases of a lab. The id of a match is a hash of it."""
    hidden = {"partition", "match_id"}

    def plain(name: str, value: object) -> object:
        return PARTITIONS[name].sub("", value) if name in PARTITIONS and isinstance(value, str) else value

    return {
        relation: sorted(({n: plain(n, each) for n, each in row.items() if n not in hidden} for row in rows), key=str)
        for relation, rows in found.items()
    }
