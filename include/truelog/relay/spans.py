"""Spans of OpenTelemetry for sampled traces, sent to a receiver over OTLP.

The sender of an event decides: only a `traceparent` with the sampled flag gets spans, and all others cost nothing. A
thread of OpenTelemetry's library sends spans from a bounded queue. A receiver that hangs or fails therefore delays no
request, and the spans that it lost are counted in the log.
"""

import logging
import os
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from truelog import __version__
from truelog.relay import trace
from truelog.support.settings import Settings

if TYPE_CHECKING:  # the library takes 12 MB, and is loaded only if there is a receiver
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as LibrarySpan

    from truelog.relay.span_export import Export

Attributes = Mapping[str, str | int | float]

_CLOSE_SECONDS = 3.0  # for what is in the queue when a service stops
# These loggers quote addresses and headers, which may contain credentials. `span_export` logs instead.
_QUOTING = ("opentelemetry.exporter", "opentelemetry.util")

log = logging.getLogger(__name__)


class Span:
    """A span that has begun. It is sent after its end, so a span that never ends leaves no trace."""

    def __init__(self, span: "LibrarySpan") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def end(self, attributes: Attributes, at: datetime | None = None) -> None:
        """End the span, now or `at` a time."""
        self._span.set_attributes(attributes)
        self._span.end(None if at is None else nanoseconds(at))

    def fail(self, error: BaseException) -> None:
        """End the span with the kind of error. Its message may contain values, and stays here."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._span.end()


class Spans:
    """Makes the spans of one service. Without a provider, there are none."""

    def __init__(self, provider: "TracerProvider | None" = None, export: "Export | None" = None) -> None:
        self._provider, self._export = provider, export
        self._tracer = provider.get_tracer("truelog", __version__) if provider else None

    @property
    def enabled(self) -> bool:
        return self._tracer is not None

    def begin(
        self, name: str, parent: str, kind: str, *, at: int | None = None, links: Iterable[str] = ()
    ) -> Span | None:
        """A span below `parent`, which is a `traceparent`. None if its sender did not sample the trace.

        kind: of OpenTelemetry, such as SERVER or PRODUCER.
        at: when it began, in nanoseconds since 1970; now by default.
        links: the traceparents of other spans that have led to this one.
        """
        if self._tracer is None or not trace.is_sampled(parent):
            return None
        from opentelemetry.trace import Link, SpanKind, get_current_span

        linked = [Link(get_current_span(_context(each)).get_span_context()) for each in links]
        return Span(self._tracer.start_span(name, _context(parent), SpanKind[kind], links=linked, start_time=at))

    def close(self) -> None:
        """Send what is in the queue, for a few seconds at most."""
        if self._provider is None or self._export is None:
            return
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_SECONDS)
        self._export.log_end()


def open_spans(settings: Settings, service: str) -> Spans:
    """The spans of a service. There are none unless a receiver is set."""
    if not settings.spans_endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Spans()
    for name in _QUOTING:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    from truelog.relay.span_export import Export

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"truelog-{service}"}
    export = Export(settings.spans_endpoint, settings.spans_headers.get_secret_value(), _authorities())
    provider = TracerProvider(ParentBased(ALWAYS_OFF), Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(export)
    return Spans(provider, export)


@contextmanager
def opened_spans(settings: Settings, service: str) -> Iterator[Spans]:
    spans = open_spans(settings, service)
    try:
        yield spans
    finally:
        spans.close()


def nanoseconds(at: datetime) -> int:
    """The time in nanoseconds since 1970, exactly to the microsecond."""
    return int(at.timestamp()) * 10**9 + at.microsecond * 1_000


def now() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def _context(traceparent: str) -> "Context":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({trace.NAME: traceparent})


def _authorities() -> str | None:
    """The certificate authorities that a receiver is checked against: a file, or the library's own."""
    return os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or ssl.get_default_verify_paths().cafile
