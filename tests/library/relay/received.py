"""What a receiver of OTLP has got, decoded by the classes of `opentelemetry-proto`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.deadline import until
from tests.library.listener import Listener
from truelog.support.errors import ServiceDown


@dataclass(frozen=True)
class Received:
    """A span, with ids in hexadecimal digits and times in nanoseconds since 1970."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, Any]
    links: Sequence[str]  # the ids of other spans
    error: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.id}-01"


def received(listener: Listener) -> list[Received]:
    """All spans so far."""
    found = []
    for body in list(listener.taken):
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            [service] = [each.value.string_value for each in resource.resource.attributes if each.key == "service.name"]
            found += [_span(service, span) for scope in resource.scope_spans for span in scope.spans]
    return found


def wait_for(listener: Listener, *names: str) -> dict[str, Received]:
    """The spans with these names, once all of them have arrived. No two have one name."""

    def require_all() -> None:
        missing = {*names} - {each.name for each in received(listener)}
        if missing:
            raise ServiceDown(f"no span {missing}")

    until(require_all, 30, "the spans")
    found = [each for each in received(listener) if each.name in names]
    assert len(found) == len(names)
    return {each.name: each for each in found}


def sampled(listener: Listener, trace: str) -> list[str]:
    """The names of the spans of a trace so far."""
    return [each.name for each in received(listener) if each.trace == trace]


def wait_for_trace(listener: Listener, sender: str) -> None:
    """Wait for a span of the trace of this `traceparent`."""

    def require_one() -> None:
        if not sampled(listener, sender[3:35]):
            raise ServiceDown("no span of the trace")

    until(require_one, 20, "the span")


def _span(service: str, span: Span) -> Received:
    return Received(
        service=service,
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes={each.key: _value(each.value) for each in span.attributes},
        links=[each.span_id.hex() for each in span.links],
        error=span.status.message,
    )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
