"""The `relay` service, which has no port: it is ready if it has looked for rows to publish recently."""

from truelog.services.declaration import Access, Bucket, Check, Service
from truelog.services.relay import recent_look
from truelog.support.settings import KafkaUser

SERVICE = Service(
    name="relay",
    module="truelog.services.relay.service",
    after=("postgresql", "kafka"),
    kafka=KafkaUser.RELAY,
    secrets=("erasure_secret", "spans_headers"),  # the first seals the erasures of the log
    check=Check(recent_look.require_recent_look, recent_look.address),
    access=Access(bucket=Bucket.UNUSED, administers_kafka=False),
)
