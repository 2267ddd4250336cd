"""Publishes rows again in a process of its own: `resend_process.py VIEW NUMBER`. Tests kill it.

The command itself needs Spark only to compile the view, which is declared here.
"""

import sys

from tests.library.relay.published import declared
from truelog.maintenance.resend import Wanted, last_records, repeat
from truelog.relay.view_feed import topic_of
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main(view: str, number: str) -> None:
    settings = Settings()
    published = last_records(settings, topic_of(view, 1))
    with connect(settings, autocommit=True) as connection:
        repeat(settings, connection, declared(view), Wanted(view, int(number)), published, doer="a test")


if __name__ == "__main__":
    main(*sys.argv[1:])
