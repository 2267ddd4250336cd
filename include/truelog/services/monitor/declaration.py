"""The monitor, which watches the platform and serves metrics. Its process is called `lag`, after its first duty."""

from truelog.services.declaration import HEALTH, METRICS, Http, Service
from truelog.support.settings import KafkaUser

HTTP = Http("Lag metrics", 18082, (METRICS, HEALTH))
SERVICE = Service(
    name="lag",
    module="truelog.services.monitor.service",
    after=("kafka", "postgresql", "s3"),
    kafka=KafkaUser.READER,
    http=HTTP,
    folders=("spark_apps",),  # it reports on every view file
    # It writes notifications for the receivers that are configured.
    secrets=("erasure_secret", "alertmanager_url", "pagerduty_key"),
)
