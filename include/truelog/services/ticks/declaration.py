"""The `ticks` service, which has no port: it is ready if the last tick in the log is recent."""

from truelog.services.declaration import Access, Check, Service
from truelog.services.ticks import recent_tick
from truelog.support.settings import KafkaUser

SERVICE = Service(
    name="ticks",
    module="truelog.services.ticks.service",
    after=("postgresql", "kafka"),
    kafka=KafkaUser.TICKS,
    check=Check(recent_tick.require_recent_tick, recent_tick.address),
    writes_events=True,
    access=Access(administers_kafka=False),
)
