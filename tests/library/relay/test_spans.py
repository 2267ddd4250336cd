"""Spans reach a receiver of OTLP if their traces are sampled, and never hold up who makes them."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

import runtime
from tests.deadline import deadline
from tests.library.listener import FAILS, HANGS, Listener, listening
from tests.library.relay.received import received, wait_for
from truelog.relay import spans
from truelog.relay.spans import open_spans, opened_spans
from truelog.support.settings import Settings

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-1] + "0"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    for name in ("ENDPOINT", "HEADERS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    with listening() as listener:
        yield listener


def to(receiver: Listener, headers: str = "") -> Settings:
    return Settings().model_copy(update={"spans_endpoint": receiver.url, "spans_headers": SecretStr(headers)})


def test_a_span_is_below_that_of_the_sender(receiver: Listener) -> None:
    other = PARENT.replace("00f0", "11f0")
    with opened_spans(to(receiver), "tester") as made:
        span = made.begin("stage", PARENT, "SERVER", at=5, links=[other])
        assert span is not None
        span.end({"truelog.view": "v", "truelog.rows": 2})
    [found] = received(receiver)
    assert (found.service, found.name, found.kind, found.begin) == ("truelog-tester", "stage", "SERVER", 5)
    assert (found.trace, found.parent, found.traceparent) == (PARENT[3:35], PARENT[36:52], span.traceparent)
    assert (found.attributes, found.links) == ({"truelog.view": "v", "truelog.rows": 2}, [other[36:52]])
    assert receiver.paths == ["/v1/traces"]


def test_a_span_is_sent_while_the_service_runs(receiver: Listener) -> None:
    with opened_spans(to(receiver), "tester") as made:
        span = made.begin("stage", PARENT, "SERVER")
        assert span is not None
        span.end({})
        wait_for(receiver, "stage")


@pytest.mark.parametrize("parent", [UNSAMPLED, "", "no trace", PARENT.upper(), "ff" + PARENT[2:]])
def test_without_a_sampled_trace_there_is_no_span(receiver: Listener, parent: str) -> None:
    with opened_spans(to(receiver), "tester") as made:
        assert made.begin("stage", parent, "SERVER") is None
    assert receiver.asked == []


def test_other_flags_do_not_matter(receiver: Listener) -> None:
    with opened_spans(to(receiver), "tester") as made:
        assert made.begin("stage", PARENT[:-2] + "03", "SERVER")
        assert made.begin("stage", PARENT[:-2] + "02", "SERVER") is None
        assert made.begin("stage", "cc" + PARENT[2:] + "-later", "SERVER")


def test_without_a_receiver_there_are_no_spans(monkeypatch: pytest.MonkeyPatch, receiver: Listener) -> None:
    assert not open_spans(Settings(), "tester").enabled
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not open_spans(to(receiver), "tester").enabled


def test_the_error_of_a_span_is_only_its_kind(receiver: Listener) -> None:
    with opened_spans(to(receiver), "tester") as made:
        span = made.begin("stage", PARENT, "SERVER")
        assert span is not None
        span.fail(ValueError("ann@example.com"))
    assert [each.error for each in received(receiver)] == ["ValueError"]


@pytest.mark.parametrize("mood", [HANGS, FAILS])
def test_a_receiver_in_trouble_holds_nobody_up(
    receiver: Listener, mood: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue is bounded, and the end does not wait for a receiver that hangs."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    monkeypatch.setattr(spans, "_CLOSE_SECONDS", 0.2)
    receiver.mood = mood
    made = open_spans(to(receiver, "x-key=hunter2"), "tester")
    began = time.monotonic()
    for _ in range(1_000):
        span = made.begin("stage", PARENT, "SERVER")
        assert span is not None
        span.end({})
    made.close()
    assert time.monotonic() - began < deadline(5)
    assert "1000 of 1000 spans were lost" in caplog.text
    assert "hunter2" not in caplog.text
    assert receiver.url not in caplog.text


def test_credentials_are_sent_and_not_logged(receiver: Listener, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with opened_spans(to(receiver, "Authorization=Bearer%20hunter2, x-tenant=shop, wrong hunter3"), "tester") as made:
        span = made.begin("stage", PARENT, "SERVER")
        assert span is not None
        span.end({})
    [headers] = receiver.headers
    found = {name.lower(): value for name, value in headers.items()}
    assert (found["authorization"], found["x-tenant"]) == ("Bearer hunter2", "shop")
    assert "hunter" not in caplog.text
    assert "is not of the form name=value" in caplog.text


def test_the_receiver_is_set_in_the_file_or_by_the_usual_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.set_up(tmp_path)
    file = tmp_path / "settings.env"
    lines = file.read_text()
    for prefix in ("TRUELOG_SPANS_", "OTEL_EXPORTER_OTLP_"):
        file.write_text(f"{lines}\n{prefix}ENDPOINT=http://one:4318\n{prefix}HEADERS=x-key=hunter2\n")
        settings = Settings(home=tmp_path)
        assert settings.spans_endpoint == "http://one:4318"
        assert settings.spans_headers.get_secret_value() == "x-key=hunter2"
        assert "hunter2" not in repr(settings)
    file.write_text(lines)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://two:4318")
    assert Settings(home=tmp_path).spans_endpoint == "http://two:4318"


OTHERS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://others:4318", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-others"}
OURS = {"TRUELOG_SPANS_ENDPOINT": "http://ours:4318", "TRUELOG_SPANS_HEADERS": "x-key=of-ours"}
OF_FILE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://file:4318", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-file"}


@pytest.mark.parametrize(
    ("environment", "file", "expected"),
    [
        (OTHERS, OURS, ("http://ours:4318", "x-key=of-ours")),
        (OURS, OTHERS, ("http://ours:4318", "x-key=of-ours")),
        (OTHERS, {"TRUELOG_SPANS_ENDPOINT": "http://ours:4318"}, ("http://ours:4318", "")),
        (OTHERS, {"TRUELOG_SPANS_HEADERS": "x-key=of-ours"}, ("", "x-key=of-ours")),
        (OTHERS, {"TRUELOG_SPANS_ENDPOINT": ""}, ("", "")),
        ({"TRUELOG_SPANS_ENDPOINT": ""}, OTHERS, ("", "")),
        (OTHERS, OF_FILE, ("http://others:4318", "x-key=of-others")),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://others:4318"}, OF_FILE, ("http://others:4318", "")),
        ({}, OF_FILE, ("http://file:4318", "x-key=of-file")),
    ],
)
def test_headers_go_to_the_receiver_that_they_are_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    file: dict[str, str],
    expected: tuple[str, str],
) -> None:
    for name in (*OTHERS, *OURS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    runtime.set_up(tmp_path)
    with (tmp_path / "settings.env").open("a") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in file.items())
    settings = Settings(home=tmp_path)
    assert (settings.spans_endpoint, settings.spans_headers.get_secret_value()) == expected
