"""Lag: the poller that sees how far behind each reader of the log is, with its metrics over HTTP."""

from runtime.http_service import http_service

SERVICE = http_service("lag", "truelog.monitor.lag_service", after=("postgresql", "kafka", "s3"))
