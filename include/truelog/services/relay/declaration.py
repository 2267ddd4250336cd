"""The `relay` service, which has no port: it is ready if it has looked for rows to publish recently."""

from truelog.services.declaration import Check, Service
from truelog.services.relay import recent_look
from truelog.support.settings import KafkaUser

SERVICE = Service(
    name="relay",
    module="truelog.services.relay.service",
    after=("postgresql", "kafka"),
    kafka=KafkaUser.RELAY,
    secrets=("erasure_secret",),  # seals the erasures of the log
    check=Check(recent_look.require_recent_look, recent_look.address),
)
