"""A database that lacks erasures of the log publishes and notifies nothing, until they are adopted and performed."""

import uuid

from tests.builders.erasures import forget_erasures, lacks, never_read
from tests.builders.outputs import deploy_and_settle
from tests.library.relay.published import Published, declared, deployed, publish_all
from truelog.control import event_registry
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import erasure_log, reading
from truelog.forgetting.forget import restore_ledger
from truelog.log.positions import Positions
from truelog.relay import view_outputs
from truelog.storage.database import Connection
from truelog.support.settings import Settings


def an_erasure_in_the_log(settings: Settings) -> Erasure:
    secret = secret_of(settings)
    ends = Positions({"page_view": {0: 0}}, {"page_view": "an-earlier-life"})
    subjects = frozenset({Subject.of(secret, "visitor_id", "ann")})
    made = Erasure(uuid.uuid4(), subjects, {"page_view": ("visitor_id",)}, ends, secret_check(secret))
    erasure_log.publish(settings, event_registry.confirmed_types(settings), made)
    return made


def published(view: Published) -> int:
    """How many rows of the view the relay publishes."""
    with view_outputs.open_outputs(view.settings) as outputs:
        return outputs.publish()


def test_a_restored_database_serves_nothing_before_its_erasures(platform: Settings, connection: Connection) -> None:
    view = deployed(platform, connection)
    version = view.compiled.name, 1
    publish_all(platform)
    erasure = an_erasure_in_the_log(platform)
    view.change({"ann": "1"})  # what the restored database still has
    assert reading.read_to_end(platform, connection) == 1
    assert version in hold.held_versions(connection)
    assert published(view) == 0

    assert restore_ledger(platform) == 1
    assert reading.read_to_end(platform, connection) == 0
    assert version in hold.held_versions(connection)  # until the view is without the person
    assert published(view) == 0

    for step in (each for each in Step if Step.PUBLISHED < each <= Step.VIEWS):
        ledger.finish(connection, erasure, step)
    assert version not in hold.held_versions(connection)
    publish_all(platform)
    view.require_read()
    deploy_and_settle(connection, declared(view.compiled.name, publish=False))


def test_the_topic_is_read_once_for_each_start_of_postgresql(platform: Settings, connection: Connection) -> None:
    forget_erasures(connection)
    an_erasure_in_the_log(platform)
    reading.read_once(platform)
    assert hold.lacking(connection) == 0  # it is known to be read
    never_read(connection)
    reading.read_once(platform)
    assert hold.lacking(connection) >= 1
    forget_erasures(connection)


def test_a_late_result_is_corrected(platform: Settings, connection: Connection) -> None:
    """A process that has counted before the erasures were adopted writes its result after that."""
    an_erasure_in_the_log(platform)
    assert restore_ledger(platform) >= 1
    lacks(connection, 3)
    reading.read_once(platform)
    assert hold.lacking(connection) == 0
    forget_erasures(connection)
