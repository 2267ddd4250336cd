"""The event types of another environment, whose events this one reads (docs/decisions/101-namespaces.md).

The other environment registers them and writes their copies into its bucket. This one copies from there what it lacks,
so that a record has one meaning in both:

1. Read the copies that are new or have changed. This process remembers the others by their tags.
2. Let the reader read the topics of new event types, and find out where their logs begin. This archive begins there.
3. Add to the registry what it lacks, under its lock.

`require_copied` is the check before a process writes what it made of records. The other environment's lock cannot be
held here. Instead, a copy says that a registration is under way before the cut is read. So if a process has read the
end of its batch, and the bucket then has neither this mark nor an unknown version, a later cut lies at or past the end.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from botocore.exceptions import ClientError

from truelog.control import event_store
from truelog.log import access, topics
from truelog.log.positions import Positions
from truelog.schema import event_version
from truelog.schema.event import EventType
from truelog.schema.event_version import EventHistory
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.errors import MeaningChanged, NotSetUp, RegistryBehind, ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_REGISTERING_SECONDS = 30.0
_CLOSED = {"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId"}
_known: dict[tuple[str, ...], str] = {}  # the tags of copies that a database contains, by the places of both

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Changed:
    """Copies that this process has not found in the registry yet, and their tags."""

    histories: Mapping[str, EventHistory]
    tags: Mapping[str, str]

    def remember(self, settings: Settings, names: Collection[str]) -> None:
        """The registry has these, so a later look skips them. One that is being registered will change."""
        done = [name for name in names if not self.histories[name].registering]
        _known.update({_place(settings, name): self.tags[name] for name in done})


def copy(settings: Settings) -> dict[str, str]:
    """Copy what the other environment has registered. Return the event types that cannot be read, with the reasons.

    Raises:
        NotSetUp: the bucket cannot be read, or is not that of the other environment.
        RegistryBehind: this registry has other versions than the other environment.
        ServiceDown: Kafka does not answer.
    """
    changed, refused = _changed(settings), dict[str, str]()
    if not changed.histories:
        return refused
    with event_store.locked(settings, *changed.histories) as registry:
        mine = {name: registry.reconciled(name) for name in changed.histories}
        new = {name for name, each in changed.histories.items() if each.topic_id != mine[name].topic_id}
        begins = _begins(settings, new)
        for name, theirs in changed.histories.items():
            if name in new and begins.ids.get(name) != theirs.topic_id:
                refused[name] = _no_topic(settings, name)
            elif _lacks(mine[name], theirs):
                registry.store(mine[name], _continued(mine[name], theirs, begins))
                log.info("%s comes from %s", name, settings.read_environment)
    changed.remember(settings, changed.histories.keys() - refused.keys())
    if refused and len(refused) == len(_tags(settings)):
        raise NotSetUp(next(iter(refused.values())))
    return refused


def permit(settings: Settings) -> None:
    """Let the reader read the topics of all event types of the other environment.

    Raises:
        NotSetUp: the bucket cannot be read, or has no event types.
    """
    _permit(settings, [_name(key) for key in _tags(settings)])


def require_copied(settings: Settings, connection: Connection, names: Collection[str]) -> None:
    """Require that the registry has all versions of these event types, after the end of a batch was read.

    Raises:
        MeaningChanged: it lacks one. The process must start again, and copies it then.
        ServiceDown: a version is being registered.
    """

    def settled() -> None:
        changed = _changed(settings, names)
        if busy := event_store.interrupted(changed.histories):
            raise ServiceDown(f"{settings.read_environment} is registering {', '.join(busy)}")
        known = event_store.load(connection) if changed.histories else {}
        for name, theirs in changed.histories.items():
            if not known.get(name, EventHistory(name)).continues(theirs):
                raise MeaningChanged(
                    f"{name} has a version in {settings.read_environment} that this one has not copied yet. "
                    "The process must start again."
                )
        changed.remember(settings, changed.histories.keys())

    until(settled, _REGISTERING_SECONDS, "event versions")


def difference(settings: Settings, proposed: EventType, registered: EventHistory | None) -> str:
    """Why the declaration of a file is not in force, or an empty string if it is."""
    where = settings.read_environment
    if registered is None or not registered.cuts:
        return f"{proposed.name} is not registered in {where}, whose events are read. Register it there, or delete it."
    in_force = registered.declarations[registered.version]  # also with kept schemas, which no file has
    if in_force != event_version.with_kept(event_version.declaration_of(proposed), in_force):
        return f"{proposed.name} differs from what {where} has registered, which is in force. Change the file there."
    return ""


def _changed(settings: Settings, names: Collection[str] | None = None) -> _Changed:
    """The copies of these event types, or of all, that this process does not know."""
    tags = {_name(key): tag for key, tag in _tags(settings).items()}
    wanted = [name for name in tags if names is None or name in names]
    unknown = [name for name in wanted if _known.get(_place(settings, name)) != tags[name]]
    if not unknown:
        return _Changed({}, {})
    client = bucket.client_of(settings.object_store())
    found = event_store.read_copies(client, settings.reads_bucket, [event_store.key(name) for name in unknown])
    return _Changed(found, {name: tags[name] for name in found})


def _tags(settings: Settings) -> dict[str, str]:
    """The tag of each copy in the other bucket, by key. A tag changes with the content."""
    client = bucket.client_of(settings.object_store())
    try:
        listed = bucket.list_objects(client, settings.reads_bucket, f"{event_store.FOLDER}/")
        tags = {each["Key"]: each["ETag"] for each in listed}
    except ClientError as error:
        if error.response["Error"].get("Code") not in _CLOSED:
            raise
        raise NotSetUp(
            f"the bucket {settings.reads_bucket} (TRUELOG_READS_BUCKET) cannot be read: {error}. "
            f"TRUELOG_S3_ACCESS_KEY must be allowed to list and read {event_store.FOLDER}/ in it."
        ) from error
    if not tags:
        where = f"the bucket {settings.reads_bucket} (TRUELOG_READS_BUCKET)"
        raise NotSetUp(f"{where} has no event types: is it the bucket of {settings.read_environment}?")
    return tags


def _begins(settings: Settings, names: Collection[str]) -> Positions:
    """Where the logs of these topics begin now, without the topics that Kafka does not have."""
    if not names:
        return Positions()
    _permit(settings, names)
    reader, found = topics.client(settings), Positions()
    for name in sorted(topics.existing_topics(reader).intersection(names)):
        try:
            found = found.latest(topics.begins(reader, [name]))
        except TopicRefused as refused:
            log.warning("%s", refused)
    return found


def _permit(settings: Settings, names: Collection[str]) -> None:
    access.grant_reading(topics.client(settings, KafkaUser.ADMIN), settings.names, sorted(names))


def _lacks(mine: EventHistory, theirs: EventHistory) -> bool:
    """Whether this registry lacks something.

    Raises:
        RegistryBehind: both have what the other one lacks.
    """
    if mine.continues(theirs):
        return mine.settings != theirs.settings and theirs.continues(mine)
    if theirs.continues(mine):
        return True
    raise RegistryBehind(
        f"{mine.name}: this registry has other versions than TRUELOG_READS_BUCKET. An environment that had events of "
        "its own, or that read those of another one, needs a new database and a new bucket (docs/production.md)."
    )


def _continued(mine: EventHistory, theirs: EventHistory, begins: Positions) -> EventHistory:
    """Their history. This archive begins where a topic began when it was copied first."""
    began = {each.topic_id: each.began for each in mine.cuts}
    new = theirs.topic_id not in began
    if new:
        first = begins.offsets[theirs.name]
        began[theirs.topic_id] = {p: max(offset, theirs.began.get(p, 0)) for p, offset in first.items()}
    later = [replace(each, began=began.get(each.topic_id, each.began)) for each in theirs.cuts[len(mine.cuts) :]]
    return replace(theirs, cuts=(*mine.cuts, *later), registering=False)


def _no_topic(settings: Settings, name: str) -> str:
    return (
        f"Kafka has no topic {settings.names.topic_of(name)} with the id in the bucket {settings.reads_bucket}. Do "
        "TRUELOG_READS_NAMESPACE and TRUELOG_READS_BUCKET name the same environment, and does it run this Kafka?"
    )


def _place(settings: Settings, name: str) -> tuple[str, ...]:
    at = settings.database_host, str(settings.database_port), settings.database_name
    return (*at, settings.s3_endpoint, settings.reads_bucket, name)


def _name(key: str) -> str:
    return key.removeprefix(f"{event_store.FOLDER}/").removesuffix(".json")
