"""The collector, which receives events over HTTP."""

from truelog.services.declaration import HEALTH, Access, Bucket, Http, Route, Service
from truelog.storage.api_key import Role
from truelog.support.settings import KafkaUser

EVENTS = Route("POST", "/events", Role.PRODUCER)
BROWSER = Route("POST", "/browser", Role.BROWSER)  # events of pages, which `TRACKER` sends
TRACKER = Route("GET", "/truelog.4.js")
COMMANDS = Route("POST", "/commands/{name}", Role.PRODUCER)
RECEIPTS = Route("GET", "/commands/receipts/{receipt}", Role.PRODUCER)
OPENAPI = Route("GET", "/openapi.json", Role.PRODUCER)
HTTP = Http("Collector", 18080, (EVENTS, BROWSER, TRACKER, COMMANDS, RECEIPTS, OPENAPI, HEALTH))
SERVICE = Service(
    name="collector",
    module="truelog.services.collector.service",
    after=("kafka", "postgresql"),
    kafka=KafkaUser.COLLECTOR,
    http=HTTP,
    secrets=("spans_headers",),
    several=True,
    writes_events=True,
    access=Access("collector", Bucket.UNUSED, reads_topics=False, administers_kafka=False),
)
