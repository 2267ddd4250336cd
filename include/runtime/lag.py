"""The lag service, which measures the lag of each log reader and serves metrics over HTTP."""

from runtime.http_service import http_service

SERVICE = http_service("lag", "truelog.monitor.lag_service", after=("postgresql", "kafka", "s3"))
