"""What an environment with a namespace has on servers that it shares, and its removal.

1. Require that nothing uses the environment, and keep its applications from starting.
2. Kafka: remove topics, consumer groups, rules and principals.
3. The captured database: remove replication slots and publications.
4. PostgreSQL: remove the rights of the roles, and the roles.

Each removed name begins with the namespace. If the environment reads the events of another one, it loses its rules
about them, and the other one keeps everything. The databases and the bucket have names of their own and stay: they have
everything that Kafka had. Kafka itself forgets transactional ids that nothing uses.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
)
from psycopg import sql

from runtime.foreign_names import outsider
from runtime.postgresql import READERS, admin, logins
from truelog.control import application, lease
from truelog.log import access, topics
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_SECONDS = 30.0
_SLOTS = (
    "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s) AND database = current_database() "
    "ORDER BY 1"
)
_PUBLICATIONS = "SELECT pubname FROM pg_publication WHERE starts_with(pubname, %s) ORDER BY 1"
_DATABASES = "SELECT datname FROM pg_database WHERE datname = ANY(%s) ORDER BY 1"
_ROLES = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) ORDER BY 1"
_SESSIONS = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database() AND usename = ANY(%s)"


@dataclass(frozen=True)
class Holdings:
    """The names of an environment on shared servers. `publications_left` can be removed only by their owner."""

    topics: list[str]
    groups: list[str]
    rules: list[str]
    principals: list[str]
    slots: list[str]
    publications: list[str]
    publications_left: list[str]
    roles: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self)


def holdings(settings: Settings) -> Holdings:
    """What Kafka and PostgreSQL have of the environment.

    Raises:
        NotSetUp: the settings have no namespace, so no name tells what belongs to the environment.
    """
    broker = _broker(settings)
    with _source(settings) as source:
        slots, publications = _names(source, _SLOTS, settings), _names(source, _PUBLICATIONS, settings)
    own = not settings.source_host
    with admin(settings) as connection:
        roles = [role for (role,) in connection.execute(_ROLES, (_own_roles(settings),)).fetchall()]
    return Holdings(
        topics=_own(settings, topics.existing_topics(broker)),
        groups=_groups(broker, settings),
        rules=sorted(map(_described, _rules(broker, settings))),
        principals=[name for name, _ in _principals(broker, settings)],
        slots=slots,
        publications=publications if own else [],
        publications_left=[] if own else publications,
        roles=roles,
    )


def destroy(settings: Settings) -> Holdings:
    """Remove everything that `holdings` finds. A call that was interrupted may be repeated.

    Raises:
        NotSetUp: the settings have no namespace.
        Fenced: an application of the environment is running.
        ServiceDown: something still uses the environment, or a server does not answer.
    """
    found, broker = holdings(settings), _broker(settings)
    with _unused(settings, found.roles):  # 1
        _remove_topics(broker, found.topics)  # 2
        _finish(broker.delete_consumer_groups(found.groups, request_timeout=_SECONDS) if found.groups else {})
        filters = list(map(_filter, _rules(broker, settings)))
        _finish(broker.delete_acls(filters, request_timeout=_SECONDS) if filters else {})
        deletions: list[UserScramCredentialAlteration] = [
            UserScramCredentialDeletion(name, each) for name, each in _principals(broker, settings)
        ]
        _finish(broker.alter_user_scram_credentials(deletions, request_timeout=_SECONDS) if deletions else {})
        with _source(settings) as source:  # 3
            for slot in found.slots:
                source.execute("SELECT pg_drop_replication_slot(%s)", (slot,))  # type: ignore[union-attr]
            for each in found.publications:
                source.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(each)))  # type: ignore[union-attr]
        _remove_roles(settings, found.roles)  # 4
    return found


def _broker(settings: Settings) -> AdminClient:
    """A client that sees Kafka's names."""
    if not settings.namespace:
        raise NotSetUp("TRUELOG_NAMESPACE is empty: no name on the servers tells what belongs to this environment")
    return outsider(settings)


def _own(settings: Settings, names: Iterable[str]) -> list[str]:
    return sorted(filter(settings.names.owns, names))


def _own_roles(settings: Settings) -> list[str]:
    """The roles that set-up makes, but for the owner of the database, whose name a setting chooses."""
    roles = {*logins(settings), settings.names.in_postgresql(READERS), settings.source_role}
    prefix = settings.names.in_postgresql("")
    return sorted(role for role in roles - {settings.database_user} if role.startswith(prefix))


def _databases(settings: Settings) -> list[str]:
    """The databases of the environment that exist on the platform's server."""
    names = [settings.database_name, settings.airflow_database]
    names += [settings.source_database] if settings.capture and not settings.source_host else []
    with admin(settings) as connection:
        return [name for (name,) in connection.execute(_DATABASES, (names,)).fetchall()]


@contextmanager
def _unused(settings: Settings, roles: list[str]) -> Iterator[None]:
    """Require that no application runs and no role is signed in, and let no application start meanwhile."""
    existing = _databases(settings)
    for database in existing:
        with admin(settings, database) as connection:
            if found := connection.execute(_SESSIONS, (roles,)).fetchall():
                names = ", ".join(sorted(role for (role,) in found))
                raise ServiceDown(f"{names} still has sessions in {database}. Run `truelog down`, and stop readers.")
    with ExitStack() as stack:
        if settings.database_name in existing:
            for name in application.application_names(settings):
                stack.callback(lease.take_lease(settings, name, code=lease.COMMAND).release)
        yield


def _groups(broker: AdminClient, settings: Settings) -> list[str]:
    found = broker.list_consumer_groups(request_timeout=_SECONDS).result()
    return _own(settings, (group.group_id for group in found.valid or []))


def _rules(broker: AdminClient, settings: Settings) -> list[AclBinding]:
    """The rules about names of the environment, of all principals, and those of its principals."""
    kinds = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    everything = AclBindingFilter(*kinds)
    try:
        found = broker.describe_acls(everything, request_timeout=_SECONDS).result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            return []
        raise
    owns = settings.names.owns
    return [rule for rule in found if owns(rule.name) or owns(rule.principal.removeprefix(access.USER))]


def _described(rule: AclBinding) -> str:
    kinds: Any = (rule.operation, rule.restype, rule.resource_pattern_type)
    return " ".join([str(rule.principal), *(each.name.lower() for each in kinds), str(rule.name)])


def _filter(rule: AclBinding) -> AclBindingFilter:
    place = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host)
    return AclBindingFilter(*place, rule.operation, rule.permission_type)


def _principals(broker: AdminClient, settings: Settings) -> list[tuple[str, ScramMechanism]]:
    """The principals that Kafka itself stores, each with its mechanism."""
    names = [settings.names.in_kafka(user.value) for user in KafkaUser if user is not KafkaUser.ADMIN]
    asked: Any = broker.describe_user_scram_credentials(names, request_timeout=_SECONDS)
    found = {name: future.result() for name, future in asked.items() if future.exception() is None}
    return [(name, each.mechanism) for name in names if name in found for each in found[name].scram_credential_infos]


def _remove_topics(broker: AdminClient, names: list[str]) -> None:
    _finish(broker.delete_topics(names, request_timeout=_SECONDS) if names else {})

    def removed() -> None:
        if left := topics.existing_topics(broker).intersection(names):
            raise ServiceDown(f"Kafka still has {', '.join(sorted(left))}")

    until(removed, _SECONDS, "the end of topics")


def _finish(requests: Any) -> None:
    for future in requests.values():
        future.result()


@contextmanager
def _source(settings: Settings) -> Iterator[psycopg.Connection | None]:
    """A session in the captured database: of the superuser if it is the platform's own. None if there is none."""
    if not settings.capture:
        yield None
    elif settings.source_host:
        with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=10) as connection:
            yield connection
    elif settings.source_database in _databases(settings):
        with admin(settings, settings.source_database) as connection:
            yield connection
    else:
        yield None


def _names(source: psycopg.Connection | None, query: str, settings: Settings) -> list[str]:
    if source is None:
        return []
    prefix = settings.names.in_postgresql("truelog_")
    return [name for (name,) in source.execute(query.encode(), (prefix,)).fetchall()]


def _remove_roles(settings: Settings, roles: list[str]) -> None:
    """Remove the roles, after their rights in the databases. What they own goes to the owner of the database."""
    owner = sql.Identifier(settings.database_user)
    for database in _databases(settings):
        with admin(settings, database) as connection:
            for each in map(sql.Identifier, roles):
                connection.execute(sql.SQL("REASSIGN OWNED BY {} TO {}").format(each, owner))
                connection.execute(sql.SQL("DROP OWNED BY {}").format(each))
    with admin(settings) as connection:
        for role in roles:
            try:
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
            except psycopg.errors.DependentObjectsStillExist as error:
                raise NotSetUp(f"{role} has rights elsewhere: {error.diag.message_detail}. Revoke them.") from error
