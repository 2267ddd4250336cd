"""The lag poller, which measures the lag of each reader of the log and serves its metrics over HTTP."""

from runtime.http_service import http_service

SERVICE = http_service("lag", "truelog.monitor.lag_service", after=("postgresql", "kafka", "s3"))
