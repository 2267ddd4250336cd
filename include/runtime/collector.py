"""The collector, which receives events over HTTP."""

from runtime.http_service import http_service

SERVICE = http_service("collector", "truelog.ingest.collector", after=("postgresql", "kafka"))
