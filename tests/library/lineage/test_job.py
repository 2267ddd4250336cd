"""The jobs of shipped views: the client library accepts their events, and all origins name the same datasets."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.beds.lab import Lab
from tests.library.lineage.judged_events import require_valid, walk
from truelog.lineage import dataset, job
from truelog.lineage.dataset import Dataset
from truelog.lineage.job import Catalogue, Job
from truelog.lineage.run import static_event
from truelog.views import catalogue

VIEWS = ("cart", "home_timeline", "page_views", "rate_limits")  # of different kinds


@pytest.fixture
def jobs(lab: Lab) -> list[Job]:
    """The jobs of these views, and the archive's job of each event type."""
    views = [lab.compiled(name, catalogue.load_view(name)) for name in VIEWS]
    of_views = Catalogue(lab.settings, lab.spark, lab.types).of_views(lambda _: "stream", views)
    return [*(job.archiving(lab.settings, each) for each in lab.types.values()), *of_views]


def test_each_event_is_valid_and_each_topic_leads_to_its_views(lab: Lab, jobs: Sequence[Job]) -> None:
    events = [static_event(each) for each in jobs]
    for event in events:
        require_valid(event)
    for name in VIEWS:
        view = _node(dataset.view(lab.settings, name).as_dict())
        for topic in catalogue.load_view(name).topics:
            begin, table = dataset.topic(lab.settings, topic), dataset.archive_table(lab.settings, topic)
            by_batch = [each for each in events if not each["job"]["name"].startswith("stream.")]
            assert view in walk(events, (begin.namespace, begin.name))
            assert view in walk(by_batch, (begin.namespace, begin.name)), "through the archive"
            assert view in walk(by_batch, (table.namespace, table.name))


def test_columns_come_from_topics_in_a_stream_and_from_the_archive_in_a_batch(lab: Lab, jobs: Sequence[Job]) -> None:
    """The host is derived from the URL when a record is decoded, and the archive stores it."""
    streamed, compared = (_origin(jobs, name, "host") for name in ("stream.page_views", "reconcile.page_views"))
    topic, table = (made(lab.settings, "page_view") for made in (dataset.topic, dataset.archive_table))
    assert [(each["namespace"], each["name"], each["field"]) for each in streamed] == [
        (topic.namespace, topic.name, "url")
    ]
    assert [(each["namespace"], each["name"], each["field"]) for each in compared] == [
        (table.namespace, table.name, "host")
    ]


def test_each_origin_is_a_field_that_its_dataset_has(jobs: Sequence[Job]) -> None:
    """A server draws no line between fields that it does not know."""
    for each in jobs:
        known = {(read.namespace, read.name, name) for read in each.inputs for name in _columns(read)}
        for written in each.outputs:
            found = written.facets.get("columnLineage", {"fields": {}, "dataset": []})
            origins = [*found["dataset"], *(one for by in found["fields"].values() for one in by["inputFields"])]
            assert {(one["namespace"], one["name"], one["field"]) for one in origins} <= known, each.name
            assert found["fields"].keys() <= _columns(written)


def test_a_batch_only_view_has_no_stream(lab: Lab) -> None:
    view = lab.compiled("also_bought", catalogue.load_view("also_bought"))
    made = [each.name for each in Catalogue(lab.settings, lab.spark, lab.types).of_views(lambda _: "stream", [view])]
    assert view.view.batch_only
    assert made == ["rebuild.also_bought", "reconcile.also_bought"]


def test_an_event_without_columns_comes_if_a_plan_cannot_be_read(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    view = lab.compiled("page_views", catalogue.load_view("page_views"))
    no_spark: Any = None
    made = Catalogue(lab.settings, no_spark, lab.types).comparison(view)
    require_valid(static_event(made))
    [written] = made.outputs
    assert written.facets.keys() == {"schema", "version"}
    assert "page_views: its plan could not be read" in caplog.text


def test_an_environment_with_a_namespace_has_jobs_of_its_own(lab: Lab) -> None:
    blue = lab.settings.model_copy(update={"namespace": "blue"})
    assert [job.archiving(each, lab.types["click"]).namespace for each in (lab.settings, blue)] == ["truelog", "blue"]


def _origin(jobs: Sequence[Job], name: str, column: str) -> list[dict[str, Any]]:
    [found] = [each for each in jobs if each.name == name]
    [view] = found.outputs
    fields: list[dict[str, Any]] = view.facets["columnLineage"]["fields"][column]["inputFields"]
    return fields


def _columns(made: Dataset) -> set[str]:
    return {each["name"] for each in made.facets["schema"]["fields"]}


def _node(made: dict[str, Any]) -> tuple[str, str]:
    return made["namespace"], made["name"]
