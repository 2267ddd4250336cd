"""When the rows of a view were last found equal to a rebuild."""

from datetime import datetime, timedelta

from tests.builders.comparisons import a_reconciliation
from tests.builders.views import a_view
from truelog.serving.status import serving_statuses
from truelog.storage.database import connect
from truelog.support.settings import Settings


def test_the_status_says_when_the_rows_were_last_proved(postgresql: Settings) -> None:
    """A later verdict leaves the time as it is, and so does a comparison of another version."""
    with connect(postgresql) as connection:

        def proved_at() -> datetime | None:
            return serving_statuses(connection)["proved"].proved_at

        a_view(connection, "proved")
        a_reconciliation(connection, "proved", "DIFFERENT", different=1)
        assert proved_at() is None
        a_reconciliation(connection, "proved", ago=timedelta(hours=1))
        equal = proved_at()
        assert equal is not None
        a_reconciliation(connection, "proved", version=2)
        a_reconciliation(connection, "proved", "DIFFERENT", different=1)
        assert proved_at() == equal
        connection.rollback()
