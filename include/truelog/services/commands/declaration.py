"""The `commands` service, which has no port: it is ready if it has begun to read all states."""

from truelog.services.commands import states_check
from truelog.services.declaration import Access, Check, Service
from truelog.support.settings import KafkaUser

SERVICE = Service(
    name="commands",
    module="truelog.services.commands.service",
    after=("postgresql", "kafka"),
    kafka=KafkaUser.RELAY,
    check=Check(states_check.require_begun, states_check.address),
    writes_events=True,
    access=Access(administers_kafka=False),
)
