"""The export of spans: OpenTelemetry's batches and its client of OTLP over HTTP, with counts of what was lost.

The library's variables apply as far as they are in the environment of a service, such as `OTEL_BSP_SCHEDULE_DELAY`.
"""

import logging
import time
from collections.abc import Sequence

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.util.re import parse_env_headers

_LOG_SECONDS = 60.0  # between two messages about lost spans

log = logging.getLogger(__name__)


class Export(BatchSpanProcessor):
    """Sends spans in batches, in a thread of its own. If the queue is full, it drops the oldest spans."""

    def __init__(self, endpoint: str, headers: str, authorities: str | None) -> None:
        """`headers` are written as `OTEL_EXPORTER_OTLP_HEADERS` is: name=value, separated by commas."""
        self._ended = 0
        self._counted = _Counted(
            OTLPSpanExporter(
                f"{endpoint.rstrip('/')}/v1/traces",
                certificate_file=authorities,
                headers=_parsed(headers),
                session=_session(),
            )
        )
        super().__init__(self._counted)

    def on_end(self, span: ReadableSpan) -> None:
        self._ended += 1
        super().on_end(span)

    def log_end(self) -> None:
        """Log how many spans were sent, and how many were lost."""
        if self._ended:
            lost = self._ended - self._counted.sent
            log.log(logging.WARNING if lost else logging.INFO, "%d of %d spans were lost", lost, self._ended)


class _Counted(SpanExporter):
    """Counts what the receiver took. It logs neither the address nor an answer, which may contain credentials."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.sent = self._lost = 0
        self._log_at = 0.0  # monotonic seconds

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            return result
        self._lost += len(spans)
        if time.monotonic() >= self._log_at:
            log.warning("the receiver of spans did not take them; %d spans are lost so far", self._lost)
            self._log_at = time.monotonic() + _LOG_SECONDS
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _parsed(headers: str) -> dict[str, str]:
    """The headers by their names. A part in another form is left out, and not logged, because it may be a secret."""
    found = parse_env_headers(headers, liberal=True)
    if len(found) < sum(bool(each.strip()) for each in headers.split(",")):
        log.warning("a header for the receiver of spans is not of the form name=value, or its name is repeated")
    return dict(found)


def _session() -> requests.Session:
    """A session without proxies and credentials of the environment, as for all receivers."""
    session = requests.Session()
    session.trust_env = False
    return session
