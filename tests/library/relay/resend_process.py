"""Publishes rows again in a process of its own: `resend_process.py VIEW NUMBER`. Tests kill it.

The command itself needs Spark only to compile the view, which is declared here.
"""

import sys

from tests.library.relay.published import declared
from truelog.exports.resend import Wanted, read_topic, repeat
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main(view: str, number: str) -> None:
    settings = Settings()
    with connect(settings, autocommit=True) as connection:
        published = read_topic(settings, connection, view, 1)
        repeat(settings, connection, declared(view), Wanted(view, int(number)), published, doer="a test")


if __name__ == "__main__":
    main(*sys.argv[1:])
