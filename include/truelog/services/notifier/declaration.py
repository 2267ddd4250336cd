"""The `notifier` service, which has no port: it is ready if it has looked for changes recently."""

from truelog.services.declaration import Access, Bucket, Check, Service
from truelog.services.notifier import notifier_look

SERVICE = Service(
    name="notifier",
    module="truelog.services.notifier.service",
    after=("postgresql",),
    kafka=None,
    check=Check(notifier_look.require_look, notifier_look.address),
    folders=("spark_apps",),  # a view's file says how long its rows stay
    secrets=("notification_channels",),
    access=Access(bucket=Bucket.UNUSED, administers_kafka=False),
)
