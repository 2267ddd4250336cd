"""The beginning of an output while a lock of the view's table is held."""

from psycopg import sql

from tests.builders.outputs import deploy_and_settle
from tests.library.relay.published import Published, declared
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.tables import deploy


def test_merges_go_on_until_the_output_of_a_view_can_begin(platform: Settings, view: Published) -> None:
    """A view that begins to publish while vacuum works on its table."""
    deploy_and_settle(view.connection, declared(view.compiled.name, publish=False))
    with connect(platform) as vacuum:
        vacuum.execute(sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(view.state))
        assert not deploy.deploy_table(view.connection, view.compiled)
        view.change({"p1": "1"})
        assert view.outbox() == []
    deploy_and_settle(view.connection, view.compiled)
    view.change({"p2": "2"})
    assert [key for _, key, _ in view.outbox()] == ['{"product":"p1"}', '{"product":"p2"}']
