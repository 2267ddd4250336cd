"""The events of a run from its start to its end, as a real server gets them. The client library judges each event."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from tests.deadline import deadline
from tests.library.lineage.judged_events import require_valid
from tests.library.listener import HANGS, Listener, listening
from truelog.lineage import facets
from truelog.lineage.dataset import Dataset
from truelog.lineage.job import Job
from truelog.lineage.run import ApplicationRuns, batch_run, static_event
from truelog.lineage.sender import sender_of
from truelog.support.errors import Fenced, NotReady, TooManyExcluded
from truelog.support.settings import Settings


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


@pytest.fixture
def reporting(settings: Settings, listener: Listener) -> Settings:
    """Settings with the listener as the server. Each call of `go_on` reports."""
    return settings.model_copy(update={"openlineage_url": SecretStr(listener.url), "openlineage_running_seconds": 1e-9})


def job(name: str = "stream.page_views") -> Job:
    about = {"jobType": facets.job_type("STREAMING", "VIEW"), "documentation": facets.documentation("A test.")}
    columns = facets.schema([{"name": "host", "type": "text", "description": "the host"}, {"name": "views"}])
    read = {"namespace": "kafka://k:9092", "name": "page_view", "field": "url"}
    origin = {"inputFields": [read | {"transformations": [{"type": "DIRECT", "subtype": "AGGREGATION"}]}]}
    filtered = read | {"transformations": [{"type": "INDIRECT", "subtype": "FILTER"}]}
    written = {
        "schema": columns,
        "version": facets.version("1"),
        "columnLineage": facets.column_lineage({"views": origin}, [filtered]),
    }
    view = Dataset("postgres://db:5432", "truelog.views.page_views", written)
    return Job("truelog", name, about, [Dataset("kafka://k:9092", "page_view")], lambda: [view])


def received(settings: Settings, listener: Listener) -> list[Any]:
    """The valid events that the server has got."""
    sender = sender_of(settings)
    assert sender is not None
    assert sender.flush(deadline(20))
    assert sender.dropped == 0
    for event in listener.taken:
        require_valid(event)
    return listener.taken


def states(events: list[Any]) -> list[tuple[str, str]]:
    return [(each["job"]["name"], each["eventType"]) for each in events]


def test_an_application_reports_each_job_from_its_beginning_to_its_end(reporting: Settings, listener: Listener) -> None:
    runs = ApplicationRuns(reporting)
    with runs.until_end():
        runs.follow(lambda: {1: job("a"), 2: job("b")})
        runs.go_on()
        runs.follow(lambda: {2: job("b"), 3: job("c")})
    events = received(reporting, listener)
    by_job = {name: [state for each, state in states(events) if each == name] for name in "abc"}
    assert by_job == {
        "a": ["START", "RUNNING", "COMPLETE"],
        "b": ["START", "RUNNING", "COMPLETE"],
        "c": ["START", "COMPLETE"],
    }
    assert len({each["run"]["runId"] for each in events}) == 3


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (Fenced("another process has the lease"), "ABORT", "another process has the lease"),
        (NotReady("the archive is behind"), "FAIL", "the archive is behind"),
        (ValueError("invalid value 'Ann'"), "FAIL", "ValueError"),
        (TooManyExcluded("it fails. The last error: invalid value 'Ann'"), "FAIL", "TooManyExcluded"),
    ],
)
def test_the_end_says_why_without_values_of_events(
    reporting: Settings, listener: Listener, error: Exception, state: str, message: str
) -> None:
    runs = ApplicationRuns(reporting)

    def end() -> None:
        with runs.until_end():
            runs.follow(lambda: {1: job()})
            raise error

    with pytest.raises(type(error)):
        end()
    last = received(reporting, listener)[-1]
    assert last["eventType"] == state
    assert last["run"]["facets"]["errorMessage"]["message"] == message


def test_a_batch_job_reports_what_its_tests_have_found(reporting: Settings, listener: Listener) -> None:
    with batch_run(reporting, job) as run:
        assert run is not None
        found = {"name": "stream_equals_rebuild", "status": "pass", "actual": "0", "params": {"verdict": "EQUAL"}}
        run.facets["test"] = facets.test([found])
    started, ended = received(reporting, listener)
    assert (started["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert started["run"]["runId"] == ended["run"]["runId"]
    assert UUID(ended["run"]["runId"])
    assert ended["run"]["facets"]["test"]["tests"] == [found]


def test_a_job_that_does_not_run_has_an_event_of_its_own() -> None:
    require_valid(static_event(job()))


def test_a_planted_misspelling_is_seen() -> None:
    event = static_event(job())
    event["job"]["facets"]["jobType"]["integrations"] = "TRUELOG"
    with pytest.raises(TypeError, match="integrations"):
        require_valid(event)


def test_a_planted_field_without_a_value_is_seen() -> None:
    event = static_event(job())
    del event["job"]["facets"]["jobType"]["integration"]
    with pytest.raises(TypeError, match="integration"):
        require_valid(event)


def test_without_a_server_no_job_is_made(settings: Settings) -> None:
    def unmade() -> Any:
        raise AssertionError("a job was made")

    runs = ApplicationRuns(settings)
    with runs.until_end(), batch_run(settings, unmade) as run:
        runs.follow(unmade)
        runs.go_on()
    assert run is None


def test_a_job_that_cannot_be_described_stops_nothing(
    reporting: Settings, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown() -> Any:
        raise KeyError("an event type")

    runs = ApplicationRuns(reporting)
    with runs.until_end(), batch_run(reporting, unknown) as run:
        runs.follow(unknown)
    assert run is None
    assert received(reporting, listener) == []
    assert caplog.text.count("a job could not be described") == 2


def test_a_hanging_server_does_not_stop_the_end(reporting: Settings, listener: Listener) -> None:
    """The server would answer after a minute. The process leaves what the server has not taken."""
    listener.mood = HANGS
    runs = ApplicationRuns(reporting.model_copy(update={"openlineage_answer_seconds": 3600.0}))
    with runs.until_end():
        runs.follow(lambda: {1: job()})
    assert listener.taken == []
