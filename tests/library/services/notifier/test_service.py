"""The notifier when PostgreSQL refuses what it does."""

from contextlib import ExitStack
from functools import partial

import pytest

from tests.library.services.standby import standby, wait_for_look, wait_for_refusal
from tests.meanwhile import meanwhile
from truelog.lag import notification_lag
from truelog.services.notifier import service
from truelog.storage.database import Connection
from truelog.support.settings import Settings


def test_it_goes_on_when_the_database_takes_writes_again(
    postgresql: Settings, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as running:
        with standby(connection):
            running.enter_context(meanwhile(partial(service.run, postgresql)))
            wait_for_refusal(caplog)
        wait_for_look(notification_lag.look_age, connection)
