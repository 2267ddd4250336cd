"""The collector: events in over HTTP."""

from runtime.http_service import http_service

SERVICE = http_service("collector", "truelog.ingest.collector", after=("postgresql", "kafka"))
